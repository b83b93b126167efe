"""The process between the owner and the broker: it ends the broker when the owner is gone.

The kernel's mechanism (PR_SET_PDEATHSIG) follows the *thread* that started the child, so a broker started from a worker
thread would die with that thread. This process has one thread and uses that mechanism for the JVM. To notice the end of
its owner it watches two things: the pipe from the owner (the kernel closes it when the owner ends, however that
happens), and its parent's id (a process forked by the owner may hold the pipe open).

Started by file name with `python -I -S`: it needs nothing but the standard library. Protocol: one
JSON object per line on the standard input, one answer per line on the standard output.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_WATCH_S = 0.25
_PR_SET_PDEATHSIG = 1


class BrokerKeeper:
    """Holds at most one child at a time, and the directory to remove at the end."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir: Path | None = work_dir
        self._child: subprocess.Popen[bytes] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request; an `error` in the answer says that it could not be done."""
        try:
            match request["do"]:
                case "run":
                    return {"pid": self._run(request["argv"], request["log"])}
                case "poll":
                    return {"exit": self._child.poll() if self._child else None}
                case "end":
                    return {"exit": self.end(request["grace_s"])}
                case "leave":
                    self._work_dir = None
                    return {}
                case other:
                    return {"error": f"unknown request {other}"}
        except OSError as error:
            return {"error": str(error)}

    def _run(self, argv: list[str], log: str) -> int:
        self.end(0.0)
        with Path(log).open("ab") as output:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._work_dir,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - no second thread here
            )
        return self._child.pid

    def end(self, grace_s: float) -> int | None:
        """End the child: SIGTERM and `grace_s` seconds of patience (none if 0), then SIGKILL."""
        if self._child is None:
            return None
        if grace_s > 0 and self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(grace_s)
        if self._child.poll() is None:
            self._child.kill()
        return self._child.wait()

    def clean_up(self) -> None:
        """End the child and remove the directory: the owner is gone or done."""
        self.end(0.0)
        if self._work_dir is not None:
            shutil.rmtree(self._work_dir, ignore_errors=True)


def serve(keeper: BrokerKeeper, owner_pid: int) -> None:
    pending = b""
    while os.getppid() == owner_pid:
        if not select.select([0], [], [], _WATCH_S)[0]:
            continue
        received = os.read(0, 65_536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(keeper.answer(json.loads(line))).encode() + b"\n")


def main() -> None:
    """Run as `broker_keeper.py OWNER_PID WORK_DIR`."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    keeper = BrokerKeeper(Path(sys.argv[2]))
    # BrokenPipeError: the owner ended while it was being answered.
    try:
        with contextlib.suppress(BrokenPipeError):
            serve(keeper, int(sys.argv[1]))
    finally:
        keeper.clean_up()


def _die_with_parent() -> None:
    # The JVM must end even if this process is killed. Set between fork and exec.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
