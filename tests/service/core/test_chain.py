"""Tests of a chain from one increment to the next, for its whole life."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.batch import Applied
from snapreplay.app.ranges import Anchor, InputRange, PositionAnchor, SkippedRange
from snapreplay.app.record import Output
from snapreplay.service.core.chain import Chain, ReadPosition, committed_positions, genesis_increment, positions_after
from snapreplay.snapshots.format.records import NO_OFFSET, ChangesRef, Pointer
from snapreplay.state.contract import Sealed
from snapreplay.state.digest import EMPTY, Digest
from tests.support.entries import GENESIS, ORIGIN, increment, pointer

DIGEST = Digest(3, 4, 5)


def chain(last=None, **changed):
    return Chain(ORIGIN, 7, last or increment(4), 40, 3, **changed)


def output(topic):
    return Output(topic, b"k", b"v", None, True, None)


def applied(**changed):
    fields: dict[str, Any] = {
        "ranges": [InputRange("payments", 0, 9, 8)],
        "positions": {"payments": 9},
        "record_count": 7,
        "skipped": [SkippedRange("payments", 4, 5)],
        "anchors": {"payments": Anchor(8, 1000, 99)},
        "outputs": [output("balances"), output("balances"), output("alerts")],
        "outputs_xxh64": {"balances": 11, "alerts": 12},
        "dead_letters": [output("app-dead-letters")],
        "errors": [],
        "sealed": Sealed({}, DIGEST),
        "stream_time_ms": 1000,
    }
    return Applied(**(fields | changed))


def test_the_next_increment_covers_what_was_applied():
    """Batch +1, linked to the last one, with ranges, skips, anchors, outputs per topic and the digest."""
    last = increment(4, anchors={"refunds": Anchor(1, 2, 3)})
    made = Chain(ORIGIN, 7, last, 40, 3).next_increment(applied(), ChangesRef(1, 2, 3), 123)
    assert (made.batch, made.previous_offset, made.owner_epoch) == (5, 40, 7)
    assert made.ranges == applied().ranges
    assert made.positions == {"payments": 9, "refunds": 7}
    assert set(made.anchors) == {"payments", "refunds"}
    assert made.outputs == {"balances": 2, "alerts": 1, "app-dead-letters": 1}
    assert made.outputs_xxh64 == {"balances": 11, "alerts": 12}
    assert (made.record_count, made.skipped) == (7, applied().skipped)
    assert (made.digest, made.stream_time_ms, made.written_at_ms) == (DIGEST, 1000, 123)
    assert made.changes == ChangesRef(1, 2, 3)
    assert made.genesis == GENESIS


def test_the_next_increment_has_what_its_batch_cleared_and_fired_and_nothing_of_the_one_before():
    """A replay clears and fires what is recorded: once."""
    clearing = Sealed({}, DIGEST, {}, ["old"])
    batch = applied(sealed=clearing, fired_count=2, skipped_timers=(1,), begun_input="payments", is_full=True)
    made = chain().next_increment(batch, None, 123)
    assert (made.cleared, made.fired_count, made.skipped_timers) == (["old"], 2, [1])
    assert made.begun_input == "payments"
    following = chain().committed(made, 45).next_increment(applied(), None, 124)
    assert (following.cleared, following.fired_count, following.skipped_timers) == ([], 0, [])
    assert following.begun_input is None


@pytest.mark.parametrize(
    ("sent", "dead", "counted"),
    [
        (["alerts"] * 3, [], {"alerts": 3}),
        (["alerts"] * 3, ["dead"], {"alerts": 3, "dead": 1}),
        ([], ["dead"], {"dead": 1}),
        ([], [], {}),
    ],
)
def test_what_goes_to_each_topic_is_counted(sent, dead, counted):
    """Outputs of one topic or none, with and without dead letters."""
    batch = applied(
        outputs=[output(topic) for topic in sent],
        outputs_xxh64=dict.fromkeys(sent, 11),
        dead_letters=[output(topic) for topic in dead],
    )
    assert chain().next_increment(batch, None, 123).outputs == counted


def test_an_empty_increment_changes_nothing_but_the_pointers():
    """State, positions and stream time are those before."""
    last = increment(
        4,
        positions={"payments": 5, "refunds": 7},
        digest=DIGEST,
        stream_time_ms=9,
        ranges=[InputRange("payments", 0, 5, 5)],
        record_count=5,
        outputs={"balances": 5},
        skipped=[SkippedRange("payments", 1, 2)],
        changes=ChangesRef(1, 1, 1),
        cleared=["old"],
        fired_count=3,
        skipped_timers=[1],
        begun_input="payments",
    )
    made = Chain(ORIGIN, 7, last, 40, 3, new_pointer=pointer(4)).next_increment(None, None, 123)
    same = ("positions", "digest", "stream_time_ms", "anchors", "genesis", "begun_input")
    assert all(getattr(made, name) == getattr(last, name) for name in same)
    assert (made.ranges, made.skipped, made.outputs, made.record_count) == ([], [], {}, 0)
    assert (made.cleared, made.fired_count, made.skipped_timers) == ([], 0, [])
    assert made.changes is None
    assert made.pointers == [pointer(4)]


def test_a_pointer_exists_once_its_increment_is_committed():
    """It stands first, is not repeated as new, and the oldest one beyond the limit goes."""
    old = [pointer(3), pointer(2), pointer(1)]
    last = increment(4, pointers=old)
    waiting = Chain(ORIGIN, 7, last, 40, 3).pointing_to(pointer(4))
    made = waiting.next_increment(None, None, 0)
    assert made.pointers == [pointer(4), pointer(3), pointer(2)]
    after = waiting.committed(made, 45)
    assert after.new_pointer is None
    assert (after.last, after.last_offset, after.batch) == (made, 45, 5)


def test_no_pointer_outlives_its_topic():
    """What the old snapshots topic held is gone, also a snapshot that waited for its increment."""
    last = increment(4, pointers=[pointer(2)])
    moved = Chain(ORIGIN, 7, last, 40, 3).pointing_to(pointer(4)).in_new_topic("snapshots", "id-2")
    made = moved.next_increment(None, None, 0)
    assert made.pointers == []
    after = moved.committed(made, 45).pointing_to(pointer(5))
    assert after.next_increment(None, None, 0).pointers == [pointer(5)]


def test_a_pointer_that_came_during_a_commit_waits_for_the_next_one():
    """The increment under way does not hold it, so it must not be forgotten."""
    before = chain()
    under_way = before.next_increment(applied(), None, 0)
    after = before.pointing_to(pointer(4)).committed(under_way, 45)
    assert after.new_pointer == pointer(4)
    assert after.next_increment(None, None, 0).pointers[0] == pointer(4)


def test_a_fallback_is_recorded_once():
    """In the first increment after the recovery, and no more."""
    first = chain(fallback_from="s9").next_increment(None, None, 0)
    assert first.fallback_from == "s9"
    after = chain(fallback_from="s9").committed(first, 45)
    assert after.next_increment(None, None, 0).fallback_from is None


def test_genesis_is_batch_zero_of_an_empty_state():
    """It has no predecessor and starts where init said."""
    made = genesis_increment(ORIGIN, 2, GENESIS, EMPTY, 5, {"payments": "id-1"})
    assert (made.batch, made.previous_offset, made.owner_epoch) == (0, NO_OFFSET, 2)
    assert made.positions == GENESIS.start_offsets
    assert made.pointers == []
    assert made.stream_time_ms == -1


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 4))
def test_pointers_are_the_newest_of_the_chain(snapshots, pointers_max):
    """However snapshots and batches alternate: newest first, at most K, none lost, none twice."""
    now = Chain(ORIGIN, 0, increment(0), 0, pointers_max)
    pointed: list[Pointer] = []
    for wanted in snapshots:
        if wanted:
            now = now.pointing_to(pointer(now.batch))
            pointed.insert(0, pointer(now.batch))
        made = now.next_increment(None, None, 0)
        assert made.previous_offset == now.last_offset
        now = now.committed(msgspec.structs.replace(made), now.last_offset + 2)
    assert now.last.pointers == pointed[:pointers_max]


def test_every_increment_names_the_newest_decision_before_it():
    """A decision is in its own increment; those after it lead back to it, of any owner."""
    assert chain().next_increment(None, None, 0).last_decision_offset == NO_OFFSET
    decided = Chain(ORIGIN, 7, increment(4, decision={"finding": "x"}), 40, 3)
    first = decided.next_increment(None, None, 0)
    assert (first.decision, first.last_decision_offset) == (None, 40)
    second = decided.committed(first, 43).next_increment(applied(), None, 0)
    assert second.last_decision_offset == 40


def test_topic_ids_are_those_of_the_last_increment_until_a_recovery_found_others():
    """Then every increment has the new ones; none is lost."""
    last = increment(4, topic_ids={"payments": "A"})
    same = Chain(ORIGIN, 7, last, 40, 3)
    assert same.next_increment(applied(), None, 1).topic_ids == {"payments": "A"}
    other = Chain(ORIGIN, 7, last, 40, 3, topic_ids={"payments": "B"})
    following = other.next_increment(applied(), None, 1)
    assert following.topic_ids == {"payments": "B"}
    assert other.committed(following, 50).next_increment(None, None, 2).topic_ids == {"payments": "B"}


@pytest.mark.parametrize("recovered", [None, {"refunds": PositionAnchor(9, 9)}])
def test_an_anchor_belongs_to_one_position(recovered):
    """An input that moved has the anchor of its new position, or none; one that did not move keeps its own, as a
    recovery found it last."""
    before = {"payments": PositionAnchor(1, 1), "refunds": PositionAnchor(2, 2)}
    last = increment(4, position_anchors=before)
    stood = chain(last=last, position_anchors=recovered)
    expected = before["refunds"] if recovered is None else recovered["refunds"]
    assert stood.next_increment(None, None, 1).position_anchors == (recovered or before)
    moved = stood.next_increment(applied(), None, 1)
    assert moved.position_anchors == {"refunds": expected}
    found = {"payments": PositionAnchor(3, 3), "refunds": PositionAnchor(0, 0)}
    moved = stood.next_increment(applied(), None, 1, position_anchors=found)
    assert moved.position_anchors == {"payments": found["payments"], "refunds": expected}
    assert stood.committed(moved, 50).expected_anchors == moved.position_anchors


RECORD, BELOW, NOW = Anchor(4, 1, 2), PositionAnchor(3, 9), PositionAnchor(5, 8)


def anchored(**changed: Any) -> Chain:
    last = increment(7, positions={"a": 5, "b": 0}, anchors={"a": RECORD}, position_anchors={"a": BELOW})
    return Chain(last.origin, 1, last, 7, 3, **changed)


def test_committed_positions_stand_on_what_the_last_increment_or_the_recovery_found():
    """The recovery saw it later."""
    untouched = ReadPosition(0, None, None)
    assert committed_positions(anchored()) == {"a": ReadPosition(5, RECORD, BELOW), "b": untouched}
    found = committed_positions(anchored(position_anchors={"a": NOW}))
    assert found == {"a": ReadPosition(5, RECORD, NOW), "b": untouched}
    assert found["a"].is_behind_record
    assert not untouched.is_behind_record


def test_of_a_batch_only_the_inputs_that_it_moves_are_compared():
    """A range of markers keeps the record before them."""
    applied: Any = SimpleNamespace(positions={"a": 8, "b": 0}, anchors={})
    moved = positions_after(anchored(), applied, {"a": NOW})
    assert moved == {"a": ReadPosition(8, RECORD, NOW)}
    assert not moved["a"].is_behind_record
