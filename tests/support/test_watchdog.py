"""Tests that what hangs ends, whatever it swallows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.deadlines import scaled

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support import watchdog
from tests.support.watchdog import set_timer as pytest_timeout_set_timer

watchdog.GRACE_SECONDS = 2.0
"""
HANGING = """
import time
from hypothesis import given, strategies as st

def test_before():
    pass

@given(st.integers())
def test_under_hypothesis(number):
    if number == 0:
        time.sleep(1000)

def test_deaf():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
"""


def test_a_hang_ends_also_under_hypothesis_and_where_every_exception_is_swallowed(tmp_path: Path) -> None:
    """The first by a failure that is not tried again; the second with its process, and with its stack."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--timeout=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_before PASSED" in done.stdout
    assert "test_under_hypothesis FAILED" in done.stdout
    assert "test_deaf" in done.stdout.splitlines()[-1]
    last = done.stderr.rpartition("Timeout (0:0")[2]
    assert "in test_deaf" in last, done.stderr
