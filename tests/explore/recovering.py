"""A recovery in the world: each effect, with every answer that Kafka may give."""

from collections.abc import Iterator

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import effects, events
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.input_change import Added, InputChange
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.recovery import Recovery, step
from snapreplay.service.core.refusals import SchemaDiffers, WrongLog
from snapreplay.service.core.retained import WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import INPUTS_KIND, NO_OFFSET, OWN_KIND, UPGRADED_KIND, Increment, Pointer
from snapreplay.snapshots.log.batches import Base, BrokenChain
from snapreplay.snapshots.plan import FromSnapshot
from tests.explore.deciding import begun_again
from tests.explore.replacing import replace
from tests.explore.world import (
    FENCED,
    IDS,
    IN_DOUBT,
    KEPT,
    MARKER,
    NAMES,
    Entry,
    Move,
    Owner,
    Snapshot,
    State,
    Turn,
    World,
    claim_of,
    ended,
)

NOWHERE = State(-1, -1)
"""What comes of a copy that is not of this log."""
UNREACHABLE = Unreachable("no answer")


def begin(turn: Turn) -> World:
    owner = turn.owner
    recovery = Recovery(owner.ownership.expected, RestoreMode.CHANGES, kept=owner.kept, copy=owner.copy)
    return _happened(turn.now(recovery=recovery, view=None), events.Begin())


def _happened(turn: Turn, event: events.Event) -> World:
    """The core hears of it, and says what is next."""
    assert turn.owner.recovery is not None
    recovery, effect = step(turn.owner.recovery, event)
    recovery = replace(recovery, attempt=min(recovery.attempt, 1))
    turn = turn.now(recovery=recovery, kept=recovery.kept, copy=recovery.copy)
    match effect:
        case effects.GoLive():
            return _go_live(turn, effect)
        case effects.GiveWay(newer):
            return ended(turn, Superseded(newer, 0))
        case effects.Fail(error):
            return _failed(turn, error, recovery.owner_epoch)
        case effects.Wait():
            return begin(turn)
        case _:
            return turn.now(doing=effect).done()


def _failed(turn: Turn, error: SnapreplayError, epoch: int) -> World:
    """Ask before failing: what looks like a lost log may be what a successor wrote and trimmed: it is asked first
    who has claimed since."""
    newer = turn.world.newer_claim(epoch) if epoch >= 0 else None
    if newer is not None:
        return ended(turn, Superseded(newer, 0))
    last, schema = turn.world.found(0, len(turn.world.log)), turn.owner.origin.schema_version
    older = isinstance(error, SchemaDiffers) and last is not None and last.increment.origin.schema_version > schema
    inputs = turn.owner.ownership.expected.inputs
    other = isinstance(error, WrongLog) and last is not None and last.increment.positions.keys() != inputs
    if turn.world.was_cut or older or other:
        gone = turn.now(recovery=None, doing=None, view=None, kept=None, remembers=-1)
        return gone.now(has_stopped=True, waits=other).done()
    return turn.done(broken=f"it stops: {type(error).__name__}: {error.message}")


def _go_live(turn: Turn, live: effects.GoLive) -> World:
    last, true = live.last, turn.world.found(0, len(turn.world.log))
    chain = Chain(turn.owner.origin, live.owner_epoch, last.increment, last.offset, KEPT + 1)
    if last.increment.origin != turn.owner.origin:
        return turn.done(broken=f"LIVE with {turn.owner.origin} on a state of {last.increment.origin}")
    declared = turn.owner.ownership.expected
    if last.increment.positions.keys() != declared.inputs | declared.internal:
        return turn.done(broken=f"LIVE with a log of the inputs {sorted(last.increment.positions)}")
    if turn.owner.state != State.of(last.increment):
        return turn.done(broken=f"LIVE with another state than that of batch {last.increment.batch}")
    after = turn.now(recovery=None, doing=None, chain=chain, kept=None, remembers=-1)
    forgot = _forgotten(turn, last.increment)
    if forgot and not turn.is_fenced:
        return after.done(broken=forgot)
    if true is None or turn.is_fenced or true.offset == last.offset:
        return after.done()
    if turn.world.has_lost(last):  # since it was read: the next commit shows it
        return after.done()
    ends = f"LIVE at batch {last.increment.batch}, the last one is {true.increment.batch}"
    return after.done(broken=ends)


