"""The committed entries."""

import resource
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import msgpack

from snapreplay import engine
from snapreplay.app.record import RawRecord
from snapreplay.errors import DamagedError
from snapreplay.state import shards as shards_module
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import digest_of
from snapreplay.state.shards import Shards, Slot, Slots
from snapreplay.state.steps import all_of
from tests.support.engines import compiled, each_engine, needs_engine, own_records

__all__ = ["each_engine"]
pytestmark = pytest.mark.usefixtures("each_engine")

KEYS = st.binary(max_size=2)
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=4), max_size=12)


def begin(shards: Shards, changes: dict[bytes, bytes | None]) -> None:
    """A batch that is neither kept nor undone."""
    indexes = {key: crc32(key) & shards.mask for key in changes}
    places: Slots = [] if engine.compiled is None else engine.compiled.Places()
    places.extend((key, shards.lookups[index](key), index) for key, index in indexes.items())
    all_of(shards.writing(places, dict(changes)))


def write(shards: Shards, changes: dict[bytes, bytes | None]) -> None:
    """A committed batch."""
    begin(shards, changes)
    shards.keep()


def content(shards: Shards) -> dict[bytes, bytes | None]:
    """All entries, each looked up as the hot path does."""
    return {key: shards.lookups[crc32(key) & shards.mask](key) for key in shards}


@example({"", "ä" * 15, "a" * 31, "a" * 32, "a" * 255, "a" * 256, "a" * 65_535, "a" * 65_536}, True)
@example({"", "a" * 255, "a" * 256, "a" * 65_535, "a" * 65_536}, False)
@given(st.sets(st.text(max_size=40), max_size=30), st.booleans())
def test_each_expected_key_is_found(keys: set[str], are_texts: bool) -> None:
    """By its encoding, in its shard; so it is where the look-up reads. Nothing changes, and Python expects nothing."""
    records = [RawRecord("t", 0, 0, 0, key, None) for key in (None, *(key.encode() for key in keys))]
    shards = Shards(8)
    assert shards.prefetch(records, are_texts=are_texts) == 0
    entries = {msgpack.encode(key if are_texts else key.encode()): b"v" for key in keys}
    shards.apply(entries)
    assert shards.prefetch(records, are_texts=are_texts) == (0 if engine.compiled is None else len(keys))
    if engine.compiled is not None:
        assert shards.prefetch(own_records(records), are_texts=are_texts) == len(keys)
    assert content(shards) == entries
    assert Shards(8, compact=False).prefetch(records, are_texts=are_texts) == 0


STEPS = st.lists(st.one_of(CHANGES, st.sampled_from(["mark", "read", "release", "reset"])), max_size=25)


@example(["mark", {b"a": b"1"}, "reset", {b"b": b"2"}], 1, 40, 5, False)
@example(["mark", {b"a": b"1"}, "release", "reset", {b"b": b"2"}], 1, 40, 0, False)
@example(["mark", {b"a": b"1", b"b": b"1"}, "release", "mark", "release"], 8, 40, 1, False)
@example([{b"a": b"1", b"b": b"1"}, {b"a": b"2", b"b": None, b"c": None}, {b"a": b"2"}], 1, 40, 1, True)
@given(STEPS, st.sampled_from([1, 2, 8]), st.integers(1, 40), st.integers(1, 5), st.booleans())
def test_writing_during_a_snapshot_does_not_change_its_image(
    steps: list[dict[bytes, bytes | None] | str], shard_count: int, raw_bytes: int, settle: int, is_recovery: bool
) -> None:
    """Marks, reads, writes, releases and resets in any order; and no write is lost by the snapshot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards_module, "SETTLE_ENTRIES", settle)
        shards, cursor = Shards(shard_count), None
        model: dict[bytes, bytes] = {}
        image: dict[bytes, bytes] = {}
        read: dict[bytes, bytes] = {}
        for step in steps:
            if isinstance(step, dict):
                shards.apply(step) if is_recovery else write(shards, step)
                model = {k: v for k, v in (model | step).items() if v is not None}
            elif step == "mark" and cursor is None:
                cursor, image, read = shards.mark(), dict(model), {}
            elif step == "read" and cursor is not None:
                for part in all_of(cursor.slicing(raw_bytes)):
                    read |= part.entries
            elif step == "reset":
                shards.reset(shard_count)
                model, cursor = {}, None
            elif step == "release" and cursor is not None:
                while slices := all_of(cursor.slicing(raw_bytes)):
                    for part in slices:
                        read |= part.entries
                assert read == image
                cursor.release()
                cursor = None
            assert content(shards) == model
            assert shards.digest == digest_of(model.items())
            assert shards.size_bytes == sum(len(k) + len(v) for k, v in model.items())


@given(STEPS, CHANGES, st.sampled_from([1, 2, 8]))
@example([{b"a": b"1"}, {}], {b"a": b"2", b"b": b"1"}, 1)
def test_a_batch_that_is_undone_never_was(
    steps: list[dict[bytes, bytes | None] | str], dropped: dict[bytes, bytes | None], shard_count: int
) -> None:
    """Before, during and after a snapshot; and who looks from outside does not see it at any time."""
    shards, cursor = Shards(shard_count), None
    for step in steps:
        if step == "mark" and cursor is None:
            cursor = shards.mark()
        before = content(shards), shards.digest, shards.size_bytes
        begin(shards, dropped)
        if step == "release" and cursor is not None:
            cursor.release()
            cursor = None
        assert shards.committed_digest == before[1]
        assert {k: shards.committed_value(k) for k in shards.committed_keys()} == before[0]
        assert all((shards.committed_value(k) is None) == (k not in before[0]) for k in dropped)
        shards.undo()
        assert (content(shards), shards.digest, shards.size_bytes) == before
        if isinstance(step, dict):
            write(shards, step)


def test_a_batch_that_is_half_written_is_not_shown_and_can_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first step on."""
    monkeypatch.setattr(shards_module, "BLOCK", 1)
    shards = Shards(1)
    write(shards, {b"a": b"1"})
    before = content(shards), shards.digest, shards.size_bytes
    next(shards.writing([(b"a", b"1", 0), (b"b", None, 0)], {b"a": b"2", b"b": b"2"}))
    assert shards.committed_digest == before[1]
    assert {key: shards.committed_value(key) for key in shards.committed_keys()} == before[0]
    shards.undo()
    assert (content(shards), shards.digest, shards.size_bytes) == before


