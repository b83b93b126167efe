"""A recovery in the world: each effect, with every answer that Kafka may give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import effects, events
from snapreplay.service.core.base import Base
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.recovery import Recovery, step
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.snapshots.format.records import NO_OFFSET, Pointer
from snapreplay.snapshots.plan import FromSnapshot
from tests.explore.between import FENCED, IN_DOUBT, Move, Rules, after_fault, ended, with_owner
from tests.explore.world import IDS, KEPT, MARKER, NAMES, ORIGIN, Entry, Owner, World, claim_of

UNREACHABLE = Unreachable("no answer")


def begin(world: World, number: int, owner: Owner) -> World:
    recovery = Recovery(owner.ownership.expected, RestoreMode.CHANGES, kept=owner.kept)
    return _happened(world, number, replace(owner, recovery=recovery, view=None), events.Begin())


def _happened(world: World, number: int, owner: Owner, event: events.Event) -> World:
    """The core hears of it, and says what is next."""
    if owner.recovery is None:
        raise AssertionError("it does not recover")
    recovery, effect = step(owner.recovery, event)
    recovery = replace(recovery, attempt=min(recovery.attempt, 1))
    owner = replace(owner, recovery=recovery, kept=recovery.kept)
    match effect:
        case effects.GoLive():
            return _go_live(world, number, owner, effect)
        case effects.StepDown(newer):
            return ended(world, number, owner, Superseded(newer, 0))
        case effects.Fail(error):
            return _failed(world, number, owner, error)
        case effects.Wait():
            return begin(world, number, owner)
        case _:
            return with_owner(world, number, replace(owner, doing=effect))


def _failed(world: World, number: int, owner: Owner, error: SnapreplayError) -> World:
    """What looks like a lost log may be what a successor wrote and trimmed: it is asked first who has claimed since."""
    epoch = owner.recovery.owner_epoch if owner.recovery is not None else -1
    newer = world.newer_claim(epoch, len(world.log)) if epoch >= 0 else None
    if newer is not None:
        return ended(world, number, owner, Superseded(newer, 0))
    what = f"it stops: {type(error).__name__}: {error.message}"
    return replace(with_owner(world, number, owner), broken=what)


def _go_live(world: World, number: int, owner: Owner, live: effects.GoLive) -> World:
    chain = Chain(ORIGIN, live.owner_epoch, live.last.increment, live.last.offset, KEPT + 1)
    after = with_owner(
        world, number, replace(owner, recovery=None, doing=None, chain=chain, kept=None)
    )
    true = world.found(0, len(world.log))
    if true is not None and owner.producer_epoch == world.epoch and true.offset != live.last.offset:
        return replace(
            after,
            broken=f"LIVE at batch {live.last.increment.batch}, the last one is {true.increment.batch}",
        )
    return after


def perform(
    world: World, number: int, owner: Owner, effect: effects.Action, rules: Rules
) -> Iterator[Move]:
    match effect:
        case effects.Fence():
            yield from _fence(world, number, owner, rules)
        case effects.WriteClaim():
            yield from _claim(world, number, owner, rules)
        case effects.SeeClaim():
            yield from _see(world, number, owner, effect, rules)
        case effects.BeginAnew() | effects.WriteState() if owner.producer_epoch != world.epoch:
            refused = events.EffectFailed(FENCED)
            yield "cannot write its state: fenced", _happened(world, number, owner, refused)
        case effects.BeginAnew() | effects.WriteState():
            words = "writes its state, although nothing was lost"
            yield words, replace(world, broken=words)
        case _:
            words, event = _read(world, owner, effect)
            yield words, _happened(world, number, owner, event)


def _fence(world: World, number: int, owner: Owner, rules: Rules) -> Iterator[Move]:
    if not world.fences:
        return
    world = replace(world, fences=world.fences - 1)
    kept = owner.kept
    alone = kept is None or kept.lineage is None or kept.lineage == Lineage(1, world.epoch)
    if not rules.fences:
        done = replace(owner, producer_epoch=world.epoch)
        yield (
            "does not fence",
            _happened(world, number, done, events.FenceDone(Lineage(1, world.epoch))),
        )
        return
    fenced = replace(world, epoch=world.epoch + 1)
    done = replace(owner, producer_epoch=fenced.epoch)
    event = events.FenceDone(Lineage(1, fenced.epoch), unbroken=alone)
    yield "fences", _happened(fenced, number, done, event)
    if world.faults:
        lost = events.EffectFailed(UNREACHABLE)
        yield "fences, and gets no answer", _happened(after_fault(fenced), number, owner, lost)


def _claim(world: World, number: int, owner: Owner, rules: Rules) -> Iterator[Move]:
    if not rules.claims:
        acknowledged = events.ClaimAcknowledged("", len(world.log))
        yield "does not claim", _happened(world, number, owner, acknowledged)
        return
    if owner.producer_epoch != world.epoch:
        yield "cannot claim: fenced", _happened(world, number, owner, events.EffectFailed(FENCED))
        return
    claim = claim_of(NAMES[number], owner.claims)
    offset = len(world.log)
    written = replace(world, log=(*world.log, Entry(claim=claim), MARKER))
    done = replace(owner, claims=owner.claims + 1)
    yield (
        f"claims at {offset}",
        _happened(written, number, done, events.ClaimAcknowledged(claim.claim_id, offset)),
    )
    if world.faults:
        doubt = events.EffectFailed(IN_DOUBT)
        yield (
            f"claims at {offset}, and gets no answer",
            _happened(after_fault(written), number, done, doubt),
        )
        refused = events.EffectFailed(FENCED)
        yield (
            "cannot claim: a stale coordinator",
            _happened(after_fault(world), number, owner, refused),
        )


def _see(
    world: World, number: int, owner: Owner, effect: effects.SeeClaim, rules: Rules
) -> Iterator[Move]:
    end = len(world.log)
    seen = end > effect.offset or not rules.claims
    newer = world.newer_claim(effect.offset, end) if seen else None
    if newer is not None and newer.instance_id == NAMES[number]:
        newer = None
    current = replace(owner, view=None)
    yield (
        "sees its claim",
        _happened(world, number, current, events.ClaimSeen(world.log_start, newer)),
    )
    if world.faults and not rules.waits_for_claim:
        for view in range(4, effect.offset + 1, 2):
            stale = replace(owner, view=view)
            event = events.ClaimSeen(world.log_start, None)
            yield (
                f"believes a broker that knows {view} offsets",
                _happened(after_fault(world), number, stale, event),
            )
    elif world.faults:
        hidden = events.ClaimHidden(effect.offset, effect.offset, 0)
        yield "meets a stale leader", _happened(after_fault(world), number, owner, hidden)


def _read(world: World, owner: Owner, effect: effects.Action) -> tuple[str, events.Event]:
    match effect:
        case effects.ReadWindow(window):
            end = window.end_offset if owner.view is None else min(window.end_offset, owner.view)
            found = world.found(window.start_offset, end)
            what = f"finds batch {found.increment.batch}" if found else "finds nothing"
            return f"{what} in [{window.start_offset}, {end})", events.WindowRead(found)
        case effects.ReadTopicIds():
            return "asks for the topics", events.TopicIdsRead(IDS)
        case effects.Reenter():
            return "keeps the state in memory", events.Reentered()
        case effects.ReadStarts():
            return "asks where the logs begin", events.StartsRead(world.starts)
        case effects.Load(FromSnapshot(pointer)):
            return _load(world, pointer)
        case effects.Load():
            return "starts from the genesis", events.StartLoaded(
                Base(-1, NO_OFFSET, world.log_start, {})
            )
        case effects.Advance(base, last, mode):
            begins = base.read_from_offset >= world.log_start
            lost: SnapreplayError = Unreachable("trimmed")
            event = events.Advanced() if begins else events.ModeUnavailable(mode, lost)
            return f"advances to batch {last.increment.batch}", event
        case effects.CheckInputs():
            return "checks the input", events.InputsChecked()
        case _:
            raise AssertionError(f"{effect}: no topic was lost")


def _load(world: World, pointer: Pointer) -> tuple[str, events.Event]:
    offset = pointer.manifest_offset
    there = world.snapshots_start <= offset < len(world.snapshots)
    if there and world.snapshots[offset] == pointer.batch:
        base = Base(pointer.batch, pointer.increment_offset, pointer.increment_offset + 1, {})
        return f"loads the snapshot of batch {pointer.batch}", events.StartLoaded(base)
    return "finds no snapshot", events.SnapshotUnusable(pointer.snapshot_id, "gone")
