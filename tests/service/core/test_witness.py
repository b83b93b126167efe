"""Tests of what is said outside of the increments topic, compared with what is in it."""

import msgspec
import pytest

from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import Witness, is_recent, shows_cut
from tests.support.entries import GENESIS, ORIGIN, increment, manifest

LAST = FoundIncrement(increment(9, topic_ids={"incs": "I"}), 100)


@pytest.mark.parametrize(
    ("witness", "ahead"),
    [
        (Witness(10, 101, 5, "I"), True),
        (Witness(10, 101, 5), True),  # a cluster without ids
        (Witness(9, 100, 5, "I"), False),  # the same batch
        (Witness(3, 20, 5, "I"), False),  # an older one: the group's offsets went back, too
        (Witness(10, 101, 5, "J"), False),  # of a topic that was deleted
        (Witness(10, 90, 5, "I"), False),  # of a chain that ended before this one began
    ],
)
def test_a_later_batch_of_this_topic_and_chain_shows_a_lost_end(witness, ahead):
    """Nothing else is an alarm. What was read back is what was written."""
    assert witness.is_ahead("incs", LAST) is ahead
    assert Witness.from_metadata(witness.metadata) == witness


@pytest.mark.parametrize("text", ["", "reset by hand", "{}", '{"batch": -1}', "[1, 2, 3, 4]"])
def test_what_no_process_of_ours_wrote_says_nothing(text):
    """Kafka's own command resets an offset without any text."""
    assert Witness.from_metadata(text) is None


CUT_AT = FoundIncrement(increment(5, owner_epoch=4), 20)
LOST = manifest("s", [], batch=6, increment_offset=23, owner_epoch=4)


@pytest.mark.parametrize(
    ("inputs", "is_evidence"),
    [
        ({"payments": 0, "more": 3}, True),
        ({"payments": 0}, True),
        ({"more": 3}, True),  # all were replaced at once
        ({"payments": 1, "refunds": 7}, False),
    ],
)
def test_other_inputs_may_be_of_the_same_chain(inputs, is_evidence):
    """One was added or retired before the log was cut behind it: those in common begin at the same offsets."""
    lost = msgspec.structs.replace(LOST, genesis=msgspec.structs.replace(GENESIS, start_offsets=inputs))
    assert shows_cut(lost, CUT_AT) is is_evidence


@pytest.mark.parametrize(
    "changed",
    [
        {"batch": 5},
        {"proposed_by": "compact@host/1"},
        {"increment_offset": 20},  # a later batch lies behind the last increment
        {"origin": msgspec.structs.replace(ORIGIN, app_id="other")},
        {"genesis": msgspec.structs.replace(GENESIS, cluster_id="other")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_no_owner_of_this_chain_wrote_is_none(changed):
    """It was proposed, or copied, or is impossible."""
    assert not shows_cut(msgspec.structs.replace(LOST, **changed), CUT_AT)


def test_nothing_older_than_a_manifest_of_the_last_owner_is_looked_at():
    """A zombie's may lie behind it, and a proposal anywhere."""
    mine = msgspec.structs.replace(LOST, batch=5)
    assert is_recent(mine, CUT_AT)
    assert not is_recent(LOST, CUT_AT)
    assert not is_recent(msgspec.structs.replace(mine, owner_epoch=3), CUT_AT)
    assert not is_recent(msgspec.structs.replace(mine, proposed_by="a job"), CUT_AT)