def test_one_batch_waits_at_a_time() -> None:
    """And nothing is marked meanwhile: its image would hold what may never be committed."""
    shards = Shards(2)
    begin(shards, {b"a": b"1"})
    with pytest.raises(RuntimeError, match="keep or undo"):
        begin(shards, {b"b": b"1"})
    with pytest.raises(RuntimeError, match="committed batches only"):
        shards.mark()


def test_only_one_cursor_at_a_time() -> None:
    """Until it is released, which may be said twice."""
    shards = Shards(2)
    cursor = shards.mark()
    with pytest.raises(RuntimeError, match="release"):
        shards.mark()
    cursor.release()
    cursor.release()
    shards.mark()


def test_a_snapshot_folds_in_bounded_steps() -> None:
    """Not all at once after the release: that would stop the processing."""
    shards = Shards(64)
    count = 3 * shards_module.SETTLE_ENTRIES
    write(shards, {b"%d" % i: b"old" for i in range(count)})
    cursor = shards.mark()
    write(shards, {b"%d" % i: b"new" for i in range(count)})
    cursor.release()
    unsettled = [len(shards.unsettled)]
    while shards.unsettled:
        write(shards, {b"x": b"%d" % len(unsettled)})
        unsettled.append(len(shards.unsettled))
    assert 64 > unsettled[0] > unsettled[1] > unsettled[-1] == 0
    assert set(content(shards).values()) == {b"new", b"%d" % (len(unsettled) - 1)}


def test_what_is_left_to_fold_can_be_done_without_batches() -> None:
    """In bounded steps too, so that the next mark has nothing to do; also while a batch waits."""
    shards = Shards(64)
    count = 3 * shards_module.SETTLE_ENTRIES
    write(shards, {b"%d" % i: b"old" for i in range(count)})
    cursor = shards.mark()
    assert shards.settle(), "nothing to do while a snapshot is read"
    write(shards, {b"%d" % i: b"new" for i in range(count)})
    cursor.release()
    index = crc32(b"x") & shards.mask
    all_of(shards.writing([(b"x", None, index)], {b"x": b"1"}))
    steps = 1
    while not shards.settle():
        steps += 1
    assert steps >= 2
    assert not shards.unsettled
    shards.undo()
    assert set(content(shards).values()) == {b"new"}
    assert len(content(shards)) == count


def test_the_image_is_that_of_the_mark_also_when_batches_come_between_two_steps() -> None:
    """A shard is read per step, and every step finds all shards changed."""
    shards = Shards(8)
    keys = [b"%d" % number for number in range(100)]
    write(shards, dict.fromkeys(keys, b"0"))
    cursor = shards.mark()
    slicing, number, slices = cursor.slicing(10_000), 0, None
    while slices is None:
        number += 1
        write(shards, dict.fromkeys(keys, b"%d" % number))
        try:
            next(slicing)
        except StopIteration as end:
            slices = end.value
    assert number > 8
    assert [part.index for part in slices] == list(range(8))
    image = {key: value for part in slices for key, value in part.entries.items()}
    assert image == dict.fromkeys(keys, b"0")
    assert all_of(cursor.slicing(10_000)) == []


def test_a_cursor_of_cleared_entries_does_no_harm() -> None:
    """A snapshot task that is cancelled late neither reads nor thaws what came after it."""
    shards = Shards(2)
    write(shards, {b"a": b"1"})
    cursor = shards.mark()
    shards.reset(2)
    write(shards, {b"a": b"2"})
    second = shards.mark()
    assert [dict(part.entries) for part in all_of(cursor.slicing(100))] == [{b"a": b"1"}]
    cursor.release()
    write(shards, {b"a": b"3"})
    assert [dict(part.entries) for part in all_of(second.slicing(100))] == [{b"a": b"2"}]


