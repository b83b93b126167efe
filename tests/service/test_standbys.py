"""Warm copies in other processes: they follow the owner, and take its place when it is killed or stopped."""

import asyncio

import pytest

from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps
from tests.support.child import Load
from tests.support.stage import until

WARM = {
    "standby__replicas": 1,
    "snapshot__every_records": 500,
    "http__suspect_after_ms": 600_000,
    "group__session_timeout_ms": 600_000,
}
"""A suspended process keeps what it has; one that is killed is noticed at once."""


def warm(child):
    return {
        each["partition"]: each
        for each in child.get("/restore-status?scope=local")["standbys"]
        if each["state"] == "warm"
    }


async def shared(children, app_id, **settings):
    """Start two processes; wait until each has half of four partitions and a warm copy of the other half."""
    settings = WARM | settings
    one = children.start("ledger", app_id, instance_id="one", **settings)
    await asyncio.to_thread(one.wait_live, 4)
    two = children.start("ledger", app_id, instance_id="two", **settings)
    await asyncio.to_thread(two.wait_http)
    await until(lambda: len(one.live()) == len(two.live()) == 2, "two and two")
    await until(lambda: warm(one).keys() == two.live() and warm(two).keys() == one.live(), "warm copies of the rest")
    return one, two


@pytest.mark.whole
@pytest.mark.parametrize("changes", ["true", "false"], ids=["by changes", "by replay"])
async def test_the_copy_continues_where_a_killed_owner_was(stage, unique, children, changes):
    """Long before its session ends. Nothing is loaded; the digest was compared; every record counts once, so a copy
    that replays sends nothing. It moved to a warm copy in the first place."""
    here = await stage(apps.ledger(unique("warm")), partitions=4)
    with Load(here):
        # A stop waits for the rebalance that the dead one keeps the group in.
        waits = {"group__session_timeout_ms": 120_000, "group__rebalance_timeout_ms": 3000, "timeouts__revoke_ms": 1000}
        one, two = await shared(children, here.app.app_id, changelog__enabled=changes, **waits)
        copied = {n for n, each in two.partitions().items() if each["warm"] == "copied"}
        assert copied == two.live(), "it took them over warm"
        await until(lambda: all(copy["digests_compared"] > 3 for copy in warm(two).values()), "copies that are proven")
        lost = one.live()
        one.kill()
        await until(lambda: len(two.live()) == 4, "all partitions with the survivor")
        for number in lost:
            restore = two.partitions()[number]
            assert (restore["warm"], restore["snapshot"]) == ("copied", None)
            assert restore["proof"]["recorded"] == restore["proof"]["computed"]
        assert not warm(two)
        labels = f'app="{here.app.app_id}"'
        assert f"snapreplay_takeovers_total{{{labels}}} 2.0" in two.raw("/metrics")
    assert await asyncio.to_thread(two.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.whole
async def test_a_planned_stop_hands_over_to_the_copies(stage, unique, children):
    """The partitions are with the other process before this one has left."""
    here = await stage(apps.ledger(unique("stop")), partitions=4)
    with Load(here):
        one, two = await shared(children, here.app.app_id, snapshot__every_records=0)
        given = one.live()
        assert await asyncio.to_thread(one.terminate) == 0
        await until(lambda: len(two.live()) == 4, "all partitions with the other one")
        assert {two.partitions()[number]["warm"] for number in given} == {"copied"}
        written = [kind_of(each.value or b"") for log in await here.read(here.snapshots) for each in log]
        assert RecordKind.MANIFEST not in written, "who has given them away writes no last snapshot"
    assert await asyncio.to_thread(two.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)
