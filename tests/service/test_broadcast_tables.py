"""Broadcast tables on a real broker: every partition has all rows after each kill, and audits agree."""

import asyncio
import time
from collections import defaultdict
from typing import Any

import pytest

from snapreplay.api.server import HttpServer
from snapreplay.service.blocking import BlockingReader
from snapreplay.service.dead_letters import redrive
from snapreplay.service.decisions.reset import ResetTarget, propose
from snapreplay.service.doctor.collect import examine
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.ports import NewTopic, TopicPartition
from snapreplay.service.recovery.input_identity import InputShrunk
from snapreplay.service.topics.requirements import KEPT_FOR_EVER, ensure_topics
from snapreplay.snapshots.jobs.audit import audit
from snapreplay.snapshots.proof.report import Level
from snapreplay.testing import Expected, RealHarness, record
from tests.service.test_state_reads import Asking
from tests.support import apps
from tests.support.apps import currency_of
from tests.support.deadlines import scaled
from tests.support.kafka import decided
from tests.support.stage import Stage, snapshot, until
from tests.support.tampering import create, delete, grow
from tests.support.tested import converted

payments, rates = apps.topics_of(converted)


def by_hand(records: list[Any]) -> Expected:
    """The fold of payments and rates in the order of their timestamps."""
    known, accounts = dict[str, int](), defaultdict[str, dict[str, int]](lambda: {"n": 0, "sum": 0})
    for each in records:
        if each.topic == rates.name:
            known.pop(each.key, None)
            if each.value is not None:
                known[each.key] = each.value
        else:
            account = accounts[each.key]
            account["n"] += 1
            account["sum"] += each.value["amount"] * known.get(currency_of(each.value), 0)
    return Expected({"rates": known, "accounts": accounts})


@pytest.mark.whole  # in memory and simulated: test_broadcast.py, tests/simulation/test_tables.py
@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_every_partition_has_all_rows_over_kills(broker, unique, mode):
    """Four partitions, and a table topic of three; two processes with warm copies. Between rows and payments all is
    committed, so that a fold by hand knows their order; kills by seed fall while they are fed."""
    harness = RealHarness(
        converted,
        broker,
        prefix=f"{unique('broadcast')}-",
        deadline_s=scaled(60),
        partitions=4,
        processes=2,
        standbys=1,
        seed=7,
        settings={"restore": {"mode": mode}, "snapshot": {"every_records": 200}},
    )
    await KafkaCluster(harness._settings).create_topics([NewTopic(harness.prefixed(rates), 3)])
    at_ms = int(time.time() * 1000) - 100_000
    async with harness:
        for turn in range(2):
            values = {f"currency-{n}": None if (n + turn) % 5 == 0 else n + turn for n in range(5)}
            rows = [record(rates, key=key, value=value, timestamp_ms=at_ms) for key, value in values.items()]
            await harness.feed_all(rows, kills=turn)
            await harness.caught_up()
            at_ms += 1000
            paid = [record(payments, key=f"k{n % 20}", value={"amount": n}, timestamp_ms=at_ms) for n in range(100)]
            await harness.feed_all(paid, kills=1 - turn)
            await harness.caught_up()
            at_ms += 1000
        await harness.compare(by_hand)
        await harness.restart()
        await harness.compare(by_hand)


@pytest.fixture
async def here(broker, unique):
    """An app of two partitions, and a table topic of three; rows and payments are there."""
    app = apps.converted(unique("converted"))
    stage = Stage(broker.bootstrap_servers, app, 2)
    await stage.cluster.create_topics([NewTopic(app.broadcast_names[0], 3, config=KEPT_FOR_EVER)])
    await stage.prepare()
    return stage


async def rows(here: Stage, values: dict[str, Any]) -> None:
    (topic,) = here.app.broadcast_names
    await Stage(here.bootstrap_servers, here.app, 3).send(values.items(), topic)


async def has_rows(service: Any, expected: dict[str, int]) -> None:
    def found() -> list[dict[str, int]]:
        return [dict(service.view(number).rates.items()) for number in range(2)]

    await until(lambda: found() == [expected] * 2, found, scaled(30))


def planned(service: Any) -> int:
    """How many records a restore of both partitions would bring the snapshots forward by."""
    return sum(status.restore_plan.first.records for status in service.restore_status() if status.restore_plan)


