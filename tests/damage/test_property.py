"""Whatever becomes of the bytes: an error of ours, or the right state. Never another exception, never another state."""

from __future__ import annotations

import asyncio
import random
import zlib
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapreplay.snapshots.errors import DamagedError, SnapreplayError, UnknownFormatError
from snapreplay.snapshots.format.changes import check_changes, split_changes
from snapreplay.snapshots.format.chunks import ChunkWriter, read_chunk
from snapreplay.snapshots.format.envelope import HEADER_BYTES, Kind, headers_for, open_envelope
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.snapshots.state.store import store_of
from tests.damage import memory
from tests.damage.edits import Slot, bombs, cuts, flips, from_the_future, of_kind, sealed
from tests.support import apps

HANG_SECONDS = 60.0
QUICK, THOROUGH = 80, 5000
INCREMENT = headers_for(Kind.INCREMENT)[0]
UNSHARED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHANGES = [*flips(), *cuts(), *bombs(), *from_the_future()]


def bytes_of(data: st.DataObject, value: bytes) -> bytes | None:
    """What damage makes of a value: a few bytes, a stretch of them, or one of the gallery's."""
    match data.draw(st.sampled_from(["bytes", "stretch", "insert", "gallery"]), label="damage"):
        case "bytes":
            damaged = bytearray(value)
            for _ in range(data.draw(st.integers(1, 8))):
                damaged[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
            return bytes(damaged)
        case "stretch":
            start = data.draw(st.integers(0, len(value)))
            length = data.draw(st.integers(0, 64))
            return value[:start] + data.draw(st.binary(max_size=64)) + value[start + length :]
        case "insert":
            return value + data.draw(st.binary(min_size=1, max_size=64))
        case _:
            how = data.draw(st.sampled_from(CHANGES))
            return how(value) if len(value) > HEADER_BYTES else b""


# ------------------------------------------------------------------------- into a store


@given(st.data())
@settings(UNSHARED, max_examples=QUICK)
def test_a_damaged_chunk_is_refused_or_is_the_chunk(data: st.DataObject) -> None:
    """Whoever reads it by its reference gets what was written, or DamagedError or UnknownFormatError."""
    value, ref, chunk = _written_chunk()
    damaged = bytes_of(data, value) or b""
    try:
        read = read_chunk(damaged, ref, "s", verify_sums=True)
    except (DamagedError, UnknownFormatError):
        return
    assert read == chunk


@given(st.data())
@settings(UNSHARED, max_examples=QUICK)
def test_a_chunk_that_its_reference_vouches_for_has_the_right_sums_or_is_refused(
    data: st.DataObject,
) -> None:
    """Even where size and checksum in the manifest are those of the damaged bytes: hashing finds it."""
    value, _, chunk = _written_chunk()
    _, body = open_envelope(value)
    fake = sealed(value, bytes_of(data, body) or b"", compression=0)
    ref = ChunkRef(0, 0, len(fake), zlib.crc32(fake))
    try:
        read = read_chunk(fake, ref, "s", verify_sums=True)
    except (DamagedError, UnknownFormatError):
        return
    entries = {k: v for part in read.slices for k, v in part.entries.items()}
    whole = {k: v for part in chunk.slices for k, v in part.entries.items()}
    assert entries.items() <= whole.items()


@given(st.data())
@settings(UNSHARED, max_examples=QUICK)
def test_damaged_changes_are_refused_before_any_is_applied(data: st.DataObject) -> None:
    """Several records: some damaged, left out, repeated or exchanged. All as written, or nothing at all."""
    changes = {f"k{n}".encode(): bytes(300) for n in range(20)}
    values, ref = split_changes(7, changes, record_bytes_max=1500)
    assert len(values) > 2
    order = data.draw(st.lists(st.sampled_from(range(len(values))), max_size=len(values) + 1))
    given_values = [values[number] for number in order] if data.draw(st.booleans()) else values[:]
    for number in range(len(given_values)):
        if data.draw(st.integers(0, 3)) == 0:
            given_values[number] = bytes_of(data, given_values[number]) or b""
    try:
        read = [stores["default"] for stores in check_changes(ref, given_values)]
    except (DamagedError, UnknownFormatError):
        return
    assert given_values == values
    assert {k: v for group in read for k, v in group.items()} == changes


@cache
def _written_chunk() -> tuple[bytes, ChunkRef, Any]:
    store: Any = store_of(apps.accounts())
    store.begin()
    for number in range(50):
        text = random.Random(number).randbytes(40).hex()
        store.view[f"k{number}"] = {"n": number, "sum": number, "text": text}
    store.stage()
    store.seal()
    store.merge()
    (value,) = ChunkWriter("s").encode(store.mark().next_slices(1_000_000))
    ref = ChunkRef(0, 0, len(value), zlib.crc32(value))
    return value, ref, read_chunk(value, ref, "s")


# ------------------------------------------------------------------------- the whole recovery


@pytest.fixture(scope="module")
def worlds() -> list[memory.World]:
    """Preferring changes, preferring replay, without changes."""
    making = (memory.world(), memory.world(road="replay"), memory.world(changes=False))
    return [asyncio.run(each) for each in making]


def recover(world: memory.World) -> memory.Outcome:
    """Anything but an error of ours is raised, a hang too."""

    async def bounded() -> memory.Outcome:
        async with asyncio.timeout(HANG_SECONDS):
            return await memory.recovered(world)

    return asyncio.run(bounded())


def assert_declared_or_right(world: memory.World, outcome: memory.Outcome) -> None:
    """The property."""
    if outcome.error is not None:
        assert isinstance(outcome.error, SnapreplayError)
        assert outcome.error.message
        return
    assert outcome.entries == world.entries
    assert outcome.last == world.last
    assert outcome.restore.proof
    assert outcome.restore.proof.equal


def damaged_example(worlds: list[memory.World], data: st.DataObject) -> None:
    """One to four records anywhere in both topics: damaged, gone, foreign, exchanged."""
    world = data.draw(st.sampled_from(worlds)).copy()
    for _ in range(data.draw(st.integers(1, 4), label="records")):
        topic = data.draw(st.sampled_from(["memory-increments", "memory-snapshots"]))
        slots = world.cluster.slots(topic)
        _damage(data, slots)
        world.cluster.rewrite(topic, slots)
    assert_declared_or_right(world, recover(world))


@given(data=st.data())
@settings(UNSHARED, max_examples=QUICK)
def test_a_recovery_from_damaged_topics_is_right_or_fails(worlds, data: st.DataObject) -> None:
    """What recovers is the last committed state, whole."""
    damaged_example(worlds, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(data=st.data())
@settings(UNSHARED, max_examples=THOROUGH)
def test_many_recoveries_from_damaged_topics_are_right_or_fail(worlds, data) -> None:
    """The same, for the night."""
    damaged_example(worlds, data)


def _damage(data: st.DataObject, slots: list[Slot]) -> None:
    """The last increment may be damaged, never hidden: a log that simply ends earlier is another subject."""
    last = max(slots, key=lambda slot: slot.offset if INCREMENT in slot.headers else -1)
    slot = data.draw(st.sampled_from(slots))
    match data.draw(st.sampled_from(["bytes", "bytes", "gone", "foreign", "exchange"])):
        case "gone" if slot is not last:
            slots.remove(slot)
        case "foreign" if slot is not last:
            slot.value, slot.headers = b"hello", ()
        case "exchange":
            other = data.draw(st.sampled_from(slots))
            pair: list[bytes | None] = [other.value, slot.value]
            slot.value, other.value = pair
        case _:
            slot.value = bytes_of(data, slot.value or bytes(HEADER_BYTES + 1))


def forged_example(worlds: list[memory.World], data: st.DataObject) -> None:
    """One field with another value behind a right checksum, in any record but the last increment, which is what all
    others are held against."""
    world = data.draw(st.sampled_from(worlds)).copy()
    topic = data.draw(st.sampled_from(["memory-increments", "memory-snapshots"]))
    slots = world.cluster.slots(topic)
    last = of_kind(slots, Kind.INCREMENT)[-1:]
    slot = data.draw(st.sampled_from([each for each in slots if each not in last]))
    slot.value = _forged(data, slot.value or b"")
    world.cluster.rewrite(topic, slots)
    assert_declared_or_right(world, recover(world))


@given(data=st.data())
@settings(UNSHARED, max_examples=QUICK)
def test_a_recovery_from_forged_records_is_right_or_fails(worlds, data: st.DataObject) -> None:
    """Whatever an intact record says, the digest decides."""
    forged_example(worlds, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(data=st.data())
@settings(UNSHARED, max_examples=THOROUGH)
def test_many_recoveries_from_forged_records_are_right_or_fail(worlds, data) -> None:
    """The same, for the night."""
    forged_example(worlds, data)


def _forged(data: st.DataObject, value: bytes) -> bytes:
    body = msgspec.msgpack.decode(open_envelope(value).body)
    _change_one(data, body)
    return sealed(value, msgspec.msgpack.encode(body), compression=0)


def _change_one(data: st.DataObject, node: Any) -> None:
    """One value somewhere in the tree becomes another one, of the same type or not."""
    places = list(node) if isinstance(node, dict) else list(range(len(node)))
    place = data.draw(st.sampled_from(places), label="field")
    child = node[place]
    if isinstance(child, dict | list) and child and data.draw(st.booleans()):
        _change_one(data, child)
        return
    same = {
        int: st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 30),
        str: st.text(max_size=8),
        bytes: st.binary(max_size=8),
    }
    other: st.SearchStrategy[Any] = (
        st.none() | st.booleans() | st.integers(-3, 3) | st.just([]) | st.just({})
    )
    node[place] = data.draw(same.get(type(child), other) | other)
