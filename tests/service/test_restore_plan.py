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
from tests.support.stage import processed, snapshot, until
from tests.support.tampering import configure

pytestmark = pytest.mark.kafka


async def test_what_is_planned_is_done_and_measured(stage, unique, monkeypatch):
    """A snapshot and 15,000 records behind it; the next owner restores just that, and predicts by the rate that this
    took. The input keeps its records for a week."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    here = await stage(apps.ledger(unique("plan")), changelog={"enabled": False})
    await here.feed(10)
    async with here.running(http=HttpServer()) as service:
        await processed(service, {0: 10})
        newest = await snapshot(service)
        await here.feed(15_000)
        await processed(service, {0: 15_010})
        planned = await plan(service, 15_000)
        assert (planned["mode"], planned["first"]["snapshot_id"]) == ("replay", newest)
        assert planned["rates"]["measured"] == ["before_loading_seconds"]
        assert planned["first"]["predicted_seconds"] > 15_000 / planned["rates"]["replay_per_second"]
        (left,) = planned["inputs"]
        assert (left["needed_from_offset"], left["headroom_offsets"]) == (10, 10)
        assert 604_000 < left["headroom_seconds"] < 604_800
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


async def test_each_input_has_the_headroom_of_its_own_retention(stage, unique, monkeypatch):
    """One is deleted by time, the other by size; what is not measured yet is said to be unknown. The command shows what
    comes first."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.5)
    here = await stage(apps.pair(unique("headroom")), changelog={"enabled": False})
    left, right = (each.name for each in here.app.inputs)
    configure(here.bootstrap_servers, left, "retention.ms", "3600000")
    configure(here.bootstrap_servers, right, "retention.ms", "-1")
    configure(here.bootstrap_servers, right, "retention.bytes", "1000000")
    for topic in (left, right):
        await here.send([(f"k{n}", {"amount": n}) for n in range(100)], topic)
    async with here.running(http=HttpServer()) as service:
        await processed(service, {0: 100}, right)
        await until(lambda: planned(service), "a first plan")
        by_time, by_size = planned(service).inputs
        assert 3400 < by_time.headroom_seconds <= 3600
        assert (by_time.size_headroom_seconds, by_time.size_unknown) == (None, "")
        assert (by_size.headroom_seconds, by_size.size_headroom_seconds) == (None, None)
        assert by_size.size_unknown in ("its growth is not measured yet", "")  # the second look found none
        await here.send([(f"k{n}", {"amount": n}) for n in range(1000)], right)
        await until(lambda: planned(service).inputs[1].size_headroom_seconds, "a measured growth")
        shown = await asyncio.to_thread(CliRunner().invoke, app, ["plan", "--url", url(service)])
        assert left in shown.output


def planned(service):
    """Return the newest plan of partition 0."""
    return service.restore_status()[0].restore_plan


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
