"""The restore plan of a service on a real broker: over HTTP and by the command, then the restore itself."""

import asyncio

import httpx2
import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.api.server import HttpServer
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.restore_plan import Rates
from snapreplay.service.live import recoverability_monitor
from tests.support import apps
from tests.support.stage import processed, snapshot


async def test_what_is_planned_is_done_and_measured(stage, unique, monkeypatch):
    """A snapshot and 15,000 records behind it; the next owner restores just that, and predicts by the rate that this
    took."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    here = await stage(apps.ledger(unique("plan")), changelog={"enabled": False})
    await here.feed(10)
    async with here.running(http=HttpServer()) as service:
        await processed(service, {0: 10})
        newest = await snapshot(service)
        await here.process(service, 15_000)
        planned = await plan(service, 15_000)
        assert (planned["mode"], planned["first"]["snapshot_id"]) == ("replay", newest)
        assert planned["rates"]["measured"] == ["before_loading_seconds"]
        assert planned["first"]["predicted_seconds"] > 15_000 / planned["rates"]["replay_per_second"]
        shown = await asyncio.to_thread(CliRunner().invoke, app, ["plan", "--url", url(service)])
        assert (shown.exit_code, newest[:8] in shown.output) == (0, True), shown.output
    before = ratios(here)
    async with here.running(http=HttpServer()) as service:
        restore = service.restore_status()[0].restore
        assert (restore.snapshot.snapshot_id, restore.records_advanced) == (newest, 15_000)
        constant = Rates().speed("replay").seconds(restore.snapshot.size_bytes, 15_000)
        assert restore.predicted_seconds == pytest.approx(constant)
        assert ratios(here) - before == pytest.approx(
            restore.predicted_seconds / sum(restore.seconds_per_phase.values())
        )
        rates = (await plan(service, 15_000))["rates"]
        assert rates["measured"] == ["before_loading_seconds", "replay_per_second"]
        assert rates["replay_per_second"] > 15_000 / restore.seconds_per_phase["advancing"]


def ratios(here):
    """Return the sum of all predictions by their truths so far."""
    labels = {"app": here.app.app_id, "partition": "0"}
    return EVENTS.get_sample_value("snapreplay_restore_prediction_ratio_sum", labels)


def url(service):
    host, port = service.http_address
    return f"http://{host}:{port}"


async def plan(service, records):
    """Wait until so many are planned to be brought forward; return the plan."""
    async with httpx2.AsyncClient(base_url=url(service), trust_env=False) as asking:
        while True:
            (row,) = (await asking.get("/api/v1/restore/plan")).json()["items"]
            if row["plan"] is not None and row["plan"]["first"]["records"] == records:
                return row["plan"]
