"""The process that serves HTTP for a service: `python -m snapreplay.api.http_process`, started by its `Keeper`.

It ends with the service, whatever way the service ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import os
import signal
import sys
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1


class Arguments(NamedTuple):
    """Numbers of open files, what `Hosts` needs, and settings."""

    parent: int
    listener: int
    line: int
    states: int
    bound: str
    allowed: str
    token_file: str
    suspect_after_ms: int

    def encoded(self) -> str:
        return json.dumps(self)


def main() -> None:
    arguments = Arguments(*json.loads(sys.argv[1]))
    _end_with(arguments.parent)
    # The service decides when both end: a signal for all processes of a terminal or a container is for it.
    for number in (*(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT), *(signal.SIGUSR1, signal.SIGUSR2)):
        signal.signal(number, signal.SIG_IGN)
    # It takes half a second, and until now nothing would have ended this process.
    serving = importlib.import_module("snapreplay.api.serving")
    asyncio.run(serving.serve(arguments))


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends, also by SIGKILL. A line alone would
    not do: a process that a handler has forked keeps the other end of it open."""
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:  # elsewhere than on Linux its line ends it
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main()
