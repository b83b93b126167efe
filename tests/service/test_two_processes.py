"""Two processes of one app: partitions move, one is stopped, and two that call themselves the same."""

import asyncio
import os

import pytest

from snapreplay.service.control.operations import RetryPartition
from snapreplay.service.core import owners
from snapreplay.service.core.refusals import WrongLog
from snapreplay.service.ports import NewTopic
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Genesis
from tests.support import apps
from tests.support.child import Load
from tests.support.deadlines import within
from tests.support.entries import read_entry
from tests.support.stage import phase, until
from tests.support.tampering import bring_back, tamper, with_fields


async def shared(one, two):
    """Wait until both have half of four partitions, LIVE."""
    await until(lambda: len(one.live()) == len(two.live()) == 2, "two and two")


async def test_partitions_move_and_every_record_counts_once(stage, unique, children):
    """A second process takes half; when the first one is stopped by SIGTERM, it has all at once, long before a session
    would have run out."""
    here = await stage(apps.ledger(unique("move")), partitions=4)
    patient = {"snapshot__every_records": 100, "group__session_timeout_ms": 45_000}
    with Load(here):
        one = children.start("ledger", here.app.app_id, instance_id="one", **patient)
        await asyncio.to_thread(one.wait_live, 4)
        two = children.start("ledger", here.app.app_id, instance_id="two", **patient)
        await asyncio.to_thread(two.wait_http)
        await shared(one, two)
        assert one.live() | two.live() == {0, 1, 2, 3}
        assert await asyncio.to_thread(one.terminate) == 0
        await until(lambda: len(two.live()) == 4, "all partitions with the process that is left")
    assert await asyncio.to_thread(two.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


async def test_another_app_of_the_same_id_takes_no_partition_away(stage, unique):
    """It is refused before it joins the group, so that the real one keeps all partitions."""
    here = await stage(apps.ledger(unique("real")), partitions=2)
    other = apps.pair(here.app.app_id)
    await here.cluster.create_topics([NewTopic(topic.name, 2) for topic in (*other.inputs, *other.outputs)])
    async with here.running(instance_id="real") as real:
        foreign = here.service(other, instance_id="foreign")
        await foreign.start()
        try:
            with pytest.raises(WrongLog, match="inputs recorded in"):
                async with within(30):
                    await foreign.wait_started()
        finally:
            await foreign.stop()
        assert live(real) == {0, 1}


async def test_who_finds_the_log_of_another_app_leaves_the_group(stage, unique):
    """It joins again when an operator has brought the log back and asks for a retry."""
    here = await stage(apps.ledger(unique("left")))
    name, servers = here.app.app_id, here.bootstrap_servers
    increments, genesis = f"{name}-increments", Genesis("elsewhere", 1, {f"payments-{name}": 0})

    async def members(count):
        async with within(30):
            while await here.cluster.member_count(name) != count:  # noqa: ASYNC110 - it is in the cluster
                await asyncio.sleep(0.05)

    async with here.running(records=20) as service:
        (log,) = await here.read(increments)
        await tamper(here, increments, RecordKind.INCREMENT, with_fields(genesis=genesis))
        assert (await phase(service, "failed")).error.kind == "WrongLog"
        await members(0)
        assert "left the group" in {c.name: c for c in service.control.ready_checks()}["member"].detail
        await asyncio.to_thread(bring_back, servers, increments, log)
        asked = service.control.perform(RetryPartition(0)).id
        await until(lambda: service.control.operation(asked).state == "succeeded", "the retry succeeded")
        await members(1)
        await here.feed(20)
        await here.assert_exactly_once(service)


def live(service):
    return {s.partition for s in service.restore_status() if s.phase == "live"}


def stepped_down(service):
    """The errors of its partitions, all of which it has left to a process of its own name."""
    return [s.error for s in service.restore_status() if s.phase == "fenced" and s.error]


async def owns_by_the_log(here, service):
    """Wait until the newest claim of both partitions is this process's, and both are LIVE: claims may cross once."""
    ours, owners = service.control.facts().process_id, [""]
    while set(owners) != {ours} or live(service) != {0, 1}:
        logs = await here.read(f"{here.app.app_id}-increments")
        claims = [[r for r in log if kind_of(r.value or b"") is RecordKind.CLAIM] for log in logs]
        owners = [read_entry(each[-1].value).process_id for each in claims]


async def test_the_older_of_two_with_one_instance_id_steps_down_until_it_is_alone(stage, unique, monkeypatch, caplog):
    """It names the other host and process, with the remedy, once; the newer one continues: no ping-pong. Also when
    there is no input that would show it by a fence. When the newer one is stopped, the older one is back."""
    monkeypatch.setattr(owners, "LOOK_SECONDS_MAX", 0.3)
    here = await stage(apps.ledger(unique("same")), partitions=2)
    await here.feed(50)
    async with here.running(instance_id="same") as older:
        async with here.running(instance_id="same") as newer:
            await until(lambda: len(stepped_down(older)) == 2, "the older one down")
            for error in stepped_down(older):
                assert error.kind == "DuplicateInstance"
                assert f"process {os.getpid()} on host" in error.message
                assert "--set instance_id=" in error.hint
            await owns_by_the_log(here, newer)
            epochs = [s.owner_epoch for s in newer.restore_status()]
            await asyncio.sleep(1.2)  # several heartbeats: what must not happen has no condition
            assert live(newer) == {0, 1}
            assert [s.owner_epoch for s in newer.restore_status()] == epochs
            assert len(stepped_down(older)) == 2
            (check,) = [c for c in older.control.live_checks() if c.name == "instance id"]
            assert check.ok, "killed and started again, it would be the newer one"
            assert f"stepped down for process {os.getpid()} on host" in check.detail
        await until(lambda: live(older) == {0, 1}, "the older one back", 60)
        assert caplog.text.count("DuplicateInstance") == 1
        await here.assert_exactly_once(older)
