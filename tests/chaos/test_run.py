"""A short run with a fixed seed: a process and a broker killed, a wire cut, a commit that comes late."""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.chaos import run as chaos
from tests.chaos.run import Plan, run
from tests.chaos.schedule import Kind

SEED = 241
SECONDS = 11.0
KINDS = frozenset({Kind.KILL_LEADER, Kind.CUT, Kind.KILL_PROCESS_LONG, Kind.LATE_COMMIT})


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_twice_in_a_short_run(tmp_path):
    """Zero violations and everything healed, with each kind carried out; the report says the same."""
    print("seed", SEED)
    outcome = run(Plan(SEED, SECONDS, KINDS, processes=2), tmp_path, print)
    report = (tmp_path / "report.md").read_text()
    assert outcome.good, report
    assert set(outcome.by_kind) == KINDS
    assert outcome.restores
    assert all(restore.proof_equal for restore in outcome.restores)
    assert f"seed {SEED}: good" in report


def test_a_run_that_breaks_off_ends_with_a_verdict(tmp_path, monkeypatch):
    """What the processes have written is judged; why it broke off is a problem beside it."""

    @contextmanager
    def brokers():
        yield SimpleNamespace(bootstrap_servers="127.0.0.1:1")

    def judged(outcome, *_):
        outcome.verdict = "judged"

    for name in ("Wires", "Place", "Slot", "Facts", "World", "apart", "_started", "_keep_broker_logs"):
        monkeypatch.setattr(chaos, name, MagicMock())
    monkeypatch.setattr(chaos, "three_brokers", brokers)
    monkeypatch.setattr("tests.chaos.run._prepare", lambda *_: (("in",), ("out",)))
    monkeypatch.setattr("tests.chaos.run._judge", judged)
    monkeypatch.setattr(chaos, "Watch", MagicMock(side_effect=TimeoutError("not live")))
    outcome = run(Plan(SEED, SECONDS, KINDS), tmp_path / "run", print)
    assert (outcome.verdict, outcome.good) == ("judged", False)
    (problem,) = outcome.problems
    assert "the run broke off: TimeoutError: not live" in problem
    assert "TimeoutError" in (tmp_path / "run" / "logs" / "broke-off.txt").read_text()
