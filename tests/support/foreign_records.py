"""Record batches that no client of Python makes, and the request that writes them: header names that are not UTF-8, any
timestamp, the empty batches of a cleaner."""

import socket
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiokafka.record.util import calc_crc32c

TRANSACTIONAL, CONTROL = 0x10, 0x20
HEAD_BYTES = 61
"""Before the records of a batch."""


class Foreign(NamedTuple):
    """A record as a foreign program writes it."""

    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def batch(records: Sequence[Foreign], attributes: int = 0, packed: Callable[[bytes], bytes] | None = None) -> bytes:
    """Return a batch of format 2. `packed`: compresses its records, as the codec in `attributes` does."""
    first_ms, body = records[0].timestamp_ms, b""
    for number, (at_ms, key, value, headers) in enumerate(records):
        record = b"\0" + _varint(at_ms - first_ms) + _varint(number) + _data(key) + _data(value)
        record += _varint(len(headers)) + b"".join(_data(name) + _data(data) for name, data in headers)
        body += _varint(len(record)) + record
    if packed is not None:
        body = packed(body)
    largest_ms = max(each.timestamp_ms for each in records)
    last, count = len(records) - 1, len(records)
    checked = struct.pack(">hiqqqhii", attributes, last, first_ms, largest_ms, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, calc_crc32c(checked)) + checked


def produce(bootstrap_servers: str, topic: str, partition: int, data: bytes) -> int:
    """Write these record batches; return their offset."""
    host, _, port = bootstrap_servers.rpartition(":")
    name = struct.pack(">h", len(topic)) + topic.encode()
    head = struct.pack(">hhih", 0, 7, 1, -1)  # Produce version 7, without a client id
    # No transaction, acknowledged by all replicas.
    body = struct.pack(">hhii", -1, -1, 10_000, 1) + name + struct.pack(">iii", 1, partition, len(data)) + data
    request = head + body
    with socket.create_connection((host, int(port)), 30) as wire:
        wire.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(wire, 4))
        answer = _exactly(wire, size)
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 4 + len(name) + 4)
    assert error == 0, error
    return int(offset)


def _exactly(wire: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = wire.recv(size - len(found))
        assert part, "the broker closed the connection"
        found += part
    return found


def _varint(number: int) -> bytes:
    number, found = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1), b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def _data(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data
