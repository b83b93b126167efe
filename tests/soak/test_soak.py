"""A soak of its own, and what a process has."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.timeline import Timeline
from tests.soak.report import Outcome, render
from tests.soak.run import Plan, run
from tests.soak.sampling import Sampler, of_process

OPENS = """
import socket, sys
print(flush=True)
sys.stdin.readline()
held = socket.socket()
print(flush=True)
sys.stdin.readline()
"""


def test_sockets_and_files_of_a_process_are_counted() -> None:
    """One socket more is one socket and one file more. This process has clients of other tests, which come and go."""
    with subprocess.Popen([sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        _, _, sockets, files = of_process(child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        rss_mib, threads, sockets_after, files_after = of_process(child.pid)
    assert (sockets_after - sockets, files_after - files) == (1, 1)
    assert rss_mib > 3
    assert threads >= 1


def test_a_dead_process_is_gone() -> None:
    """One that was killed and not waited for still has a folder in /proc, and gives no sample."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError):
        of_process(child.pid)
    child.wait()


def test_a_sampler_that_fails_is_a_problem() -> None:
    """Nobody takes a run for good that was not watched to its end."""

    broken: Any = object()  # whatever it is asked for, it raises
    timeline = Timeline()
    with Sampler({broken: Path()}, timeline):
        for thread in threading.enumerate():
            if thread.name == "sampler":
                thread.join(30)
    (problem,) = timeline.problems
    assert "the sampler ended by itself" in problem


def test_a_problem_makes_the_report_bad() -> None:
    """What ended by itself, or failed, is in the first line and in a line of its own."""
    outcome = Outcome(7, 1.0, ["partition 0 FAILED in p0"])
    assert not outcome.good
    report = render(outcome)
    assert report.startswith("# Soak: 1 minutes, seed 7: BAD")
    assert "- BAD: partition 0 FAILED in p0" in report
    assert Outcome(7, 1.0, []).good


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_minutes_of_kills_are_survived(tmp_path: Path) -> None:
    """Nothing grows, nothing is lost, and the run really killed and restored."""
    outcome = run(Plan(7, 2.0), tmp_path / "soak", lambda line: None)
    assert outcome.good, render(outcome)
    assert len(outcome.kills) >= 2
    assert len(outcome.restores) > 4
    assert outcome.verdict.counts["input records"] == outcome.records > 0