def test_what_is_taken_is_in_use_no_more() -> None:
    """The caller that frees it may clear it; an empty state has nothing to free."""
    shards = Shards(2)
    assert shards.take_all() == []
    write(shards, {b"a": b"1"})
    for taken in shards.take_all():
        write(shards, {b"a": b"2"})
        taken.pop(b"a", None)
    assert content(shards) == {b"a": b"2"}


LONG_KEYS = st.sampled_from([b"", b"k", b"k" * 254, b"k" * 255, b"k" * 256, b"\xff" * 9])
WRITES = st.lists(st.tuples(LONG_KEYS, st.none() | st.binary(max_size=3)), max_size=30)


@needs_engine
@given(WRITES, st.integers(1, 4))
def test_a_compiled_shard_holds_what_a_dict_would(writes: list[tuple[bytes, bytes | None]], most: int) -> None:
    """Keys of any length; values of another length than before, and of the same; read in pieces."""
    assert compiled is not None
    shard, model = compiled.Shard(), dict[bytes, bytes]()
    for key, value in writes:
        assert shard.get(key) == model.get(key)
        if value is None:
            assert shard.pop(key, None) == model.pop(key, None)
        else:
            shard[key] = model[key] = value
    pieces = [shard.items(start, most) for start in range(0, len(model), most)]
    assert all(len(piece) <= most for piece in pieces)
    assert sorted(each for piece in pieces for each in piece) == sorted(shard.items()) == sorted(model.items())
    assert len(shard) == len(model)
    with pytest.raises(KeyError):
        del shard[b"absent"]
    with pytest.raises(TypeError):
        shard.update({b"k": "text"})  # type: ignore[dict-item]


SLOTS = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3), st.integers(0, 9)), max_size=8)


@needs_engine
@given(st.lists(SLOTS, max_size=3), st.integers(0, 20), st.integers(0, 20))
def test_compiled_places_are_a_list(added: list[list[Slot]], start: int, stop: int) -> None:
    """A part does not change with it. What is taken is gone from it."""
    assert compiled is not None
    places, model = compiled.Places(), list[Slot]()
    for some in added:
        part = places[start:stop]
        before = list(model)
        places.extend(some[:-1])
        for each in some[-1:]:
            places.append(each)
        model += some
        assert list(part) == before[start:stop]
        assert list(places) == model
        assert places.keys() == [key for key, _, _ in model]
        assert list(places.values().items()) == list({key: old for key, old, _ in model}.items())
        assert len(places) == len(model)
        assert list(places[start:stop][1:]) == model[start:stop][1:]
    taken = places.take()
    assert (list(taken), list(places)) == (model, [])
    taken.clear()
    assert list(taken) == []
    with pytest.raises(IndexError):
        taken[::2]


@needs_engine
def test_compiled_places_that_are_cleared_give_their_memory_back() -> None:
    """One large batch would else take it from its partition for good."""

    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    assert compiled is not None
    places, before, old = compiled.Places(), resident_pages(), bytes(2**20)
    for _ in range(64):
        places.append((b"key", old, 0))
    held = resident_pages() - before
    assert held * resource.getpagesize() > 63 * 2**20
    places.clear()
    assert resident_pages() - before < held / 2


@pytest.mark.parametrize(("most", "count"), [(None, 9_000), (0, 0), (3, 3), (8_193, 8_193), (10_000, 9_000)])
def test_the_first_entries_of_a_shard_are_read(most: int | None, count: int) -> None:
    shards = Shards(1)
    shards.apply({b"%d" % number: b"v" for number in range(9_000)})
    entries = shards.entries(0, most)
    assert len(entries) == len(dict(entries)) == count


def sliced(index: int, entries: dict[bytes, bytes]) -> ShardSlice:
    """Make a slice with true sums."""
    sums = digest_of(entries.items())
    return ShardSlice(index, sums.a, sums.b, entries)


def test_parts_of_a_shard_are_joined() -> None:
    """In any order; the count is that of the keys, so a key in two parts shows in the digest."""
    shards = Shards(1)
    shards.load([sliced(0, {b"a": b"1"})])
    shards.load([sliced(0, {b"b": b"2"}), sliced(0, {b"c": b"3"})])
    assert content(shards) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert shards.digest == digest_of([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    shards.load([sliced(0, {b"a": b"1"})])
    assert shards.digest.count == 3


@pytest.mark.parametrize("index", [-1, 2, 1 - (crc32(b"a") & 1)])
def test_a_slice_of_another_shard_is_damage(index: int) -> None:
    """Its keys would never be found again."""
    with pytest.raises(DamagedError, match="of another shard"):
        Shards(2).load([sliced(index, {b"a": b"1"})])
