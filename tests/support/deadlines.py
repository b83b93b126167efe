"""The deadlines of tests.

Deadlines are written for an idle machine; on a slow or busy one all of them grow alike. A deadline ends what hangs, so
a longer one weakens no test. `scaled` multiplies by the larger of two factors. One is measured once per session;
workers and child processes of the session inherit it. The other is how many want each core now.
"""

import asyncio
import os
import time
from functools import cache
from pathlib import Path
from zlib import crc32

VARIABLE = "SNAPREPLAY_TEST_DEADLINE_FACTOR"
CALIBRATION_S = 0.2
"""What `_work` takes of one idle core of the machine for which the deadlines were written."""
FACTOR_MAX = 20.0


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
    running = max(os.getloadavg()[0], int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))  # the load is a minute old
    wanted = running / (os.cpu_count() or 1)
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
