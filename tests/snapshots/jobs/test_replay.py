"""Proof by replay of what a real service left behind."""

import asyncio
import re

import pytest

from snapreplay.service.ports import NewTopic
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit
from tests.support import apps
from tests.support.stage import Stage, snapshot

pytestmark = [pytest.mark.spark, pytest.mark.whole, pytest.mark.timeout(300)]

APP = """
import random
from tests.support import apps

def book(value, account):
    apps.add(value, account)
    account["sum"] += {more} if value["amount"] == 37 else 0

app = apps.ledger("{app_id}", book)
"""


@pytest.fixture
async def told(broker, unique):
    """A ledger's log with two segments: 60 records, a snapshot, 60 records."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("replayed"))).prepare()
    async with here.running() as service:
        for count in (30, 30):
            await here.process(service, count)
        await snapshot(service)
        await here.feed(60)
        await here.all_committed(service)
    return here


@pytest.mark.parametrize(
    ("more", "says"),
    [("0", None), ("1", r"\(recorded by version .*\): other outputs to balances-.*; .* 1 key, first 'k17': recorded ")],
)
async def test_a_replay_shows_what_the_code_makes_of_the_input(spark, told, tmp_path, more, says) -> None:
    """Both segments whole; or the first difference, with batch, key, both values and the cause."""
    path = tmp_path / f"{told.app.app_id.replace('-', '_')}.py"
    path.write_text(APP.format(app_id=told.app.app_id, more=more))
    report = await asyncio.to_thread(audit, told.settings(), told.app.app_id, Level.REPLAY, str(path))
    assert report.checked["batches_proven"] == report.checked["increments"]
    if says is None:
        assert report.findings == []
        assert report.checked["records_replayed"] == 120
    else:
        (finding,) = report.findings
        assert re.search(says, finding.detail), finding.detail


async def test_an_internal_topic_is_replayed_as_an_input(spark, broker, unique, tmp_path) -> None:
    """In both partitions: the orders, and what they have led to under other keys."""
    here = await Stage(broker.bootstrap_servers, apps.rekeyed(unique("rekeyed")), 2).prepare()
    async with here.running() as service:
        await here.feed(40)
        await here.all_committed(service)
    path = tmp_path / f"{here.app.app_id.replace('-', '_')}.py"
    path.write_text(f"from tests.support import apps\n\napp = apps.rekeyed({here.app.app_id!r})\n")
    report = await asyncio.to_thread(audit, here.settings(), here.app.app_id, Level.REPLAY, str(path))
    assert (report.findings, report.partition_count) == ([], 2)
    assert report.checked["records_replayed"] == 2 * 40


async def test_a_broadcast_table_is_replayed_by_each_partition(spark, broker, unique, tmp_path) -> None:
    """All three partitions of its topic, by both partitions of the app."""
    here = Stage(broker.bootstrap_servers, apps.converted(unique("converted")), 2)
    (rates,) = here.app.broadcast_names
    await here.cluster.create_topics([NewTopic(rates, 3)])
    await here.prepare()
    rows = Stage(broker.bootstrap_servers, here.app, 3)
    await rows.send([(f"currency-{number}", number) for number in range(5)], rates)
    async with here.running() as service:
        await here.feed(40)
        await service.wait_caught_up()
        await here.decided()
    path = tmp_path / f"{here.app.app_id.replace('-', '_')}.py"
    path.write_text(f"from tests.support import apps\n\napp = apps.converted({here.app.app_id!r})\n")
    report = await asyncio.to_thread(audit, here.settings(), here.app.app_id, Level.REPLAY, str(path))
    assert (report.findings, report.partition_count) == ([], 2)
    assert report.checked["records_replayed"] == 40 + 2 * 5
    assert report.notes.get("segments_without_input", 0) == 0
