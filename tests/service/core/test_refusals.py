"""Tests of what the last increment says against what this process expects: every refusal names both facts."""

from dataclasses import replace
from typing import Any

import pytest

from snapreplay.service.core import refusals
from snapreplay.service.core.refusals import DuplicateInstance, Expected, WrongLog
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Claim, Genesis, Origin
from tests.support.entries import increment

EXPECTED = Expected(
    app_id="ledger",
    schema_version=1,
    cluster_id="cluster-1",
    partition=2,
    partition_count=4,
    inputs=frozenset({"payments", "refunds"}),
    increments_topic="ledger-increments",
    instance_id="one",
    process_id="p1",
    started_at_ms=1000,
)


def claim(**changed):
    fields: dict[str, Any] = {
        "claim_id": "c",
        "app_id": "ledger",
        "cluster_id": "cluster-1",
        "process_id": "p2",
        "instance_id": "one",
        "host": "web-7",
        "pid": 4711,
        "started_at_ms": 2000,
    }
    return Claim(**(fields | changed))


@pytest.mark.parametrize(
    ("changed", "recorded", "now"),
    [
        ({"origin": Origin("other", "1", 1, "f")}, "other", "ledger"),
        ({"genesis": Genesis("cluster-9", 4, {"payments": 0, "refunds": 7})}, "cluster-9", "cluster-1"),
        ({"genesis": Genesis("cluster-1", 8, {"payments": 0, "refunds": 7})}, 8, 4),
        ({"genesis": Genesis("cluster-1", 4, {"payments": 0})}, "payments", "payments, refunds"),
    ],
)
def test_another_log_is_refused_with_both_facts(changed, recorded, now):
    """App id, cluster, partition count, inputs."""
    problem = refusals.refuse(EXPECTED, 50, FoundIncrement(increment(3, **changed), 45))
    assert isinstance(problem, WrongLog)
    assert problem.facts == {"recorded": recorded, "found": now}
    assert repr(recorded) in problem.message
    assert "ledger-increments-2 at offset 45" in problem.message
    assert problem.hint


def test_a_log_of_another_schema_version_is_refused():
    """Increments say it, so it is known before there is a snapshot; the hint holds the version to go back to."""
    problem = refusals.refuse(EXPECTED, 50, FoundIncrement(increment(3, origin=Origin("ledger", "1", 2, "f")), 45))
    assert isinstance(problem, refusals.SchemaDiffers)
    assert problem.facts == {"recorded": 2, "found": 1}
    assert "`App(…, schema_version=2)`" in problem.hint


def test_an_owner_epoch_beyond_our_claim_means_a_shorter_log():
    """Claims rise with the log: one from the future was written to a longer one."""
    problem = refusals.refuse(EXPECTED, 50, FoundIncrement(increment(3, owner_epoch=51), 45))
    assert isinstance(problem, refusals.LogShorter)
    assert (problem.facts["recorded"], problem.facts["found"]) == (51, 50)


def test_a_newer_claim_of_a_younger_process_with_our_instance_id_is_a_duplicate():
    """It names the other host and process, and what to do."""
    problem = refusals.duplicate_instance(EXPECTED, claim())
    assert isinstance(problem, DuplicateInstance)
    assert "4711" in problem.message
    assert "web-7" in problem.message
    assert "--set instance_id=" in problem.hint
    assert problem.other == "process 4711 on host web-7, which uses the same instance id 'one'"


def test_another_instance_or_ourselves_is_no_duplicate():
    """A rebalance, and an earlier ownership of this very process."""
    assert refusals.duplicate_instance(EXPECTED, claim(instance_id="two")) is None
    ourselves = claim(process_id="p1", started_at_ms=1000)
    assert refusals.duplicate_instance(EXPECTED, ourselves) is None


def test_of_two_processes_with_one_instance_id_exactly_one_stays_down():
    """The one started first, even if the other claimed last, also when both started in the same millisecond."""
    for started_at_ms in (999, 1000, 1001):
        theirs = replace(EXPECTED, process_id="p2", started_at_ms=started_at_ms)
        to_us = refusals.duplicate_instance(EXPECTED, claim(started_at_ms=started_at_ms))
        to_them = refusals.duplicate_instance(theirs, claim(process_id="p1", started_at_ms=1000))
        assert (to_us is None) != (to_them is None)
