"""The order of a recovery, as one pure function: `step(recovery, event) -> (recovery, effect)`.

The order is the correctness argument (docs: ARCHITECTURE.md "A recovery's way"):

    fence     older owners of this transactional id can commit nothing more
    claim     one committed record whose acknowledged offset F is the owner epoch
    locate    a read_committed reader must deliver the claim at F itself: a stale leader, or a foreign open
              transaction that pins the last stable offset, cannot; then the last increment before F
    reenter   when the state in memory leads to exactly that increment: load and advance are not needed
    begin     when the log does not lead to the state in memory, and it is the only copy: write it, begin a new chain
    load      the newest usable full snapshot it points to, or nothing when the log is whole from genesis
    copy      instead of load, when a standby's warm copy is in memory and leads to that increment
    advance   by the recorded changes, or by replaying the input; the digest must be the recorded one
    check     the inputs are the logs that were processed
    upgrade   when the state has an older schema_version that the app upgrades: write it, begin a new chain
    add       when topics match a pattern of the inputs and are none yet: an increment makes them inputs
    live

What fails transiently starts again from the fence, with back-off. What a person must decide ends in
`Fail`. Pure: no clock, no ids, no IO; one effect at a time, its outcome is the next event.
"""

from __future__ import annotations

from typing import TypeVar, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from snapreplay.errors import Reaction, SnapreplayError, StopError
from snapreplay.service.core import custody, effects, events, refusals, search
from snapreplay.service.core.custody import Healing, Verdict, settled
from snapreplay.service.core.owners import Limits
from snapreplay.service.core.phase import Phase, RestoreMode
from snapreplay.service.core.refusals import Expected
from snapreplay.service.core.retained import RetainedState, Warm, WarmCopy, is_ahead, needs_inputs
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Claim
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import LogStarts, Start, passed_over, plan_start

T = TypeVar("T")


class Recovery(Struct, frozen=True):
    """One recovery of a partition. `attempt` counts returns to the fence, from 1. `kept`: the state in memory, if it
    leads to the last increment; `restorable`: the log still leads to it. `state_is_last`: the store has arrived.
    `refusal`: why this code cannot use the newest whole snapshot. `appeared`: topics that are to become inputs; None
    before the check. `copy`: the warm copy, until it was tried."""

    expected: Expected
    mode: RestoreMode
    limits: Limits = field(default_factory=Limits)
    kept: RetainedState | None = None
    phase: Phase = Phase.ASSIGNED
    attempt: int = 0
    claim_id: str = ""
    owner_epoch: int = -1
    log_start_offset: int = 0
    window: search.SearchWindow | None = None
    last: FoundIncrement | None = None
    starts: LogStarts | None = None
    healing: Healing | None = None
    restorable: bool = True
    start: Start | None = None
    base: Base | None = None
    unusable: tuple[tuple[str, str], ...] = ()
    refusal: StopError | None = None
    unavailable_mode: events.ModeUnavailable | None = None
    damage: str | None = None
    state_is_last: bool = False
    appeared: tuple[str, ...] | None = None
    copy: WarmCopy | None = None

    @property
    def fallback_from(self) -> str | None:
        """The newest snapshot, when it could not be used."""
        return self.unusable[0][0] if self.unusable else None

    @property
    def fallback_reason(self) -> str | None:
        """The reason for an older snapshot or the other mode, and what could not be read; None: nothing was damaged."""
        reasons = [reason for _, reason in self.unusable[:1]]
        if self.unavailable_mode is not None:
            reasons.append(self.unavailable_mode.error.message)
        if self.damage is not None:
            reasons.append(self.damage)
        return "; ".join(dict.fromkeys(reasons)) or None

    @property
    def is_older(self) -> bool:
        """Whether the last increment's state is to be upgraded: this code cannot replay anything on it."""
        return self.last is not None and bool(self.expected.upgrades_from(self.last.increment.origin.schema_version))

    @property
    def chosen_mode(self) -> RestoreMode:
        if self.is_older:
            return RestoreMode.CHANGES
        return self.unavailable_mode.mode.other if self.unavailable_mode else self.mode


