"""SIGKILL at random moments, on both roads: every input record counts exactly once."""

import asyncio
import random
import threading

import pytest

from tests.support import apps, reference

pytestmark = pytest.mark.kafka


class Load:
    """Input that keeps coming, from a thread, until the block ends."""

    def __init__(self, here, pause_s=0.02, count=10):
        self._here, self._pause_s, self._count = here, pause_s, count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self):
        here = self._here
        while not self._ended.wait(self._pause_s):
            first, here.sent = here.sent, here.sent + self._count
            records = [(f"k{i % 20}", {"amount": i}) for i in range(first, here.sent)]
            reference.send(
                here.bootstrap_servers, here.app.inputs[0].name, here.partitions, records
            )

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


@pytest.mark.parametrize(("road", "seed"), [("changes", 1), ("replay", 2)])
async def test_killed_at_random_moments_under_load(stage, unique, children, road, seed):
    """Four SIGKILLs, some in a recovery, while input keeps coming: outputs and state as folded by hand."""
    dice = random.Random(seed)
    here = await stage(apps.ledger(unique("killed")), partitions=2)
    kept = {"restore__road": road, "snapshot__every_records": 200}
    with Load(here):
        for _ in range(4):
            child = children.start("ledger", here.app.app_id, **kept)
            await asyncio.to_thread(child.wait_http)
            await asyncio.sleep(dice.uniform(0.0, 1.2))
            child.kill()
        child = children.start("ledger", here.app.app_id, **kept)
        await asyncio.to_thread(child.wait_live, 2)
    restored = child.partitions()
    assert all(p["proof"]["equal"] for p in restored.values())
    assert await asyncio.to_thread(child.terminate) == 0
    service = here.service()
    await service.start()
    try:
        await here.assert_exactly_once(service)
    finally:
        await service.stop()
