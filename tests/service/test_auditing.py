"""Audits without Spark, as an operator runs them: they replay the app."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snapreplay.app.load import load_app
from tests.support.deadlines import scaled
from tests.support.stage import Stage, snapshot

APP = """
from tests.support import apps

def book(value, account):
    apps.add(value, account)
    account["sum"] += {more}

app = apps.ledger("{app_id}", book)
"""
ELSEWHERE = f"__import__('os').getpid() != {os.getpid()}"
"""Whether this is not the process that recorded the batches."""


@pytest.fixture
def replayed(broker: Any, unique: Any, tmp_path: Path) -> Any:
    """Runs an app from a file, then audits it in another process."""

    async def run(more: str) -> dict[str, Any]:
        app_id = unique("work")
        path = tmp_path / f"{app_id.replace('-', '_')}.py"
        path.write_text(APP.format(app_id=app_id, more=more))
        here = await Stage(broker.bootstrap_servers, load_app(str(path))).prepare()
        async with here.running(records=40) as service:
            await snapshot(service)
        words = ["audit", str(path), "--engine", "python", "--level", "replay", "-o", "json"]
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "snapreplay.api.cli", *words, "--bootstrap-servers", broker.bootstrap_servers],
            capture_output=True,
            timeout=scaled(60),
            check=False,
        )
        report: dict[str, Any] = json.loads(done.stdout or b"{}")
        assert done.returncode == bool(report["findings"]), done.stderr.decode()
        return report

    return run


async def test_the_handlers_lead_to_what_was_recorded(replayed: Any) -> None:
    """All batches are replayed, and nothing differs."""
    report = await replayed("0")
    assert (report["findings"], report["level"]) == ([], "replay")
    assert report["checked"]["records_replayed"] == 40


async def test_what_comes_from_outside_is_found(replayed: Any) -> None:
    """Two processes agree, and what was recorded is something else."""
    report = await replayed(f"1 if {ELSEWHERE} else 2")
    (finding,) = report["findings"]
    assert finding["check"] == "replay"
    assert "damage or an influence from outside such as PYTHONHASHSEED)" in finding["detail"]
