"""A partition's status as its runner changes it, and its failures in the log."""

import asyncio
import errno
import logging

import pytest
import zstandard

from snapreplay.errors import RecordError, RecordId, StopError
from snapreplay.service.clock import wall_time
from snapreplay.service.control.status import BlockedTopic, DigestProof, SnapshotUsed, StatusBoard
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.retained import Warm
from snapreplay.service.runtime.report import Failures, Reporter, problem_of


@pytest.fixture
def board():
    return StatusBoard()


@pytest.fixture
def reporter(board):
    return Reporter(board, 3)


def test_an_error_is_shown_with_kind_hint_reaction_and_record():
    """The record id of a failed handler is found also when another error carries it."""
    problem = problem_of(StopError("stopped", hint="do this", record_id="payments-0-7"))
    assert (problem.kind, problem.message, problem.hint) == ("StopError", "stopped", "do this")
    assert (problem.reaction, problem.record_id) == ("stop", "payments-0-7")
    assert problem_of(RecordError("bad", record_id=RecordId("a", 1, 2))).record_id == "a-1-2"
    assert problem_of(StopError("stopped")).record_id == ""


def test_an_error_outside_the_tree_is_called_a_defect():
    """A bug of snapreplay sends no operator to look at the cluster."""
    problem = problem_of(ZeroDivisionError("1/0"))
    assert problem.kind == "ZeroDivisionError"
    assert problem.reaction == "stop"
    assert "defect" in problem.hint


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.ENOMEM, "x"), zstandard.ZstdError("Allocation error : not enough memory")]
)
async def test_a_lack_of_memory_is_no_defect(error, caplog):
    """It is named, in the status and in the log."""
    problem = problem_of(error)
    assert problem.kind == "MemoryError"
    assert "more processes" in problem.hint
    Failures(3).final(error, hint_is_logged=False)
    assert f"partition 3 FAILED: MemoryError: {problem.message} ({problem.hint})" in caplog.text
    assert "defect" not in caplog.text


async def test_every_change_is_published_whole(board, reporter):
    """The board shows what the reporter holds, from the first moment; counts of records add up over batches."""
    assert board.get(3).phase is Phase.ASSIGNED
    reporter.count(10, 1)
    reporter.count(5, 0)
    reporter.update(batch=7)
    status = board.get(3)
    assert status is reporter.status
    assert (status.batch, status.records_total, status.skipped_total) == (7, 15, 1)


async def test_an_outlook_is_no_progress(reporter):
    """A partition that makes no progress is not made young by being looked at."""
    before = reporter.status.updated_at
    reporter.note(
        recoverable=False, unrecoverable_reason="gone", blocked_by_open_transaction=(BlockedTopic("t", 5, 2),)
    )
    status = reporter.status
    assert (status.recoverable, status.unrecoverable_reason) == (False, "gone")
    assert status.blocked_by_open_transaction[0].offsets == 2
    assert status.updated_at == before


async def test_seconds_are_added_up_per_phase_of_a_recovery(reporter):
    """Over attempts too; LIVE is no part of it."""
    reporter.started()
    for phase in (Phase.FENCING, Phase.CLAIMING, Phase.FENCING, Phase.CLAIMING, Phase.LOCATING):
        reporter.phase(phase)
    spent = reporter.status.restore.seconds_per_phase
    assert set(spent) == {"fencing", "claiming"}
    assert all(0 <= seconds < 5 for seconds in spent.values())


async def test_a_phase_that_cannot_follow_is_a_defect(reporter):
    """From ASSIGNED no partition is LIVE at once."""
    with pytest.raises(AssertionError, match="assigned cannot be followed by live"):
        reporter.phase(Phase.LIVE)


async def test_progress_gives_rate_and_time_left(reporter):
    """None until something moved; gone with the phase it was of."""
    reporter.started()
    reporter.phase(Phase.FENCING)
    reporter.progress("bytes", 0, 0, 1000)
    assert reporter.status.restore.progress.rate_per_second is None
    reporter.progress("bytes", 0, 250, 1000)
    progress = reporter.status.restore.progress
    assert progress.percent == 25.0
    assert progress.eta_seconds == pytest.approx(750 / progress.rate_per_second)
    reporter.phase(Phase.CLAIMING)
    assert reporter.status.restore.progress is None


async def test_a_new_recovery_forgets_the_last_one(reporter):
    """Snapshot, proof and seconds are those of the recovery that runs."""
    reporter.started()
    reporter.restore(snapshot=SnapshotUsed("s1", 4, 9, 100, 5000, wall_time()))
    reporter.restore(proof=DigestProof("a", "a", 1))
    reporter.started()
    restore = reporter.status.restore
    assert (restore.snapshot, restore.proof, restore.seconds_per_phase) == (None, None, {})


async def test_a_restore_from_memory_says_what_became_of_the_batch_in_doubt(board, reporter):
    """Of several attempts the first one: later ones find nothing in doubt any more."""
    reporter.warm(Warm.MERGED, 7)
    assert board.get(3).restore is None
    reporter.started()
    reporter.warm(Warm.MERGED, 7)
    reporter.warm(Warm.KEPT, 7)
    assert (board.get(3).restore.warm, board.get(3).restore.entries) == ("merged", 7)


LOST = Unreachable("no broker", hint="is it there?")


@pytest.fixture
def bench(monkeypatch, caplog):
    """Failures of partition 3, the lines so far, and time that only the test moves."""
    caplog.set_level(logging.INFO)
    now = [1000.0]

    class Loop:
        def time(self):
            return now[0]

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)

    def lines():
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    return Failures(3), lines, now


def test_what_is_tried_again_is_said_once_and_summed_up(bench):
    """The hint only the first time; and a line when it is over."""
    failures, lines, now = bench
    for _ in range(8):
        failures.retried(LOST)
        now[0] += 10.0
    failures.over()
    failures.over()
    assert lines() == [
        ("WARNING", "partition 3: Unreachable: no broker (is it there?); trying again"),
        ("WARNING", "partition 3: Unreachable: no broker (repeated 6 times in the last 60 s); trying again"),
        ("INFO", "partition 3: recovered after 8 failures in 80.0 s, the last one Unreachable: no broker"),
    ]


def test_another_cause_is_said_at_once(bench):
    """After any report before."""
    failures, lines, _ = bench
    failures.retried(LOST)
    failures.retried(Unreachable("no leader"))
    failures.retried(LOST)
    assert len(lines()) == 2


def test_failed_is_said_with_its_class_and_its_hint(bench):
    """Without the hint where all partitions have it in common."""
    failures, lines, _ = bench
    error = StopError("partitions were added", hint="a new app id")
    failures.final(error, hint_is_logged=False)
    failures.final(error, hint_is_logged=True)
    failures.final(ZeroDivisionError("division by zero"), hint_is_logged=False)
    assert [line for _, line in lines()] == [
        "partition 3 FAILED: StopError: partitions were added (a new app id)",
        "partition 3 FAILED: StopError: partitions were added",
        "partition 3 FAILED: ZeroDivisionError: division by zero",
    ]
