"""Damage in the log of the demo's app, as an audit tells it: a handler that is not the one of then, a flipped bit."""

import asyncio
import re
from pathlib import Path

import pytest

from examples import flights
from examples.demo import data
from snapreplay.app.load import load_app
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.proof.report import Level
from snapreplay.spark import audit
from tests.support.stage import Stage, snapshot
from tests.support.tampering import flip, tamper

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

HANDLER = "stats.miles += flight.distance"
DAMAGED = f'{HANDLER} + (flight.dest == "HNL")'
"""As docs/spark.md does it: one mile more to Honolulu."""


def source(app_id: str) -> str:
    """Write the source of the demo's app, under names of its own."""
    text = Path(flights.__file__).read_text(encoding="utf-8")
    for name in ('Topic("flights"', 'Topic("flight-stats"', 'App("flights"'):
        assert text.count(name) == 1
        text = text.replace(name, name.replace('"fl', f'"{app_id}-fl'))
    return text.replace(f'App("{app_id}-flights"', f'App("{app_id}"')


@pytest.fixture
async def here(broker, unique, tmp_path):
    """2,000 flights in one partition, with a snapshot after half of them."""
    app_id = unique("damaged")
    path = tmp_path / f"{app_id.replace('-', '_')}.py"
    path.write_text(source(app_id))
    stage = await Stage(broker.bootstrap_servers, load_app(str(path))).prepare()
    rows = [(row.key.decode(), row.value) for row in data.rows(2000)]
    async with stage.running() as service:
        for half in (rows[:1000], rows[1000:]):
            await stage.send(half)
            await stage.all_processed(service)
            await snapshot(service)
    return stage, path


async def proved(stage, path):
    app_id = stage.app.app_id
    return await asyncio.to_thread(audit, stage.settings(), app_id, Level.REPLAY, str(path))


@pytest.mark.whole
async def test_a_damaged_handler_is_named(spark, here, tmp_path) -> None:
    """By batch and aircraft, with what was recorded and what it makes of it; the handler of then finds nothing."""
    stage, path = here
    assert (await proved(stage, path)).findings == []
    to_honolulu = {row.key.decode() for row in data.rows(2000) if b'"HNL"' in row.value}
    text = path.read_text()
    assert text.count(HANDLER) == 1
    damaged = tmp_path / "damaged.py"
    damaged.write_text(text.replace(HANDLER, DAMAGED))
    found = (await proved(stage, damaged)).findings
    assert len(found) == 2, "one in each stretch between snapshots"
    first = found[0]
    assert (first.check, first.topic, first.partition) == ("replay", f"{stage.app.app_id}-increments", 0)
    assert re.match(r"batch \d+ replays differently \(code changed\): other outputs to ", first.detail)
    key = re.search(r"first '(\w+)': recorded .*'miles': (\d+),.* replayed .*'miles': (\d+),", first.detail)
    assert key is not None, first.detail
    assert int(key[3]) > int(key[2])
    assert key[1] in to_honolulu


@pytest.mark.whole
async def test_a_flipped_bit_is_named(spark, here) -> None:
    """By topic, partition and offset of the record that has it; and the batch whose changes it is."""
    stage, path = here
    topic = f"{stage.app.app_id}-increments"
    record = await tamper(stage, topic, RecordKind.CHANGES, flip, 0)
    report = await proved(stage, path)
    found = {each.check: each for each in report.findings}
    assert found.keys() == {"envelope", "changes"}
    named = found["envelope"]
    assert (named.topic, named.partition, named.offset) == (topic, 0, record.offset)
    assert "crc32 is not what was written" in named.detail
    assert found["changes"].detail.startswith("batch 1 names 1 changes record")
