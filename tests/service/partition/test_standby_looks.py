"""Warm copies look at the log together."""

import asyncio
from typing import Any

from snapreplay.service.recovery.examine import Examiner
from tests.service.partition.test_standby import Copied, live
from tests.support.in_memory import virtual
from tests.support.stage import until


@virtual
async def test_copies_look_at_the_same_time(bench, monkeypatch):
    """Whenever each was begun: then many of them ask a broker as one."""
    one = await live(bench)
    newer, looked = Examiner.newer, dict[Any, list[float]]()

    async def noted(self):
        looked.setdefault(self, []).append(asyncio.get_running_loop().time())
        return await newer(self)

    monkeypatch.setattr(Examiner, "newer", noted)
    copies = []
    for name in ("two", "three", "four"):
        copies.append(Copied(await bench.context(name)))
        await copies[-1].warm(one.status.batch)
        await asyncio.sleep(0.17)  # in virtual time, between two looks
    await until(lambda: len(looked) == len(copies) and min(map(len, looked.values())) > 4, "some looks")
    assert len({round(each, 3) for times in looked.values() for each in times[-3:]}) <= 4
    for each in copies:
        await each.standby.end()
