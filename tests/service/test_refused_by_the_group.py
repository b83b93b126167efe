"""What keeps a process out of its group for ever is named where an operator looks: limits of the brokers, and programs
that have no business in the group. Once it is gone, the same process continues. On a real broker with such limits."""

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from confluent_kafka import Consumer

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.errors import StopError, UsageError
from snapreplay.service.doctor.collect import examine
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.stage import Stage, until
from tests.support.steady import KEEPS_LEADERS

pytestmark = [pytest.mark.kafka, pytest.mark.whole]  # a broker of its own

SHORTEST_MS, LONGEST_MS = 2000, 60_000
LIMITS = {
    "group.min.session.timeout.ms": str(SHORTEST_MS),
    "group.max.session.timeout.ms": str(LONGEST_MS),
    "group.max.size": "2",
    "delete.topic.enable": "false",
}
SESSION = {"session_timeout_ms": LONGEST_MS, "heartbeat_interval_ms": 200}


@pytest.fixture(scope="module")
def strict():
    """A broker with Kafka's default for the shortest session, and room for two members in a group."""
    with LocalBroker(properties={**KEEPS_LEADERS, **LIMITS}, deadline_s=scaled(60)) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def here(strict, unique):
    return await Stage(strict, apps.ledger(unique("limits"))).prepare()


@asynccontextmanager
async def intruder(servers: str, group_id: str, topic: str, *, newer: bool = False):
    """A consumer of somebody else that uses the name of the app as its group; `newer`: by the protocol of KIP-848."""
    protocol = {"group.protocol": "consumer"} if newer else {"session.timeout.ms": SHORTEST_MS}
    names = {"group.id": group_id, "client.id": "intruder", **protocol}
    consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, **names})
    consumer.subscribe([topic])
    ended = asyncio.Event()

    async def polls():
        while not ended.is_set():
            await asyncio.to_thread(consumer.poll, 0.1)
        await asyncio.to_thread(consumer.close)

    async with asyncio.TaskGroup() as polling:
        polling.create_task(polls())
        try:
            await until(consumer.memberid, "it is a member")
            yield
        finally:
            ended.set()


async def findings(here: Stage, **tables) -> list[str]:
    found = (await examine(here.app, here.settings(**tables))).findings
    return [f"{each.problem} ({each.remedy})" for each in found]


async def test_a_session_timeout_that_the_brokers_refuse_is_refused_at_the_start(here):
    """With the setting, its value, the limit, and a value that is accepted: `run` and `doctor` say the same."""
    session_ms, limit = LONGEST_MS + 1, f"group.max.session.timeout.ms={LONGEST_MS}"
    group = {**SESSION, "session_timeout_ms": session_ms}
    async with here.started(group=group) as service:
        with pytest.raises(UsageError, match=limit) as refused:
            await service.wait_started()
    assert f"group.session_timeout_ms={session_ms}" in refused.value.message
    assert str(refused.value) in await findings(here, group=group)
    (accepted_ms,) = re.findall(r"--set group\.session_timeout_ms=(\d+)", refused.value.hint)
    accepted = {**SESSION, "session_timeout_ms": int(accepted_ms)}
    assert not [each for each in await findings(here, group=accepted) if "session" in each]
    async with here.running(group=accepted):
        pass


@pytest.mark.parametrize("known", [True, False], ids=["limits known", "limits hidden"])
async def test_limits_that_are_seen_only_by_a_join_are_named_too(here, monkeypatch, caplog, known):
    """Brokers may have different limits, and the coordinator's count; and they may hide them. Nothing is reported
    over and over, and what the hint sets is accepted."""
    monkeypatch.setattr("snapreplay.service.core.inspected.SESSION_MIN", "group.min.hidden")
    async with here.started(group={**SESSION, "session_timeout_ms": SHORTEST_MS - 1}) as service:
        await service.wait_started()
        if known:
            monkeypatch.undo()
        limit = f"group.min.session.timeout.ms={SHORTEST_MS}" if known else "below its group.min.hidden"
        await until(lambda: limit in service.control.facts().trouble, limit)
        (accepted_ms,) = re.findall(r"--set group\.session_timeout_ms=(\d+)", service.control.facts().trouble)
    assert sum(limit in each.getMessage() for each in caplog.records) == 1
    async with here.running(group={**SESSION, "session_timeout_ms": int(accepted_ms)}):
        pass