def step(recovery: Recovery, event: events.Event) -> tuple[Recovery, effects.Effect]:
    """Return the next state and what to do. Same input, same output."""
    match event:
        case events.Begin():
            return _begin(recovery)
        case events.FenceDone():
            return _fenced(recovery, event), effects.WriteClaim()
        case events.ClaimAcknowledged(claim_id, offset):
            claimed = replace(recovery, phase=Phase.LOCATING, claim_id=claim_id, owner_epoch=offset)
            return claimed, effects.SeeClaim(claim_id, offset, fresh_client=False)
        case events.ClaimHidden():
            return _claim_hidden(recovery, event)
        case events.ClaimSeen(_, newer) if newer is not None:
            return _newer_owner(recovery, newer)
        case events.ClaimSeen(log_start_offset):
            return _search_from_claim(recovery, log_start_offset)
        case events.WindowRead(found):
            return _window_read(recovery, found)
        case events.TopicIdsRead():
            return _judged(recovery, event)
        case events.DoubtResolved():
            return _doubt_resolved(recovery, event)
        case events.Reentered():
            return _reentered(recovery)
        case events.StateWritten(last):
            return _state_written(recovery, last)
        case events.RetainedUnusable():
            return _without_kept(recovery)
        case events.StartsRead(starts):
            return _warm_or_cold(replace(recovery, starts=starts))
        case events.CopyUnusable():
            return _choose_start(recovery)
        case events.SnapshotUnusable():
            return _snapshot_unusable(recovery, event)
        case events.StartLoaded(base):
            return _advance(replace(recovery, base=base))
        case events.ModeUnavailable():
            return _mode_unavailable(recovery, event)
        case events.Advanced(damage):
            advanced = replace(recovery, damage=damage, state_is_last=True)
            return advanced, effects.CheckInputs(_some(recovery.last))
        case events.InputsChecked(appeared):
            return _inputs_checked(recovery, appeared)
        case events.InputsAdded(last):
            return _inputs_added(recovery, last)
        case events.InputsRefused():
            return _inputs_refused(recovery, event)
        case events.EffectFailed(error):
            return _failed(recovery, error)
        case _:
            assert_never(event)