def _forgotten(turn: Turn, last: Increment) -> str:
    """Return what an owner gave up although no owner has written since; its log has lost it."""
    remembers, number = turn.owner.remembers, turn.number
    others = [entry.claim for entry in turn.world.log if entry.claim is not None]
    alone = all(claim.instance_id in (NAMES[number], "init") for claim in others)
    if remembers <= last.batch or not alone:
        return ""
    return f"LIVE at batch {last.batch}, although it was the owner of batch {remembers}"


def perform(turn: Turn, effect: effects.Action) -> Iterator[Move]:
    match effect:
        case effects.Fence():
            yield from _fence(turn)
        case effects.WriteClaim():
            yield from _claim(turn)
        case effects.SeeClaim():
            yield from _see(turn, effect)
        case effects.BeginChain() | effects.WriteState() | effects.Upgrade() | effects.AddInputs() if turn.is_fenced:
            refused = events.EffectFailed(FENCED)
            yield "cannot write its state: fenced", _happened(turn, refused)
        case effects.BeginChain() if turn.world.was_cut:
            yield from _begin_chain(turn, effect)
        case effects.Upgrade():
            yield from _upgrade(turn, effect)
        case effects.AddInputs():
            yield from _add_inputs(turn, effect)
        case effects.BeginChain() | effects.WriteState():
            words = "writes its state, although nothing was lost"
            yield words, replace(turn.world, broken=words)
        case effects.Advance(copy=copy) if copy is not None:
            yield _advance_copy(turn, effect, copy)
        case _:
            words, event = _read(turn.world, turn.owner, effect)
            if isinstance(event, events.StartLoaded):
                turn = turn.now(state=_loaded(turn.world, effect))
            yield words, _happened(turn, event)


def _loaded(world: World, effect: effects.Action) -> State:
    """Return what was loaded."""
    if isinstance(effect, effects.Load) and isinstance(effect.start, FromSnapshot):
        there = world.snapshots[effect.start.pointer.manifest_offset]
        assert there is not None
        return there.state
    return State()


def _upgrade(turn: Turn, effect: effects.Upgrade) -> Iterator[Move]:
    """A snapshot of the upgraded state, and the increment that begins a chain with it."""
    world, recovery = turn.world, turn.owner.recovery
    assert recovery is not None
    last, before = effect.last, turn.owner.state
    state = before._replace(upgrades=before.upgrades + 1)
    origin = turn.owner.origin if world.rules.upgrades_once else last.increment.origin
    increment, snapshot = begun_again(world, origin, recovery.owner_epoch, last, state, UPGRADED_KIND)
    there = turn.on(snapshots=(*world.snapshots, snapshot)).now(state=state)
    words, offset = f"upgrades the state after batch {last.increment.batch} at {len(world.log)}", len(world.log)
    written = there.writes(Entry(increment=increment), MARKER)
    yield words, _happened(written, events.StateWritten(FoundIncrement(increment, offset)))
    if not world.faults:
        return
    doubt, refused = events.EffectFailed(IN_DOUBT), events.EffectFailed(FENCED)
    yield f"{words}, and gets no answer", _happened(written.faulty(), doubt)
    yield f"{words}, which does not arrive", _happened(there.faulty(), doubt)
    yield f"{words}: a stale coordinator refuses it", _happened(there.faulty(), refused)
    no_answer = events.EffectFailed(UNREACHABLE)
    if world.rules.waits_for_decision:
        yield f"{words}: its snapshot does not arrive", _happened(turn.now(state=state).faulty(), no_answer)
    else:
        hole = turn.on(snapshots=(*world.snapshots, None)).writes(Entry(increment=increment), MARKER)
        done = events.StateWritten(FoundIncrement(increment, offset))
        yield f"{words}: its snapshot does not arrive", _happened(hole.now(state=state).faulty(), done)


