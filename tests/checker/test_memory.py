"""A log ten times as long needs no more memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checker import app, load
from tests.support.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 600.0
ROOM_MIB = 48
"""What the client's buffers and the allocator may differ by."""


@pytest.mark.slow
@pytest.mark.timeout(3000)
async def test_two_million_records_need_the_memory_of_two_hundred_thousand(
    broker: Any, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The checker's peak is that of a log with a tenth of the records, and everything was looked at."""
    peaks = []
    for count in (200_000, 2_000_000):
        app_id = unique("large")
        await fill(broker.bootstrap_servers, app_id, count)
        report = await asyncio.to_thread(checked, broker.bootstrap_servers, app_id, tmp_path / f"{count}.json")
        print(count, {name: report[name] for name in ("seconds", "peak_mib", "counts")})
        assert report["good"], report["violations"]
        assert report["counts"]["input records"] == count
        peaks.append(report["peak_mib"])
    assert peaks[1] < peaks[0] + ROOM_MIB, peaks


async def fill(servers: str, app_id: str, count: int) -> None:
    """One partition, processed to its end; nothing trimmed: few snapshots are written."""
    stage = await Stage(servers, app.make(app_id), 1).prepare()
    async with stage.running() as service:
        await asyncio.to_thread(load.send, servers, app_id, 1, 1, count)
        await processed(service, count)


async def processed(service: Any, count: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while sum(each.position for each in service.restore_status()[0].inputs) < count:
        assert loop.time() < deadline
        await asyncio.sleep(0.1)  # between two looks, bounded by the deadline


def checked(servers: str, app_id: str, report: Path) -> Any:
    """A process of its own: its peak is the checker's."""
    command = [
        *(sys.executable, "-m", "tests.checker", "--bootstrap-servers", servers),
        *("--app-id", app_id, "--report", str(report)),
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())