@pytest.mark.parametrize("count", [1, 2], ids=["one", "as many as fit"])
async def test_a_program_that_uses_the_group_is_named_until_it_has_left(here, count):
    """In readiness and in the restore status, and it counts as no process of the app; then the process that waited is
    LIVE."""
    app_id, topic = here.app.app_id, here.app.inputs[0].name
    async with AsyncExitStack() as intruders:
        for _ in range(count):
            await intruders.enter_async_context(intruder(here.bootstrap_servers, app_id, topic))
        await until_async(lambda: here.cluster.foreign_members(app_id), lambda found: len(found) == count)
        async with here.started(group=SESSION) as service:
            await until(lambda: "'intruder' on 127.0.0.1" in service.control.facts().trouble, "it is named")
            (member,) = [each for each in service.control.ready_checks() if each.name == "member"]
            assert (member.ok, member.detail) == (False, service.control.facts().trouble)
            assert f"group {app_id}" in member.detail
            assert await here.cluster.member_count(app_id) == 0
            await intruders.aclose()
            await service.wait_live(scaled(30))
            assert service.control.facts().trouble == ""


async def test_a_program_of_the_newer_protocol_is_named_and_processes_are_members_beside_it(here):
    """The coordinator takes both and assigns by itself (KIP-848). Whoever asks for the processes of the app, as `reset`
    does, must see them. Once the program has left, the group is as before."""
    app_id, topic = here.app.app_id, here.app.inputs[0].name
    async with intruder(here.bootstrap_servers, app_id, topic, newer=True):
        await until_async(lambda: here.cluster.foreign_members(app_id), bool)
        assert await here.cluster.member_count(app_id) == 0
        async with here.running(group=SESSION) as service:
            await until(lambda: "protocol 'consumer'" in service.control.facts().trouble, "it is named")
            assert await here.cluster.member_count(app_id) == 1
            (member,) = await until_async(
                lambda: here.cluster.group_members(app_id), lambda found: found and found[0].partitions
            )
            assert {each.partition for each in member.partitions} == {0}
    async with here.running(group=SESSION) as service:
        assert service.control.facts().trouble == ""


async def test_a_full_group_is_named_by_its_limit(here):
    """`group.max.size`, a code that the client does not know."""
    one, two, three = ({"group": SESSION, "instance_id": each} for each in ("one", "two", "three"))
    async with here.running(**one), here.running(**two), here.started(**three) as other:
        await until(lambda: "group.max.size=2" in other.control.facts().trouble, "the limit")


async def test_a_topic_of_kafkas_own_that_cannot_be_created_is_named(unique):
    """One broker with Kafka's default for three: no broker ever coordinates the group. Status and doctor say so."""
    setting = "offsets.topic.replication.factor"
    with LocalBroker(properties={**KEEPS_LEADERS, setting: "3"}, deadline_s=scaled(60)) as broker:
        here = await Stage(broker.bootstrap_servers, apps.ledger(unique("alone"))).prepare()
        kafka = {"bootstrap.servers": broker.bootstrap_servers, "request.timeout.ms": 1000}
        async with here.started(group=SESSION, kafka=kafka) as service:
            await until(lambda: setting in service.control.facts().trouble, "the setting")
        assert [each for each in await findings(here, kafka=kafka) if setting in each]


async def test_topics_that_may_not_be_deleted_are_refused_by_the_setting(here):
    """Not by the error code of the broker."""
    with pytest.raises(StopError, match=r"delete\.topic\.enable=false"):
        await here.cluster.delete_topics([here.app.inputs[0].name])
