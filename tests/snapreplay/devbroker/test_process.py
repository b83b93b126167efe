"""A kept process, seen from its owner: start, end, and what stays."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snapreplay.devbroker.node import KeeperGone, KeptProcess
from tests.support.deadlines import is_running
from tests.support.waiting import eventually

SLEEP = ["/bin/sh", "-c", "echo up; exec sleep 600"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]


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


def test_the_output_is_appended_to_the_log(kept: KeptProcess, tmp_path: Path) -> None:
    """A restart does not lose what the former run said."""
    log = tmp_path / "log"
    for word in ("one", "two"):
        kept.run(["/bin/sh", "-c", f"echo {word}; echo {word} >&2; exit 7"], log)
        eventually(lambda: kept.exit_code() == 7, "it did not end")
    assert log.read_text() == "one\none\ntwo\ntwo\n"


def test_a_command_that_cannot_be_started_is_an_error(kept: KeptProcess, tmp_path: Path) -> None:
    """The reason comes back to the owner, and the keeper stays usable."""
    with pytest.raises(KeeperGone, match="No such file"):
        kept.run(["/does/not/exist"], tmp_path / "log")
    assert kept.exit_code() is None


def test_end_kills_what_ignores_sigterm(kept: KeptProcess, tmp_path: Path) -> None:
    """The patience is bounded."""
    pid = run(kept, STUBBORN, tmp_path / "log")
    assert kept.end(grace_s=0.2) == -signal.SIGKILL
    assert not is_running(pid)


def test_close_ends_the_command_and_removes_the_directory(kept: KeptProcess, work_dir: Path, tmp_path: Path) -> None:
    """Nothing stays, also when close is called twice."""
    pid = run(kept, SLEEP, tmp_path / "log")
    kept.close()
    kept.close()
    assert not is_running(pid)
    assert not work_dir.exists()
    with pytest.raises(KeeperGone):
        kept.exit_code()


def test_files_can_be_left(kept: KeptProcess, work_dir: Path) -> None:
    """Somebody wants to read the log."""
    kept.leave_files()
    kept.close()
    assert (work_dir / "file").exists()


def test_the_end_of_the_starting_thread_is_not_the_end_of_the_command(work_dir: Path, tmp_path: Path) -> None:
    """A broker started from a worker thread lives on when that thread ends. Without patience its end is a crash: no
    SIGTERM comes first; ending twice gives the same answer."""
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(KeptProcess, work_dir).result()
        pid = pool.submit(run, kept, SLEEP, tmp_path / "log").result()
    try:
        assert kept.exit_code() is None
        assert is_running(pid)
        assert kept.end(grace_s=0.0) == kept.end(grace_s=5.0) == -signal.SIGKILL
        assert not is_running(pid)
    finally:
        kept.close()


def test_a_killed_keeper_takes_the_command_along(kept: KeptProcess, work_dir: Path, tmp_path: Path) -> None:
    """Not even then does the command stay; the owner is told, and removes the directory."""
    pid = run(kept, SLEEP, tmp_path / "log")
    os.kill(os.getsid(pid), signal.SIGKILL)
    eventually(lambda: not is_running(pid), "the command outlived its keeper")
    with pytest.raises(KeeperGone):
        kept.exit_code()
    kept.close()
    assert not work_dir.exists()
