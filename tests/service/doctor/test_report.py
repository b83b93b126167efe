"""All checks together, and what facts say of themselves."""

from dataclasses import replace

from snapreplay.service.doctor.checks import CHECKS, report_of
from tests.support import apps
from tests.support.healthy import facts, without_topic


def test_nothing_is_the_matter_with_the_healthy_cluster():
    """No findings, and what was looked at is counted."""
    report = report_of(facts(), 1.25)
    assert report.findings == []
    assert report.app_id == "x"
    counted = {"brokers": 3, "topics": 5, "partitions": 10, "states": 2}
    assert report.looked_at == {"checks": len(CHECKS), **counted}


def test_findings_are_those_of_all_checks():
    """In the order of the checks."""
    assert [f.check for f in report_of(without_topic("balances-x"), 0).findings] == ["topics"]


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
