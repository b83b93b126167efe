"""The keeper, seen from outside: what it kept is gone when its owner is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.deadlines import is_running
from tests.support.waiting import eventually

# An owner in a process of its own. It tells the ids of keeper, command and a child, then waits for its end. The child
# holds a copy of the pipe to the keeper, and stays when the owner dies.
OWNER = """
import os, sys, time
from pathlib import Path
from snapreplay.devbroker.node import KeptProcess
work_dir = Path(sys.argv[1])
kept = KeptProcess(work_dir)
pid = kept.run(["/bin/sleep", "600"], work_dir / "log")
child = os.fork()
if not child:
    time.sleep(600)
print(pid, child, flush=True)
time.sleep(600)
"""


@dataclass
class Kept:
    """An owner, and what it started: ids of processes."""

    owner: "subprocess.Popen[str]"
    keeper: int
    command: int
    child: int
    work_dir: Path

    def wait_gone(self) -> None:
        """Wait until neither keeper nor command nor directory is left."""
        eventually(lambda: not (is_running(self.keeper) or is_running(self.command) or self.work_dir.exists()), self)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """Both run, in a session of their own: Ctrl-C in the terminal does not reach them."""
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    with subprocess.Popen([sys.executable, "-c", OWNER, str(work_dir)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        command, child = (int(word) for word in owner.stdout.readline().split())
        keeper = os.getsid(command)
        assert keeper not in (owner.pid, os.getsid(owner.pid))
        assert is_running(keeper)
        assert is_running(command)
        yield Kept(owner, keeper, command, child, work_dir)
        owner.kill()
        if is_running(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_owner(kept: Kept, end: signal.Signals) -> None:
    """However the owner ends, keeper, command and directory go; its own death counts, not the last copy of its pipe."""
    kept.owner.send_signal(end)
    kept.owner.wait()
    kept.wait_gone()
    assert is_running(kept.child)


def test_sigterm_to_the_keeper_ends_all(kept: Kept) -> None:
    """When the machine goes down, all processes get a SIGTERM, and no directory stays."""
    os.kill(kept.keeper, signal.SIGTERM)
    eventually(lambda: not (is_running(kept.command) or kept.work_dir.exists()), kept)


def test_it_needs_the_standard_library_only() -> None:
    """It starts in an interpreter without site-packages, hence quickly."""
    source = Path(__file__).parents[3] / "snapreplay" / "devbroker" / "broker_keeper.py"
    code = f"import runpy; runpy.run_path({str(source)!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
