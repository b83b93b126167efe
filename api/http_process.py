"""The process that serves HTTP for a service: `python -m snapreplay.api.http_process`, started by its `Keeper`.

It ends with the service, whatever way the service ends.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import sys
from typing import NamedTuple

from snapreplay.service.runtime.child_process import end_with


class Arguments(NamedTuple):
    """Numbers of open files, what `Hosts` needs, settings, and for how long a quick restore goes first.
    `probes`: -1 if there is no port for them."""

    parent: int
    listener: int
    probes: int
    line: int
    states: int
    bound: str
    allowed: str
    token_file: str
    tls: tuple[str, ...]
    suspect_after_ms: int
    load_after_seconds: float

    def encoded(self) -> str:
        return json.dumps(self)


def main() -> None:
    arguments = Arguments(*json.loads(sys.argv[1]))
    end_with(arguments.parent, signal.SIGKILL)
    # The service decides when both end: a signal for all processes of a terminal or a container is for it.
    for number in (*(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT), *(signal.SIGUSR1, signal.SIGUSR2)):
        signal.signal(number, signal.SIG_IGN)
    # It takes a while, and until now nothing would have ended this process.
    serving = importlib.import_module("snapreplay.api.serving")
    asyncio.run(serving.serve(arguments))


if __name__ == "__main__":
    main()
