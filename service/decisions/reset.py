"""Sets an app back to a savepoint, or to an empty state at a place in its inputs: a fence, a claim, a full snapshot,
and one increment that begins a new chain. Until that is committed, nothing has changed. The state before is gone
with it, unless a savepoint has it."""

from __future__ import annotations

import hashlib
from typing import Any, cast, get_args

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core import refusals
from snapreplay.service.core.chain import decided_at, ground_increment
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions.before_init import StartFrom, place_ms, start_offsets
from snapreplay.service.decisions.deletion import refuse_running
from snapreplay.service.decisions.places import same_log
from snapreplay.service.decisions.savepoints import usable
from snapreplay.service.decisions.state_import import CannotTakeOver, takeover_of
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.state import Begun, by_whom, publish
from snapreplay.service.recovery.input_identity import checked_ids
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.runtime.witnesses import witness_of
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import NO_REASON, Increment
from snapreplay.state.composite import Store

INSTANCE_ID = "snapreplay-reset"
RESET = "state-reset"
TARGET = "target"
"""The key of a decision with what the app was set back to."""


class ResetTarget(msgspec.Struct, frozen=True):
    """The place to set an app back to: a savepoint, or, with an empty state, "earliest", "latest" or a time."""

    savepoint: str = ""
    start: str = ""

    def __str__(self) -> str:
        return f"savepoint {self.savepoint}" if self.savepoint else f"an empty state, from {self.start}"

    def check(self) -> None:
        """Raise UsageError: it says neither or both, or its start is none."""
        if bool(self.savepoint) == bool(self.start):
            raise UsageError(
                "it is not clear what to set the app back to",
                hint="give either `--savepoint NAME` or `--from earliest`, `latest` or a time",
            )
        if self.start:
            _ = self.place

    @property
    def place(self) -> StartFrom | int:
        """The place where an empty state begins; a time is in milliseconds. Raises UsageError: it is none."""
        at_ms = place_ms(self.start, get_args(StartFrom))
        return cast("StartFrom", self.start) if at_ms is None else at_ms


class Reset(msgspec.Struct, frozen=True):
    """The reset of one partition to the state that `before` stands for; `last` is the last increment of a log that ends
    at `end_offset`."""

    context: Context
    target: ResetTarget
    last: FoundIncrement
    before: Increment
    decision: dict[str, str]
    end_offset: int

    @property
    def is_done(self) -> bool:
        """Whether the last increment is this very reset: it was interrupted, and is repeated."""
        last, decision = self.last.increment, self.last.increment.decision or {}
        is_this = decision.get("finding", "").startswith(RESET) and decision.get(TARGET) == str(self.target)
        return is_this and (last.positions, last.digest) == (self.before.positions, self.before.digest)


async def propose(
    app: App[Any], settings: Settings, cluster: Cluster, target: ResetTarget, reason: str = ""
) -> list[Reset]:
    """Find out what the reset of each partition means. Only reads.

    Raises:
        StillRuns: the app's group has members.
        NoSuchSavepoint, SavepointUnusable, CannotTakeOver, SchemaDiffers: there is no such state.
        NotInitialised, WrongLog: there is no log of this app.
        InputShrunk, InputMissing: an empty state would begin in a partition that is not there.
        UsageError, Unreachable: as preflight; or `target` is none.
    """
    target.check()
    await refuse_running(app.app_id, cluster)
    contexts = contexts_of(app, settings, cluster, await inspect(app, settings, cluster), INSTANCE_ID)
    if target.savepoint:
        await usable(app.app_id, target.savepoint, cluster)
    return [(await _reset(each, target, reason))[0] for each in contexts]


async def carry_out(reset: Reset) -> Begun:
    """Fence, claim, write the snapshot, commit the decision.

    Raises:
        LogWentOn, Superseded, Fenced, CommitInDoubt, Unreachable: as `publish`.
    """
    again, store = await _reset(reset.context, reset.target, reset.decision["reason"])
    return await publish(reset.context, store, again.before, again.decision, reset.end_offset)


async def _reset(context: Context, target: ResetTarget, reason: str) -> tuple[Reset, Store]:
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        last = await last_increment(reader, context.increments, bounds)
    if last is None:
        raise refusals.no_genesis(context.expected)
    wrong = refusals.wrong_log(context.expected, last)
    if wrong is not None:
        raise wrong
    store, ground = await _ground(context, target, last)
    witness = await witness_of(context)
    before = msgspec.structs.replace(
        ground,
        batch=max(last.increment.batch, witness.batch if witness is not None else 0),
        genesis=last.increment.genesis,
        paused=last.increment.paused,
        last_decision_offset=decided_at(last.increment, last.offset),
    )
    decision = _decision(context, target, last, before, reason)
    return Reset(context, target, last, before, decision, bounds.end_offset), store


async def _ground(context: Context, target: ResetTarget, last: FoundIncrement) -> tuple[Store, Increment]:
    if target.savepoint:
        try:
            taken = await takeover_of(context, names.savepoint_id(context.app.app_id, target.savepoint), "positions")
        except CannotTakeOver as error:
            error.hint = (
                f"partition {context.partition} was not changed; another app id can begin with that state: `snapreplay"
                f" init MODULE:APP --state-of {context.app.app_id} --savepoint {target.savepoint} --from earliest`"
                " (or latest, or a time)"
            )
            raise
        return taken.store, taken.before
    store = context.app.new_store()
    await checked_ids(context, last.increment)
    places = await start_offsets(context, last.increment.positions, target.place)
    states, ids = (store.digest, store.store_digests), context.view.topic_ids
    empty = ground_increment(context.origin, last.increment.genesis, states, ids, -1, last.increment)
    return store, msgspec.structs.replace(empty, positions=places.positions, position_anchors=places.below)


def _decision(
    context: Context, target: ResetTarget, last: FoundIncrement, before: Increment, reason: str
) -> dict[str, str]:
    reached = last.increment.positions
    both = sorted(before.positions.keys() & reached.keys())  # inputs may have been added or retired since
    moves = [same_log(name, before.positions[name], reached[name], before.positions[name])[1] for name in both]
    entries = f" ({counted(before.digest.count, 'entry')}, digest {before.digest})"
    digest = hashlib.sha256(f"{context.increments} {last.offset} {target}".encode()).hexdigest()
    return {
        "finding": f"{RESET}-{digest[:8]}",
        "problem": f"the state after batch {last.increment.batch} is discarded",
        "decided": "; ".join([f"resumes with {target}{entries}", *filter(None, moves)]),
        "reason": reason.strip() or NO_REASON,
        "by": by_whom(),
        TARGET: str(target),
    }