def _add_inputs(turn: Turn, effect: effects.AddInputs) -> Iterator[Move]:
    """The increment behind the last one that has the internal topic, too."""
    recovery = turn.owner.recovery
    assert recovery is not None
    change, offset = InputChange({name: Added(0) for name in effect.topics}), len(turn.world.log)
    increment = change.behind(effect.last, recovery.owner_epoch, {"finding": f"{INPUTS_KIND}-1"}, 0)
    written, words = turn.writes(Entry(increment=increment), MARKER), f"adds its internal topic at {offset}"
    yield words, _happened(written, events.InputsAdded(FoundIncrement(increment, offset)))
    if turn.world.faults:
        doubt = events.EffectFailed(IN_DOUBT)
        yield f"{words}, and gets no answer", _happened(written.faulty(), doubt)
        yield f"{words}, which does not arrive", _happened(turn.faulty(), doubt)
        yield f"{words}: a stale coordinator refuses it", _happened(turn.faulty(), events.EffectFailed(FENCED))


def _begin_chain(turn: Turn, effect: effects.BeginChain) -> Iterator[Move]:
    """A snapshot of the state in memory, and the increment that begins a chain with it."""
    world, recovery = turn.world, turn.owner.recovery
    assert recovery is not None
    if not world.rules.begins_chain:
        found = world.found(0, len(world.log))
        assert found is not None
        yield "keeps to the log", _happened(turn, events.StateWritten(found))
        return
    epoch, at = recovery.owner_epoch, len(world.snapshots)
    chain = Chain(turn.owner.origin, epoch, effect.standing, epoch, pointers_max=1)
    batch, digest = effect.standing.batch, effect.standing.digest
    pointer = Pointer(f"again{batch}", at, at, batch, epoch, digest)
    empty = chain.pointing_to(pointer).next_increment(None, None, 0)
    increment = msgspec.structs.replace(empty, decision={"finding": f"{OWN_KIND}-1"})
    offset = len(world.log)
    snapshot = Snapshot(batch, turn.owner.state)
    written = turn.on(snapshots=(*world.snapshots, snapshot)).writes(Entry(increment=increment), MARKER)
    words = f"begins again at {offset} with the state after batch {batch}"
    done = events.StateWritten(FoundIncrement(increment, offset))
    yield words, _happened(written, done)
    if world.faults:
        doubt = events.EffectFailed(IN_DOUBT)
        yield f"{words}, and gets no answer", _happened(written.faulty(), doubt)


def _fence(turn: Turn) -> Iterator[Move]:
    world, kept = turn.world, turn.owner.kept
    if not world.fences:
        return
    turn = turn.on(fences=world.fences - 1)
    alone = kept is None or kept.lineage is None or kept.lineage == Lineage(1, world.epoch)
    if not world.rules.fences:
        done = events.FenceDone(Lineage(1, world.epoch))
        yield "does not fence", _happened(turn.now(producer_epoch=world.epoch), done)
        return
    epoch = world.epoch + 1
    turn = turn.on(epoch=epoch)
    fenced = turn.now(producer_epoch=epoch)
    yield "fences", _happened(fenced, events.FenceDone(Lineage(1, epoch), unbroken=alone))
    if world.faults:
        lost = events.EffectFailed(UNREACHABLE)
        yield "fences, and gets no answer", _happened(turn.faulty(), lost)


