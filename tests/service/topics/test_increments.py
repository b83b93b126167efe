"""T-ZengLiang on a real broker that is damaged, foreign in part, or no chain: named, never guessed at."""

import pytest

from snapreplay.errors import DamagedError
from snapreplay.service.core.search import Window
from snapreplay.service.ports import Bounds, TopicPartition
from snapreplay.service.topics.increments import last_in_window, last_increment, newer_claim
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import ChangesRef
from tests.support import reference
from tests.support.entries import read_entry
from tests.support.stage import states, until
from tests.support.tampering import cut, flip, of_version, tamper, with_fields

pytestmark = pytest.mark.kafka


def unmasked(value: bytes) -> bytes:
    """Its first bytes are lost: only the header still says what it was."""
    return b"\0\0\0\0" + value[4:]


def as_changes(value: bytes) -> bytes:
    """Its kind is flipped to another one."""
    return value[:5] + bytes([RecordKind.CHANGES]) + value[6:]


@pytest.mark.parametrize("change", [flip, unmasked, as_changes])
async def test_a_damaged_last_increment_is_never_taken_for_an_older_one(past, change):
    """FAILED with topic, partition and offset: the batch before is not the last one."""
    then = await past()
    damaged = await tamper(then.here, then.increments, RecordKind.INCREMENT, change)
    status = await then.here.failure()
    assert status.error.kind == "LogDamaged"
    assert f"{then.increments}-0 offset {damaged.offset}" in status.error.message
    assert "snapreplay accept" in status.error.hint


async def test_a_damaged_increment_before_the_snapshot_is_not_needed(past):
    """What the snapshot covers is not read again."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.INCREMENT, flip, 1)
    restore = await then.here.restored()
    assert restore.snapshot.snapshot_id == then.second


@pytest.mark.parametrize("change", [flip, unmasked, as_changes])
async def test_a_damaged_increment_behind_the_snapshot_is_bridged_by_the_next_one(past, change):
    """Its changes are there, the next increment names it and proves by digest that they are all; a new snapshot is
    taken at once, so that nobody reads it again."""
    then = await past()
    damaged = await tamper(then.here, then.increments, RecordKind.INCREMENT, change, -2)
    async with then.here.running() as service:
        await then.here.assert_exactly_once(service)
        restore = service.restore_status()[0].restore
        assert f"{then.increments}-0 offset {damaged.offset}" in restore.fallback_reason
        assert (restore.mode, restore.snapshot.snapshot_id) == ("changes", then.second)
        assert restore.proof.equal
        assert restore.proof.batches_compared == 2
        await until(
            lambda: ("fallback", "pointed") in states(service), "a new snapshot, pointed to"
        )
    assert (await then.here.restored()).fallback_reason is None


async def test_two_damaged_increments_in_a_row_are_bridged(past):
    """The next one counts them in its batch number; without a snapshot, the genesis may be one of them."""
    then = await past()
    for number in (0, 1, 5, 6):
        await tamper(then.here, then.increments, RecordKind.INCREMENT, flip, number)
    for number in (-1, -2):
        await tamper(then.here, then.snapshots, RecordKind.CHUNK, flip, number)
    restore = await then.here.restored()
    assert (restore.mode, restore.snapshot) == ("changes", None)
    assert restore.proof.equal
    assert restore.proof.batches_compared == 5


@pytest.mark.parametrize(
    ("also", "number", "tables"),
    [
        (RecordKind.CHANGES, -2, {}),
        (RecordKind.CHANGES, -1, {}),
        (RecordKind.CLAIM, 0, {"changelog": {"enabled": False}}),
    ],
)
async def test_a_damaged_increment_whose_changes_are_not_whole_closes_both_modes(
    past, also, number, tables
):
    """Replay needs its ranges and skips, the changes are damaged or were never written; the place is named."""
    then = await past(**tables)
    damaged = await tamper(then.here, then.increments, RecordKind.INCREMENT, flip, -2)
    await tamper(then.here, then.increments, also, flip, number)
    status = await then.here.failure()
    assert status.error.kind == "NoRestoreMode"
    assert f"{then.increments}-0 offset {damaged.offset}" in status.error.message
    assert status.error.hint


async def test_an_increment_of_a_newer_format_is_not_read(past):
    """FAILED by name of the version."""
    then = await past()
    newer = await tamper(then.here, then.increments, RecordKind.INCREMENT, of_version(9))
    status = await then.here.failure()
    assert status.error.kind == "UnknownFormatError"
    assert f"{then.increments}-0 offset {newer.offset}" in status.error.message
    assert "format version 9" in status.error.message


@pytest.mark.parametrize("fields", [{"batch": 6}, {"previous_offset": 3}])
async def test_increments_that_do_not_follow_each_other_stop(past, fields):
    """Two owners wrote at once, or records were removed: both facts are named."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.INCREMENT, with_fields(**fields), -2)
    status = await then.here.failure()
    assert status.error.kind == "BrokenChain"
    assert "predecessor" in status.error.message
    assert "snapreplay accept" in status.error.hint


