"""Proof by replay of what a real service left behind."""

import asyncio
import re

import pytest

from snapreplay.service.control.operations import PausePartition, ResumePartition
from snapreplay.service.decisions.patch import carry_out, propose
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit
from tests.support import apps
from tests.support.stage import Stage, snapshot, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

APP = """
import random
from tests.support import apps

def book(value, account):
    apps.add(value, account)
    account["sum"] += {more} if value["amount"] == 37 else 0

app = apps.ledger("{app_id}", book)
"""


async def set_paused(service, paused):
    begun = service.control.perform(PausePartition(0, "repairs") if paused else ResumePartition(0))
    await until(lambda: service.control.operation(begun.id).state == "succeeded", "the pause, or its end")


@pytest.fixture
async def told(broker, unique):
    """A ledger's log with two segments: 60 records, a snapshot, 60 records; the second one has a pause."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("replayed"))).prepare()
    async with here.running() as service:
        for count in (30, 30):
            await here.feed(count)
            await here.all_processed(service)
        await snapshot(service)
        await here.feed(30)
        await here.all_processed(service)
        for paused in (True, False):
            await set_paused(service, paused)
            await here.feed(15)
        await here.all_committed(service)
    return here


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("0", None),
        ("1", r"\(code changed\): other outputs to balances-.*; .* 1 key, first 'k17': recorded .* replayed"),
        pytest.param("random.randrange(10**9)", r"\(not deterministic\)", marks=pytest.mark.whole),
    ],
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


async def test_a_corrected_state_is_proven_by_replay_as_well(spark, told, tmp_path) -> None:
    """The decision is told, and what came after it is replayed from the corrected state."""
    line = b'{"key": "k0", "expected": {"n": 6, "sum": 300}, "value": {"n": 6, "sum": 0}}'
    (patch,) = await propose(told.app, told.settings(), told.cluster, [line], "ticket 17", print)
    await carry_out(patch)
    async with told.running() as service:
        await told.feed(20)
        await told.all_committed(service)
        assert service.view(0)["k0"] == {"n": 7, "sum": 120}
        await snapshot(service)
    path = tmp_path / f"{told.app.app_id.replace('-', '_')}.py"
    path.write_text(APP.format(app_id=told.app.app_id, more="0"))
    report = await asyncio.to_thread(audit, told.settings(), told.app.app_id, Level.REPLAY, str(path))
    assert report.findings == []
    assert report.checked["records_replayed"] == 20
    assert [(each.finding[:14], each.reason) for each in report.decisions] == [("state-patched-", "ticket 17")]