def _claim(turn: Turn) -> Iterator[Move]:
    world, owner, refused = turn.world, turn.owner, events.EffectFailed(FENCED)
    offset = len(world.log)
    if not world.rules.claims:
        yield "does not claim", _happened(turn, events.ClaimAcknowledged("", offset))
        return
    if turn.is_fenced:
        yield "cannot claim: fenced", _happened(turn, refused)
        return
    claim = claim_of(NAMES[turn.number], owner.claims)
    written = turn.writes(Entry(claim=claim), MARKER).now(claims=owner.claims + 1)
    acknowledged = events.ClaimAcknowledged(claim.claim_id, offset)
    yield f"claims at {offset}", _happened(written, acknowledged)
    if world.faults:
        doubt = events.EffectFailed(IN_DOUBT)
        yield f"claims at {offset}, and gets no answer", _happened(written.faulty(), doubt)
        yield "cannot claim: a stale coordinator", _happened(turn.faulty(), refused)


def _see(turn: Turn, effect: effects.SeeClaim) -> Iterator[Move]:
    world, at = turn.world, effect.offset
    newer = world.newer_claim(at) if len(world.log) > at or not world.rules.claims else None
    if newer is not None and newer.instance_id == NAMES[turn.number]:
        newer = None
    seen = events.ClaimSeen(world.log_start, newer)
    yield "sees its claim", _happened(turn.now(view=None), seen)
    if world.faults and not world.rules.waits_for_claim:
        for view in range(4, at + 1, 2):
            stale, believed = turn.now(view=view), events.ClaimSeen(world.log_start, None)
            words = f"believes a broker that knows {view} offsets"
            yield words, _happened(stale.faulty(), believed)
    elif world.faults:
        yield "meets a stale leader", _happened(turn.faulty(), events.ClaimHidden(at, at, 0))


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
            return "starts from the genesis", events.StartLoaded(Base(-1, NO_OFFSET, world.log_start, {}))
        case effects.Advance():
            return _advance(world, owner, effect)
        case effects.CheckInputs(last):
            missing = owner.ownership.expected.internal.difference(last.increment.positions)
            return "checks the input", events.InputsChecked(tuple(missing))
        case _:
            raise AssertionError(f"{effect}: no topic was lost")


def _advance(world: World, owner: Owner, effect: effects.Advance) -> tuple[str, events.Event]:
    base, last, mode = effect.base, effect.last, effect.mode
    if world.is_unlinked(last):
        return "walks into a broken chain", events.EffectFailed(BrokenChain("cut"))
    if State.of(last.increment) != owner.state:
        return "restores another state", events.EffectFailed(BrokenChain(f"{owner.state}"))
    begins = base.read_from_offset >= world.log_start
    lost: SnapreplayError = Unreachable("trimmed")
    event = events.Advanced() if begins else events.ModeUnavailable(mode, lost)
    return f"advances to batch {last.increment.batch}", event


def _advance_copy(turn: Turn, effect: effects.Advance, copy: WarmCopy) -> Move:
    """Continue from a warm copy, if its increment is still where it was, and the log leads on from there."""
    world, at = turn.world, copy.last.offset
    there = at < len(world.log) and world.log[at].increment == copy.last.increment
    if not there and not world.rules.compares_copies:
        return "continues from a copy of nothing", _happened(turn.now(state=NOWHERE), events.Advanced())
    words, event = _advance(world, turn.owner, effect)
    if there and isinstance(event, events.Advanced):
        return f"{words} from its copy", _happened(turn, event)
    return "cannot use its copy", _happened(turn, events.CopyUnusable())


def _load(world: World, pointer: Pointer) -> tuple[str, events.Event]:
    offset = pointer.manifest_offset
    there = world.snapshots[offset] if world.snapshots_start <= offset < len(world.snapshots) else None
    if there is not None and there.batch == pointer.batch:
        base = Base(pointer.batch, pointer.increment_offset, pointer.increment_offset + 1, {})
        return f"loads the snapshot of batch {pointer.batch}", events.StartLoaded(base)
    return "finds no snapshot", events.SnapshotUnusable(pointer.snapshot_id, "gone")
