"""Tests that what `doctor` recommends is done as printed, and the finding is gone or the partition is on its way."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.errors import NotCaughtUp
from snapreplay.service.config.settings import Settings
from snapreplay.service.doctor import checks
from snapreplay.service.doctor.facts import Diagnosis
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.live import recoverability_monitor
from tests.hints.following import Operator, way_with
from tests.support.deadlines import scaled
from tests.support.healthy import facts
from tests.support.kafka import until_async
from tests.support.stage import Stage
from tests.support.steady import KEEPS_LEADERS
from tests.support.tampering import create, trim
from tests.support.wire import Proxy

pytestmark = pytest.mark.kafka

DESCRIBE_GROUPS = 15
ALWAYS = {"brokers"}  # one broker only: what a test cluster is


async def remedies(who: Operator, *options: str) -> dict[str, str]:
    """The first one of each check, of the report that the command prints."""
    said = await who.type("doctor", "hinted:app", "-o", "json", *options, code=1)
    findings = json.loads(said.splitlines()[-1])["findings"]
    first_last = reversed(findings)
    return {each["check"]: each["remedy"] for each in first_last if each["check"] not in ALWAYS}


async def gone(who: Operator, check: str) -> None:
    """Wait until the report has no such finding. A commit is answered before its marker is in the log, where the
    command looks."""
    await until_async(lambda: remedies(who), lambda found: check not in found)


@pytest.fixture
def before_the_owner_looks(monkeypatch):
    """The owner takes a snapshot by itself as soon as it looks; the operator is earlier."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 1e9)


async def test_while_the_owner_lives_its_memory_is_written_once_more(before_the_owner_looks, operator):
    """Increments and snapshots are trimmed behind it: the trigger is taken, and a recovery is possible again."""
    then, who = await operator()
    async with who.served() as service:
        await service.wait_live(scaled(30))
        (log,) = await then.here.read(then.increments)
        trim(then.here.bootstrap_servers, then.increments, 0, log[-2].offset)
        remedy = (await remedies(who))["recovery"]
        assert "trigger-snapshot" in remedy
        await who.follow(remedy)
        await gone(who, "recovery")
    await who.healthy()


async def test_a_pause_is_ended_as_it_is_said(operator):
    """By the remedy of the finding, and by the hint for the program that waits for the state to catch up."""
    then, who = await operator()
    async with who.served() as service:
        await service.wait_live(scaled(30))
        for by in ("doctor", "program"):
            await who.type("pause", "-p", "0", "--reason", "repairs", "--wait")
            await then.here.feed(1)
            with pytest.raises(NotCaughtUp, match="repairs") as waits:
                await service.wait_caught_up(scaled(30))
            remedy = (await until_async(lambda: remedies(who), lambda found: "pause" in found))["pause"]
            await who.follow(remedy if by == "doctor" else waits.value.hint)
            await gone(who, "pause")
            await service.wait_caught_up(scaled(30))


async def test_without_an_owner_no_trigger_is_recommended(operator):
    """Nobody would take it: the service is started, and its hint leads on."""
    then, who = await operator()
    (log,) = await then.here.read(then.increments)
    trim(then.here.bootstrap_servers, then.increments, 0, log[-1].offset)
    remedy = (await remedies(who))["recovery"]
    assert "trigger-snapshot" not in remedy
    await who.follow(remedy)
    await who.follow(way_with(await who.failure(), "snapreplay accept"))
    await who.healthy()


async def test_inputs_that_differ_before_there_is_any_state_get_equally_many_partitions(newcomer):
    """A topic with as many as the others, named in the app: the finding is gone, and the app begins."""
    who = newcomer()
    name = who.here.app.app_id
    who.change(f"apps.pair({name!r})")
    for topic, count in ((f"left-{name}", 1), (f"right-{name}", 2)):
        create(who.here.bootstrap_servers, topic, count)
    remedy = (await remedies(who))["partition counts"]
    assert remedy.startswith("copy an input to a topic with as many partitions as the others")
    create(who.here.bootstrap_servers, f"left-{name}-b", 2)
    assert "name that in App(inputs=[…])" in remedy
    who.change(f"apps.pair({name!r}, left='left-{name}-b')")
    assert "partition counts" not in await remedies(who)
    await who.type("topics", "ensure", "hinted:app", "--partitions", "2")
    await who.type("init", "hinted:app")
    async with Stage(who.here.bootstrap_servers, who.load(), 2).running():
        pass


async def test_what_could_not_be_looked_at_is_looked_at_again(operator):
    """The group's coordinator does not answer: found with the reason, and gone once it is asked again as printed."""
    _, who = await operator()
    proxy = Proxy(who.here.bootstrap_servers)
    proxy.fault = lambda key: "reset before" if key == DESCRIBE_GROUPS else "pass"
    async with proxy.through():
        remedy = (await remedies(who))["access"]
    assert "again when the brokers answer" in remedy
    await who.follow(remedy)
    assert "access:" not in who.said[-1]


async def test_a_foreign_transaction_ends_with_a_producer_of_its_id(operator):
    """Who pins the log is named; a producer of that id ends it, and the service goes LIVE."""
    then, who = await operator()
    foreign = f"{then.here.app.app_id}-foreign"
    holder = AIOKafkaProducer(bootstrap_servers=then.here.bootstrap_servers, transactional_id=foreign)
    await holder.start()
    try:
        await holder.begin_transaction()
        await (await holder.send(then.increments, b"x", partition=0))
        remedy = (await remedies(who))["open transaction"]
        assert "when a producer of this id starts" in remedy
        assert foreign in remedy
        successor = AIOKafkaProducer(bootstrap_servers=then.here.bootstrap_servers, transactional_id=foreign)
        await successor.start()
        await successor.stop()
        await who.healthy()
    finally:
        await holder.stop()


async def test_a_broker_that_creates_whatever_is_asked_for_is_set_right(broker):
    """One that was started with the property of the remedy, as the session's, has no such finding."""
    properties = {"auto.create.topics.enable": "true"} | KEEPS_LEADERS
    async with LocalBroker(properties=properties, deadline_s=scaled(60)) as careless:
        (finding,), _ = await accidental_topics(careless)
    (name, value) = re.findall(r"set (\S+)=(\S+) on every broker", finding.remedy)[0]
    found, config = await accidental_topics(broker)
    assert (found, config[name]) == ([], value)


async def accidental_topics(broker: Any) -> tuple[list[Diagnosis], Mapping[str, str]]:
    """Return what is found on a broker, and its properties."""
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})
    config = (await KafkaCluster(settings).facts()).broker_config
    return list(checks.accidental_topics(facts(broker_config=config))), config
