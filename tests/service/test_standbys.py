"""Warm copies in other processes: they follow the owner, and take its place when it is killed or stopped."""

import asyncio

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
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
"""A process that stands still keeps what it has; one that is killed is noticed at once."""


async def in_thread(call, *arguments):
    return await asyncio.to_thread(call, *arguments)


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
    await in_thread(one.wait_live, 4)
    two = children.start("ledger", app_id, instance_id="two", **settings)
    await in_thread(two.wait_http)
    await until(lambda: len(one.live()) == len(two.live()) == 2, "two and two")
    await until(lambda: warm(one).keys() == two.live() and warm(two).keys() == one.live(), "warm copies of the rest")
    return one, two


@pytest.mark.parametrize(
    "changes", ["true", pytest.param("false", marks=pytest.mark.whole)], ids=["by changes", "by replay"]
)
async def test_the_copy_goes_on_where_a_killed_owner_was(stage, unique, children, changes):
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
    assert await in_thread(two.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.whole
async def test_a_planned_stop_hands_over_to_the_copies(stage, unique, children):
    """The partitions are with the other process before this one has left."""
    here = await stage(apps.ledger(unique("stop")), partitions=4)
    with Load(here):
        one, two = await shared(children, here.app.app_id, snapshot__every_records=0)
        given = one.live()
        assert await in_thread(one.terminate) == 0
        await until(lambda: len(two.live()) == 4, "all partitions with the other one")
        assert {two.partitions()[number]["warm"] for number in given} == {"copied"}
        written = [kind_of(each.value or b"") for log in await here.read(here.snapshots) for each in log]
        assert RecordKind.MANIFEST not in written, "who has given them away writes no last snapshot"
    assert await in_thread(two.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.whole
async def test_a_copy_that_falls_behind_is_told_and_goes_to_another_process(stage, unique, children):
    """Its process is too slow for a copy by replay; when that is stopped, another one has the copy and keeps up."""
    here, behind = await stage(apps.ledger(unique("behind"))), "snapreplay_standby_lag_offsets"
    by_replay = {**WARM, "changelog__enabled": "false", "batch__records_max": 1}
    one = children.start("ledger", here.app.app_id, instance_id="one", **by_replay)
    await in_thread(one.wait_live, 1)
    slow = children.start("sleepy", here.app.app_id, instance_id="slow", **by_replay)
    await in_thread(slow.wait_http)
    await until(lambda: warm(slow).keys() == {0}, "a copy in the slow process")
    await here.feed(400, sleep_s=0.05)
    await until(lambda: max(slow.metric(behind), default=0) > 100, "a copy that is behind")
    other = children.start("ledger", here.app.app_id, instance_id="other", **by_replay)
    await in_thread(other.wait_http)
    await until(lambda: len(one.get("/api/v1/processes")["items"]) == 3, "three processes")
    assert await in_thread(slow.terminate) == 0
    await until(lambda: warm(other).keys() == {0} and other.metric(behind) == [0], "a copy that keeps up")
    assert await in_thread(other.terminate) == 0
    assert await in_thread(one.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


async def test_it_is_said_which_copies_are_missing_and_which_are_on_the_rack_of_their_owner(stage, unique, children):
    """A process alone has no copies; a second one on the same rack has them all, and none is on another rack."""
    here = await stage(apps.ledger(unique("few")), partitions=4)

    def started(name):
        return children.start("ledger", here.app.app_id, instance_id=name, kafka__client__rack="r1", **WARM)

    def copies(child):
        return child.get("/api/v1/processes")["items"][0]["copies"]

    one = started("one")
    await in_thread(one.wait_live, 4)
    told = {"wanted": 1, "given": 0, "why_missing": "it is the only process of the group"}
    assert copies(one) == told | {"on_owners_rack": 0, "why_on_owners_rack": ""}
    assert f'snapreplay_copies_missing{{app="{here.app.app_id}"}} 4.0' in one.raw("/metrics")
    shown = await in_thread(CliRunner().invoke, app, ["restore-status", "--url", one.url])
    assert "it is the only process of the group" in shown.output

    two = started("two")
    await in_thread(two.wait_http)
    await until(lambda: len(one.live()) == len(two.live()) == 2, "two and two")
    await until(lambda: one.get("/restore-status")["summary"]["copies_warm"] == 4, "four warm copies")
    shown = await in_thread(CliRunner().invoke, app, ["restore-status", "--url", one.url])
    assert "copies: 4 of 4 warm" in shown.output
    assert "the copies of 2 are on the rack of their owner: no process on another rack holds copies" in shown.output
    assert "snapreplay_copies_on_owners_rack" in two.raw("/metrics")
    assert (copies(two)["given"], copies(two)["on_owners_rack"]) == (1, 2)
