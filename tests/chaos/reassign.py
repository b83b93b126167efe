"""AlterPartitionReassignments (key 45, version 0), which confluent-kafka's admin client does not have.

The same replicas in another order of preference: nothing is copied, and the next preferred election moves the leader.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence

KEY, VERSION, CORRELATION_ID = 45, 0, 7
ANSWER_S = 10.0


class Refused(Exception):
    """The cluster did not accept it; the error codes."""


def reassign(bootstrap_servers: str, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
    """Give partitions these replicas, the preferred leader first.

    Raises:
        OSError: no broker answers.
        Refused: the cluster said no.
    """
    errors: list[OSError] = []
    for server in bootstrap_servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            answer = _ask(host, int(port), request(topic, replicas))
        except OSError as error:
            errors.append(error)
            continue
        code = error_code(answer)
        if code:
            raise Refused(f"reassigning {topic}: error {code}")
        return
    raise OSError(f"no broker took the reassignment: {errors}")


def request(topic: str, replicas: Mapping[int, Sequence[int]]) -> bytes:
    """Header version 2 and body, in Kafka's flexible encoding (lengths + 1, empty tag sections)."""
    name = topic.encode()
    header = struct.pack(">hhih", KEY, VERSION, CORRELATION_ID, 5) + b"chaos" + b"\0"
    partitions = b"".join(
        struct.pack(">i", number)
        + _varint(len(nodes) + 1)
        + struct.pack(f">{len(nodes)}i", *nodes)
        + b"\0"
        for number, nodes in replicas.items()
    )
    body = struct.pack(">i", int(ANSWER_S * 1000)) + _varint(2) + _varint(len(name) + 1) + name
    return header + body + _varint(len(replicas) + 1) + partitions + b"\0" + b"\0"


def error_code(answer: bytes) -> int:
    """The first error in an answer; 0 when there is none. Each partition's own code counts too."""
    # correlation id, tags, throttle time, error code, error message (compact nullable string)
    (code,) = struct.unpack(">h", answer[9:11])
    if code:
        return int(code)
    at = 11
    length, at = _read_varint(answer, at)
    at += max(0, length - 1)
    topics, at = _read_varint(answer, at)
    for _ in range(topics - 1):
        length, at = _read_varint(answer, at)
        at += length - 1
        count, at = _read_varint(answer, at)
        for _ in range(count - 1):
            (code,) = struct.unpack(">h", answer[at + 4 : at + 6])
            if code:
                return int(code)
            length, at = _read_varint(answer, at + 6)
            at += max(0, length - 1) + 1  # and the partition's tags
        at += 1  # the topic's tags
    return 0


def _ask(host: str, port: int, frame: bytes) -> bytes:
    with contextlib.closing(socket.create_connection((host, port), ANSWER_S)) as connection:
        connection.settimeout(ANSWER_S)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", _exactly(connection, 4))[0]
        return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        received += piece
    return received


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
