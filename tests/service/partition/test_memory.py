"""What may become of a state in memory between two ownerships."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.custody import IncrementsMissing, IncrementsReplaced, Verdict
from snapreplay.service.core.kafka_errors import OffsetTrimmed, Unreachable
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.partition import memory as module
from snapreplay.service.partition.memory import Memory
from snapreplay.service.ports import NewTopic
from snapreplay.service.recovery import custody
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.runtime.report import Reporter
from tests.support import apps
from tests.support.entries import increment
from tests.support.tampering import delete

pytestmark = pytest.mark.kafka


@pytest.fixture
async def held(past):
    """The memory of an owner that has just ended, and its past."""
    then = await past()
    context = await then.here.context()
    memory = Memory(context)
    store, _ = memory.take()
    recovered = await RecoveryDriver(context, store, Reporter(StatusBoard(), 0)).recover()
    await recovered.producer.discard()
    memory.kept = RetainedState(recovered.chain.last, recovered.chain.last_offset)
    return memory, then, recovered.chain.owner_epoch


async def test_a_state_is_let_go_only_when_the_log_leads_to_it(held):
    """Not while its topic is missing, nor when another one took its place."""
    memory, then, _ = held
    assert await memory.is_proven()
    assert await memory.loss() is None
    delete(then.here.bootstrap_servers, then.increments)
    assert isinstance(await memory.loss(), IncrementsMissing)
    await memory.forget_if_proven()
    assert memory.kept is not None
    assert len(memory.store.view)
    await then.here.cluster.create_topics([NewTopic(then.increments, 1)])
    assert isinstance(await memory.loss(), IncrementsReplaced)
    await memory.forget_if_proven()
    assert memory.kept is not None


async def test_a_proven_state_is_forgotten_at_once(held):
    """Somebody else owns the partition; two of them would not fit."""
    memory, _, _ = held
    store = memory.store
    await memory.forget_if_proven()
    assert (memory.store, memory.kept, len(store.view)) == (None, None, 0)


async def test_a_log_that_nothing_can_be_restored_from_is_no_copy(held):
    """It ends with our batch, but what a recovery would need is gone."""
    memory, _, _ = held
    memory.recoverable = False
    assert not await memory.is_proven()


async def test_a_cluster_that_does_not_answer_shows_nothing_new(held, monkeypatch):
    """The last batch was committed, and that is all that is known."""
    memory, _, _ = held

    async def nothing(*_):
        return None

    monkeypatch.setattr(module, "looked_up", nothing)
    assert await memory.is_proven()


async def test_who_has_claimed_since_is_not_disturbed(held, monkeypatch):
    """What is held is held beside the new owner; and beside whoever may be one, while the log cannot be read."""
    memory, then, epoch = held
    assert not await memory.is_others(epoch)
    context = await then.here.context()
    second = Memory(context)
    recovered = await RecoveryDriver(
        context, second.take()[0], Reporter(StatusBoard(), 0)
    ).recover()
    await recovered.producer.discard()
    assert await memory.is_others(epoch)
    assert await memory._outcome() is Verdict.SAME
    trimmed = OffsetTrimmed("trimmed between two requests")
    monkeypatch.setattr(module, "newer_owner", AsyncMock(side_effect=trimmed))
    assert await memory.is_others(epoch)


async def test_what_would_be_lost_is_named(held, caplog):
    """Partition, batch, entries, and the command; in the log once, however often it is looked."""
    memory, _, _ = held
    for _ in range(3):
        assert await memory.is_to_be_written(None)
    assert [each for each in caplog.messages if "is kept in memory" in each] == [
        f"partition 0: its state is kept in memory: {memory.unsaved}"
    ]
    assert "partition 0 (batch 8, 20 entries)" in memory.unsaved.message
    assert "snapreplay topics ensure" in memory.unsaved.hint
    memory.forget()
    assert memory.unsaved is None


def unasked():
    """The memory of an owner whose cluster is not there."""

    async def nobody():
        raise Unreachable("no broker")

    context: Any = SimpleNamespace(
        app=apps.ledger("a"),
        cluster=SimpleNamespace(topic_ids=lambda _: nobody()),
        increments=SimpleNamespace(topic="a-increments"),
        snapshots=SimpleNamespace(topic="a-snapshots"),
        partition=0,
    )
    memory = Memory(context)
    memory.kept = RetainedState(increment(9), 33)
    return memory


@pytest.mark.parametrize("what", ["replaced", "unrecoverable", "answered before"])
async def test_no_answer_is_no_proof_of_a_state_that_was_in_no_log(what, monkeypatch):
    """Only an answer changes what the last one said."""
    monkeypatch.setattr(custody, "LOOK_SECONDS_MAX", 0.01)
    memory = unasked()
    assert await memory.is_proven()
    assert memory.lost is None
    if what == "replaced":
        memory.replaced()
    elif what == "unrecoverable":
        memory.recoverable = False
    else:
        memory.proven = False
    assert not await memory.is_proven()
    assert memory.lost is not None
    await memory.forget_if_proven()
    assert memory.kept is not None


async def test_nobody_who_tells_of_t_quanliang_is_no_proof(monkeypatch):
    """The log leads to the state, but what it points to was not seen."""
    monkeypatch.setattr(custody, "LOOK_SECONDS_MAX", 0.01)

    async def same(*_):
        return Verdict.SAME

    monkeypatch.setattr(module, "looked_up", same)
    memory = unasked()
    memory.proven = False
    assert not await memory.is_proven()
