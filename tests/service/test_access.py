"""A user who may do little, on a real broker that asks: what is missing is named, and what comes back heals."""

import asyncio
import re
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.app import names
from snapreplay.errors import AccessError
from snapreplay.service.core.kafka_errors import NotAuthorized
from snapreplay.service.decisions.init import init_app
from snapreplay.service.doctor.collect import examine
from snapreplay.service.kafka.admin import KafkaTopicWatch
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.requirements import ensure_topics
from tests.service.test_inputs import appears, orders
from tests.support import apps
from tests.support.guarded import USER, Guarded, bindings, guarded_broker
from tests.support.kafka import until_async
from tests.support.stage import GROUP, Stage, processed, session_ms, settings_for, until
from tests.support.tampering import delete

pytestmark = pytest.mark.kafka

KAFKA_ACLS = r"`?(kafka-acls\.sh [^;`)]+)"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """One broker for this file. Only a super user may do anything."""
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker


class Restricted(Stage):
    """An app whose service is `USER`. What else a test does, a super user does."""

    def __init__(self, broker: Guarded, app, partitions: int = 1) -> None:
        super().__init__(broker.open, app, partitions)
        self.broker = broker

    def settings(self, **tables):
        group = {**GROUP, "session_timeout_ms": session_ms()}
        given = {"kafka": self.broker.as_user(), "group": group, **tables}
        given["restore"] = {"retry_backoff_max_ms": 400, **tables.get("restore", {})}
        return settings_for(self.broker.open, **given)

    @property
    def mine(self) -> list[str]:
        """deploy/README.md's list for this app, as arguments of kafka-acls.sh."""
        inputs, outputs = self.app.inputs[0].name, self.app.outputs[0].name
        own = f"--topic {self.app.app_id}-increments --topic {self.app.app_id}-snapshots"
        who = f"--allow-principal User:{USER}"
        return [
            f"{who} --operation Read --operation DescribeConfigs --topic {inputs}",
            f"{who} --operation Write --operation DescribeConfigs --topic {outputs}",
            f"{who} --operation Read --operation Write --operation Delete --operation DescribeConfigs {own}",
            f"{who} --operation DescribeConfigs --cluster",
            f"{who} --operation Read --group {self.app.app_id}",
            f"{who} --operation Write --transactional-id {self.app.app_id}- --resource-pattern-type prefixed",
        ]

    async def made(self, *, genesis: bool = True) -> "Restricted":
        """All topics are there, and nothing is allowed."""
        settings = settings_for(self.broker.open)
        cluster = KafkaCluster(settings)
        await ensure_topics(self.app, settings, cluster, create_io_partitions=self.partitions)
        if genesis:
            await init_app(self.app, settings, cluster)
        return self

    async def allowed(self) -> "Restricted":
        """Everything is there, and everything is allowed that must be."""
        for acl in (await self.made()).mine:
            await asyncio.to_thread(self.broker.allow, acl)
        return self

    async def refused(self, **tables) -> AccessError | None:
        """Say why it is not started."""
        async with self.started(**tables) as service:
            try:
                await service.wait_started()
            except AccessError as error:
                return error
        return None


@pytest.mark.whole
async def test_every_missing_acl_is_named_by_the_command_that_gives_it(here, unique):
    """From no permission at all each refusal's own command leads to the next one, and at last to a service that works.
    Given that way is what deploy/README.md asks for, without what only snapshots need."""
    stage = await Restricted(here, apps.ledger(unique("step"))).made(genesis=False)
    await stage.feed(20)
    given: list[str] = []

    async def follow(hint: str) -> None:
        (command,) = re.findall(KAFKA_ACLS, hint)
        assert command not in given, "it did not help"
        given.append(command)
        await asyncio.to_thread(here.allow, command)

    while True:
        try:
            await init_app(stage.app, stage.settings(), stage.cluster)
        except NotAuthorized as error:
            await follow(error.hint)
        else:
            break
    while (refused := await stage.refused()) is not None:
        await follow(refused.hint)
    async with stage.started() as service:
        done = asyncio.create_task(processed(service, {0: 20}))
        while not done.done():
            for hint in hints_of(service):
                if re.findall(KAFKA_ACLS, hint)[0] not in given:
                    await follow(hint)
            await asyncio.wait([done], timeout=0.05)
        await stage.assert_exactly_once(service)
    described = {each for each in wanted(given) if each[2] == "DESCRIBE"}  # Read and Write imply it
    assert wanted(given) - described <= wanted(stage.mine)
    spared = wanted(stage.mine) - wanted(given)
    assert {each for each in spared if "-snapshots" not in each[1] and each[2] != "DELETE"} == set()


