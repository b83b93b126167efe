"""Who owns the partition, asked of a real log; and how long one stands back when it is another."""

import asyncio
from functools import partial
from typing import Any

import pytest

from snapreplay.service.core.backoff import fenced_pause_seconds
from snapreplay.service.partition import ownership as module
from snapreplay.service.partition.claiming import claim_record
from snapreplay.service.partition.context import ClusterView, Context, Identity
from snapreplay.service.partition.ownership import StandBack, newer_owner
from snapreplay.service.partition.recoverer import Superseded
from snapreplay.service.ports import Bounds, OffsetBeyondEnd, Unreachable
from snapreplay.service.settings import Settings
from snapreplay.snapshots.format.records import Claim
from tests.support import apps
from tests.support.stage import until
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka


async def claimed(context):
    """Claims, and waits until the claim can be read: a commit is answered before its markers are written."""
    producer = await context.cluster.fence(context.transactional_id)
    (offset,) = await producer.commit(context.partition, (), (claim_record(context, "c"),))
    await producer.discard()
    reader = await context.cluster.reader()
    async for _ in reader.read(context.increments, offset, offset + 1):
        pass
    await reader.close()
    return offset


async def instance_of(context, owner_epoch):
    owner = await newer_owner(context, owner_epoch)
    return owner.instance_id if owner else None


async def test_a_fence_without_a_newer_claim_proves_nothing(stage, unique):
    """Our transaction may only have timed out."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    assert await newer_owner(context, await claimed(context)) is None


async def test_the_newest_claim_is_the_owner(stage, unique):
    """Also when the log before it was trimmed."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    await claimed(await here.context(instance_id="two"))
    last = await claimed(await here.context(instance_id="three"))
    assert await instance_of(context, mine) == "three"
    trim(here.bootstrap_servers, context.increments.topic, 0, last)
    assert await instance_of(context, mine) == "three"
    assert await newer_owner(context, last) is None


async def test_a_newer_owner_that_has_trimmed_its_claim_is_one_all_the_same(stage, unique):
    """Found by the simulator (seed 70329): a process that stood still in its recovery would else take what its
    successor has trimmed for a loss. An owner's own trim makes nobody its successor."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    async with here.running(instance_id="two") as service:
        await here.feed(10)
        await here.all_processed(service)
        epoch = service.restore_status()[0].owner_epoch
        last_offset = service._supervisor.runners[0]._live._committer.chain.last_offset
        trim(here.bootstrap_servers, context.increments.topic, 0, last_offset)
        newer = await newer_owner(context, mine)
        assert newer is not None
        assert "trimmed" in newer.host
        assert await newer_owner(context, epoch) is None


def stale_leaders(monkeypatch, context, count, end_offset):
    """The first `count` clients come to a leader whose log ends there; those that came."""
    connect = context.cluster.reader
    met: list[Any] = []

    async def end(partition):
        return Bounds(0, end_offset)

    async def reader():
        found = await connect()
        if len(met) < count:
            met.append(found)
            monkeypatch.setattr(found, "bounds", end)
        return found

    monkeypatch.setattr(context.cluster, "reader", reader)
    monkeypatch.setattr(module, "ASK_AGAIN_SECONDS", 0.0)
    return met


async def test_a_leader_that_does_not_know_our_own_claim_is_not_believed(
    stage, unique, monkeypatch
):
    """Found by the simulator (seed 109724): a recovery that stood still took its successor's snapshot for the proof
    that increments were lost, because a stale leader knew of no successor."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    await claimed(await here.context(instance_id="two"))
    met = stale_leaders(monkeypatch, context, 3, mine)
    assert await instance_of(context, mine) == "two"
    assert len(met) == 3


async def test_a_leader_that_does_not_know_what_was_committed_after_our_claim_is_not_believed(
    stage, unique, monkeypatch
):
    """Found by the simulator (seed 302471): as above, but the stale leader knew our own claim. A snapshot names the
    increment that it is of: whoever lacks it cannot say that nobody came after us."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    theirs = await claimed(await here.context(instance_id="two"))
    met = stale_leaders(monkeypatch, context, 3, mine + 1)
    newer = await newer_owner(context, mine, known_offset=theirs)
    assert newer is not None
    assert newer.instance_id == "two"
    assert len(met) == 3


async def test_what_nobody_knows_any_more_is_gone(stage, unique, monkeypatch):
    """Then the log was cut, and there is no newer owner."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    monkeypatch.setattr(module, "STALE_LEADER_SECONDS", 0.2)
    assert await newer_owner(context, mine, known_offset=mine + 1000) is None


