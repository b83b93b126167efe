"""The state after any batch, from a log in memory, against a fold by hand."""

from typing import Any

import msgspec
import pytest

from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import ChangesRecord
from snapreplay.snapshots.proof.state import At, StateUnreachable, entries_of, last_batch, manifest_of, state_at
from snapreplay.state.digest import Digest
from tests.snapshots.proof.faults import another_value, other_changes
from tests.support.audited_log import RETIRED, Fault, Story, changed, flipped, store_of
from tests.support.audited_topics import MemoryLogs, MemoryTopics
from tests.support.compacting import logs_of, now


def told(fault=None):
    """A partition's story and its logs."""
    story = Story(MemoryTopics(), "ledger", 1)
    story.tell({0: fault} if fault is not None else {})
    return story, logs_of(story)


BATCHES = ("genesis", "batch1", "batch2", "batch3", "batch4", "batch5")


def ended(story, batch):
    """The entries after a batch, by the changes records alone, as an increment may be damaged: a dict, and nothing of
    the product's fold."""
    entries: dict[bytes, bytes] = {}
    for records in logs_of(story).increments(0, now(story).log_end):
        for record in records:
            value = record.value or b""
            entry = decode(value) if value[5] == RecordKind.CHANGES else None
            if isinstance(entry, ChangesRecord) and entry.batch <= batch:
                if entry.batch == 4:
                    entries = {k: v for k, v in entries.items() if store_of(k) != RETIRED}
                changes = {k: v for store in entry.stores.values() for k, v in store.items()}
                for key, changed_to in changes.items():
                    entries.pop(key, None)
                    entries |= {} if changed_to is None else {key: changed_to}
    return entries


def entries_at(story, logs, at):
    state = state_at(now(story), logs, at)
    assert state is not None
    return state.after.increment.batch, {k: v for _, each in state.entries.stored() for k, v in each}


def test_the_state_after_every_batch_is_the_fold_of_all_before_it() -> None:
    """By batch; without a bound the latest."""
    story, logs = told()
    for batch in range(6):
        assert entries_at(story, logs, At(batch=batch)) == (batch, ended(story, batch))
    assert entries_at(story, logs, At()) == (5, story.partitions[0].state)
    assert state_at(now(story), logs, At(batch=-1)) is None


def test_what_was_trimmed_cannot_be_asked_for() -> None:
    """A batch before the oldest snapshot that is left is refused, by name; that snapshot's own is the first."""
    story, logs = told()
    truth = {batch: ended(story, batch) for batch in (4, 5)}
    newer, older = story.partitions[0].pointers
    story.trim(0, older.increment_offset, newer.first_chunk_offset)
    with pytest.raises(StateUnreachable, match=r"batch 3.*begin at offset"):
        state_at(now(story), logs, At(batch=3))
    for batch in (4, 5):
        assert entries_at(story, logs, At(batch=batch)) == (batch, truth[batch])


def test_a_batch_without_changes_is_not_passed() -> None:
    """An app that records none: the state is there where a snapshot is, as the hint says."""

    def without(values):
        return [changed(values[-1], changes=None)]

    story, logs = told(Fault("batch3", values=without))
    with pytest.raises(StateUnreachable, match=r"batch 3 at .* recorded no changes") as no:
        state_at(now(story), logs, At(batch=3))
    assert "ask for a batch that has a snapshot" in no.value.hint
    for pointer in story.partitions[0].pointers:
        assert entries_at(story, logs, At(batch=pointer.batch))[0] == pointer.batch


@pytest.mark.parametrize(
    ("fault", "batch"),
    [(Fault("batch3", values=other_changes), 3), (Fault("batch3", values=lambda values: values[1:]), 3)],
)
def test_a_wrong_state_is_never_given(fault, batch) -> None:
    """Changes that are not their digest, and changes that are missing. The next snapshot leads past them."""
    story, logs = told(fault)
    with pytest.raises(DamagedError):
        state_at(now(story), logs, At(batch=batch))
    assert entries_at(story, logs, At())[0] == 5


def test_a_damaged_record_costs_no_more_than_it_must() -> None:
    """With a wrong snapshot an earlier one leads there; an increment on the way is bridged by its changes; what others
    wrote is nothing, whatever its bytes."""
    story, logs = told(Fault("snapshot4", values=another_value))
    assert entries_at(story, logs, At()) == (5, story.partitions[0].state)
    story, logs = told(Fault("batch3", values=lambda values: [*values[:-1], flipped(values[-1])]))
    story.trim(0, 0, now(story).snapshots_end)
    for batch in (2, 4, 5):
        assert entries_at(story, logs, At(batch=batch)) == (batch, ended(story, batch))
    with pytest.raises(DamagedError, match="crc32"):
        state_at(now(story), logs, At(batch=3))
    strangers = [b"alien" + bytes([kind]) + b"-record" for kind in (1, 2, 3)]
    story, logs = told(Fault("batch5", values=lambda values: [*strangers, *values]))
    assert entries_at(story, logs, At()) == (5, story.partitions[0].state)


class WithoutDigests(MemoryLogs):
    """The logs of a state that is not a map."""

    def increments(self, start_offset, end_offset):
        for records in super().increments(start_offset, end_offset):
            yield [without_digest(each) for each in records]


def without_digest(record: Any) -> Any:
    value = record.value or b""
    if value[5] == RecordKind.INCREMENT:
        return msgspec.structs.replace(record, value=changed(value, digest=None))
    return record


def test_without_a_digest_at_the_end_the_snapshot_is_hashed() -> None:
    """One whose chunks lie about their sums is passed over; nothing behind it would show it."""
    story, _ = told(Fault("snapshot4", values=another_value))
    logs = WithoutDigests(story.topics, story.app_id, 0)
    assert entries_at(story, logs, At(batch=4)) == (4, ended(story, 4))


def test_a_snapshot_is_what_its_manifest_says_altogether() -> None:
    """Each chunk may be whole, and the entries still be others."""
    story, logs = told()
    pointer = story.partitions[0].pointers[0]
    manifest = manifest_of(logs, pointer)
    assert entries_of(logs, manifest).digest == manifest.entries_digest
    other = msgspec.structs.replace(manifest, entries_digest=Digest(1, 2, 3))
    with pytest.raises(DamagedError, match="but its manifest says 1:"):
        entries_of(logs, other)


def test_the_last_batch_is_found_however_far_it_is_from_the_end() -> None:
    """Behind it are 600 records of a transaction whose increment never came."""
    story, logs = told()
    story.topics.commit(story.log, {0: [b"foreign"] * 600})
    found = last_batch(now(story), logs, At())
    assert found is not None
    assert found.increment.batch == 5
