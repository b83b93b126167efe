"""The deadlines of tests, and waiting for other processes in a plain thread.

Deadlines are written for an idle machine; on a slow or busy one all of them grow alike. A deadline ends what hangs, so
a longer one weakens no test. `scaled` multiplies by the larger of two factors. One is measured once per session;
workers and child processes of the session inherit it. The other is how many want each core now.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from zlib import crc32

import httpx2

from snapreplay.errors import PartitionNotLive

VARIABLE = "SNAPREPLAY_TEST_DEADLINE_FACTOR"
CALIBRATION_S = 0.2
"""What `_work` takes of one idle core of the machine for which the deadlines were written."""
FACTOR_MAX = 20.0
NOT_THERE = (LookupError, AttributeError, TypeError, ValueError, PartitionNotLive)
"""What a look at something raises that is not there yet, such as the first status of a service that owns nothing."""


@cache
def factor() -> float:
    """Return at least 1: how many times as long as on an idle machine the same work took at the start."""
    inherited = os.environ.get(VARIABLE)
    if inherited:
        return float(inherited)
    before = time.perf_counter()
    _work()
    found = (time.perf_counter() - before) / CALIBRATION_S
    os.environ[VARIABLE] = str(min(max(found, 1.0), FACTOR_MAX))
    return float(os.environ[VARIABLE])


def scaled(seconds: float) -> float:
    """A deadline of so many seconds on an idle machine."""
    wanted = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * min(max(factor(), wanted), FACTOR_MAX)


def within(seconds: float) -> asyncio.Timeout:
    return asyncio.timeout(scaled(seconds))


def _work() -> None:
    """Long enough that the scheduler has taken the core away several times where others want it too."""
    block = bytes(1 << 16)
    for _ in range(8000):
        crc32(block)


def is_running(pid: int) -> bool:
    """Say whether a process of this id is there and no zombie. One with a thread that has not ended keeps its files."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return state != "Z" or int(fields[16]) > 1  # its threads
    except OSError:
        return False


def is_true(holds: Callable[[], object]) -> bool:
    """Say whether a condition is true. It is not while what it looks at is not there, nor while HTTP answers 503: so it
    does when the service stands still, such as on a busy machine."""
    try:
        return bool(holds())
    except NOT_THERE:
        return False
    except httpx2.HTTPStatusError as error:
        if error.response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return False


def eventually(holds: Callable[[], object], what: object = "", seconds: float = 30.0) -> None:
    """Wait for a condition; says what it was when it does not come true in time. What takes long is looked at less
    often: a look may be a request, which takes CPU of three processes."""
    began = time.monotonic()
    deadline = began + scaled(seconds)
    while not is_true(holds):
        if time.monotonic() > deadline:
            assert holds(), f"not within {scaled(seconds):.0f} s: {what}"
            return
        time.sleep(pause(time.monotonic() - began))  # between two looks, under the deadline


def pause(waited_seconds: float) -> float:
    """Seconds until the next look, by those that were waited before."""
    return min(0.01 + waited_seconds / 40, 0.05)
