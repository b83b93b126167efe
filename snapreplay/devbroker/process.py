"""The owner's side of the keeper: a child that ends with this process, however this one ends."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from snapreplay.jars import environment

_ANSWER_DEADLINE_S = 15.0
_LEAVE_DEADLINE_S = 10.0


class KeeperGone(Exception):
    """The keeper ended or does not answer; its child is dead or about to die."""


class KeptProcess:
    """Runs one command at a time under a keeper, and removes `work_dir` at the end.

    May be used from any thread. Every call has a deadline and raises KeeperGone if the keeper is gone.
    """

    def __init__(self, work_dir: Path) -> None:
        self._lock = threading.Lock()
        self._work_dir: Path | None = work_dir
        # as_file: even in a zip archive there is a real file while the interpreter reads it.
        with as_file(files(__package__) / "broker_keeper.py") as script:
            owner = [str(os.getpid()), str(work_dir)]
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), *owner],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment(),
                # Ctrl-C in a terminal reaches the whole process group; only the owner decides what ends.
                start_new_session=True,
            )
            self._ask({"do": "poll"})

    def run(self, argv: list[str], log_path: Path) -> int:
        """Start the command and end the previous one; its output is appended to `log_path`.

        Returns its process id.
        """
        return int(self._ask({"do": "run", "argv": argv, "log": str(log_path)})["pid"])

    def exit_code(self) -> int | None:
        """Return the exit code (negative: the signal that killed it); None while it runs."""
        return _as_code(self._ask({"do": "poll"})["exit"])

    def end(self, grace_s: float) -> int | None:
        """Send SIGTERM, wait up to `grace_s` seconds, then send SIGKILL (at once if 0); return the exit code."""
        request = {"do": "end", "grace_s": grace_s}
        return _as_code(self._ask(request, grace_s + _ANSWER_DEADLINE_S)["exit"])

    def leave_files(self) -> None:
        self._work_dir = None
        self._ask({"do": "leave"})

    def close(self) -> None:
        """End the keeper, and the command by SIGKILL if it runs. A second call does nothing."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._keeper.wait(_LEAVE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        if self._work_dir is not None:
            # The keeper has done this, unless somebody killed it.
            shutil.rmtree(self._work_dir, ignore_errors=True)

    def _ask(self, request: dict[str, Any], deadline_s: float = _ANSWER_DEADLINE_S) -> dict[str, Any]:
        with self._lock:
            # A late answer would be taken for the answer to the next request.
            watch = threading.Timer(deadline_s, self._keeper.kill)
            watch.start()
            try:
                answer = self._exchange(json.dumps(request).encode() + b"\n")
            except (OSError, ValueError) as error:  # ValueError: we closed the pipe ourselves
                raise KeeperGone(f"its keeper process is gone ({error})") from error
            finally:
                watch.cancel()
        if "error" in answer:
            raise KeeperGone(f"its keeper process reports {answer['error']}")
        return answer

    def _exchange(self, request: bytes) -> dict[str, Any]:
        stdin, stdout = self._keeper.stdin, self._keeper.stdout
        if stdin is None or stdout is None:
            raise BrokenPipeError("no pipe")
        stdin.write(request)
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise BrokenPipeError("it ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _as_code(answer: object) -> int | None:
    return answer if isinstance(answer, int) else None
