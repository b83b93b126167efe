"""The state after any batch, from a log in memory, against a fold by hand."""

import pytest

from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import ChangesRecord, Increment
from snapreplay.snapshots.proof.moment import Moment
from snapreplay.snapshots.proof.state import At, StateUnreachable, last_batch, state_at
from tests.snapshots.proof.faults import another_value, other_changes
from tests.support.audited_log import Fault, Story, changed
from tests.support.audited_topics import MemoryLogs, MemoryTopics


def told(fault=None):
    """A partition's logs and their moment."""
    topics = MemoryTopics()
    story = Story(topics, "ledger", 1)
    story.tell({0: fault} if fault is not None else {})
    return story, MemoryLogs(topics, story.app_id, 0)


def now(story):
    bounds = (story.topics.bounds(topic, 0) for topic in (story.log, story.snaps))
    return Moment(0, *next(bounds), *next(bounds))


def folded(story, logs):
    """Batch → (offset of its increment, entries): a dict, and nothing of the product's fold."""
    entries: dict[bytes, bytes] = {}
    found = {}
    moment = now(story)
    for records in logs.increments(moment.log_start, moment.log_end):
        for record in records:
            entry = decode(record.value)
            if isinstance(entry, ChangesRecord):
                entries |= {k: v for k, v in entry.stores["default"].items() if v is not None}
                for key in [k for k, v in entry.stores["default"].items() if v is None]:
                    del entries[key]
            elif isinstance(entry, Increment):
                found[entry.batch] = record.offset, dict(entries)
    return found


def entries_at(story, logs, at):
    state = state_at(now(story), logs, at)
    assert state is not None
    return state.after.increment.batch, dict(e for _, some in state.entries.shards() for e in some)


def test_the_state_after_every_batch_is_the_fold_of_all_before_it() -> None:
    """By batch, and by the offset behind its increment; without a bound the latest."""
    story, logs = told()
    truth = folded(story, logs)
    assert len(truth) == 6
    for batch, (offset, entries) in truth.items():
        assert entries_at(story, logs, At(batch=batch)) == (batch, entries)
        assert entries_at(story, logs, At(offset=offset + 1)) == (batch, entries)
    assert entries_at(story, logs, At()) == (5, story.partitions[0].state)
    assert state_at(now(story), logs, At(batch=-1)) is None


def test_what_was_trimmed_cannot_be_asked_for() -> None:
    """The log begins at the older snapshot's batch; an earlier one is refused, by name."""
    story, logs = told()
    truth = folded(story, logs)
    pointer = story.partitions[0].pointers[1]
    story.trim(0, pointer.increment_offset, pointer.first_chunk_offset)
    assert entries_at(story, logs, At(batch=3)) == (3, truth[3][1])
    with pytest.raises(StateUnreachable, match=r"batch 2.*begin at offset"):
        state_at(now(story), logs, At(batch=2))


def test_a_batch_without_changes_is_not_passed() -> None:
    """An app that records none: the state is there where a snapshot is, as the hint says."""

    def without(values):
        return [changed(values[-1], changes=None)]

    story, logs = told(Fault("batch3", values=without))
    for asked in (3, 4):
        with pytest.raises(StateUnreachable, match=r"batch 3 at .* recorded no changes") as no:
            state_at(now(story), logs, At(batch=asked))
        assert no.value.hint == "ask for a batch that has a snapshot"
    assert entries_at(story, logs, At(batch=5)) == (5, story.partitions[0].state)


@pytest.mark.parametrize(
    ("fault", "batch"),
    [
        (Fault("batch3", values=other_changes), 3),
        (Fault("snapshot4", values=another_value), 5),
        (Fault("batch3", values=lambda values: values[1:]), 3),
    ],
)
def test_a_wrong_state_is_never_given(fault, batch) -> None:
    """Changes or a snapshot that are not their digest, and changes that are missing."""
    story, logs = told(fault)
    with pytest.raises(DamagedError):
        state_at(now(story), logs, At(batch=batch))
    if batch == 3:
        assert entries_at(story, logs, At())[0] == 5


def test_the_last_batch_is_found_however_far_it_is_from_the_end() -> None:
    """Behind it are 600 records of a transaction whose increment never came."""
    story, logs = told()
    story.topics.commit(story.log, {0: [b"foreign"] * 600})
    found = last_batch(now(story), logs, At())
    assert found is not None
    assert found.increment.batch == 5
