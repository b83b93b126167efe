"""Entries of an app with two processes: any of them answers for every partition, a warm copy only who asks for one."""

import asyncio
import os
import signal

import pytest

from snapreplay.errors import PartitionNotLive
from snapreplay.service.config.groups import StandbySettings
from tests.service.test_standbys import WARM, shared, warm
from tests.support import apps
from tests.support.child import Load
from tests.support.stage import until

KEYS = [f"k{n}" for n in range(20)]


def look(child, key, **query):
    """(status, document) of a key; only a partition that is asked for has one."""
    answer = child._http.get(f"{child.url}/api/v1/state/default/{key}", params=query)
    return answer.status_code, answer.json()


def scanned(child, number, **query):
    answer = child._http.get(f"{child.url}/api/v1/state/default", params={"partition": number, "limit": 1000, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.whole
async def test_each_process_reads_all_and_copies_answer_if_they_may(stage, unique, children):
    """The same value from both; what a copy says is a batch of its owner, with its age; the copy answers while that one
    is suspended, and the new owner after it was killed."""
    here = await stage(apps.ledger(unique("read")), partitions=4)
    with Load(here):
        one, two = await shared(children, here.app.app_id)
        await until(lambda: not one.live() & two.live(), "no process thinks that it owns what the other one does")
        copies = [
            await asyncio.to_thread(scanned, one, number, stale=True, scope="local") for number in sorted(two.live())
        ]
        for copy in copies:  # while it follows: n records of amounts that the batch has, never a part of them
            assert (copy["answered_by"], copy["partition"] in two.live()) == ("standby", True)
            assert sum(each["value"]["n"] for each in copy["items"]) == sum(copy["positions"].values())
    sent = sum(map(len, await here.read(here.input)))
    await until(lambda: one.processed() + two.processed() == sent, "all processed")
    for key in KEYS:
        (status, found), (other_status, other) = [await asyncio.to_thread(look, child, key) for child in (one, two)]
        assert (status, other_status) == (200, 200), (found, other)
        assert (found["items"][0]["value"], found["not_read"]) == (other["items"][0]["value"], [])
        assert found["read"] == [0, 1, 2, 3]
    status, missing = await asyncio.to_thread(look, one, "unknown")
    assert (status, missing["type"][-13:], missing["partitions"]) == (404, "key-not-found", [0, 1, 2, 3])
    number = min(two.live())
    owned = await asyncio.to_thread(scanned, one, number)
    assert (owned["answered_by"], 0 <= owned["age_seconds"] < 30) == ("owner", True)
    await until(lambda: scanned(one, number, stale=True, scope="local")["batch"] == owned["batch"], "the copy has it")
    copy = await asyncio.to_thread(scanned, one, number, stale=True, scope="local")
    assert (copy["items"], copy["answered_by"]) == (owned["items"], "standby")
    assert 0 <= copy["age_seconds"] < 30
    key = owned["items"][0]["key"]
    status, refused = await asyncio.to_thread(look, one, key, partition=number, scope="local")
    assert (status, refused["type"]) == (404, "urn:snapreplay:problem:partition-not-here")
    os.kill(two.pid, signal.SIGSTOP)  # without an answer while a partition is taken over, as after a kill
    status, found = await asyncio.to_thread(look, one, key, partition=number, stale=True)
    assert (status, found["items"][0]["value"]) == (200, owned["items"][0]["value"])
    two.kill()
    await until(lambda: len(one.live()) == 4, "all partitions with the survivor")
    status, found = await asyncio.to_thread(look, one, key, partition=number)
    assert (status, found["items"][0]["answered_by"]) == (200, "owner")
    assert not warm(one)


@pytest.mark.whole
async def test_a_program_reads_a_warm_copy_of_its_own(stage, unique, children):
    """Only if it says so; the copy shows whole batches, and says which, and how old it is."""
    here = await stage(apps.ledger(unique("copy")), partitions=2)
    with Load(here):
        one = children.start("ledger", here.app.app_id, instance_id="one", **WARM)
        await asyncio.to_thread(one.wait_live, 2)
        async with here.started(instance_id="two", standby=StandbySettings(replicas=1)) as service:
            await until(lambda: len(service.views()) == len(one.live()) == 1, "one and one")
            (number,) = one.live()
            await until(lambda: number in {s.partition for s in service._board.standbys() if s.state == "warm"}, "warm")
            with pytest.raises(PartitionNotLive, match="another process owns it"):
                service.view(number)
            view = service.view(number, stale=True)
            at = view.position
            assert sum(account["n"] for account in view.values()) == sum(at.offsets.values()) > 0
            assert (at.is_copy, 0 <= at.age_seconds < 30) == (True, True)
            own = service.view(1 - number, stale=True).position
            assert (own.is_copy, 0 <= own.age_seconds < 30) == (False, True)
