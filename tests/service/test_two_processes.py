"""Two processes of one app: partitions move, one is killed, one is stopped, and two that call themselves the same."""

import asyncio
import socket

import pytest

from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps
from tests.support.entries import read_entry
from tests.support.load import Load
from tests.support.stage import until

pytestmark = pytest.mark.kafka


async def in_thread(call, *arguments):
    return await asyncio.to_thread(call, *arguments)


async def shared(one, two):
    """Until both have half of four partitions, LIVE."""
    await until(lambda: len(one.live()) == len(two.live()) == 2, "two and two")


async def test_partitions_move_and_every_record_counts_once(stage, unique, children):
    """A second process takes half; one is killed, the other has all after a session; it comes back; one is stopped
    by SIGTERM and the other has all at once."""
    here = await stage(apps.ledger(unique("move")), partitions=4)
    name = here.app.app_id
    with Load(here):
        one = children.start("ledger", name, instance_id="one", snapshot__every_records=100)
        await in_thread(one.wait_live, 4)
        two = children.start("ledger", name, instance_id="two", snapshot__every_records=100)
        await in_thread(two.wait_http)
        await shared(one, two)
        assert one.live() | two.live() == {0, 1, 2, 3}

        two.kill()
        await until(lambda: len(one.live()) == 4, "all partitions with the survivor")
        two = children.start("ledger", name, instance_id="two", snapshot__every_records=100)
        await in_thread(two.wait_http)
        await shared(one, two)

        assert await in_thread(one.terminate) == 0
        await until(lambda: len(two.live()) == 4, "all partitions with the one that is left")
    assert await in_thread(two.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.slow
async def test_two_plain_processes_of_one_host_share(stage, unique, children):
    """Nobody gave them a name: each has its own, half of the partitions, and all when the other one is killed."""
    here = await stage(apps.ledger(unique("plain")), partitions=4)
    name = here.app.app_id
    with Load(here):
        one, two = (children.start("ledger", name, instance_id="") for _ in range(2))
        for each in (one, two):
            await in_thread(each.wait_http)
        await shared(one, two)
        names = {each.get("/api/v1")["instance_id"] for each in (one, two)}
        assert len(names) == 2
        assert all(each.startswith(f"{socket.gethostname()}-") for each in names)
        two.kill()
        await until(lambda: len(one.live()) == 4, "all partitions with the survivor")
    assert await in_thread(one.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


def stepped_down(child):
    """The errors of its partitions, all of which it has left to a process of its own name."""
    partitions = child.partitions().values()
    return [p["error"] for p in partitions if p["phase"] == "fenced" and p["error"]]


async def owns_by_the_log(here, child):
    """Until the newest claim of both partitions is this process's, and both are LIVE: claims may cross once."""
    pids: list[int] = []
    while pids != [child.pid] * 2 or child.live() != {0, 1}:
        logs = await here.read(f"{here.app.app_id}-increments")
        claims = [[r for r in log if kind_of(r.value or b"") is RecordKind.CLAIM] for log in logs]
        pids = [read_entry(each[-1].value).pid for each in claims]


@pytest.mark.parametrize("busy", [pytest.param(True, marks=pytest.mark.slow), False])
async def test_the_older_of_two_with_one_instance_id_steps_down_until_it_is_alone(
    stage, unique, children, busy
):
    """It names the other host and process, with the remedy, once; the newer one goes on: no ping-pong. Also when there
    is no input that would show it by a fence. When the newer one is stopped, or killed, the older one is back."""
    here = await stage(apps.ledger(unique("same")), partitions=2)
    name = here.app.app_id
    await here.feed(50)
    older = children.start("ledger", name, instance_id="same")
    await in_thread(older.wait_live, 2)
    load = Load(here)
    if busy:
        load.__enter__()
    try:
        newer = children.start("ledger", name, instance_id="same")
        await in_thread(newer.wait_live, 2)
        await until(lambda: len(stepped_down(older)) == 2, "the older one down")
        for error in stepped_down(older):
            assert error["kind"] == "DuplicateInstance"
            assert f"process {newer.pid} on host" in error["message"]
            assert "--set instance_id=" in error["hint"]
        await owns_by_the_log(here, newer)
        epochs = {n: p["owner_epoch"] for n, p in newer.partitions().items()}
        await asyncio.sleep(1.2)  # several heartbeats: what must not happen has no condition
        assert newer.live() == {0, 1}
        assert {n: p["owner_epoch"] for n, p in newer.partitions().items()} == epochs
        assert len(stepped_down(older)) == 2
        (check,) = [c for c in older.get("/healthz")["checks"] if c["name"] == "instance id"]
        assert check["ok"], "killed and started again, it would be the newer one"
        assert f"stepped down for process {newer.pid} on host" in check["detail"]
        if busy:
            assert await in_thread(newer.terminate) == 0
        else:
            newer.kill()
        await until(lambda: older.live() == {0, 1}, "the older one back", 60)
        assert older.log.count("DuplicateInstance") == 1
    finally:
        if busy:
            load.__exit__()
    await here.feed(10)
    assert await in_thread(older.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)
