"""The increment that changes the inputs: where the others stand, what is proven and what is decided stays."""

import msgspec
import pytest

from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.service.core.chain import ground_increment
from snapreplay.service.core.input_change import Added, InputChange
from snapreplay.service.core.inspected import TopicChange, changes
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import NO_OFFSET, ChangesRef, Genesis, RetiredInput
from snapreplay.snapshots.plan import chain_began_at, is_decided
from snapreplay.state.digest import EMPTY, Digest
from tests.support.entries import increment, pointer

A, B, C = "a", "b", "c"
LAST = increment(
    7,
    owner_epoch=20,
    previous_offset=25,
    positions={A: 5, B: 9},
    anchors={A: Anchor(4, 1, 2), B: Anchor(8, 3, 4)},
    position_anchors={A: PositionAnchor(0, 1), B: PositionAnchor(0, 2)},
    genesis=Genesis("c", 1, {A: 0, B: 3}),
    pointers=[pointer(7)],
    changes=ChangesRef(1, 4, 99),
    digest=Digest(1, 2, 3),
    topic_ids={A: "ida", B: "idb", "log": "idlog"},
    begun_input=A,
    fired_count=2,
)
CHANGE = InputChange({C: Added(11, PositionAnchor(3, 4), None)}, {A: "at offset 5"}, {C: "idc"})
SAYS = CHANGE.decision("log-0", FoundIncrement(LAST, 30), "why", "who")


def test_the_inputs_are_others_and_the_state_is_the_same():
    """Nothing of the retired one is left, a record whose turn had begun included."""
    found = CHANGE.behind(FoundIncrement(LAST, 30), 40, SAYS, 123)
    assert (found.positions, found.genesis.start_offsets) == ({B: 9, C: 11}, {B: 3, C: 11})
    assert (set(found.anchors), set(found.position_anchors)) == ({B}, {B, C})
    assert found.topic_ids == {B: "idb", C: "idc", "log": "idlog"}
    assert (found.batch, found.previous_offset, found.owner_epoch, found.begun_input) == (8, 30, 40, None)
    assert (found.digest, found.pointers, found.origin) == (LAST.digest, LAST.pointers, LAST.origin)
    assert (found.is_empty, found.begins_chain, found.changes_inputs) == (True, False, True)
    assert (found.is_accepted, found.changes) == (False, ChangesRef(0, 0, 0))
    assert "input c is read from offset 11 on; input a is retired at offset 5" in SAYS["decided"]


def test_the_chain_still_goes_back_to_where_it_began():
    """To the genesis, or to the decision before; the next decision that begins it again counts again."""
    found = CHANGE.behind(FoundIncrement(LAST, 30), 40, SAYS, 123)
    assert (is_decided(found), found.last_decision_offset) == (False, NO_OFFSET)
    after = msgspec.structs.replace(found, decision=None, last_decision_offset=44, batch=9)
    assert not is_decided(after)
    decided = msgspec.structs.replace(LAST, decision={"finding": "x"}, previous_offset=20)
    again = CHANGE.behind(FoundIncrement(decided, 30), 40, SAYS, 123)
    assert (chain_began_at(again, 50), again.last_decision_offset) == (30, 30)


def test_a_state_that_only_the_inputs_restore_stays_one():
    """An increment without changes says that they are needed; the one behind it does not hide that."""
    lean = msgspec.structs.replace(LAST, changes=None, pointers=[pointer(3)])
    assert CHANGE.behind(FoundIncrement(lean, 30), 40, SAYS, 123).changes is None


def test_a_retired_input_resumes_where_it_ended():
    """Its topic still exists. Where it began at first stays known, so that what is older is of the same chain."""
    assert CHANGE.behind(FoundIncrement(LAST, 30), 40, SAYS, 123).retired_inputs == {}
    retiring = InputChange(retired={B: "at offset 9"}, existing=[B])
    without = retiring.behind(FoundIncrement(LAST, 30), 40, SAYS, 123)
    ended = RetiredInput(7, 9, 3, "idb", Anchor(8, 3, 4), PositionAnchor(0, 2))
    assert without.retired_inputs == {B: ended}
    for inputs, known in (({A: 1}, {B: ended}), ({A: 1, B: 1}, {})):
        ground = ground_increment(LAST.origin, Genesis("c", 1, inputs), (EMPTY, {}), {}, 0, without)
        assert ground.retired_inputs == known, "a state that is taken over holds its records, too"
    again = InputChange({B: Added.again(ended)}, topic_ids={B: "idb"})
    found = again.behind(FoundIncrement(without, 31), 40, SAYS, 124)
    assert (found.positions, found.anchors, found.genesis) == (LAST.positions, LAST.anchors, LAST.genesis)
    assert (found.position_anchors, found.topic_ids, found.retired_inputs) == (
        LAST.position_anchors,
        LAST.topic_ids,
        {},
    )
    assert again.lines == ["input b is read from offset 9 on, where it was retired after batch 7"]


RECORDED = {"in": "A", "log": "B"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"in": "A", "log": "B"}, (), id="the-same"),
        pytest.param({"in": "C", "log": "B"}, (TopicChange("in", "A", "C"),), id="created-again"),
        pytest.param({"log": "B"}, (TopicChange("in", "A", None),), id="missing"),
        pytest.param({"in": "", "log": "B"}, (), id="a-cluster-without-ids"),
        pytest.param({"in": "A", "log": "B", "new": "C"}, (), id="never-recorded"),
    ],
)
def test_another_id_or_none_is_a_change(found, expected):
    """What was not recorded, and what the cluster has no id for, says nothing."""
    assert changes(["in", "log", "new"], RECORDED, found) == expected
