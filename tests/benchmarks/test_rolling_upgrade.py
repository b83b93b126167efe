"""Two builds in one group, as the benchmark of rolling upgrades runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILDS_BACK = 100


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_group_of_two_builds_knows_itself_and_loses_nothing() -> None:
    """Three processes of an earlier build are replaced one after the other. After each, every process hears all others,
    and each partition has a warm copy, whichever build has it. The checker judges the topics."""
    newest_first = subprocess.check_output(
        ["git", "rev-list", f"--max-count={BUILDS_BACK + 1}", "HEAD"], cwd=ROOT, text=True
    ).split()
    small = ("--partitions", "3", "--keys", "2000", "--rate", "120", "--runs", "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rolling_upgrade", "--old", newest_first[-1], *small],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "run 1: " in done.stdout