@pytest.mark.whole
async def test_what_doctor_names_is_given_until_it_names_nothing(here, unique):
    """Each remedy as printed, with the user's name. Asking for all of it fences no owner: its transaction continues."""
    stage = await Restricted(here, apps.ledger(unique("doctor"))).made()
    given: set[str] = set()
    while found := await access_remedies(stage):
        assert found - given, f"it did not help: {found}"
        for command in found - given:
            await asyncio.to_thread(here.allow, command.replace("User:NAME", f"User:{USER}"))
        given |= found
    assert {"--transactional-id", "--topic", "--group"} <= set(" ".join(given).split())
    output, own_id = stage.app.outputs[0].name, f"{stage.app.app_id}-0"
    owner = AIOKafkaProducer(bootstrap_servers=here.open, transactional_id=own_id)
    await owner.start()
    await owner.begin_transaction()
    await owner.send_and_wait(output, b"before", partition=0)
    async with KafkaDiagnostics(stage.settings()) as ask:
        places = {own_id: TopicPartition(output, 0)}
        assert await ask.refused(stage.app.app_id, places) == {}
    await owner.send_and_wait(output, b"after", partition=0)
    await owner.commit_transaction()
    await owner.stop()


async def access_remedies(stage: Restricted) -> set[str]:
    findings = (await examine(stage.app, stage.settings())).findings
    return {
        command.strip()
        for each in findings
        if each.check == "access"
        for command in re.findall(KAFKA_ACLS, each.remedy)
    }


def hints_of(service) -> set[str]:
    """The ways out that status and readiness show."""
    shown = [s.error.hint for s in service.restore_status() if s.error is not None]
    shown += [check.detail for check in service.control.ready_checks() if not check.ok]
    return {text for text in shown if re.search(KAFKA_ACLS, text)}


def wanted(commands: list[str]) -> set[tuple[str, str, str]]:
    """Kind of the resource, its name, the operation."""
    every: Any = (binding for each in commands for binding in bindings(each))
    return {(binding.restype.name, binding.name, binding.operation.name) for binding in every}


async def test_a_revoked_acl_stops_a_partition_until_it_is_given_back(here, unique):
    """Of topics, transactional ids and the group: named with operation and user in status and readiness, retried, and
    exactly once in the end, in the same process."""
    stage = await Restricted(here, apps.ledger(unique("revoked"))).allowed()
    inputs, outputs, own, _, group, ids = stage.mine
    async with stage.running() as service:
        # A fetch is refused for Read; the next attempt asks for the topic's id first.
        reading = f"User:{USER} may not (Read|Describe) topic {stage.app.inputs[0].name}"
        for count, acl, said in (
            (0, inputs, reading),  # before there is an anchor that a recovery would look at
            (20, inputs, reading),
            (20, outputs, f"User:{USER} may not Write topic {stage.app.outputs[0].name}"),
            (20, own, f"User:{USER} may not (Read|Write) topic {stage.app.app_id}-increments"),
            (20, ids, f"User:{USER} may not Write transactional id {stage.app.app_id}-0"),
            (20, group, f"User:{USER} may not Read group {stage.app.app_id}"),
        ):
            await asyncio.to_thread(here.revoke, acl)
            await stage.feed(count)
            named = re.compile(said)
            await until(lambda: named.search(not_ready(service)), said)  # noqa: B023 - awaited here
            if acl is inputs:
                unseen = f"may not Describe topic {stage.app.inputs[0].name}"
                await until(lambda: unseen in not_ready(service), unseen)  # noqa: B023 - as above
                assert all("OPERATION" not in hint for hint in hints_of(service))
            assert [s.phase for s in service.restore_status() if s.phase == "failed"] == []
            await asyncio.to_thread(here.allow, acl)
            await until(service.control.ready, f"ready again, with {acl}")
            await stage.assert_exactly_once(service)


