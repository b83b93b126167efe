"""Beginning a new chain, from a state that only this process has."""

import getpass
import os
import socket
from typing import Any

import msgspec
import pytest
from msgspec import msgpack

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.publish.snapshot_writer import ImageDiffers
from snapreplay.service.publish.state import LogWentOn, begin_chain, by_whom, publish
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import reading
from snapreplay.state.digest import EMPTY
from snapreplay.state.stores import store_of

DECISION = {"finding": "test-1", "problem": "p", "decided": "d", "reason": "r", "by": "b"}


async def owner_of(context: Any) -> Any:
    """Return the owner of a partition: what its recovery hands over, its store and its reporter."""
    reporter = Reporter(StatusBoard(), context.partition)
    recovered = await RecoveryDriver(context, Memory(context), reporter).recover()
    return recovered, recovered.store, reporter


async def test_the_next_owner_starts_from_the_snapshot_and_walks_over_nothing_before(bench):
    """The increment follows the claim, bears the decision and the ids given, and points to one snapshot of the state:
    a recovery finds exactly that."""
    await bench.past()
    context = await bench.context()
    owned, store, reporter = await owner_of(context)
    standing = msgspec.structs.replace(owned.chain.last, topic_ids={"there": "now"})
    epoch = owned.chain.owner_epoch
    try:
        begun = await begin_chain(context, owned.producer, epoch, store, standing, DECISION, reporter)
    finally:
        await owned.producer.discard()
    assert (begun.increment.batch, begun.increment.previous_offset) == (9, epoch)
    assert begun.increment.decision == DECISION
    assert begun.increment.topic_ids == {"there": "now"}
    assert [p.snapshot_id for p in begun.increment.pointers] == [begun.snapshot_id]
    again, restored, shown = await owner_of(await bench.context())
    await again.producer.discard()
    assert (again.chain.last, again.chain.last_offset) == (begun.increment, begun.offset)
    assert restored.digest == store.digest
    assert shown.status.restore.snapshot.snapshot_id == begun.snapshot_id


async def test_a_state_that_is_not_the_named_one_is_never_published(bench):
    """The snapshot's own digest is held against that of the increment it is said to be of."""
    await bench.past()
    context = await bench.context()
    owned, _, reporter = await owner_of(context)
    another, before = store_of(context.app.state()), await bench.read(bench.increments)
    try:
        with pytest.raises(ImageDiffers):
            await begin_chain(
                context, owned.producer, owned.chain.owner_epoch, another, owned.chain.last, DECISION, reporter
            )
    finally:
        await owned.producer.discard()
    assert await bench.read(bench.increments) == before


COUNT = 5_000


def filled(context, count=COUNT):
    """A state with so many entries, which no process has."""
    store = context.app.new_store()
    entries = {msgpack.encode(f"a{number}"): msgpack.encode({"sum": number}) for number in range(count)}
    store.apply_changes({"default": entries})
    return store


async def standing_of(context, digest):
    """The last increment as if it had led to that state, and where the log ends."""
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        last = await last_increment(reader, context.increments, bounds)
    assert last is not None
    return msgspec.structs.replace(last.increment, digest=digest), bounds.end_offset


async def test_a_state_that_no_process_holds_is_restored_from_what_is_published(bench):
    """The owner restores it, proven, and continues with it."""
    await bench.prepare()
    context = await bench.context()
    store = filled(context)
    before, end_offset = await standing_of(context, store.digest)
    begun = await publish(context, store, before, DECISION, end_offset)
    assert begun.increment.batch == before.batch + 1
    async with bench.live() as one:
        assert (one.status.state_entries, one.status.digest) == (COUNT, str(store.digest))
        await one.feed(10)


async def test_entries_that_are_not_those_of_the_digest_are_not_published(bench):
    """Nothing points to what was written; nor is anything published over what was committed meanwhile."""
    await bench.prepare()
    context = await bench.context()
    before, end_offset = await standing_of(context, EMPTY)
    with pytest.raises(ImageDiffers):
        await publish(context, filled(context), before, DECISION, end_offset)
    async with bench.live() as one:
        await one.feed(10)
    with pytest.raises(LogWentOn):
        await publish(context, filled(context, 0), before, DECISION, end_offset)


def test_a_decision_names_who_made_it(monkeypatch):
    """The user, or his number in a container that has no name for him, at this host."""
    assert by_whom() == f"{getpass.getuser()}@{socket.gethostname()}"
    monkeypatch.setattr(getpass, "getuser", lambda: (_ for _ in ()).throw(KeyError("uid")))
    assert by_whom() == f"{os.getuid()}@{socket.gethostname()}"
