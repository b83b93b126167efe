"""The compiled engine and the client's parser read the same out of the same bytes: records, positions and errors."""

import gzip
import random
import struct
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from aiokafka.errors import KafkaError
from aiokafka.record.util import calc_crc32c

from snapreplay import engine
from snapreplay.app.record import RawRecord
from snapreplay.service.kafka import records as parsers
from snapreplay.service.kafka.records import Records, heads_in
from snapreplay.service.ports import TopicPartition
from tests.support import foreign_records
from tests.support.engines import needs_engine, with_engine
from tests.support.foreign_records import Foreign
from tests.support.record_batches import ABORT, AT_MS, COMMIT, TRANSACTIONAL, batch, emptied_marker, marker, message

__all__ = ["with_engine"]
pytestmark = [needs_engine, pytest.mark.usefixtures("with_engine")]

SOURCE = TopicPartition("in", 3)
CODECS = {0: None, 1: gzip.compress, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
LOG_APPEND_TIME = 0x08
HEADERS: list[list[tuple[bytes, bytes | None]]] = [[], [], [(b"n", b"1"), (b"", None)], [(b"\xff", b"")]]


def read(
    data: bytes, aborted: Sequence[tuple[int, int]], start: int, takes: random.Random, *, read_committed: bool
) -> list[Any]:
    """Return everything that a reader of this fetch sees: records, positions, and the error that ends it."""
    seen: list[Any] = []
    records = Records(SOURCE, data, aborted, start, read_committed=read_committed)
    try:
        while not records.is_over:
            seen += records.take(takes.choice((1, 2, 7, 5000)))
            seen.append(records.position)
        assert records.position == records.next_offset
    except KafkaError as error:  # nothing else: whichever it is, both must raise it
        seen.append(type(error))  # its text has places in memory, also of what lies behind the fetch
        with pytest.raises(type(error)):
            records.take(1)
    return seen


def log_of(
    chance: random.Random, headers: int, *kinds: str
) -> tuple[bytes, list[tuple[int, int]], int, list[int], list[int]]:
    """Return the batches of a log with everything in it, its aborted transactions, a place in its first batch, and the
    offsets of the committed records and of all."""
    data, offset, aborted, start = b"", chance.choice((0, 5)), [], -1
    committed, every = list[int](), list[int]()
    for _ in range(chance.randrange(1, 7)):
        count, producer = chance.randrange(1, 5), chance.choice((1, 2))
        kind = chance.choice(("plain", "plain", "foreign", "foreign", "commit", "abort", "emptied", "gaps", *kinds))
        kept = [(at, b"k%d" % at, None if at % 5 == 0 else b"v" * at) for at in range(offset, offset + count)]
        last = offset + count - 1
        there = [at for at, _, _ in kept]
        if kind == "plain":
            data += batch(offset, last, kept)
        elif kind == "foreign":
            data += foreign(chance, offset, count, HEADERS[:headers])
        elif kind == "gaps":
            data += batch(offset, last + 3, kept[::2])
            last, there = last + 3, there[::2]
        elif kind == "old" and not data:
            data += message(offset, b"k", b"old", 1)
            last, there = offset, [offset]
        else:
            data += batch(offset, last, kept, attributes=TRANSACTIONAL, producer_id=producer)
            last += 1
            if kind == "emptied":
                data += emptied_marker(last, producer_id=producer)
            else:
                data += marker(last, COMMIT if kind == "commit" else ABORT, producer_id=producer)
            if kind == "abort":
                aborted.append((producer, offset))
        every += there
        committed += there if kind != "abort" else []
        start = chance.randint(offset, last) if start < 0 else start
        offset = last + 1 + chance.choice((0, 0, 3))
    return data, aborted, start, committed, every


def foreign(chance: random.Random, offset: int, count: int, headers: Sequence[Any]) -> bytes:
    codec = chance.choice((*CODECS, 5))
    records = [Foreign(AT_MS + n, chance.choice((None, b"", b"k")), b"v", chance.choice(headers)) for n in range(count)]
    made = foreign_records.batch(records, codec | chance.choice((0, LOG_APPEND_TIME)), CODECS.get(codec))
    return struct.pack(">q", offset) + made[8:]


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return it with a few bytes changed, cut off or put in; most of the time with the checksums of what it is now.

    All batches stay of format 2: given anything else as format 0, the client's parser reads what lies in memory."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        match chance.randrange(8):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 2:
                del changed[at : at + chance.randrange(1, 9)]
            case _:
                changed[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if not changed:
            break
    at, is_summed = 0, chance.random() < 0.8
    while at + 17 <= len(changed):
        changed[at + 16] = changed[at + 16] if 2 <= changed[at + 16] < 0x80 else 2
        end = at + 12 + int.from_bytes(changed[at + 8 : at + 12], "big", signed=True)
        if is_summed and end >= at + 21:
            changed[at + 17 : at + 21] = calc_crc32c(bytes(changed[at + 21 : end])).to_bytes(4, "big")
        at = max(end, at + 17)
    return bytes(changed)


def same(seed: int, data: bytes, aborted: list[tuple[int, int]], start: int, monkeypatch: Any) -> list[Any]:
    by_client: list[Any] = []
    for read_committed in (True, False):
        with monkeypatch.context() as without:
            without.setattr(engine, "compiled", None)
            by_client = read(data, aborted, start, random.Random(seed), read_committed=read_committed)
        by_engine = read(data, aborted, start, random.Random(seed), read_committed=read_committed)
        assert by_engine == by_client, (seed, read_committed, data)
    return by_client


@pytest.mark.parametrize("lot", [2, 2048])
def test_all_that_a_log_may_hold(lot, monkeypatch):
    monkeypatch.setattr(parsers, "LOT_RECORDS", lot)
    for seed in range(400):
        chance = random.Random(seed)
        data, aborted, start, *expected = log_of(chance, 4, "old")
        data = data[: chance.choice((len(data), len(data), len(data) - 20))]
        same(seed, data, aborted, start, monkeypatch)
        for offsets, read_committed in zip(expected, (True, False), strict=True):
            seen = read(data, aborted, start, random.Random(seed), read_committed=read_committed)
            found = [each.offset for each in seen if hasattr(each, "offset")]
            wanted = [at for at in offsets if at >= start]
            assert found == wanted[: len(found)], (seed, read_committed)
            ends_at = max((each.ends_at for each in heads_in(data)[0]), default=0)
            is_whole = ends_at == len(data) and not isinstance(seen[-1], type)
            assert not is_whole or found == wanted, (seed, read_committed)


def test_damaged_batches(monkeypatch):
    """Each one is read, or refused, as the client does it; no damage reaches another batch, or ends the process. Names
    that are not UTF-8 are left out: to read those, offsets must rise."""
    ends = []
    for seed in range(1500):
        chance = random.Random(seed)
        data, aborted, start, *_ = log_of(chance, 3)
        ends += same(seed, damaged(chance, data), aborted, start, monkeypatch)[-1:]
    assert 300 < sum(isinstance(end, type) for end in ends) < 1400  # errors; the others end with a position


def test_what_is_plain_is_made_by_the_engine(monkeypatch):
    """Not by the client's parser, which is there for the rest: else the tests above would compare it with itself."""
    monkeypatch.setattr(Records, "_by_client", None)
    plain = batch(0, 1, [(0, b"k", b"0"), (1, None, None)])
    for data in (plain, foreign_records.batch([Foreign(1, b"k", b"v", [(b"n", None)])], 3, lz4_encode)):
        assert len(read(data, [], 0, random.Random(1), read_committed=True)) > 1


@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_a_large_value_does_not_keep_its_fetch_in_memory(key):
    """A snapshot is loaded from few and large ones."""
    assert engine.compiled is not None
    value = bytes(16 * 1024)
    data = foreign_records.batch([Foreign(9, key, value)])
    users = sys.getrefcount(data)
    place = (foreign_records.HEAD_BYTES, len(data), 1, 7, 9, None, "in", 3, 0)
    read = engine.compiled.records(data, *place)
    assert read == ([RawRecord("in", 3, 7, 9, key, value)], len(data))
    assert sys.getrefcount(data) == users
