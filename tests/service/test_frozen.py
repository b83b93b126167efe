"""A process that is frozen while another one takes its partition, and thawed: from its first answer on it tells the
truth."""

import asyncio
import os
import signal

import pytest

from tests.support import apps
from tests.support.stage import until
from tests.support.waiting import is_true


def answer(child):
    """(status code of /readyz, whether it says that partition 0 is live and ours)."""
    got = child._http.get(child.url + "/readyz")
    checks = {check["name"]: check["ok"] for check in got.json()["checks"]}
    return got.status_code, checks.get("partition 0", False)


@pytest.mark.whole
async def test_a_thawed_zombie_is_never_ready(stage, unique, children):
    """Without input nothing else would tell it. Then the group gives the partition to one of them; both are ready."""
    here = await stage(apps.ledger(unique("frozen")))
    await here.feed(20)
    one = children.start("ledger", here.app.app_id, instance_id="one")
    await asyncio.to_thread(one.wait_live)
    await until(lambda: answer(one) == (200, True), "ready")
    os.kill(one.pid, signal.SIGSTOP)
    two = children.start("ledger", here.app.app_id, instance_id="two")
    await asyncio.to_thread(two.wait_live)
    os.kill(one.pid, signal.SIGCONT)
    seen = [answer(one)]
    while not is_true(lambda: one.partitions().get(0, {}).get("phase") != "live"):
        seen.append(answer(one))
    assert (200, True) not in seen
    await until(lambda: answer(one)[0] == answer(two)[0] == 200 and one.live() ^ two.live() == {0}, "both ready")
