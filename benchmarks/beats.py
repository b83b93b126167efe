"""Runs `snapreplay` with a task beside the service that notes how long its event loop is blocked:
`python -m benchmarks.beats FILE run APP …`.

The task asks over and over to be woken after a few milliseconds. Each delay of more than a few is a line of the file:
the time of day at which it ended, and its seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from snapreplay.api.cli import main
from snapreplay.service.service import Service

BEAT_SECONDS = 0.005
NOTED_SECONDS = 0.002


async def _beat(noted: Path) -> None:
    loop = asyncio.get_running_loop()
    with noted.open("a", buffering=1) as lines:
        while True:
            due = loop.time() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            if (late := loop.time() - due) > NOTED_SECONDS:
                lines.write(f"{time.time()} {late}\n")


def longest_since(noted: Path, since: float) -> float:
    """Return the longest delay that ended after this time of day, in seconds; 0: none was noted."""
    pairs = [line.split() for line in noted.read_text().splitlines() if line.count(" ") == 1]
    return max((float(late) for at, late in pairs if float(at) > since), default=0.0)


def _beating(noted: Path) -> None:
    """Let every service of this process have such a task."""
    start = Service.start

    async def started(service: Service[Any]) -> None:
        service.beating = asyncio.create_task(_beat(noted))  # type: ignore[attr-defined]  # else it could be collected
        await start(service)

    Service.start = started  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _beating(Path(sys.argv.pop(1)))
    main()
