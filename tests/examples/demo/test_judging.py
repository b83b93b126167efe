"""The verdict on recoveries, takeovers and what Spark printed must be able to say no; the table says so."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from examples.demo import judging, last_act
from examples.demo.failed import DemoFailed
from examples.demo.last_act import Proposal
from examples.demo.plan import Kill, RestoreMode
from examples.demo.record import Adoption, Comeback, Restart, Takeover, Told, Verdict
from examples.demo.show import print_table
from examples.demo.spark_job import NotFinished, SparkJob
from examples.demo.standby_act import is_copied, takeover
from examples.demo.verify import Findings


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


def after_the_last_act(**changes: Any) -> Told:
    """A run in which Spark proposed four snapshots, all were adopted, and the next restore began there."""
    run = told("changes", restore())
    run.killed_in_time = True
    run.adoptions = [Adoption(number, f"id{number}", 10 + number, 7) for number in range(4)]
    status = restore()
    run.from_adopted = replace(Comeback.of(status, 1.0, 1.2, 2.0), snapshots={n: f"id{n}" for n in range(4)})
    return replace(run, **changes)


ADOPTED = after_the_last_act().adoptions
REJECTED = Adoption(3, why="failed: snapshot.by is owner")


def test_compaction_tells_batches_and_entries() -> None:
    """Both hold, and say what was adopted."""
    compaction, began = judging.compacted(after_the_last_act())
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
    verdicts = judging.compacted(after_the_last_act(**changes))
    assert [verdict.holds for verdict in verdicts] == [not each for each in found]
    for verdict, wanted in zip(verdicts, found, strict=True):
        assert len(verdict.findings) == len(wanted)
        assert all(part in said for part, said in zip(wanted, verdict.findings, strict=True))


def test_a_compaction_that_did_not_finish_is_a_verdict() -> None:
    """One line: there is nothing to restore from."""
    (verdict,) = judging.compacted(after_the_last_act(not_compacted="not finished: no Java", adoptions=[]))
    assert (verdict.holds, verdict.detail) == (False, "not finished: no Java")


# ------------------------------------------------------------------------ the takeover


def of_two(owned: str, warm: str, phase: str = "live") -> dict[str, Any]:
    return {
        "partitions": [{"partition": int(each), "phase": phase, "proof": {"equal": True}} for each in owned],
        "standbys": [{"partition": int(each), "state": "warm"} for each in warm],
    }


@pytest.mark.parametrize(
    ("one", "other", "ready"),
    [
        (of_two("01", "23"), of_two("23", "01"), True),
        (of_two("0123", ""), of_two("", "0123"), False),  # two are about to move
        (of_two("01", "2"), of_two("23", "01"), False),
        (of_two("01", "23"), of_two("23", "01", phase="loading"), False),
        (of_two("01", "23"), of_two("12", "03"), False),
    ],
)
def test_both_are_ready(one: dict[str, Any], other: dict[str, Any], ready: bool) -> None:
    """Each owns half, and has a warm copy of the rest."""
    assert is_copied(one, other) is ready


def test_a_partition_without_a_proof_is_found() -> None:
    """Only those of the dead process need one."""
    status = of_two("0123", "")
    status["partitions"][1]["proof"] = None
    run = Told(1, takeover=takeover(status, {0, 1}, 0.25))
    assert run.takeover == Takeover(0.25, frozenset({0, 1}), frozenset({0}))
    verdict = judging.taken_over(run)
    assert not verdict.holds
    assert verdict.findings == ["partition 1: no digest was compared"]
    assert judging.taken_over(Told(1, takeover=takeover(status, {0, 2}, 0.25))).detail.startswith(
        "250 ms after SIGKILL"
    )
    assert not judging.taken_over(Told(1, takeover=takeover(status, set(), 0.25))).holds


# ------------------------------------------------------------------ what Spark has printed


PROPOSAL = Proposal(2, "proposed", "mine", 77)
POINTED = {"state": "pointed", "reason": "adopted", "snapshot_id": "mine", "entries": 9, "batch": 4}


@pytest.mark.parametrize(
    "newest",
    [None, *({**POINTED, name: "another"} for name in ("state", "reason", "snapshot_id"))],
    ids=["none", "state", "reason", "id"],
)
def test_only_what_the_owner_points_to_is_adopted(newest: dict[str, Any] | None) -> None:
    """The newest snapshot is another one, or not pointed to, or the owner's own: its answer says why."""
    adopted = last_act.outcome(PROPOSAL, POINTED, "succeeded")
    assert (adopted.snapshot_id, adopted.entries, adopted.batch, adopted.why) == ("mine", 9, 4, "")
    missed = last_act.outcome(PROPOSAL, newest, "failed: digest")
    assert (missed.partition, missed.snapshot_id, missed.why) == (2, "", "failed: digest")


