"""C6: the increments topic loses its end while no process has the state in memory. No record of it shows that; what its
owner committed outside of it does."""

import asyncio
import signal

import pytest

from snapreplay.service.partition import ownership_watch
from snapreplay.service.recovery.copy_in_log import last_now
from snapreplay.service.runtime.witnesses import witness_of
from snapreplay.snapshots.format.records import OWN_KIND
from tests.support import apps, reference
from tests.support.accepting import accepted
from tests.support.child import family
from tests.support.older_disk import OlderDisk
from tests.support.stage import Stage, phase, processed, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 2.0)
    disk = OlderDisk(tmp_path)
    with disk.broker:
        yield disk


@pytest.mark.whole
async def test_c6_an_older_directory_is_noticed_and_the_way_out_repeats_no_more_than_it_says(disk, unique):
    """A stopped app: the state of the last batch that is left counts, and only what came after it is done twice."""
    here = await Stage(disk.broker.bootstrap_servers, apps.ledger(unique("c6"))).prepare()
    increments = f"{here.app.app_id}-increments-0"
    async with here.running() as service:
        await here.process(service, 100)
    disk.keep(increments)
    async with here.running(records=50) as service:
        batch = service.restore_status()[0].batch
    await asyncio.to_thread(disk.put_back, increments)
    status = await here.failure()
    assert status.error.kind == "IncrementsBehind"
    assert f"but batch {batch} was committed" in status.error.message
    proposal, begun = await accepted(here, status.error.hint)
    assert f"({here.input} from offset 100 on)" in " ".join(proposal.plan)
    assert begun.increment.batch > batch
    async with here.running() as service:
        await processed(service, {0: 150})
        assert sum(account["n"] for account in service.view(0).values()) == 150
    names = reference.ids((await here.read(here.output))[0])
    assert (len(names), len(set(names))) == (200, 150)
    await here.feed(10)
    async with here.running() as service:  # nothing is found missing again
        await processed(service, {0: 160})


@pytest.mark.whole
async def test_c6_a_whole_disk_of_one_earlier_moment_is_resumed_exactly(disk, unique):
    """Inputs, outputs, state and the group's offsets went back together, so nothing contradicts anything."""
    here = await Stage(disk.broker.bootstrap_servers, apps.ledger(unique("c6"))).prepare()
    async with here.running() as service:
        await here.process(service, 70)
    disk.keep("*-[0-9]*")  # the directories of all partitions
    async with here.running() as service:
        await here.process(service, 10)
    await asyncio.to_thread(disk.put_back, "*-[0-9]*")
    async with here.running() as service:
        assert len((await here.read(here.input))[0]) == 70
        await here.feed(20)
        await here.assert_exactly_once(service)
    await here.restored()


@pytest.mark.whole
async def test_c6_an_owner_that_commits_nothing_writes_what_its_log_has_lost(disk, unique, monkeypatch):
    """No records are sent. The broker comes back with an older directory, and the state in memory is the only copy:
    it is in the log again before the process ends, for any reason."""
    monkeypatch.setattr(ownership_watch, "LOOK_SECONDS", 1.0)
    here = await Stage(disk.broker.bootstrap_servers, apps.ledger(unique("c6"))).prepare()
    increments = f"{here.app.app_id}-increments-0"
    async with here.running(records=100) as service:
        await asyncio.to_thread(disk.keep, increments)
        await here.process(service, 50)
        context = await here.context()
        before = await last_now(context)
        assert before is not None
        await asyncio.to_thread(disk.put_back, increments)

        def is_decided():
            return any(each.finding.startswith(OWN_KIND) for each in service.restore_status()[0].decisions)

        await until(is_decided, "a new chain", 60.0)
        await phase(service, "live")
        after = await last_now(context)
        assert after is not None
        assert (after.increment.batch, after.increment.digest) == (before.increment.batch + 1, before.increment.digest)
    await here.restored()
    names = reference.ids((await here.read(here.output))[0])
    assert (len(names), len(set(names))) == (150, 150)


@pytest.mark.whole
async def test_c6_who_starts_beside_a_frozen_owner_fences_no_other(disk, tmp_path, unique):
    """The frozen owner has the newer state in memory. It continues and writes that state: nothing is done twice."""
    here = await Stage(disk.broker.bootstrap_servers, apps.ledger(unique("c6"))).prepare()
    increments = f"{here.app.app_id}-increments-0"
    with family(disk.broker.bootstrap_servers, tmp_path) as children:
        first = children.start("ledger", here.app.app_id)
        await asyncio.to_thread(first.wait_live)
        await here.feed(100)
        await asyncio.to_thread(first.until, lambda: first.processed() == 100, "processed")
        disk.keep(increments)
        await here.feed(50)
        await asyncio.to_thread(first.until, lambda: first.processed() == 150, "processed")
        context = await here.context()
        newest = await last_now(context)
        assert newest is not None

        async def witnessed():
            witness = await witness_of(context)
            return witness is not None and witness.batch == newest.increment.batch

        while not await witnessed():  # noqa: ASYNC110 - it is in the cluster
            await asyncio.sleep(0.2)  # between two looks: it is written every few seconds
        first.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(disk.put_back, increments)
        second = children.start("ledger", here.app.app_id, instance_id="two")
        await asyncio.to_thread(second.wait_http)
        await asyncio.to_thread(
            second.until, lambda: "IncrementsBehind" in second.raw("/restore-status?scope=local"), "refused"
        )
        first.process.send_signal(signal.SIGCONT)
        await here.feed(10)
        await asyncio.to_thread(first.until, lambda: "live" in {state(first), state(second)}, "live again")
        names = list[str]()
        while len(names) < 160:
            names = reference.ids((await here.read(here.output))[0])
            await asyncio.sleep(0.2)  # between two looks
        assert (len(names), len(set(names))) == (160, 160)


def state(child):
    return next((each["phase"] for each in child.partitions().values()), "none")