async def test_what_operators_see_of_it(here, monkeypatch):
    """Over HTTP each partition has a row by its key, with the positions of all partitions of the topic; their lag is
    shown; a plan counts their records; doctor finds nothing; an audit replays all."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 1.0)  # plans are made that often
    (topic,) = here.app.broadcast_names
    await rows(here, {f"currency-{n}": n + 1 for n in range(5)})
    async with here.started(http=HttpServer()) as service:
        await service.wait_live(scaled(30))
        expected = {f"currency-{n}": n + 1 for n in range(5)}
        await has_rows(service, expected)
        await here.feed(40)
        await service.wait_caught_up(scaled(30))
        async with Asking(service.http_address[1]) as asking:
            _, found = await asking.get("rates/currency-3")
            assert [(item["partition"], item["value"]) for item in found["items"]] == [(0, 4), (1, 4)]
            for item in found["items"]:
                assert {name for name in item["positions"] if "/" in name} == {f"{topic}/{n}" for n in range(3)}
        for status in service.restore_status():
            assert {each.topic: each.lag for each in status.inputs} == {
                here.input: 0,
                f"{topic}/0": 0,
                f"{topic}/1": 0,
                f"{topic}/2": 0,
            }
            assert sum(each.position for each in status.inputs if "/" in each.topic) == 5
        for number in range(2):
            await snapshot(service, number)
        await rows(here, {"currency-1": None, "currency-2": 30})
        await has_rows(service, {"currency-0": 1, "currency-2": 30, "currency-3": 4, "currency-4": 5})
        await here.feed(40)
        await service.wait_caught_up(scaled(30))
        async with Asking(service.http_address[1]) as asking:
            await until(lambda: planned(service) == 40 + 2 * 2, lambda: planned(service))
            plans = (await asking.client.get("/api/v1/restore/plan")).json()["items"]
            assert sum(each["plan"]["first"]["records"] for each in plans) == planned(service)
    await here.decided()
    report = await examine(here.app, here.settings())
    assert [each for each in report.findings if each.check not in {"replication", "brokers", "access"}] == []
    with BlockingReader(here.settings()) as reader:
        for level in (Level.CHANGES, Level.REPLAY):
            found = await asyncio.to_thread(audit, reader, here.app.app_id, level, here.app)
            assert found.findings == []
    assert found.checked["records_replayed"] == 80 + 2 * 7
    assert found.notes.get("segments_without_input", 0) == 0


async def test_jobs_and_doctor_name_a_table_that_has_lost_a_partition(here):
    """The topic was created again. What only a replay of it could prove is counted, and nothing is waited for."""
    (topic,) = here.app.broadcast_names
    await rows(here, {"2:currency-1": 1})
    async with here.running() as service:
        await has_rows(service, {"2:currency-1": 1})
    await here.decided()
    await asyncio.to_thread(delete, here.bootstrap_servers, topic)
    await asyncio.to_thread(create, here.bootstrap_servers, topic, 2)
    async with asyncio.timeout(scaled(60)):
        with BlockingReader(here.settings()) as reader:
            found = await asyncio.to_thread(audit, reader, here.app.app_id, Level.REPLAY, here.app)
        assert (found.findings, found.notes["segments_without_input"]) == ([], 2)
        with pytest.raises(InputShrunk, match=f"partition 2 of broadcast table {topic} was read"):
            await propose(here.app, here.settings(), here.cluster, ResetTarget("", "earliest"), "wrong")
        report = await examine(here.app, here.settings())
    (finding,) = (each for each in report.findings if each.check == "topic ids")
    assert (finding.where, "partition 2 of it was read" in finding.problem) == (topic, True)


@pytest.mark.whole
async def test_partitions_that_are_added_are_read_while_it_runs(here, monkeypatch):
    """By both partitions of the app, from their beginning; a restart later, too."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 0.2)
    (topic,) = here.app.broadcast_names
    await rows(here, {"currency-1": 1})
    async with here.running() as service:
        await has_rows(service, {"currency-1": 1})
        await asyncio.to_thread(grow, here.bootstrap_servers, topic, 4)
        await Stage(here.bootstrap_servers, here.app, 4).send([("3:currency-2", 2)], topic)
        await has_rows(service, {"currency-1": 1, "3:currency-2": 2})
    async with here.running() as service:
        await has_rows(service, {"currency-1": 1, "3:currency-2": 2})
        assert all(f"{topic}/3" in {each.topic for each in status.inputs} for status in service.restore_status())


async def test_dead_letters_of_it_go_back_to_their_partition(here):
    """Once, although each partition of the app has written one; and once again after the next failure."""
    (topic,) = here.app.broadcast_names
    here.tables = {"errors": {"policy": "dead_letter"}}
    await ensure_topics(here.app, here.settings(), here.cluster)
    await rows(here, {"currency-1": "no number"})
    stage = Stage(here.bootstrap_servers, here.app, 3)
    (lies_in,) = [n for n, found in enumerate(await stage.read(topic)) if found]
    for count in (2, 3):
        async with here.running() as service:
            await service.wait_caught_up(scaled(30))
        for number in range(2):
            await decided(here.cluster, TopicPartition(here.dead_letters, number))
        done = await redrive(here.app, here.settings())
        assert (done.sent, done.left) == ({TopicPartition(topic, lies_in): 1}, [])
        assert (await redrive(here.app, here.settings())).sent == {}
        assert [each.value for each in (await stage.read(topic))[lies_in]] == [b'"no number"'] * count
