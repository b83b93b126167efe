"""B2: an upgrade is no trap: version 1 is killed, version 2 goes on by either mode, or says what to do."""

from typing import Any

import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.state.stores import maps_of
from tests.support import apps, reference
from tests.support.stage import phase, processed, snapshot

pytestmark = pytest.mark.kafka


async def test_b2_version_2_by_replay_names_both_versions_and_the_way(stage, unique):
    """Lean mode: FAILED as changed code, not as corruption, at once and not after older snapshots; version 1 once
    more with a snapshot at its stop leaves nothing to replay, and version 2 goes on."""
    here = await stage(apps.ledger(unique("lean")), changelog={"enabled": False})
    async with here.running() as service:  # and no last snapshot: the log is that of a process that was killed
        await here.feed(60)
        await here.all_processed(service)
    version_2 = apps.ledger(here.app.app_id, apps.subtract, version="2")
    status = await here.failure(version_2)
    assert status.error.kind == "CodeChanged"
    assert f"app version {here.app.version}, this is {version_2.version}" in status.error.message
    assert status.restore.fallback_from is None
    for way in ("start the version that processed it and stop it", "snapreplay accept"):
        assert way in status.error.hint
    assert "restore.mode" not in status.error.hint.partition("--set")[0], "no changes were written"
    async with here.running(snapshot={"before_stop": True}):
        pass
    async with here.running(version_2) as service:
        assert service.restore_status()[0].restore.records_replayed == 0
        await here.feed(40)
        await processed(service, {0: 100})
        assert reference.as_plain(service.view(0)) == reference.booked(range(60), range(60, 100))


async def test_b2_a_hotfix_starts_from_the_snapshot_that_failing_left(stage, unique):
    """Lean mode, so that everything before would have to be replayed by code that is not there any more: before
    FAILED the owner wrote a snapshot, and a fix that books differently replays nothing."""
    here = await stage(apps.ledger(unique("hotfix"), apps.refuse_poison), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(30)
        await here.all_processed(service)
        await here.feed(10, poison=True)
        status = await phase(service, "failed")
        assert (status.error.kind, status.snapshot.state) == ("HandlerFailed", "pointed")
    fixed = apps.ledger(here.app.app_id, apps.subtract, version="fixed")
    async with here.running(fixed) as service:
        assert service.restore_status()[0].restore.records_replayed == 0
        await processed(service, {0: 40})
        assert reference.as_plain(service.view(0)) == reference.booked(range(30), range(30, 40))


def shop(name: str, state: Any) -> App[Any]:
    """Counts the payments of each account, in all its stores."""
    inputs, outputs = [Topic(f"payments-{name}")], [Topic(f"balances-{name}")]
    made: App[Any] = App(name, inputs=inputs, outputs=outputs, state=state)

    @made.handler(inputs[0])
    def on_payment(record: Any, state: Any, out: Any) -> None:
        for each in [state] if isinstance(state, MapState) else maps_of(state).values():
            each[record.key] = each.get(record.key, 0) + 1

    return made


async def test_b2_a_store_is_taken_out_as_upgrades_md_says(stage, unique):
    """`retired`, then a plain map again. The partition that has not cleared it yet is FAILED, and the way back leads
    on."""
    name = unique("shop")
    here = await stage(shop(name, lambda: Stores(default=MapState(str, int), old=MapState(str, int))), partitions=2)
    retired = shop(name, lambda: Stores(default=MapState(str, int), retired=("old",)))
    plain = shop(name, lambda: MapState(str, int))
    keys = [f"k{n}" for n in range(20)]
    async with here.running() as service:
        await here.feed(20)
        await here.all_processed(service)
        for number in (0, 1):
            await snapshot(service, number)
    first = reference.partition_of(b"k0", 2)
    alone = [key for key in keys if reference.partition_of(key.encode(), 2) == first]
    async with here.running(retired) as service:
        await here.send((key, {}) for key in alone)
        await here.all_processed(service)
    async with here.started(plain) as service:
        status = await phase(service, "failed", 1 - first)
        assert status.error.kind == "UnknownStore"
        assert 'Stores(default=MapState(…), …, retired=("old",))' in status.error.hint
        await phase(service, "live", first)
        assert dict(service.view(first)) == dict.fromkeys(alone, 2)
    others = [key for key in keys if key not in alone]
    async with here.running(retired) as service:
        await here.send((key, {}) for key in others)
        await here.all_processed(service)
    async with here.running(plain) as service:
        await here.feed(20)
        await here.all_processed(service)
        assert {**service.view(0), **service.view(1)} == dict.fromkeys(keys, 3)
