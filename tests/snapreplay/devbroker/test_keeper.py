"""A kept process: start, end, and that nothing of it outlives its owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snapreplay.devbroker.node import KeeperGone, KeptProcess
from tests.support.deadlines import is_running
from tests.support.waiting import eventually

SLEEP = ["/bin/sh", "-c", "echo up; exec sleep 600"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]
# An owner in a process of its own. Its child holds a copy of the pipe to the keeper, and stays when the owner dies.
OWNER = """
import os, sys, time
from pathlib import Path
from snapreplay.devbroker.node import KeptProcess
work_dir = Path(sys.argv[1])
pid = KeptProcess(work_dir).run(["/bin/sleep", "600"], work_dir / "log")
child = os.fork()
if not child:
    time.sleep(600)
print(pid, child, flush=True)
time.sleep(600)
"""


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    """A directory with something in it."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "file").touch()
    return made


@pytest.fixture
def kept(work_dir: Path) -> Iterator[KeptProcess]:
    """A keeper that is closed in any case."""
    process = KeptProcess(work_dir)
    yield process
    process.close()


def run(kept: KeptProcess, command: list[str], log: Path) -> int:
    """Start a command and wait until it has said that it runs."""
    pid = kept.run(command, log)
    eventually(lambda: "up" in log.read_text(), "the command did not start")
    return pid


def test_nothing_outlives_the_owner(work_dir: Path) -> None:
    """When the owner is killed, keeper, command and directory go; not only with the last copy of its pipe."""
    with subprocess.Popen([sys.executable, "-c", OWNER, str(work_dir)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        command, child = (int(word) for word in owner.stdout.readline().split())
        keeper = os.getsid(command)  # a session of their own: Ctrl-C in the terminal does not reach them
        try:
            owner.kill()
            owner.wait()
            eventually(lambda: not (is_running(keeper) or is_running(command) or work_dir.exists()), "gone")
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_command_is_run_again_with_its_log_or_is_an_error(kept: KeptProcess, tmp_path: Path) -> None:
    """A restart does not lose what the former run said. A reason comes back to the owner, and the keeper stays
    usable."""
    log = tmp_path / "log"
    with pytest.raises(KeeperGone, match="No such file"):
        kept.run(["/does/not/exist"], log)
    assert kept.exit_code() is None
    for word in ("one", "two"):
        kept.run(["/bin/sh", "-c", f"echo {word}; echo {word} >&2; exit 7"], log)
        eventually(lambda: kept.exit_code() == 7, "it did not end")
    assert log.read_text() == "one\none\ntwo\ntwo\n"


def test_the_end_is_bounded_and_leaves_nothing(kept: KeptProcess, work_dir: Path, tmp_path: Path) -> None:
    """What ignores SIGTERM is killed; after a close neither command nor directory is left."""
    pid = run(kept, STUBBORN, tmp_path / "log")
    assert kept.end(grace_s=0.2) == -signal.SIGKILL
    assert not is_running(pid)
    pid = run(kept, SLEEP, tmp_path / "again")
    kept.close()
    kept.close()
    assert not is_running(pid)
    assert not work_dir.exists()
    with pytest.raises(KeeperGone):
        kept.exit_code()


def test_the_end_of_the_starting_thread_is_not_the_end_of_the_command(work_dir: Path, tmp_path: Path) -> None:
    """A broker started from a worker thread lives on when that thread ends. Ending twice gives the same answer."""
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(KeptProcess, work_dir).result()
        pid = pool.submit(run, kept, SLEEP, tmp_path / "log").result()
    try:
        assert kept.exit_code() is None
        assert is_running(pid)
        assert kept.end(grace_s=0.0) == kept.end(grace_s=5.0) == -signal.SIGKILL
    finally:
        kept.close()


def test_a_keeper_that_is_killed_takes_the_command_along(kept: KeptProcess, work_dir: Path, tmp_path: Path) -> None:
    """The owner learns of it, and removes the directory."""
    pid = run(kept, SLEEP, tmp_path / "log")
    os.kill(os.getsid(pid), signal.SIGKILL)
    eventually(lambda: not is_running(pid), "the command outlived its keeper")
    with pytest.raises(KeeperGone):
        eventually(kept.exit_code, "gone")
    kept.close()
    assert not work_dir.exists()
