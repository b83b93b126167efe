"""Tests that, for any change of the bytes, there is one of our errors, or the right state. Never another exception,
never another state.

An example is a seed: what it does is drawn by a `Random` of its own, so that a failure is found again by its number.
"""

import random
import zlib
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapreplay.errors import DamagedError, SnapreplayError, UnknownFormatError
from snapreplay.snapshots.format.chunks import ChunkWriter, open_chunk, reading_back
from snapreplay.snapshots.format.envelope import HEADER_BYTES, RecordKind, enveloped, headers_for, open_envelope
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.damage import memory
from tests.damage.edits import Slot, bombs, cuts, flips, from_the_future, of_kind
from tests.damage.memory import OWN, World
from tests.support import apps
from tests.support.entries import entries_of, read_chunk, rewrapped

QUICK = 40
INCREMENT = headers_for(RecordKind.INCREMENT)[0]
GALLERY = [*flips(), *cuts(), *bombs(), *from_the_future()]
SEEDS = st.integers(0, 2**32)

quick = settings(max_examples=QUICK, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def damaged(draw: random.Random, value: bytes) -> bytes | None:
    """Return what damage makes of a value: a few bytes, a stretch of them, more of them, or one of the gallery's."""
    match draw.choice(["bytes", "stretch", "longer", "gallery"]):
        case "bytes" if value:
            changed = bytearray(value)
            for _ in range(draw.randint(1, 8)):
                changed[draw.randrange(len(value))] = draw.randrange(256)
            return bytes(changed)
        case "stretch":
            start, length = draw.randint(0, len(value)), draw.randint(0, 64)
            return value[:start] + draw.randbytes(draw.randint(0, 64)) + value[start + length :]
        case "gallery" if len(value) > HEADER_BYTES:
            return draw.choice(GALLERY)(value)
        case _:
            return value + draw.randbytes(draw.randint(1, 64))


# ------------------------------------------------------------------------- into a store


@cache
def written_chunk() -> tuple[bytes, Any]:
    """A chunk of 50 entries as the topic has it, and as it is read."""
    store: Any = store_of(apps.accounts())
    store.begin()
    for number in range(50):
        text = random.Random(number).randbytes(40).hex()
        store.view[f"k{number}"] = {"n": number, "sum": number, "text": text}
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    body = all_of(ChunkWriter("s").packing(all_of(store.mark().slicing(1_000_000))))
    value = enveloped(RecordKind.CHUNK, body, compress=True)
    ref = ChunkRef(0, 0, len(value), zlib.crc32(value))
    return value, read_chunk(value, ref, "s")


@given(SEEDS)
@quick
def test_a_damaged_chunk_that_its_reference_vouches_for_is_found_by_hashing(seed: int) -> None:
    """Size and checksums are those of the damaged bytes: what is read has no entry that was not written."""
    value, chunk = written_chunk()
    body = damaged(random.Random(seed), open_envelope(value).body) or b""
    fake = rewrapped(value, body, compression=0)
    ref = ChunkRef(0, 0, len(fake), zlib.crc32(fake))
    try:
        read = read_chunk(fake, ref, "s", verify_sums=True)
    except (DamagedError, UnknownFormatError):
        with pytest.raises((DamagedError, UnknownFormatError)):
            all_of(reading_back(open_chunk(fake, ref, "s"), ref, "s"))
        return
    assert entries_of(read).items() <= entries_of(chunk).items()
    _, sums = all_of(reading_back(open_chunk(fake, ref, "s"), ref, "s"))
    assert sums.count == sum(len(part.entries) for part in read.slices)


# ------------------------------------------------------------------------- the whole recovery


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    """Preferring changes, preferring replay, without changes."""
    return [memory.world(), memory.world(mode="replay"), memory.world(changes=False)]


def assert_declared_or_right(world: World) -> None:
    """The property. Anything but one of our errors is raised, a hang too."""
    outcome = memory.recovered(world)
    if outcome.error is not None:
        assert isinstance(outcome.error, SnapreplayError)
        assert outcome.error.message
        return
    assert outcome.entries == world.entries
    assert outcome.last == world.last
    assert outcome.restore.proof is not None
    assert outcome.restore.proof.equal


def from_damaged_topics(worlds: list[World], seed: int) -> None:
    """One to four records anywhere in both topics: damaged, gone, foreign, exchanged."""
    draw = random.Random(seed)
    world = draw.choice(worlds).copy()
    newest = _last_of(world.slots("memory-increments")).value
    for _ in range(draw.randint(1, 4)):
        topic = draw.choice(OWN)
        slots = world.slots(topic)
        _damage(draw, slots, newest)
        world.rewrite(topic, slots)
    assert_declared_or_right(world)


def _last_of(slots: list[Slot]) -> Slot:
    return max(slots, key=lambda slot: slot.offset if INCREMENT in slot.headers else -1)


def _damage(draw: random.Random, slots: list[Slot], newest: bytes | None) -> None:
    """The last increment may be damaged or out of its place, not both gone from there and its traces moved: a log that
    ends earlier, as far as one can see, is another subject."""
    last = _last_of(slots)
    slot = draw.choice(slots)
    displaced = last.value != newest and _is_intact(last.value)
    match draw.choice(["bytes", "bytes", "gone", "foreign", "exchange"]):
        case "gone" if slot is not last and not displaced:
            slots.remove(slot)
        case "foreign" if slot is not last and not displaced:
            slot.value, slot.headers = b"hello", ()
        case "exchange" if not displaced:
            other = draw.choice(slots)
            pair: list[bytes | None] = [other.value, slot.value]
            slot.value, other.value = pair
        case _:
            slot.value = damaged(draw, slot.value or b"")


def _is_intact(value: bytes | None) -> bool:
    try:
        open_envelope(value or b"")
    except (DamagedError, UnknownFormatError):
        return False
    return True


def from_forged_records(worlds: list[World], seed: int) -> None:
    """One field with another value behind a right checksum, in any record but the last increment, which is what all
    others are held against."""
    draw = random.Random(seed)
    world = draw.choice(worlds).copy()
    topic = draw.choice(OWN)
    slots = world.slots(topic)
    last = of_kind(slots, RecordKind.INCREMENT)[-1:]
    slot = draw.choice([each for each in slots if each not in last])
    value = slot.value or b""
    body = msgspec.msgpack.decode(open_envelope(value).body)
    _change_one(draw, body)
    slot.value = rewrapped(value, msgspec.msgpack.encode(body), compression=0)
    world.rewrite(topic, slots)
    assert_declared_or_right(world)


def _change_one(draw: random.Random, node: Any) -> None:
    """One value somewhere in the tree becomes another one, of the same type or not."""
    place = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
    child = node[place]
    if isinstance(child, dict | list) and child and draw.random() < 0.7:
        return _change_one(draw, child)
    numbers = [draw.randint(-3, 30), draw.randint(-(2**63), 2**63 - 1), 2**64 - 1, -1, 0, 1]
    others = [*numbers, None, True, "text", b"bytes", [], {}, [0], {"default": 1}]
    node[place] = draw.choice(numbers if isinstance(child, int) and draw.random() < 0.7 else others)
    return None


@given(seed=SEEDS)
@quick
def test_a_recovery_from_damaged_topics_is_right_or_fails(worlds: list[World], seed: int) -> None:
    """What recovers is the last committed state, whole."""
    from_damaged_topics(worlds, seed)


@given(seed=SEEDS)
@quick
def test_a_recovery_from_forged_records_is_right_or_fails(worlds: list[World], seed: int) -> None:
    """For any content of an intact record, the digest decides."""
    from_forged_records(worlds, seed)
