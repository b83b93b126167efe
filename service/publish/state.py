"""Writes a state at once: a snapshot of it, and an increment that points to it. If no increment leads to the state, it
begins a chain, and its increment says why.

`previous_offset` and the manifest's `increment_offset` are those of the claim: no recovery walks over what was before.
Nothing changes before the increment is committed.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping

import msgspec

from snapreplay.errors import ReleaseError
from snapreplay.service.clock import wall_ms
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Producer
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.publish.owned import commit_increment, owned
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.progress import SILENT, RestoreProgress
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.state.composite import Store


class Begun(msgspec.Struct, frozen=True):
    """The committed increment with the decision, its offset in the increments topic, and the snapshot it points to."""

    increment: Increment
    offset: int
    snapshot_id: str


def own_decision(context: Context, finding: str, problem: str) -> dict[str, str]:
    """Record a decision that a process takes by itself: nothing else can be done, and nothing is lost by it."""
    return {
        "finding": finding,
        "problem": problem,
        "decided": "the state in the memory of its owner is written as the start of a new chain",
        "reason": "no other process has owned the partition since: this state was the only copy",
        "by": by_process(context),
    }


async def begin_chain(
    context: Context,
    producer: Producer,
    owner_epoch: int,
    store: Store,
    standing: Increment,
    decision: Mapping[str, str],
    progress: RestoreProgress = SILENT,
) -> Begun:
    """Write the whole state, then commit one empty increment that points to it and records the decision.

    Args:
        producer: has fenced every older one; its claim is committed at `owner_epoch` and seen.
        store: the state to continue with, nothing uncommitted in it.
        standing: `store` is the state after this increment, with its batch, positions, anchors and digest; its
            `topic_ids` are those of now.

    Raises:
        Fenced, CommitInDoubt, RefusedRecord: the producer is spent; the log says what happened.
        Unreachable, OffsetUnknown: nothing was decided.
        ImageDiffers: the state is not the one of `standing`.
    """
    chain = Chain(
        context.origin, owner_epoch, standing, owner_epoch, pointers_max=1, recorded=context.recorded_after(standing)
    )
    pointer = await _written(context, chain, store, "decision", progress)
    empty = chain.pointing_to(pointer).next_increment(None, None, wall_ms())
    increment = msgspec.structs.replace(empty, decision=dict(decision), last_anew_offset=None)
    return Begun(increment, await commit_increment(context, producer, increment), pointer.snapshot_id)


async def write_state(
    context: Context, producer: Producer, chain: Chain, store: Store, progress: RestoreProgress
) -> FoundIncrement:
    """Write the whole state, then commit one empty increment of this chain that points to it.

    Args:
        producer: has fenced every older one; its claim is committed and seen.
        store: the state after `chain.last`, nothing uncommitted in it.

    Raises:
        As `begin_chain`.
    """
    pointer = await _written(context, chain, store, "input", progress)
    increment = chain.pointing_to(pointer).next_increment(None, None, wall_ms())
    return FoundIncrement(increment, await commit_increment(context, producer, increment))


async def _written(context: Context, chain: Chain, store: Store, reason: str, progress: RestoreProgress) -> Pointer:
    return (await snapshot_writer.write(context, snapshot_writer.mark(store, chain, reason), progress)).pointer


class LogWentOn(ReleaseError):
    """Another process has committed to the partition since it was examined.

    Safe: Nothing was changed in this partition, and its owner continues. Partitions that the command has printed as
    done stay done, and the same command skips them.
    """


async def publish(
    context: Context,
    store: Store,
    before: Increment,
    decision: dict[str, str],
    end_offset: int,
    *,
    begins: bool = False,
) -> Begun:
    """Make this state the partition's.

    Args:
        store: the state, nothing uncommitted in it.
        before: stands for that state as if it had been committed: batch number, positions, anchors, digest. The
            increment that is written has the number after it.
        decision: who decided what, and why; kept in the increment.
        end_offset: of the increments topic, up to which it was examined.
        begins: for `init`; see `owned`.

    Raises:
        LogWentOn, Superseded, Fenced: another owner was quicker; nothing was decided.
        CommitInDoubt, Unreachable: only the log shows what happened.
        ImageDiffers: the entries do not have the digest in `before`; nothing was decided.
    """
    async with owned(context, begins=begins) as ours:
        newer = await ours.last_increment(end_offset)
        if newer is not None:
            raise LogWentOn(
                f"partition {context.partition} has committed up to batch {newer.increment.batch} since it was"
                " examined: nothing was changed",
                hint="`snapreplay restore-status` shows whether there is still an error",
            )
        standing = msgspec.structs.replace(before, topic_ids=dict(context.view.topic_ids))
        if begins:  # else the log has an increment, and a decision is numbered behind the witness
            await ours.give_up_later(standing)
        return await begin_chain(context, ours.producer, ours.owner_epoch, store, standing, decision)


def by_process(context: Context) -> str:
    """Name this process, for what it decides by itself."""
    identity = context.identity
    return f"process {identity.pid} ({identity.process_id})@{identity.host}"


def by_whom() -> str:
    """Name us as user@host; a container may have no name for its user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
