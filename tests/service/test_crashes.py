"""SIGKILL at random moments, on both modes: every input record counts exactly once."""

import asyncio
import random

import pytest

from tests.support import apps
from tests.support.load import Load
from tests.support.stage import until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("mode", "seed"), [("changes", 1), pytest.param("replay", 2, marks=pytest.mark.slow)]
)
async def test_killed_at_random_moments_under_load(stage, unique, children, mode, seed):
    """Three SIGKILLs, some in a recovery, while input keeps coming: outputs and state as folded by hand."""
    dice = random.Random(seed)
    here = await stage(apps.ledger(unique("killed")), partitions=2)
    kept = {"restore__mode": mode, "snapshot__every_records": 200}
    with Load(here):
        for _ in range(3):
            child = children.start("ledger", here.app.app_id, **kept)
            await asyncio.to_thread(child.wait_http)
            await asyncio.sleep(dice.uniform(0.0, 1.2))
            child.kill()
        child = children.start("ledger", here.app.app_id, **kept)
        await asyncio.to_thread(child.wait_live, 2)
    restored = child.partitions()
    assert all(p["proof"]["equal"] for p in restored.values())
    assert await asyncio.to_thread(child.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


async def test_a_killed_process_has_its_partitions_back_at_once(stage, unique, children):
    """Static membership: not after the session of the dead member has run out."""
    session_s = 20
    here = await stage(apps.ledger(unique("static")), partitions=2)
    lasting = {"group__session_timeout_ms": session_s * 1000, "group__heartbeat_interval_ms": 1000}
    await here.feed(100)
    seconds = []
    for _ in range(2):
        child = children.start("ledger", here.app.app_id, **lasting)
        seconds.append(await asyncio.to_thread(child.wait_live, 2))
        child.kill()
    assert seconds[1] < session_s / 2


async def test_a_snapshot_over_http_is_what_a_killed_process_starts_from(stage, unique, children):
    """Triggered by POST, followed to its end; the restart shows it with its proof, and needs little else."""
    here = await stage(apps.ledger(unique("http")))
    await here.feed(300)
    child = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(child.wait_live)
    await until(lambda: child.processed() == 300, "the input")
    operation = child.post("/trigger-snapshot", {"partitions": [0], "reason": "before the kill"})
    path = f"/api/v1/operations/{operation['id']}"
    await until(lambda: child.get(path)["state"] != "running", "the snapshot")
    (part,) = child.get(path)["parts"]
    assert part["state"] == "succeeded"
    child.kill()
    again = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(again.wait_live)
    restored = again.partitions()[0]
    assert restored["snapshot"]["snapshot_id"] == part["snapshot_id"]
    assert restored["proof"]["equal"]
    assert restored["proof"]["batches_compared"] == 1
    assert set(restored["seconds_per_phase"]) >= {"fencing", "claiming", "locating", "loading"}


async def test_sigterm_finishes_writes_a_last_snapshot_and_exits_with_zero(stage, unique, children):
    """Under load; the next process has nothing to advance but what came since."""
    here = await stage(apps.ledger(unique("term")), partitions=2)
    with Load(here):
        child = children.start("ledger", here.app.app_id, snapshot__before_stop="true")
        await asyncio.to_thread(child.wait_live, 2)
        await until(lambda: child.processed() > 100, "some input")
        code = await asyncio.to_thread(child.terminate)
    assert code == 0, child.log
    async with here.running() as service:
        for status in service.restore_status():
            assert status.restore.snapshot is not None
            assert status.restore.proof.batches_compared == 1, "the batch that points"
        await here.assert_exactly_once(service)


async def test_two_inputs_survive_kills(stage, unique, children):
    """The interleaving of what was committed stands, whatever a killed process had in mind."""
    dice = random.Random(3)
    here = await stage(apps.pair(unique("pair")), 2)
    left, right = (topic.name for topic in here.app.inputs)
    with Load(here, topic=left), Load(here, topic=right):
        for _ in range(2):
            child = children.start("pair", here.app.app_id, restore__mode="replay")
            await asyncio.to_thread(child.wait_live, 2)
            await asyncio.sleep(dice.uniform(0.0, 0.5))
            child.kill()
    async with here.running(restore={"mode": "replay"}) as service:
        await here.assert_merged(service)
