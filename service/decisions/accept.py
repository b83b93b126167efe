"""Accepting a finding: what is the matter is found out again, then a fenced increment records the decision.

The increment begins the chain anew: it points to a full snapshot of the accepted state, written under the same claim,
and nothing before it is ever walked over again. Until it is committed nothing has changed.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.search import Window
from snapreplay.service.decisions.examine import Examiner
from snapreplay.service.decisions.ground import Ground, ground_of
from snapreplay.service.partition import snapshot_writer
from snapreplay.service.partition.claiming import claim_record, reader_behind_claim
from snapreplay.service.partition.context import Context, Identity
from snapreplay.service.partition.findings import command, finding_of
from snapreplay.service.partition.increments import last_in_window
from snapreplay.service.partition.recoverer import Superseded
from snapreplay.service.partition.report import Reporter
from snapreplay.service.ports import Cluster, LogRecord, Producer
from snapreplay.service.preflight import inspect
from snapreplay.service.settings import Settings
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import ReleaseError, SnapreplayError, StopError, UsageError
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.program.app import App
from snapreplay.snapshots.state.contract import Store
from snapreplay.snapshots.state.store import store_of

INSTANCE_ID = "snapreplay-accept"
"""In the claim: an owner that is thrown out is told that it was no process of the service."""


class NotTheFinding(UsageError):
    """What was to be accepted is not what is the matter."""


class NotAcceptable(StopError):
    """What is the matter cannot be accepted; its own hint says what helps."""


class LogWentOn(ReleaseError):
    """The partition's owner has committed since it was examined."""


@dataclass(frozen=True)
class Proposal:
    """What `carry_out` would do: `plan` in sentences, `decision` as it would be recorded. `store` holds the state of
    `ground`, `end_offset` is the end of T-ZengLiang as far as it was examined."""

    partition: int
    finding_id: str
    problem: str
    plan: tuple[str, ...]
    decision: dict[str, str]
    context: Context
    store: Store
    ground: Ground
    end_offset: int


@dataclass(frozen=True)
class Accepted:
    """The increment with the decision, and the snapshot it points to."""

    batch: int
    offset: int
    snapshot_id: str


async def propose(
    app: App[Any],
    settings: Settings,
    cluster: Cluster,
    partition: int,
    finding_id: str,
    reason: str,
) -> Proposal:
    """Find out what is the matter now, and what accepting it means. Only reads.

    Raises:
        UsageError: no such partition, or no reason.
        NotTheFinding: another finding, or none, is the matter.
        NotAcceptable, NothingToStandOn: no acceptance would help.
    """
    if not reason.strip():
        raise UsageError("no reason was given", hint="--reason TEXT: whoever reads the log asks")
    view = await inspect(app, settings, cluster)
    if not 0 <= partition < view.partition_count:
        raise UsageError(
            f"partition {partition} does not exist: there are {view.partition_count}"
            f" (0 to {view.partition_count - 1})"
        )
    identity = Identity.of_this_process(INSTANCE_ID)
    context = Context(app, settings, cluster, view, identity, partition, asyncio.Semaphore(1))
    examiner = Examiner(context, store_of(app.state()))
    try:
        return await _proposal(context, examiner, finding_id, reason.strip())
    finally:
        await examiner.close()


async def _proposal(context: Context, examiner: Examiner, finding_id: str, reason: str) -> Proposal:
    error = await examiner.examine()
    if error is None:
        raise NotTheFinding(
            f"partition {context.partition}: nothing is the matter, a recovery goes LIVE;"
            f" {finding_id} cannot be accepted",
            hint="restart the service; it must run with the same settings as this command",
        )
    finding = finding_of(error, context, examiner.last)
    if finding is None:
        raise NotAcceptable(
            f"partition {context.partition}: {type(error).__name__} cannot be accepted: {error.message}",
            hint=error.hint,
        )
    if finding.id != finding_id:
        raise NotTheFinding(
            f"partition {context.partition}: asked to accept {finding_id}, but what is the matter is {finding.id}:"
            f" {error.message}",
            hint=f"if that is to be accepted: `{command(finding, context)}`: {finding.way}",
            given=finding_id,
            found=finding.id,
        )
    ground = await ground_of(context, examiner, finding)
    plan = (
        *ground.plan,
        f"a full snapshot of this state is written, and increment {ground.increment.batch + 1} records the decision"
        " and points to it; a running owner of the partition is thrown out",
    )
    decision = _decision(finding_id, error, ground, reason)
    return Proposal(
        context.partition,
        finding_id,
        f"{type(error).__name__}: {error.message}",
        plan,
        decision,
        context,
        examiner.store,
        ground,
        examiner.end_offset,
    )


def _decision(
    finding_id: str, error: SnapreplayError, ground: Ground, reason: str
) -> dict[str, str]:
    return {
        "finding": finding_id,
        "problem": f"{type(error).__name__}: {error.message}",
        "decided": "; ".join(ground.plan),
        "reason": reason,
        "by": f"{_user()}@{socket.gethostname()}",
    }


def _user() -> str:
    """A container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


async def carry_out(proposal: Proposal) -> Accepted:
    """Fence, claim, write the snapshot, commit the decision.

    Raises:
        LogWentOn, Superseded, Fenced: the partition's owner lives and was quicker; nothing was decided.
        CommitInDoubt, Unreachable: the log says what happened; asking again tells.
    """
    context = proposal.context
    producer = await context.cluster.fence(context.transactional_id)
    try:
        epoch = await _claim(proposal, producer)
        standing = Chain(context.origin, epoch, proposal.ground.increment, epoch, pointers_max=1)
        mark = snapshot_writer.mark(proposal.store, standing, "decision")
        reporter = Reporter(StatusBoard(), context.partition)
        pointer = await snapshot_writer.write(context, mark, reporter)
        empty = standing.pointing_to(pointer).next_increment(None, None, wall_ms())
        increment = msgspec.structs.replace(empty, decision=proposal.decision)
        record = LogRecord(
            context.increments.topic, encode(increment), headers=headers_of(increment)
        )
        (offset,) = await producer.commit(context.partition, (), (record,))
    finally:
        await producer.discard()
    return Accepted(increment.batch, offset, pointer.snapshot_id)


async def _claim(proposal: Proposal, producer: Producer) -> int:
    """The owner epoch. Behind it nothing but what was examined: what is accepted is what is there."""
    context, claim_id = proposal.context, uuid.uuid4().hex
    record = claim_record(context, claim_id)
    (epoch,) = await producer.commit(context.partition, (), (record,))
    async with reader_behind_claim(context, claim_id, epoch) as (reader, seen):
        if seen.newer is not None:
            raise Superseded(seen.newer, context.partition)
        if epoch <= proposal.end_offset:
            return epoch
        window = Window(proposal.end_offset, epoch, 0)
        newer = await last_in_window(reader, context.increments, window)
    if newer is not None:
        raise LogWentOn(
            f"partition {context.partition} went on to batch {newer.increment.batch} since it was examined:"
            " nothing was decided",
            hint="look at /restore-status: is anything still the matter?",
        )
    return epoch
