"""Records in, batches out, against a model that looks at the whole log at once."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.record import RawRecord
from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.envelope import RecordKind, encode, headers_for
from snapreplay.snapshots.format.records import ChangesRecord, Claim
from snapreplay.snapshots.log.batches import Base, Batches, BrokenChain, ChainReader, Step
from snapreplay.snapshots.log.reading import TopicPartition
from tests.support.entries import increment
from tests.support.tampering import flip

LOG = TopicPartition("app-increments", 0)
CLAIM = encode(Claim("c", "app", "cluster", "p", "i", "host", 1, 0))


class Told(NamedTuple):
    """A record before the last increment: `mark` tells changes apart."""

    what: str
    mark: int


AN_END = {"batch", "damaged"}
TOLD = st.builds(Told, st.sampled_from(["changes", "claim", "foreign", "batch", "damaged"]), st.integers(0, 9))


def log_of(story: Sequence[Told]) -> list[RawRecord]:
    """A chain of batches from 0 on, ending with one that can be read; offsets have gaps."""
    records: list[RawRecord] = []
    batch, previous = 0, -1
    for number, (what, mark) in enumerate([*story, Told("batch", 0)]):
        offset, value, kind = 2 * number, b"hello", None
        if what == "changes":
            value, kind = encode(ChangesRecord(batch, mark, {})), RecordKind.CHANGES
        elif what == "claim":
            value, kind = CLAIM, RecordKind.CLAIM
        elif what in {"batch", "damaged"}:
            value, kind = encode(increment(batch, previous_offset=previous)), RecordKind.INCREMENT
            value = flip(value) if what == "damaged" else value
            batch, previous = batch + 1, offset
        headers = headers_for(kind) if kind is not None else ()
        records.append(RawRecord(*LOG, offset, 0, None, value, headers))
    return records


def before(records: Sequence[RawRecord], number: int) -> list[bytes]:
    """The changes since the last claim or increment before a record, by looking back."""
    found: list[bytes] = []
    for each in reversed(records[:number]):
        kinds = [k for k in RecordKind if each.headers and each.headers == headers_for(k)]
        if kinds and kinds[0] is not RecordKind.CHANGES:
            break
        found = [each.value or b"", *found] if kinds else found
    return found


@given(st.lists(TOLD, max_size=30))
def test_each_batch_has_the_changes_directly_before_it(story: list[Told]) -> None:
    """Those behind the last claim or increment, damaged ones included; each increment comes once, in order, and the
    damaged ones with the next that can be read."""
    records = log_of(story)
    steps = list(Batches().of([records[:5], records[5:]]))
    found: list[tuple[int, list[bytes]]] = []
    for step in steps:
        found += [(each.offset, list(each.changes)) for each in step.unread]
        found.append((step.offset, list(step.changes)))
    increments = [n for n, each in enumerate([*story, Told("batch", 0)]) if each.what in AN_END]
    assert found == [(records[n].offset, before(records, n)) for n in increments]
    read = [n for n in increments if n == len(story) or story[n].what == "batch"]
    assert [each.offset for each in steps] == [records[n].offset for n in read]


@given(st.lists(TOLD, max_size=30), st.integers(0, 30))
def test_a_chain_is_followed_from_any_batch_in_any_number_of_goes(story: list[Told], cut: int) -> None:
    """Who stops behind a batch and begins again there sees the same batches: so a follower needs no owner."""
    records = log_of(story)
    base = Base(-1, -1, 0, {})
    whole = followed(records, base)
    middle = whole[min(cut, len(whole) - 1)]
    there = Base(middle.increment.batch, middle.offset, middle.offset + 1, {})
    first = [each for each in whole if each.offset <= middle.offset]
    assert seen([*first, *followed(records, there)]) == seen(whole)


def seen(steps: Sequence[Step]) -> list[object]:
    return [(s.offset, s.changes, [(u.offset, u.changes) for u in s.unread]) for s in steps]


def followed(records: Sequence[RawRecord], base: Base) -> list[Step]:
    chain = ChainReader(LOG, base)
    added = [chain.add(each) for each in records if each.offset >= base.read_from_offset]
    steps = [each for each in added if each is not None]
    if steps:
        chain.finish(steps[-1].increment, steps[-1].offset)
    return steps


def test_what_does_not_continue_the_chain_is_refused() -> None:
    """Another predecessor or batch number; a damaged increment whose successor is another one; another end."""
    records = log_of([Told("batch", 0), Told("damaged", 0)])
    for wrong in (increment(2, previous_offset=0), increment(5, previous_offset=2)):
        forged = [*records[:2], RawRecord(*LOG, 4, 0, None, encode(wrong))]
        with pytest.raises(DamagedError, match="app-increments-0 offset 2"):
            followed(forged, Base(-1, -1, 0, {}))
        with pytest.raises(BrokenChain, match=r"precedes it: this is not the chain"):
            followed([records[0], forged[2]], Base(-1, -1, 0, {}))
    with pytest.raises(DamagedError, match="app-increments-0 offset 2"):
        list(Batches().of([records[:2]]))
    chain = ChainReader(LOG, Base(-1, -1, 0, {}))
    chain.add(records[0])
    with pytest.raises(BrokenChain, match="ends with batch 0 at offset 0"):
        chain.finish(increment(7), 0)


def test_a_decision_that_began_the_chain_anew_is_no_broken_log() -> None:
    """A follower of the chain begins again with it, and says so in its log."""
    begun = increment(1, previous_offset=2, owner_epoch=2, decision={"finding": "state-patched-1"})
    chain = ChainReader(LOG, Base(0, 0, 0, {}))
    with pytest.raises(BrokenChain, match="begins a new chain, by decision state-patched-1; batch 0 does not lead"):
        chain.add(RawRecord(*LOG, 4, 0, None, encode(begun), headers_for(RecordKind.INCREMENT)))