def _begin(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    """Forget what the last attempt found: nothing read before a fence counts after it."""
    fresh = Recovery(
        recovery.expected,
        recovery.mode,
        recovery.limits,
        recovery.kept,
        phase=Phase.FENCING,
        attempt=recovery.attempt + 1,
        copy=recovery.copy,
    )
    return fresh, effects.Fence()


def _fenced(recovery: Recovery, event: events.FenceDone) -> Recovery:
    kept = recovery.kept
    if kept is not None and event.lineage is not None:
        kept = kept.fenced(event.lineage, unbroken=event.unbroken)
    return replace(recovery, phase=Phase.CLAIMING, kept=kept)


def _claim_hidden(recovery: Recovery, event: events.ClaimHidden) -> tuple[Recovery, effects.Effect]:
    if event.waited_ms > recovery.limits.pin_patience_ms:
        offsets = (recovery.owner_epoch, event.end_offset, event.high_watermark)
        return _failed(recovery, refusals.claim_hidden(recovery.expected, *offsets))
    return recovery, effects.SeeClaim(recovery.claim_id, recovery.owner_epoch, fresh_client=True)


def _newer_owner(recovery: Recovery, newer: Claim) -> tuple[Recovery, effects.Effect]:
    duplicate = refusals.duplicate_instance(recovery.expected, newer)
    if duplicate is not None:
        return recovery, effects.Fail(duplicate)
    return replace(recovery, phase=Phase.FENCED), effects.GiveWay(newer)


def _search_from_claim(recovery: Recovery, log_start_offset: int) -> tuple[Recovery, effects.Effect]:
    window = search.first_window(recovery.owner_epoch, log_start_offset)
    searching = replace(recovery, log_start_offset=log_start_offset, window=window)
    if window is None:
        return _nothing_found(searching)
    return searching, effects.ReadWindow(window)


def _window_read(recovery: Recovery, found: FoundIncrement | None) -> tuple[Recovery, effects.Effect]:
    if found is not None:
        return _last_found(recovery, found)
    window = search.next_window(_some(recovery.window), recovery.owner_epoch, recovery.log_start_offset)
    if window is None:
        return _nothing_found(recovery)
    return replace(recovery, window=window), effects.ReadWindow(window)


def _nothing_found(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    if recovery.kept is not None:
        return recovery, effects.ReadTopicIds(recovery.kept)
    return recovery, effects.Fail(refusals.no_genesis(recovery.expected))


def _last_found(recovery: Recovery, found: FoundIncrement) -> tuple[Recovery, effects.Effect]:
    """Judge the last increment; a log that is shorter than it was may be no obstacle to a state that is in memory."""
    in_memory = recovery.kept is not None
    problem = refusals.refuse(recovery.expected, recovery.owner_epoch, found, any_inputs=in_memory)
    shorter = recovery.kept is not None and isinstance(problem, refusals.LogShorter)
    if problem is not None and not shorter:
        return recovery, effects.Fail(problem)
    located, kept = replace(recovery, last=found), recovery.kept
    return located, effects.ReadStarts(found) if kept is None else effects.ReadTopicIds(kept)


def _judged(recovery: Recovery, event: events.TopicIdsRead) -> tuple[Recovery, effects.Effect]:
    """Judge whether the state in memory is the state that the log leads to, an older one, or the only copy."""
    topic_ids = event.topic_ids
    kept, found, expected = _some(recovery.kept), recovery.last, recovery.expected
    increments = expected.increments_topic
    if increments not in topic_ids:
        return _failed(recovery, custody.missing(expected, kept.last))
    match custody.verdict(kept, found, increments, topic_ids):
        case Verdict.ONLY_COPY:
            healing = Healing(found, increments, topic_ids)
            return _heal(replace(recovery, healing=healing), healing.doubt(kept, found))
        case Verdict.DISPUTED:
            return recovery, effects.Fail(custody.disputed(expected, kept, found))
        case outcome:
            last = _some(found)
            problem = refusals.refuse(expected, recovery.owner_epoch, last)
            if problem is not None:
                return replace(recovery, last=None), effects.Fail(problem)
            warm = kept.warm(last) if outcome is Verdict.SAME else None
            judged = replace(recovery, restorable=event.restorable)
            if warm is None:
                return judged, effects.ReadStarts(last)
            return judged, effects.Reenter(last, warm, kept.unbroken)


def _heal(recovery: Recovery, doubt: Warm | None) -> tuple[Recovery, effects.Effect]:
    """Write the state again; `doubt`: what became of the batch in doubt; None when one of its outputs has to tell."""
    kept = _some(recovery.kept)
    if doubt is None and kept.ending is not None and kept.ending.output is not None:
        return recovery, effects.ResolveDoubt(kept.ending.output)
    last, warm = settled(kept, doubt or Warm.KEPT)
    return replace(recovery, last=last), effects.Reenter(last, warm)


def _doubt_resolved(recovery: Recovery, event: events.DoubtResolved) -> tuple[Recovery, effects.Effect]:
    if event.committed is None:
        kept = _some(recovery.kept)
        return recovery, effects.Fail(custody.unresolved(recovery.expected, kept, event.why))
    return _heal(recovery, Warm.MERGED if event.committed else Warm.DROPPED)


def _reentered(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    last, healing = _some(recovery.last), recovery.healing
    kept = _some(recovery.kept).after(last)
    reentered = replace(recovery, phase=Phase.ADVANCING, kept=kept)
    if healing is None and needs_inputs(kept.last) and not recovery.restorable:
        return reentered, effects.WriteState(last, "snapshots and inputs no longer lead to the last batch")
    if healing is None:
        return reentered, effects.CheckInputs(last, in_memory=True)
    return reentered, healing.begin(kept)


def _state_written(recovery: Recovery, last: FoundIncrement) -> tuple[Recovery, effects.Effect]:
    written, kept = replace(recovery, last=last), recovery.kept
    if kept is None:  # the state was upgraded
        return _ready(written)
    return replace(written, kept=kept.written(last), healing=None), effects.CheckInputs(last, in_memory=True)


def _without_kept(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    """Give up the state in memory, which is unusable: only the log is left."""
    healing, cold = recovery.healing, replace(recovery, kept=None, healing=None)
    if healing is None:
        return cold, effects.ReadStarts(_some(recovery.last))
    cold = replace(cold, last=None)
    if healing.found is None:
        return _nothing_found(cold)
    return _last_found(cold, healing.found)


def _snapshot_unusable(recovery: Recovery, event: events.SnapshotUnusable) -> tuple[Recovery, effects.Effect]:
    """Try an older one, which may lead to the same state, unless the state itself has what this code cannot use."""
    refusal = recovery.refusal or event.refusal
    worse = (*recovery.unusable, (event.snapshot_id, event.reason))
    if refusal is not None and refusals.concerns(refusal, _some(recovery.last).increment):
        return recovery, effects.Fail(refusal)
    return _choose_start(replace(recovery, unusable=worse, refusal=refusal))


def _warm_or_cold(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    """Continue from the warm copy, if there is one. It is tried once: a failure leaves it half-way."""
    copy, last = recovery.copy, _some(recovery.last)
    if copy is None:
        return _choose_start(recovery)
    if (lost := copy.ahead_of(recovery.expected.increments_topic, last)) is not None:
        return recovery, effects.Fail(lost)
    tried, way = replace(recovery, copy=None), effects.Advance(copy.base, last, recovery.chosen_mode, copy)
    return (replace(tried, phase=Phase.ADVANCING), way) if copy.may_lead_to(last) else _choose_start(tried)


def _choose_start(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    last, starts, unusable = _some(recovery.last), _some(recovery.starts), dict(recovery.unusable)
    try:
        start = plan_start(last.increment, last.offset, starts, unusable)
    except StopError as error:
        return recovery, effects.Fail(recovery.refusal or error)
    worse = tuple(passed_over(last.increment, starts, unusable).items())
    # What is in memory is given up for a state that the log leads to.
    loading = replace(recovery, phase=Phase.LOADING, start=start, unusable=worse, kept=None)
    return loading, effects.Load(start, last)


def _advance(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    advance = effects.Advance(_some(recovery.base), _some(recovery.last), recovery.chosen_mode)
    return replace(recovery, phase=Phase.ADVANCING), advance


def _mode_unavailable(recovery: Recovery, event: events.ModeUnavailable) -> tuple[Recovery, effects.Effect]:
    """Try the other mode once, from the same start. The state is half-way, so it is loaded again."""
    if recovery.is_older:
        return recovery, effects.Fail(
            refusals.not_to_be_upgraded(recovery.expected, _some(recovery.last).increment, event.error)
        )
    if recovery.unavailable_mode is not None:
        neither = refusals.no_mode(recovery.unavailable_mode.error, event.error)
        return recovery, effects.Fail(recovery.refusal or neither)
    return _choose_start(replace(recovery, unavailable_mode=event))


def _inputs_refused(recovery: Recovery, event: events.InputsRefused) -> tuple[Recovery, effects.Effect]:
    """Write the state in memory first, once: without the input it may be impossible to restore."""
    kept, is_new = recovery.kept, recovery.restorable and not event.restorable
    if kept is not None and (is_ahead(kept.last) or is_new):
        now = replace(recovery, restorable=event.restorable)
        return now, effects.WriteState(_some(recovery.last), event.error.message)
    return _failed(recovery, event.error)


def _inputs_checked(recovery: Recovery, appeared: tuple[str, ...]) -> tuple[Recovery, effects.Effect]:
    """Upgrade and add inputs, each once: what appears later is for the next recovery."""
    checked = recovery if recovery.appeared is not None else replace(recovery, appeared=appeared)
    if checked.is_older:
        return checked, effects.Upgrade(_some(checked.last))
    return _ready(checked)


def _inputs_added(recovery: Recovery, last: FoundIncrement) -> tuple[Recovery, effects.Effect]:
    kept = recovery.kept and recovery.kept.led_on(last)
    added = replace(recovery, last=last, kept=kept, appeared=())
    return added, effects.CheckInputs(last, in_memory=kept is not None)


def _ready(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    if recovery.appeared:
        return recovery, effects.AddInputs(_some(recovery.last), recovery.appeared)
    return _live(recovery)


def _live(recovery: Recovery) -> tuple[Recovery, effects.Effect]:
    live, last, kept = replace(recovery, phase=Phase.LIVE), _some(recovery.last), recovery.kept
    if kept is not None:
        return live, effects.GoLive(last, recovery.owner_epoch, kept.fallback_from, kept.unpointed.fell_back)
    fell_back = recovery.fallback_reason is not None
    return live, effects.GoLive(last, recovery.owner_epoch, recovery.fallback_from, fell_back)


def _failed(recovery: Recovery, error: SnapreplayError) -> tuple[Recovery, effects.Effect]:
    """Wait or fail. RELEASE proves nothing: a stale coordinator refuses good epochs. Only a newer claim does."""
    if error.reaction in {Reaction.RETRY, Reaction.RELEASE}:
        return recovery, effects.Wait(recovery.limits.backoff_ms(recovery.attempt), error)
    if error.reaction is Reaction.REBUILD:
        error = refusals.damaged(error)
    if recovery.refusal is not None and not recovery.state_is_last:
        error = refusals.beside(recovery.refusal, error)
    return recovery, effects.Fail(error)


def _some(value: T | None) -> T:
    if value is None:
        raise AssertionError("an event arrived before the one it follows")
    return value
