"""A recovery counts only with its proof and on its mode."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from examples.demo import judging
from examples.demo.plan import Kill, RestoreMode
from examples.demo.record import Adoption, Comeback, Restart, Told
from examples.demo.spark_job import NotFinished, SparkJob


def restore(mode: RestoreMode | None = "changes", *, equal: bool = True) -> dict[str, Any]:
    """A restore status of four partitions that came back alike."""
    proof = {"recorded": "a", "computed": "a" if equal else "b", "equal": equal}
    partition = {
        "seconds_per_phase": {"fencing": 0.1},
        "mode": mode,
        "records_replayed": 5,
        "proof": proof,
        "snapshot": None,
    }
    return {"partitions": [partition] * 4}


def told(mode: RestoreMode, status: dict[str, Any] | None) -> Told:
    """A run with one kill."""
    back = Comeback.of(status, 1.0, 1.2, 2.0) if status else None
    kill = Kill(100, "processing", 0.0, mode)
    return Told(seed=1, restarts=[Restart(kill, 100, "processing", back)])


@pytest.mark.parametrize(
    ("asked", "went", "equal"),
    [
        ("changes", "changes", True),
        ("replay", "replay", True),
        ("changes", "changes", False),
        ("replay", "changes", True),
        ("replay", None, True),
    ],
)
def test_a_recovery_holds_by_its_proofs_and_its_mode(asked: RestoreMode, went: RestoreMode | None, equal: bool) -> None:
    """Four equal digests, on the mode that was asked for; nothing to replay shows nothing."""
    verdict = judging.recoveries(told(asked, restore(went, equal=equal)))
    assert verdict.holds is (equal and went == asked)
    assert asked in verdict.detail or not verdict.holds
    assert equal or verdict.findings == ["restart 1: 0 of 4 digests proven"]


def test_killed_before_it_was_live() -> None:
    """A recovery that was killed proves nothing: there must be another one that came to its end."""
    run = told("changes", None)
    assert judging.recoveries(run).findings == ["no recovery was completed"]
    run.restarts += told("changes", restore()).restarts
    verdict = judging.recoveries(run)
    assert verdict.holds
    assert verdict.detail.startswith("1 proven")


def test_an_audit_that_did_not_finish_is_a_verdict(tmp_path: Path) -> None:
    """It does not hold, says why, and takes nothing away from the other verdicts."""

    class Slow(SparkJob):
        def result(self, tell: Callable[[str], None]) -> NoReturn:
            raise NotFinished("it did not end within 600 s")

    verdict = judging.audited(Slow("audit", [], tmp_path), print)
    assert not verdict.holds
    assert verdict.detail == "not finished: it did not end within 600 s"


def test_comeback_keeps_the_slowest() -> None:
    """Seconds per phase are those of the slowest partition, records those of all."""
    status = restore()
    slow = {**status["partitions"][0], "seconds_per_phase": {"fencing": 0.3, "loading": 0.2}}
    back = Comeback.of({"partitions": [slow, *status["partitions"][1:]]}, 1.0, 1.2, 2.0)
    assert back.phases == {"fencing": 0.3, "loading": 0.2}
    assert (back.replayed, back.proven, back.modes) == (20, 4, {"changes": 4})


def last_act(**changes: Any) -> Told:
    """A run in which Spark proposed four snapshots, all were adopted, and the next restore began there."""
    run = told("changes", restore())
    run.killed_in_time = True
    run.adoptions = [Adoption(number, f"id{number}", 10 + number, 7) for number in range(4)]
    status = restore()
    run.from_adopted = replace(Comeback.of(status, 1.0, 1.2, 2.0), snapshots={n: f"id{n}" for n in range(4)})
    return replace(run, **changes)


ADOPTED = last_act().adoptions
REJECTED = Adoption(3, why="failed: snapshot.by is owner")


def test_compaction_tells_batches_and_entries() -> None:
    """Both hold, and say what was adopted."""
    compaction, began = judging.compacted(last_act())
    assert compaction.holds
    assert began.holds
    assert "batches 7, 7, 7, 7, 46 entries hashed" in compaction.detail


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"adoptions": [*ADOPTED[:3], REJECTED]}, [["partition 3: failed: snapshot.by is owner"], ["(none)"]]),
        ({"adoptions": ADOPTED[:3]}, [["3 of 4 partitions reported"], []]),
        ({"adoptions": []}, [["0 of 4 partitions reported"], ["no snapshot was adopted"]]),
        ({"killed_in_time": False}, [["Spark had ended before"], []]),
        ({"from_adopted": None}, [[], ["partition 0 began at snapshot None, not"] + ["None"] * 3]),
    ],
    ids=["rejected", "one too few", "none", "not killed", "elsewhere"],
)
def test_the_last_act_can_fail(changes: dict[str, Any], found: list[list[str]]) -> None:
    """By each of its parts, and what is wrong is named."""
    verdicts = judging.compacted(last_act(**changes))
    assert [verdict.holds for verdict in verdicts] == [not each for each in found]
    for verdict, wanted in zip(verdicts, found, strict=True):
        assert len(verdict.findings) == len(wanted)
        assert all(part in said for part, said in zip(wanted, verdict.findings, strict=True))


def test_a_compaction_that_did_not_finish_is_a_verdict() -> None:
    """One line: there is nothing to restore from."""
    (verdict,) = judging.compacted(last_act(not_compacted="not finished: no Java", adoptions=[]))
    assert (verdict.holds, verdict.detail) == (False, "not finished: no Java")
