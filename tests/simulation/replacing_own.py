"""T-ZengLiang or T-QuanLiang is deleted while it is owned, and created again, empty. What was in it is in the memory of
its owners, who do not die any more: nothing may be lost, and nothing may happen twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapreplay.app import names
from snapreplay.service.core.phase import Phase
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from snapreplay.snapshots.format.records import Claim
from tests.simulation import program
from tests.simulation.network import NOWHERE

if TYPE_CHECKING:
    from tests.simulation.world import World

AFTER = ("stall", "rebalance", "cut", "trigger", "start", "replace")
"""Events that may come after it."""

LEADS_NOWHERE = ("BrokenChain", "LogShorter", "LogCut", "NoRestoreMode", "NoUsableSnapshot")
"""What an owner without a state in memory makes of orphans."""

GONE_SECONDS = (0.0, 0.0, 0.05, 0.5, 2.0, 6.0)
INCREMENTS = names.increments_topic(program.APP_ID)


def replace_own(world: World, topic: str) -> bool:
    """False when it cannot happen now: somebody's state is not in the memory of a process that lives."""
    broker = world.broker
    hotfixes = world.scenario.poison > 0 and not world.scenario.dead_letter
    if topic not in broker.topic_ids or world.replaced or broker.stale or hotfixes:
        return False
    late = ("fence.late", "fence.stall_before")
    if any(world.network.faults.counts[each] for each in late):
        return False  # one that comes late looks like a new owner's: ADR 11 says what was given up
    if not all(_is_held(world, number) for number in range(world.scenario.partitions)):
        return False
    world.own_replaced.append(topic)
    world.network.faults.spare_owners()
    broker.delete(topic)
    if topic == INCREMENTS:
        world.group.topic_changed(gone=True)
    gone = world.rng.choice(GONE_SECONDS)
    world.loop.call_later(gone, create_own, world, topic, context=NOWHERE)
    return True


def create_own(world: World, topic: str) -> None:
    """As `snapreplay topics ensure` does."""
    if topic not in world.broker.topic_ids:
        world.broker.create(topic, world.scenario.partitions)
        if topic == INCREMENTS:
            world.group.topic_changed(gone=False)


def _is_held(world: World, number: int) -> bool:
    """Whether the last one who claimed is alive and LIVE."""
    log = world.broker.logs.get(TopicPartition(INCREMENTS, number))
    claims = [
        decode(record.value or b"")
        for record in (log.committed() if log is not None else ())
        if kind_of(record.value or b"") is RecordKind.CLAIM
    ]
    last = claims[-1] if claims else None
    for process in world.processes:
        if any(
            each is not process and each.instance_id == process.instance_id
            for each in world.processes
        ):
            continue  # one of the two steps down, and is killed for it
        status = process.board.get(number)
        ours = isinstance(last, Claim) and last.process_id == process.identity.process_id
        is_live = status is not None and status.phase is Phase.LIVE and not process.stopping
        if ours and is_live and world.group.owner(number) is process:  # not about to let it go
            return True
    return False
