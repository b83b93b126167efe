"""What facts say of themselves."""

from dataclasses import replace

from snapreplay.service.doctor.facts import Log
from snapreplay.service.ports import TopicPartition
from tests.support import apps
from tests.support.healthy import facts


def test_topics_of_an_app_by_their_part():
    """Dead letters are ours where the policy writes them."""
    seen = facts()
    assert (seen.inputs, seen.outputs) == (("payments-x",), ("balances-x",))
    assert seen.own == ("x-increments", "x-snapshots")
    writing = facts(settings={"errors": {"policy": "dead_letter"}})
    assert writing.own == ("x-increments", "x-snapshots", "x-dead-letters")


def test_an_app_recovers_by_replay_when_it_keeps_no_changes():
    """By its settings, or because its state is no map."""
    assert not facts().by_replay
    assert facts(settings={"changelog": {"enabled": False}}).by_replay
    assert facts(app=apps.tape("x")).by_replay


def test_without_an_app_there_is_nothing_of_it():
    """No topics, no mode."""
    seen = replace(facts(), app=None)
    assert (seen.inputs, seen.outputs, seen.own, seen.by_replay) == ((), (), (), False)


def test_offsets_behind_the_last_stable_one_are_held_back():
    """As many as a read_committed reader does not get."""
    assert Log(TopicPartition("t", 0), 0, 40, 100).held_back == 60
