"""The report says what happened, and calls good only what is."""

from dataclasses import replace

import pytest

from tests.chaos.report import Outcome, as_markdown, write
from tests.chaos.schedule import Fault, Kind
from tests.chaos.timeline import Timeline
from tests.chaos.watch import Restore

FAULT = Fault(0, Kind.KILL_LEADER, 2.5, 1.0, 7, snapshot=True)
RESTORE = Restore(
    "p1.0",
    2,
    owner_epoch=40,
    at_s=4.0,
    seconds=0.25,
    attempts=1,
    mode="changes",
    from_snapshot=True,
    fallback=False,
    proof_equal=True,
)


def outcome() -> Outcome:
    """Make the outcome of a good run of one fault."""
    said: list[str] = []
    timeline = Timeline(said.append)
    timeline.start()
    injected = timeline.begin(FAULT)
    timeline.hit(injected, "SIGKILL of broker 1")
    timeline.healed(injected)
    assert len(said) == 2
    return Outcome(
        seed=7,
        seconds=30,
        processes=3,
        partitions=3,
        settings={"restore.mode": "replay"},
        planned=[FAULT, FAULT],
        injected=timeline.injected,
        entries=timeline.entries,
        restores=[RESTORE, RESTORE._replace(partition=1, copied=True, from_snapshot=False)],
        told={"takeovers": 1, "false alarms": 0},
        settle_seconds=3.5,
        counts={"input records": 12_345},
        verdict="all well",
    )


def test_the_report_names_seed_faults_restores_and_verdict(tmp_path):
    """Somebody who reads nothing else knows what was done and what came of it."""
    text = write(outcome(), tmp_path).read_text()
    for expected in (
        "# Chaos, seed 7: good",
        "- faults: 1 carried out of 2 planned",
        "- settings: restore.mode=replay",
        "- settled: after 3.5 s",
        "- input records: 12,345",
        "| kill-leader | 1 |",
        "- takeovers: 1",
        "2 restores, 1 of them from a warm copy, 0.25 s (median), 0.25 s (longest)",
        "| 4.0 | p1.0 | 1 | 0.250 | 1 | changes | copy | equal |",
        "| 4.0 | p1.0 | 2 | 0.250 | 1 | changes | snapshot | equal |",
        "all well",
        "#0 kill-leader: SIGKILL of broker 1",
    ):
        assert expected in text, expected


@pytest.mark.parametrize(
    "bad",
    [{"problems": ["partition 1 FAILED"]}, {"violations": ["increments-0 at 7: a fork"]}, {"settle_seconds": None}],
)
def test_only_a_run_that_healed_without_a_finding_is_good(bad):
    """One problem, one violation or a run that never settled is enough, and the report shows it."""
    worse = replace(outcome(), **bad)
    assert outcome().good
    assert not worse.good
    text = as_markdown(worse)
    assert "seed 7: BAD" in text
    for finding in (*worse.problems, *worse.violations):
        assert f"- {finding}" in text
