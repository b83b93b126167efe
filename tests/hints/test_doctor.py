"""Tests that what `doctor` recommends is done as printed, and the finding is gone or the partition is on its way."""

import json

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.errors import NotCaughtUp
from snapreplay.service.live import recoverability_monitor
from tests.hints.following import Operator, way_with
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.tampering import trim
from tests.support.wire import Proxy

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
    """No owner would take it: the service is started, and its hint leads on."""
    then, who = await operator()
    (log,) = await then.here.read(then.increments)
    trim(then.here.bootstrap_servers, then.increments, 0, log[-1].offset)
    remedy = (await remedies(who))["recovery"]
    assert "trigger-snapshot" not in remedy
    await who.follow(remedy)
    await who.follow(way_with(await who.failure(), "snapreplay accept"))
    await who.healthy()


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