async def test_foreign_records_are_stepped_over(past):
    """Behind the last increment and between the others: somebody's test message stops nothing."""
    then = await past()
    for _ in range(2):
        await then.here.send([("0:x", b"hello")] * 30, then.increments)
        restore = await then.here.restored()
        assert restore.proof.equal


async def test_the_last_increment_of_a_window_is_found_with_what_is_behind_it(past):
    """Foreign records are counted; a window without increment holds none."""
    then = await past()
    await then.here.send([("0:x", b"hello")] * 3, then.increments)
    log = TopicPartition(then.increments, 0)
    reader = await then.here.cluster.reader()
    try:
        bounds = await reader.bounds(log)
        found = await last_in_window(reader, log, Window(0, bounds.end_offset, 0))
        assert found is not None
        assert (found.increment.batch, found.foreign_records) == (8, 3)
        behind = Window(found.offset + 1, bounds.end_offset, 0)
        assert await last_in_window(reader, log, behind) is None
    finally:
        await reader.close()


async def test_the_last_increment_is_found_behind_a_long_tail_and_within_bounds(past):
    """Window by window back to the start of the bounds, and not beyond it."""
    then = await past()
    await then.here.send([("0:x", b"hello")] * 40, then.increments)
    log = TopicPartition(then.increments, 0)
    reader = await then.here.cluster.reader()
    try:
        bounds = await reader.bounds(log)
        found = await last_increment(reader, log, bounds)
        assert found is not None
        assert found.increment.batch == 8
        behind = Bounds(found.offset + 1, bounds.end_offset)
        assert await last_increment(reader, log, behind) is None
    finally:
        await reader.close()


async def test_the_newest_claim_after_an_offset_is_found(past):
    """None when nobody claimed since; damaged ones raise."""
    then = await past()
    async with then.here.running():
        pass
    log = TopicPartition(then.increments, 0)
    (records,) = await then.here.read(then.increments)
    claims = [r for r in records if kind_of(r.value) is RecordKind.CLAIM]
    reader = await then.here.cluster.reader()
    try:
        end_offset = (await reader.bounds(log)).end_offset
        newest = await newer_claim(reader, log, claims[0].offset, end_offset)
        assert newest == read_entry(claims[-1].value)
        assert await newer_claim(reader, log, claims[-1].offset, end_offset) is None
    finally:
        await reader.close()
    await tamper(then.here, then.increments, RecordKind.CLAIM, flip)
    reader = await then.here.cluster.reader()
    try:
        with pytest.raises(DamagedError):
            await newer_claim(reader, log, claims[0].offset, end_offset)
    finally:
        await reader.close()


async def test_changes_whose_first_bytes_are_lost_are_still_known_as_changes(past):
    """Their increment holds their checksum: replay is taken, which does without them."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.CHANGES, unmasked)
    restore = await then.here.restored()
    assert restore.mode == "replay"
    assert "crc32" in restore.fallback_reason


async def test_fewer_changes_than_their_increment_speaks_of_are_noticed(past):
    """The count is part of the increment."""
    then = await past()
    more = with_fields(changes=ChangesRef(2, 20, 7))
    await tamper(then.here, then.increments, RecordKind.INCREMENT, more)
    restore = await then.here.restored()
    assert restore.mode == "replay"
    assert "names 2 changes records, but before it there are 1" in restore.fallback_reason


async def test_the_log_ends_where_it_is_cut(past):
    """The helper of these tests cuts: the last increment is then an older one."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.INCREMENT, cut)
    (records,) = await then.here.read(then.increments)
    kept = [read_entry(r.value) for r in records if kind_of(r.value) is RecordKind.INCREMENT]
    assert kept[-1].batch == 7
    assert isinstance(records[0], reference.Read)