async def test_when_nobody_knows_our_own_claim_the_log_could_not_be_asked(
    stage, unique, monkeypatch
):
    """No answer is not "nobody"; both offsets are named."""
    here = await stage(apps.ledger(unique("owner")))
    context = await here.context()
    mine = await claimed(context)
    stale_leaders(monkeypatch, context, 1_000_000, mine)
    monkeypatch.setattr(module, "STALE_LEADER_SECONDS", 0.2)
    with pytest.raises(OffsetBeyondEnd, match=f"ends at {mine}, our own claim is at {mine}"):
        await newer_owner(context, mine)


# ---- after another's claim ---------------------------------------------------------------------


NEWER = Claim("c", "app", "cluster", "p2", "two", "host-b", 4242, 0)


class Coordinator:
    """Gives these answers, the last one for ever; an error is no answer."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def was_asked(self, times):
        return self.asked == times

    async def gives_us(self, partition):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that are asked for, in seconds; each takes a thousandth of it."""
    asked_for = []

    def shorter(*arguments):
        asked_for.append(fenced_pause_seconds(*arguments))
        return asked_for[-1] / 1000

    monkeypatch.setattr(module, "fenced_pause_seconds", shorter)
    return asked_for


def stands_back(group):
    """Of partition 0 of an app whose group is `group`."""
    identity = Identity.of_this_process("one")
    view = ClusterView("cluster", 1, {}, 900_000)
    cluster: Any = None  # nothing is asked of it
    app, settings = apps.ledger("app"), Settings()
    return StandBack(
        Context(app, settings, cluster, view, identity, 0, asyncio.Semaphore(1), group)
    )


async def test_only_the_coordinators_word_ends_the_wait(pauses):
    """Another's, a rebalance (nobody's) and no answer are all no; pauses grow from one question to the next."""
    group = Coordinator(False, Unreachable("no coordinator"), False, True)
    await stands_back(group).until_given(asyncio.Event())
    assert group.asked == 4
    assert all(0.75 * 2**n <= pause <= 2**n for n, pause in enumerate(pauses))


async def test_a_new_assignment_ends_a_pause_but_not_the_wait(monkeypatch):
    """The coordinator is asked at once, and still decides."""
    monkeypatch.setattr(module, "fenced_pause_seconds", lambda *_: 3600.0)
    group = Coordinator(False, True)
    back = stands_back(group)
    waiting = asyncio.create_task(back.until_given(asyncio.Event()))
    for asked in (1, 2):
        await asyncio.sleep(0)  # the pause has begun
        back.given_again()
        await until(partial(group.was_asked, asked), f"question {asked}")
    await asyncio.wait_for(waiting, 5)


async def test_a_stop_ends_the_wait_unasked(monkeypatch):
    """Whoever is stopped takes nothing back."""
    monkeypatch.setattr(module, "fenced_pause_seconds", lambda *_: 3600.0)
    group, stopped = Coordinator(True), asyncio.Event()
    waiting = asyncio.create_task(stands_back(group).until_given(stopped))
    await asyncio.sleep(0)  # the pause has begun
    stopped.set()
    await asyncio.wait_for(waiting, 5)
    assert group.asked == 0


async def test_without_a_group_the_log_alone_decides(pauses):
    """One pause, and back."""
    await stands_back(None).until_given(asyncio.Event())
    assert len(pauses) == 1


async def test_twice_within_a_minute_names_process_and_host(pauses, monkeypatch):
    """Once is a move; a row is told as such, and each next pause begins longer. After a quiet minute it is a move."""
    back, error = stands_back(None), Superseded(NEWER, 0)
    assert back.taken(NEWER, error) is error
    again = back.taken(NEWER, error)
    assert again is not error
    assert "process 4242 on host host-b (instance id 'two')" in again.message
    assert "2 times in a row" in again.message
    assert again.hint
    await back.until_given(asyncio.Event())
    assert 1.5 <= pauses[0] <= 2
    monkeypatch.setattr(module, "IN_A_ROW_SECONDS", 0.0)
    assert back.taken(NEWER, error) is error
