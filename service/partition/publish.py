"""A state that no increment leads to begins a chain: a snapshot of it, and an increment that says why.

`previous_offset` and the manifest's `increment_offset` are the claim: no recovery walks over what was before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.chain import Chain
from snapreplay.service.partition import snapshot_writer
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.report import Reporter
from snapreplay.service.ports import LogRecord, Producer
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.program.record import Output
from snapreplay.snapshots.state.contract import Store


@dataclass(frozen=True)
class Begun:
    """The committed increment with the decision, its offset in T-ZengLiang, and the snapshot it points to."""

    increment: Increment
    offset: int
    snapshot_id: str


def own_decision(context: Context, finding: str, problem: str) -> dict[str, str]:
    """Of a process that takes it by itself: nothing else could be done, and nothing is lost by it."""
    identity = context.identity
    return {
        "finding": finding,
        "problem": problem,
        "decided": "the state in the memory of its owner is written, and the chain begins anew with it",
        "reason": "no other process has owned the partition since: this state was the only copy",
        "by": f"process {identity.pid} ({identity.process_id})@{identity.host}",
    }


async def begin_anew(  # noqa: PLR0913 - an ownership, a state and what is said of it
    context: Context,
    producer: Producer,
    owner_epoch: int,
    store: Store,
    standing: Increment,
    decision: Mapping[str, str],
    reporter: Reporter,
    *,
    outputs: Sequence[Output] = (),
) -> Begun:
    """Write the whole state, then commit one empty increment that points to it and records the decision.

    Args:
        producer: fenced in, its claim committed at `owner_epoch` and seen.
        store: the state to go on with, nothing uncommitted in it.
        outputs: of a batch that is in the state and was not committed: they are, with it.
        standing: the increment that `store` is the state after, with its batch, positions, anchors and digest; its
            `topic_ids` as they are now.

    Raises:
        Fenced, CommitInDoubt, RefusedRecord: the producer is spent; the log says what happened.
        Unreachable, OffsetUnknown: nothing was decided.
        ImageDiffers: the state is not the one of `standing`.
    """
    chain = Chain(context.origin, owner_epoch, standing, owner_epoch, pointers_max=1)
    mark = snapshot_writer.mark(store, chain, "decision")
    pointer = await snapshot_writer.write(context, mark, reporter)
    empty = chain.pointing_to(pointer).next_increment(None, None, wall_ms())
    counts = dict(Counter(output.topic for output in outputs))
    increment = msgspec.structs.replace(empty, decision=dict(decision), outputs=counts)
    record = LogRecord(context.increments.topic, encode(increment), headers=headers_of(increment))
    (offset,) = await producer.commit(context.partition, outputs, (record,))
    return Begun(increment, offset, pointer.snapshot_id)