@pytest.mark.whole
async def test_a_topic_of_a_pattern_that_may_not_be_read_is_named_until_it_may(here, unique, monkeypatch, caplog):
    """The others continue, also after a restart, and each command that is named leads one step on."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 0.2)
    stage = Restricted(here, orders(unique("pattern")))
    east, west = (f"orders-{stage.app.app_id}-{each}" for each in ("east", "west"))
    everybody = Stage(here.open, stage.app)
    await appears(everybody, east, 1)
    await stage.made()
    for acl in stage.mine:
        await asyncio.to_thread(here.allow, acl.replace(stage.input, east))
    async with stage.running() as service:
        await appears(everybody, west, 10)
        await asyncio.to_thread(here.allow, f"--allow-principal User:{USER} --operation Describe --topic {west}")
        await until(lambda: "but is left out" in caplog.text, "it is named")
        await everybody.send([("k0", {"amount": 5})], east)
        await processed(service, {0: 6}, east)
    caplog.clear()
    given: list[str] = []

    async def follow() -> bool:
        named = (each.strip() for each in re.findall(KAFKA_ACLS, caplog.text) if west in each)
        for command in dict.fromkeys(each for each in named if each not in given):
            given.append(command)
            await asyncio.to_thread(here.allow, command)
        return west in {each.topic for each in service.restore_status()[0].inputs}

    async with stage.running() as service:
        await until_async(follow, bool)
        await processed(service, {0: 5}, west)
        assert sorted(re.findall(r"--operation (\w+)", " ".join(given))) == ["DescribeConfigs", "Read"]
        assert service.view(0).get("k0") == {"sum": 16, "from": [east, west]}


@pytest.mark.whole
async def test_one_topic_that_may_not_be_seen_does_not_hide_the_others(here, unique, caplog):
    """The watch tells of the rest, names the permission once, and takes nothing for missing. A reader that follows it
    would get nothing for ever, and no error of the client's: it is reported."""
    stage = await Restricted(here, apps.ledger(unique("one"))).allowed()
    settings = stage.settings()
    source, own = stage.app.inputs[0].name, names.increments_topic(stage.app.app_id)
    watch = KafkaTopicWatch(settings)
    try:
        before = await watch.ids([source, own])
        assert all(before.values())
        await asyncio.to_thread(here.revoke, stage.mine[0])
        await until_async(lambda: asked(watch, [source, own]), lambda _: warnings(caplog))
        await asyncio.to_thread(delete, here.open, own)
        assert await watch.ids([source, own]) == {source: before[source]}
        (said,) = warnings(caplog)
        assert f"User:{USER} may not Describe topic {source}" in said
        assert re.search(KAFKA_ACLS, said)
    finally:
        await watch.close()
    reader = await stage.cluster.reader()
    await reader.follow({TopicPartition(source, 0): 0})
    with pytest.raises(NotAuthorized, match=f"may not Read topic {source}"):
        await until_async(lambda: reader.poll(1, 100), bool)
    await reader.close()


def warnings(caplog) -> list[str]:
    """Return the warnings of the watch."""
    return [each.getMessage() for each in caplog.records if each.name == "snapreplay.topics"]


async def asked(watch, topics) -> dict[str, str]:
    """Ask as before, with any permissions."""
    found: dict[str, str] = await watch.ids(topics)
    assert sorted(found) == sorted(topics)
    return found


def not_ready(service) -> str:
    """Return what /readyz says."""
    return "; ".join(check.detail for check in service.control.ready_checks() if not check.ok)


@pytest.mark.whole
async def test_a_changed_password_is_named_and_a_right_one_heals(here, unique):
    """It ends a start at once. When a broker restarts and its user has another one, status and readiness say so,
    nothing is FAILED, and with the old password in place again the same process continues."""
    stage = await Restricted(here, apps.ledger(unique("rotated"))).allowed()
    async with stage.running() as service:
        assert (refused := await stage.refused(kafka=here.as_user("wrong"))) is not None
        assert f"the broker at {here.sasl} denies access: it refuses user 'ada'" in refused.message
        await stage.feed(20)
        await stage.assert_exactly_once(service)
        await asyncio.to_thread(here.set_password, "changed")
        await asyncio.to_thread(here.cluster.restart_node, 0)
        await until(lambda: "refuses user 'ada'" in not_ready(service), "the reason")
        assert [s.phase for s in service.restore_status() if s.phase == "failed"] == []
        await asyncio.to_thread(here.set_password, "lovelace")
        await until(service.control.ready, "ready again")
        await stage.feed(20)
        await stage.assert_exactly_once(service)
