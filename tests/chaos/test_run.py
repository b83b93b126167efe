"""A short run with a fixed seed: a process and a broker killed, a wire cut, a commit that comes late."""

import pytest

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
