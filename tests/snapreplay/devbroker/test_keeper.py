"""The keeper, seen from outside: what it kept is gone when its owner is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEADLINE_S = 15.0

# An owner in a process of its own. It tells the ids of keeper and command, then waits for its end.
OWNER = """
import os, sys, threading, time
from pathlib import Path
from snapreplay.devbroker.process import KeptProcess
work_dir = Path(sys.argv[1])
kept = KeptProcess(work_dir)
pid = kept.run(["/bin/sleep", "600"], work_dir / "log")
{more}
print(kept._keeper.pid, pid, *others, flush=True)
time.sleep(600)
"""
NOTHING_MORE = "others = []"
# A forked child holds a copy of the pipe to the keeper, and stays when the owner dies.
FORK = """
child = os.fork()
if not child:
    time.sleep(600)
others = [child]
"""


def is_running(pid: int) -> bool:
    """Whether a process of this id is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: list[int], work_dir: Path) -> None:
    """Wait until none of the processes and no directory is left."""
    deadline = time.monotonic() + DEADLINE_S
    while any(is_running(pid) for pid in pids) or work_dir.exists():
        assert time.monotonic() < deadline, f"left: {[p for p in pids if is_running(p)]} {work_dir}"
        time.sleep(0.02)


def start_owner(work_dir: Path, more: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start an owner; returns it, and the ids of keeper, command, and what `more` started."""
    work_dir.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(more=more), str(work_dir)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    return owner, [int(word) for word in owner.stdout.readline().split()]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_owner(tmp_path: Path, end: signal.Signals) -> None:
    """However the owner ends, keeper, command and directory go."""
    owner, (keeper, command) = start_owner(tmp_path / "work", NOTHING_MORE)
    with owner:
        assert is_running(keeper)
        assert is_running(command)
        owner.send_signal(end)
        owner.wait(DEADLINE_S)
        wait_gone([keeper, command], tmp_path / "work")


def test_a_fork_of_the_owner_that_holds_the_pipe_changes_nothing(tmp_path: Path) -> None:
    """The owner's own death counts, not the last copy of its pipe."""
    owner, (keeper, command, child) = start_owner(tmp_path / "work", FORK)
    with owner:
        owner.kill()
        owner.wait(DEADLINE_S)
        try:
            wait_gone([keeper, command], tmp_path / "work")
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_sigterm_to_the_keeper_ends_all(tmp_path: Path) -> None:
    """When the machine goes down, all processes get a SIGTERM, and no directory stays."""
    owner, (keeper, command) = start_owner(tmp_path / "work", NOTHING_MORE)
    with owner:
        os.kill(keeper, signal.SIGTERM)
        wait_gone([command], tmp_path / "work")
        owner.kill()


def test_ctrl_c_in_the_terminal_does_not_reach_the_command(tmp_path: Path) -> None:
    """The service stops first, its broker still there: keeper and command have their session."""
    owner, (keeper, command) = start_owner(tmp_path / "work", NOTHING_MORE)
    with owner:
        assert os.getsid(keeper) == os.getsid(command) == keeper
        owner.kill()
        wait_gone([keeper, command], tmp_path / "work")


def test_it_needs_the_standard_library_only() -> None:
    """It starts in an interpreter without site-packages, hence quickly."""
    source = Path(__file__).parents[3] / "snapreplay" / "devbroker" / "keeper.py"
    code = f"import runpy; runpy.run_path({str(source)!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=DEADLINE_S)