def test_the_report_of_a_compaction() -> None:
    """Only what the demo needs is read; anything else than a report is refused."""
    part = {"partition": 2, "outcome": "not possible", "reason": "why", "batches": 5}
    assert last_act.read_report(json.dumps({"app_id": "a", "partitions": [part]})) == [
        Proposal(2, "not possible", reason="why")
    ]
    with pytest.raises(DemoFailed, match="printed no report"):
        last_act.read_report('{"findings": []}')


FINDING = {"check": "digest", "topic": "t", "partition": 2, "offset": 7, "detail": "is not"}


def report(*findings: object, replayed: int = 5) -> str:
    """A report as `snapreplay audit --output json` prints it."""
    return json.dumps({"findings": findings, "checked": {"claims": 12, "chunks": 0, "records_replayed": replayed}})


def test_fine() -> None:
    """Code 0 without findings holds, and says what was looked at."""
    findings, looked_at = judging.read_report(report(), 0)
    assert (findings.count, looked_at) == (0, "12 claims, 5 records_replayed")


def test_findings() -> None:
    """Each finding is told with its place."""
    findings, _ = judging.read_report(report(FINDING), 1)
    assert findings.first == ["digest: t-2 offset 7: is not"]


def test_nothing_replayed() -> None:
    """No finding, but the handlers were not run again: that proves less than the demo says."""
    findings, _ = judging.read_report(report(replayed=0), 0)
    assert findings.first == ["no record was replayed"]


@pytest.mark.parametrize(
    ("said", "code"),
    [(report(), 1), (report(FINDING), 0), ("", 0), ("{}", 0), (json.dumps({"findings": [], "checked": {}}), 0)],
    ids=["code without finding", "finding without code", "silence", "no report", "nothing checked"],
)
def test_doubtful(said: str, code: int) -> None:
    """A report that contradicts its exit code, or looked at nothing, is no verdict."""
    with pytest.raises(DemoFailed):
        judging.read_report(said, code)


# ------------------------------------------------------------------------- the table


def test_table_tells_what_differed() -> None:
    """A verdict that does not hold says NO, and below the table what differed. Every restart has its mode and seconds
    by phase in it, also one that was killed."""
    said = io.StringIO()
    found = Findings()
    for number in range(7):
        found.add(f"record 0-{number} has no output")
    verdicts = [Verdict.of("exactly once", found, "never shown"), Verdict.of("digest", Findings(), "4 partitions")]
    print_table(Console(file=said, width=160), killed_while_recovering(), verdicts)
    text = said.getvalue()
    assert "NO  7 differ" in text
    assert "yes  4 partitions" in text
    assert "never shown" not in text
    assert text.count("exactly once: record 0-") == 5
    for word in ("1,000 records/s over 2.0 s", "killed again before it was LIVE", "restart 2 by replay"):
        assert word in text
    assert "fencing 0.100" in text


def killed_while_recovering() -> Told:
    """A run with a kill that struck a recovery."""
    back = Comeback(0.5, 0.6, 0.9, {"fencing": 0.1}, {"replay": 4}, 12, 4)
    first = Restart(Kill(500, "processing", 0.0, "changes"), 510, "processing")
    second = Restart(Kill(500, "recovering", 0.1, "replay"), 510, "recovering: 4 loading", back)
    return Told(7, records=2200, loaded=2000, restarts=[first, second], wall_s=2.0, live_s=1.0)
