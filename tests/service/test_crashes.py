"""A service that ends under load, by SIGKILL or in good order: every input record counts exactly once."""

import asyncio
import random
import subprocess
import sys

import pytest

from tests.support import apps
from tests.support.child import ROOT, Load
from tests.support.stage import until


@pytest.mark.whole
@pytest.mark.parametrize(
    ("kind", "mode", "seed"), [("pair", "replay", 3), pytest.param("ledger", "changes", 1, marks=pytest.mark.whole)]
)
async def test_killed_at_random_moments_under_load(stage, unique, children, kind, mode, seed):
    """Three SIGKILLs, some in a recovery, while all inputs keep coming: outputs and state as folded by hand. The
    interleaving of what was committed stands, regardless of a killed process's plans."""
    dice = random.Random(seed)
    app = (apps.pair if kind == "pair" else apps.ledger)(unique("killed"))
    here = await stage(app, partitions=2)
    kept = {"restore__mode": mode, "snapshot__every_records": 200}
    with Load(here, pause_s=0.05), Load(here, topic=app.inputs[-1].name, pause_s=0.05):
        for _ in range(3):
            child = children.start(kind, app.app_id, **kept)
            await asyncio.to_thread(child.wait_http)
            await asyncio.sleep(dice.uniform(0.0, 1.2))
            child.kill()
    async with here.running(restore={"mode": mode}) as service:
        assert all(status.restore.proof.equal for status in service.restore_status())
        await (here.assert_merged if kind == "pair" else here.assert_exactly_once)(service)


@pytest.mark.whole
async def test_nothing_that_a_handler_raises_ends_a_partition_unseen(stage, unique, children):
    """Each is the failure of its record, by name; the others continue, and SIGTERM still stops the process."""
    here = await stage(apps.ledger(unique("escaping")), partitions=5)
    child = children.start("escaping", here.app.app_id)
    await asyncio.to_thread(child.wait_live, 5)
    await here.send((f"{n}:a", {"amount": 1, "raises": name}) for n, name in enumerate(apps.ESCAPING))
    await here.send([("4:a", {"amount": 1})])

    def ended():
        return [n for n, each in child.partitions().items() if each["phase"] == "failed"]

    await asyncio.to_thread(child.until, lambda: ended() == [0, 1, 2, 3], "four failed")
    for (number, shown), name in zip(child.partitions().items(), apps.ESCAPING, strict=False):
        error = shown["error"]
        assert error["kind"] == "HandlerFailed"
        assert error["record_id"] == f"{here.app.inputs[0].name}-{number}-0"
        assert f"raised {name}" in error["message"]
    assert await asyncio.to_thread(asked, child, "restore-status") == 1
    await asyncio.to_thread(child.until, lambda: child.processed() == 1, "the fifth continues")
    assert await asyncio.to_thread(child.terminate) == 0


def asked(child, *command):
    """The exit code of a command that asks this process."""
    program = [sys.executable, "-m", "snapreplay.api.cli", *command, "--url", child.url]
    return subprocess.run(program, cwd=ROOT, capture_output=True, check=False).returncode


async def test_a_stop_finishes_and_writes_a_last_snapshot(stage, unique):
    """Under load; the next process has nothing to advance but what came since."""
    here = await stage(apps.ledger(unique("stop")), partitions=2)
    with Load(here, pause_s=0.05):
        async with here.running(snapshot={"before_stop": True}) as service:
            await until(lambda: min(s.records_total for s in service.restore_status()) > 50, "input of both")
    async with here.running() as service:
        for status in service.restore_status():
            assert status.restore.snapshot is not None
            assert status.restore.proof.batches_compared == 1, "the batch that points"
        await here.assert_exactly_once(service)
