"""Tests of what the run itself looks at beside the checker: each thing that must not be is found."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.run import unsettled
from tests.chaos.timeline import Timeline
from tests.chaos.watch import Watch

EQUAL = {"recorded": "1:2:3", "computed": "1:2:3", "equal": True, "batches_compared": 1}


def process(answers: dict[str, Any], expected_down: bool = False) -> Any:
    """One that answers these paths with these values."""
    return SimpleNamespace(name="p0.0", expected_down=expected_down, get=answers.get)


def status(phase: str, epoch: int = 7, proof: Any = EQUAL, error: Any = None) -> dict[str, Any]:
    """/restore-status of one partition, as far as it is looked at."""
    one = {
        "partition": 0,
        "phase": phase,
        "owner_epoch": epoch,
        "finished_at": "2026-01-01T00:00:00Z" if phase == "live" else None,
        "seconds_per_phase": {"fencing": 0.25, "loading": 0.5},
        "attempts": 1,
        "mode": "changes",
        "snapshot": None,
        "warm": None,
        "fallback_reason": None,
        "proof": proof,
        "error": error,
    }
    return {"/restore-status?scope=local": {"partitions": [one]}}


def test_each_restore_counts_once_with_its_seconds():
    """Looked at ten times it is one; another owner epoch is another one."""
    watch = Watch([], Timeline())
    for epoch in (7, 7, 12, 12):
        watch.read(process(status("live", epoch)))
    assert [(one.owner_epoch, one.seconds) for one in watch.restores] == [(7, 0.75), (12, 0.75)]


def test_a_failed_partition_is_a_problem_unless_it_had_to_step_down():
    """Nothing that is done here needs a person, but for two processes with one name."""
    timeline = Timeline()
    watch = Watch([], timeline)
    failed = status("failed", error={"kind": "StopError", "message": "no way"})
    watch.read(process(failed, expected_down=True))
    assert not timeline.problems
    Watch([], timeline).read(process(failed))
    (problem,) = timeline.problems
    assert "partition 0 FAILED in p0.0: StopError: no way" in problem


def test_an_unequal_digest_is_a_problem():
    """Even if the partition went LIVE with it."""
    timeline = Timeline()
    Watch([], timeline).read(process(status("live", proof=EQUAL | {"equal": False})))
    (problem,) = timeline.problems
    assert "without an equal digest" in problem


def world(answers: list[Any], committed: int = 100) -> Any:
    """Two partitions, one input that ends at 100, one slot for each of the answers."""

    def ends(topic: str, partitions: int, *, committed: bool) -> list[int]:
        return [here if committed else 100 for here in last_stable]

    last_stable = [committed, 100]
    slots = [
        SimpleNamespace(process=SimpleNamespace(name=f"p{n}.0", get=lambda _, a=answer: a))
        for n, answer in enumerate(answers)
    ]
    facts = SimpleNamespace(ends=ends)
    return SimpleNamespace(facts=facts, slots=slots, topics=("t", "__t"), partitions=2)


def owns(*partitions: int, position: int = 100, phase: str = "live") -> dict[str, Any]:
    inputs = [{"topic": "in", "position": position}]
    return {"items": [{"partition": p, "phase": phase, "inputs": inputs} for p in partitions]}


@pytest.mark.parametrize(
    ("here", "finding"),
    [
        (world([owns(0), owns(1)]), None),
        (world([owns(0), owns(0, 1)]), "partition 0 is live in 2 processes"),
        (world([owns(0), owns(1, phase="loading")]), "partition 1 is live in 0 processes"),
        (world([owns(0, 1), None]), "p1.0 does not answer"),
        (world([owns(0, 1, position=99), owns()]), "partition 0 is at 99 of in, its end is 100"),
        (world([owns(0), owns(1)], committed=90), "t: last stable offset below"),
    ],
)
def test_settled_is_one_owner_no_lag_and_nothing_open(here, finding):
    """Each of them alone is enough not to be."""
    found = unsettled(here, ("in",))
    if finding is None:
        assert found == []
    else:
        assert any(finding in one for one in found), found


def test_takeovers_and_false_alarms_are_counted_from_what_processes_log(tmp_path):
    """Each line once, also one that is not whole yet when it is read first."""
    timeline, log = Timeline(), tmp_path / "log"
    watch = Watch([], timeline)
    one: Any = SimpleNamespace(name="p0.0", log_path=log)
    log.write_text(
        "process x seems to be dead: refused; 2 partitions taken over: [0, 1]\n"
        "process x seems to be dead (refused), but nothing is taken over: no broker\nprocess x is a member"
    )
    watch.listen(one)
    assert watch.told == {"takeovers": 1, "false alarms": 0}
    with log.open("a") as file:
        file.write(" of the group still: it seemed to be dead\nmore\n")
    watch.listen(one)
    watch.listen(one)
    assert watch.told == {"takeovers": 1, "false alarms": 1}
    assert len(timeline.entries) == 2
