"""Record batches byte by byte: those that no client writes and that a log may hold all the same, and a real broker's
log made of them."""

import struct
from binascii import crc32
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiokafka.record.util import calc_crc32c, encode_varint

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.ports import TopicPartition
from tests.support.waiting import eventually

TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
"""Keys of markers: version, then type."""
AT_MS = 1_700_000_000_000
NO_PRODUCER = -1

Rec = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def batch(
    first_offset: int,
    last_offset: int,
    records: Sequence[Rec] = (),
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """Make a batch of format 2. It may hold fewer records than offsets, or none: what the cleaner leaves of one."""
    body = bytearray()
    for offset, key, value in records:
        body += _framed(b"\0" + _varint(0) + _varint(offset - first_offset) + _bytes(key) + _bytes(value) + _varint(0))
    sequence = 0 if producer_id >= 0 and not attributes & CONTROL else -1
    times = (AT_MS, AT_MS if records else -1)
    head = (attributes, last_offset - first_offset, *times, producer_id, producer_epoch, sequence, len(records))
    summed = struct.pack(">hiqqqhii", *head) + body
    return struct.pack(">qiibI", first_offset, 9 + len(summed), leader_epoch, 2, calc_crc32c(summed)) + summed


def marker(offset: int, key: bytes, *, producer_id: int, producer_epoch: int = 0) -> bytes:
    """Make the control batch that ends a transaction."""
    attributes = TRANSACTIONAL | CONTROL
    record = (offset, key, bytes(6))
    return batch(
        offset, offset, [record], attributes=attributes, producer_id=producer_id, producer_epoch=producer_epoch
    )


def emptied_marker(offset: int, *, producer_id: int, producer_epoch: int = 0) -> bytes:
    """Make what the cleaner leaves of a marker that is the last batch of its producer."""
    attributes = TRANSACTIONAL | CONTROL
    return batch(offset, offset, attributes=attributes, producer_id=producer_id, producer_epoch=producer_epoch)


def message(offset: int, key: bytes | None, value: bytes | None, record_format: int) -> bytes:
    """Make a message of format 0 (Kafka 0.7) or 1 (0.10), alone in its batch."""
    body = struct.pack(">bb", record_format, 0)
    body += struct.pack(">q", AT_MS) if record_format else b""
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, 4 + len(body), crc32(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    encode_varint(value, out.append)
    return bytes(out)


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _framed(value)


def _framed(value: bytes) -> bytes:
    return _varint(len(value)) + value


def write_logs(broker: LocalBroker, data_dir: Path, logs: Mapping[TopicPartition, bytes]) -> None:
    """Give each partition this log: the broker is killed, and rebuilds everything else when it starts again."""

    def folders() -> list[Path]:
        """Those that are complete: a broker gives up one without this file, which it writes last."""
        return [path.parent for source in logs for path in data_dir.rglob(f"{source}/partition.metadata")]

    eventually(lambda: len(folders()) == len(logs), "every partition has its folder")
    broker.kill()
    for folder, content in zip(folders(), logs.values(), strict=True):
        for each in folder.iterdir():
            if each.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
                each.unlink()
        (folder / f"{0:020}.log").write_bytes(content)
    broker.restart()
