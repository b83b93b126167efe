"""Drills of a service on a real broker: by the command and over HTTP, of a whole log and of a damaged one."""

import asyncio
import re

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.api.server import HttpServer
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.live import recoverability_monitor
from tests.support import apps
from tests.support.stage import processed, snapshot, until
from tests.support.tampering import damage_chunks

pytestmark = pytest.mark.kafka


async def typed(service, *words):
    """Give a command to the service; return its exit code, and what it printed in one line."""
    host, port = service.http_address
    shown = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--url", f"http://{host}:{port}"])
    return shown.exit_code, re.sub(r"\s+", " ", shown.output)


def drills(here, result, partition=0):
    labels = {"app": here.app.app_id, "partition": str(partition), "result": result}
    return EVENTS.get_sample_value("snapreplay_drills_total", labels)


async def test_a_chunk_that_was_damaged_on_its_way_is_told_and_mended(stage, unique, monkeypatch, caplog):
    """The owner cannot know: it has sent another one. The drill says so, the partition goes on, and the next snapshot
    is whole. The plan has the verdict until then."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    here = await stage(apps.ledger(unique("drill")))
    async with here.running(http=HttpServer()) as service:
        await here.feed(100)
        await processed(service, {0: 100})
        with monkeypatch.context() as patched:
            damage_chunks(patched)
            damaged = await snapshot(service)
        code, output = await typed(service, "drill", "-p", "0", "--wait")
        assert (code, drills(here, "failed")) == (1, 1), output
        assert f"a recovery would fall back: snapshot {damaged}" in output
        assert any("the drill failed" in each.getMessage() for each in caplog.records if each.levelname == "ERROR")
        status = service.restore_status()[0]
        assert (status.phase, status.drill.state) == ("live", "failed")

        def is_mended():
            taken = service.restore_status()[0].snapshot
            return (taken.reason, taken.state) == ("fallback", "pointed")

        await until(is_mended, "another snapshot")
        await here.feed(50)
        await here.assert_exactly_once(service)
        await until(lambda: service.restore_status()[0].restore_plan, "a plan")
        assert "partition 0: the last drill failed" in (await typed(service, "plan"))[1]
        code, output = await typed(service, "drill", "--wait")
        assert code == 0, output
        newest = service.restore_status()[0].drill.snapshot_id
        assert newest != damaged
    restored = await here.restored()
    assert restored.fallback_from is None
