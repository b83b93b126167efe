"""Tests of what facts say of themselves."""

from dataclasses import replace

from tests.support import apps
from tests.support.healthy import facts


def test_topics_of_an_app_by_their_part():
    """Dead letters are ours where the policy writes them; without an app there are none."""
    seen = facts()
    assert (seen.inputs, seen.outputs) == (("payments-x",), ("balances-x",))
    assert seen.own == ("x-increments", "x-snapshots")
    writing = facts(settings={"errors": {"policy": "dead_letter"}})
    assert writing.own == ("x-increments", "x-snapshots", "x-dead-letters")
    nothing = replace(seen, app=None)
    assert (nothing.inputs, nothing.outputs, nothing.own, nothing.by_replay) == ((), (), (), False)


def test_an_app_recovers_by_replay_when_it_keeps_no_changes():
    """By its settings, or because its state is no map."""
    assert not facts().by_replay
    assert facts(settings={"changelog": {"enabled": False}}).by_replay
    assert facts(app=apps.tape("x")).by_replay
