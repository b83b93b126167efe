"""The order of a recovery, event by event: what is answered, what failed, and what must never be skipped."""

import msgspec
import pytest

from snapreplay.errors import DamagedError, Reaction, ReleaseError, RetryableError, StopError
from snapreplay.service.core import effects, events
from snapreplay.service.core.owners import Limits
from snapreplay.service.core.phase import Phase, RestoreMode, may_follow
from snapreplay.service.core.recovery import Recovery, step
from snapreplay.service.core.refusals import (
    DuplicateInstance,
    Expected,
    ForeignClaim,
    HangingTransaction,
    LogDamaged,
    LogShorter,
    NotInitialised,
)
from snapreplay.service.core.retained import RetainedState, Warm
from snapreplay.service.core.search import FoundIncrement, SearchWindow
from snapreplay.service.core.witness import IncrementsBehind, Witness, behind
from snapreplay.snapshots.format.records import Claim
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import FromGenesis, FromSnapshot, LogStarts, NoUsableSnapshot
from snapreplay.state.contract import unknown_store
from snapreplay.state.digest import Digest
from tests.support.entries import increment, pointer

EXPECTED = Expected(
    "ledger", 1, "cluster-1", 2, 4, frozenset({"payments", "refunds"}), "ledger-increments", "one", "p1", 0
)
LIMITS = Limits(pin_patience_ms=1000, backoff_ms_min=100, backoff_ms_max=1000)
LAST = FoundIncrement(increment(9, owner_epoch=30, pointers=[pointer(8), pointer(5)]), 29)
WHOLE = LogStarts(0, 0, {"payments": 0, "refunds": 0})
TRIMMED = LogStarts(14, 0, {"payments": 0, "refunds": 0})


def claim(instance_id="two"):
    return Claim("c2", "ledger", "cluster-1", "p2", instance_id, "web-7", 4711, 1)


def drive(*happened, mode=RestoreMode.CHANGES, kept=None, copy=None):
    """The recovery after these events, and the last effect."""
    recovery, effect = Recovery(EXPECTED, mode, LIMITS, kept, copy=copy), None
    for event in happened:
        before = recovery.phase
        recovery, effect = step(recovery, event)
        assert recovery.phase is before or may_follow(before, recovery.phase)
    return recovery, effect


BASE = Base(8, 25, 26, {})
FENCED = (events.Begin(), events.FenceDone())
CLAIMED = (*FENCED, events.ClaimAcknowledged("c1", 30))
SEEN = (*CLAIMED, events.ClaimSeen(0, None))
FOUND = (*SEEN, events.WindowRead(LAST))
STARTED = (*FOUND, events.StartsRead(WHOLE))
LOADED = (*STARTED, events.StartLoaded(BASE))
ADVANCED = (*LOADED, events.Advanced())


def test_the_whole_way_to_live():
    """Fence, claim, see it, find the last increment, read the starts, load, advance, check the inputs, live."""
    recovery, done = Recovery(EXPECTED, RestoreMode.CHANGES, LIMITS), []
    for event in (*ADVANCED, events.InputsChecked()):
        recovery, effect = step(recovery, event)
        done.append((recovery.phase, effect))
    start = FromSnapshot(pointer(8))
    assert done == [
        (Phase.FENCING, effects.Fence()),
        (Phase.CLAIMING, effects.WriteClaim()),
        (Phase.LOCATING, effects.SeeClaim("c1", 30, fresh_client=False)),
        (Phase.LOCATING, effects.ReadWindow(SearchWindow(28, 30))),
        (Phase.LOCATING, effects.ReadStarts(LAST)),
        (Phase.LOADING, effects.Load(start, LAST)),
        (Phase.ADVANCING, effects.Advance(BASE, LAST, RestoreMode.CHANGES)),
        (Phase.ADVANCING, effects.CheckInputs(LAST)),
        (Phase.LIVE, effects.GoLive(LAST, 30, None, fell_back=False)),
    ]


# ---- the claim ---------------------------------------------------------------------------------


def test_a_hidden_claim_is_looked_for_with_a_new_client():
    """A stale leader, or a foreign open transaction: asked again for as long as that may last."""
    recovery, effect = drive(*CLAIMED, events.ClaimHidden(30, 40, 999))
    assert recovery.phase is Phase.LOCATING
    assert effect == effects.SeeClaim("c1", 30, fresh_client=True)


STOPS = {
    "hidden for longer than any transaction may last": (
        (*CLAIMED, events.ClaimHidden(30, 40, 1001)), effects.Fail, HangingTransaction,
    ),
    "a marker is where the claim was: the topic was created again": (
        (*CLAIMED, events.ClaimHidden(40, 40, 1001)), effects.Wait, ForeignClaim,
    ),
    "the log ends before the claim": (
        (*CLAIMED, events.ClaimHidden(20, 20, 1001)), effects.Wait, ForeignClaim,
    ),
    "a newer claim with the same instance id: no ping-pong": (
        (*CLAIMED, events.ClaimSeen(0, claim(instance_id="one"))), effects.Fail, DuplicateInstance,
    ),
    "nothing but our claim is no new app": (
        (*CLAIMED, events.ClaimSeen(30, None)), effects.Fail, NotInitialised,
    ),
    "an increment of a longer log": (
        (*SEEN, events.WindowRead(FoundIncrement(increment(9, owner_epoch=31), 29))),
        effects.Fail, LogShorter,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("happened", "end", "error"), STOPS.values(), ids=STOPS)
def test_what_the_log_shows_may_end_the_attempt(happened, end, error):
    """A person must act, or it is claimed again; nothing is ever taken for an empty log."""
    _, effect = drive(*happened)
    assert isinstance(effect, end)
    assert isinstance(effect.error, error)


def test_a_newer_claim_ends_the_recovery():
    """Its owner has fenced us already: what we find now may be old."""
    recovery, effect = drive(*CLAIMED, events.ClaimSeen(0, claim()))
    assert recovery.phase is Phase.FENCED
    assert effect == effects.GiveWay(claim())


# ---- the last increment ------------------------------------------------------------------------


def test_empty_windows_grow_back_to_the_log_start():
    """Aborted tails and earlier claims are stepped over, nothing is left out."""
    windows, happened = [], list(SEEN)
    while isinstance(effect := drive(*happened)[1], effects.ReadWindow):
        windows.append((effect.window.start_offset, effect.window.end_offset))
        happened.append(events.WindowRead(None))
    assert windows == [(28, 30), (14, 28), (0, 14)]
    assert isinstance(effect, effects.Fail)
    assert isinstance(effect.error, NotInitialised)


# ---- the state is still in memory --------------------------------------------------------------

MERGED = FoundIncrement(increment(10, previous_offset=LAST.offset), 33)
KEPT = RetainedState(LAST.increment, LAST.offset, MERGED.increment)
TOPICS = events.TopicIdsRead({"ledger-increments": "", "ledger-snapshots": ""})


@pytest.mark.parametrize(("found", "warm"), [(LAST, Warm.DROPPED), (MERGED, Warm.MERGED)])
def test_what_is_in_memory_and_leads_to_the_last_increment_is_not_loaded(found, warm):
    """Fence, claim and location as always, then merge or drop, check the inputs, live."""
    recovery, effect = drive(*SEEN, events.WindowRead(found), TOPICS, kept=KEPT)
    assert (recovery.phase, effect) == (Phase.LOCATING, effects.Reenter(found, warm))
    recovery, effect = step(recovery, events.Reentered())
    assert (recovery.phase, effect) == (Phase.ADVANCING, effects.CheckInputs(found, in_memory=True))
    recovery, effect = step(recovery, events.InputsChecked())
    assert effect == effects.GoLive(found, 30, None, fell_back=False)
    assert recovery.kept == KEPT.after(found)


def test_after_a_retry_what_is_in_memory_is_what_it_was_made():
    """Merged once is not merged again."""
    error = events.EffectFailed(RetryableError("no broker"))
    merged = (*SEEN, events.WindowRead(MERGED), TOPICS, events.Reentered(), error)
    recovery, effect = drive(*merged, *SEEN, events.WindowRead(MERGED), TOPICS, kept=KEPT)
    assert (recovery.attempt, effect) == (2, effects.Reenter(MERGED, Warm.KEPT))


def test_a_memory_that_does_not_add_up_is_restored_in_full():
    """The log is right, after any error of ours."""
    found = (*SEEN, events.WindowRead(LAST), TOPICS)
    recovery, effect = drive(*found, events.RetainedUnusable(), kept=KEPT)
    assert (recovery.kept, effect) == (None, effects.ReadStarts(LAST))


# ---- where to start ----------------------------------------------------------------------------


def test_unusable_snapshots_are_passed_over_newest_first_down_to_genesis():
    """Each with its reason; LIVE records the newest as fallen back from."""
    recovery, effect = drive(*STARTED, events.SnapshotUnusable("s8", "crc32"))
    assert effect == effects.Load(FromSnapshot(pointer(5)), LAST)
    recovery, effect = step(recovery, events.SnapshotUnusable("s5", "gone"))
    assert isinstance(effect, effects.Load)
    assert isinstance(effect.start, FromGenesis)
    assert (recovery.phase, recovery.fallback_from) == (Phase.LOADING, "s8")
    for event in (events.StartLoaded(BASE), events.Advanced(), events.InputsChecked()):
        recovery, effect = step(recovery, event)
    assert isinstance(effect, effects.GoLive)
    assert (effect.fallback_from, effect.fell_back) == ("s8", True)
    assert recovery.fallback_reason == "crc32"


def test_without_snapshot_and_without_a_whole_log_there_is_nothing_to_start_from():
    """Every snapshot is named with its reason; the state is never silently empty."""
    found = (*FOUND, events.StartsRead(TRIMMED))
    _, effect = drive(*found, events.SnapshotUnusable("s8", "crc32"), events.SnapshotUnusable("s5", "gone"))
    assert isinstance(effect, effects.Fail)
    assert isinstance(effect.error, NoUsableSnapshot)
    assert effect.error.facts["reasons"] == {"s8": "crc32", "s5": "gone"}


UNUSABLE = unknown_store("ghost", "default")


def test_a_snapshot_that_this_code_cannot_use_is_passed_over_as_a_damaged_one():
    """Where nothing else leads to the state, its reason is reported."""
    recovery, effect = drive(*STARTED, events.SnapshotUnusable("s8", "ghost", UNUSABLE))
    assert effect == effects.Load(FromSnapshot(pointer(5)), LAST)
    assert isinstance(step(recovery, events.SnapshotUnusable("s5", "gone"))[1], effects.Load)
    found = (*FOUND, events.StartsRead(TRIMMED), events.SnapshotUnusable("s8", "ghost", UNUSABLE))
    _, effect = drive(*found, events.SnapshotUnusable("s5", "gone"))
    assert effect == effects.Fail(UNUSABLE)
    advancing, _ = step(recovery, events.StartLoaded(BASE))
    unread = events.ModeUnavailable(RestoreMode.CHANGES, DamagedError("changes"))
    again, _ = step(advancing, unread)
    again, _ = step(again, events.StartLoaded(BASE))
    assert step(again, unread)[1] == effects.Fail(UNUSABLE)
    lost = events.EffectFailed(RetryableError("no broker"))
    assert isinstance(step(advancing, lost)[1], effects.Wait)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (behind("group app-witness", "increments-0", Witness(11, 40, 30), LAST), IncrementsBehind),
        (StopError("another digest", hint="accept", batch=7), StopError),
        (DamagedError("batch 7", hint="a backup"), LogDamaged),
    ],
)
def test_what_fails_behind_a_snapshot_that_was_passed_over_is_reported_with_its_reason(error, kind):
    """It is what is acted on; both are named, until the state has arrived."""
    unusable = events.SnapshotUnusable("s8", "ghost", UNUSABLE)
    advancing, _ = drive(*STARTED, unusable, events.StartLoaded(BASE))
    cause = error.__cause__ = ValueError("of the client")
    _, failed = step(advancing, events.EffectFailed(error))
    assert isinstance(failed, effects.Fail)
    told = failed.error
    assert kind is LogDamaged or told.__cause__ is cause  # a decision asks for it
    assert (type(told), told.facts) == (kind, error.facts)
    assert told.message.startswith(error.message)
    assert UNUSABLE.message in told.message
    assert UNUSABLE.hint in told.hint
    assert error.hint in told.hint
    arrived, _ = step(advancing, events.Advanced())
    _, failed = step(arrived, events.EffectFailed(error))
    assert isinstance(failed, effects.Fail)
    assert UNUSABLE.message not in failed.error.message


@pytest.mark.parametrize(
    ("store", "fields"),
    [("ghost", {"store_digests": {"ghost": Digest(1, 2, 3)}}), ("default", {"digest": Digest(1, 2, 3)})],
)
def test_no_older_snapshot_leads_to_a_state_without_a_store_that_it_has(store, fields):
    """The last increment names the store: nothing else is loaded."""
    last = FoundIncrement(msgspec.structs.replace(LAST.increment, **fields), LAST.offset)
    started = (*SEEN, events.WindowRead(last), events.StartsRead(WHOLE))
    refused = unknown_store(store, "other")
    _, effect = drive(*started, events.SnapshotUnusable("s8", "…", refused))
    assert effect == effects.Fail(refused)


# ---- the two modes -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(RestoreMode))
def test_an_unavailable_mode_leads_back_to_the_start_and_to_the_other_one(mode):
    """The state is half-way, so the same start is loaded again."""
    closed = events.ModeUnavailable(mode, DamagedError("changes damaged"))
    recovery, effect = drive(*LOADED, closed, mode=mode)
    assert (recovery.phase, effect) == (Phase.LOADING, effects.Load(FromSnapshot(pointer(8)), LAST))
    _, effect = drive(*LOADED, closed, events.StartLoaded(BASE), mode=mode)
    assert effect == effects.Advance(BASE, LAST, mode.other)


OTHER_MODE = events.ModeUnavailable(RestoreMode.CHANGES, DamagedError("changes damaged"))


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ((OTHER_MODE, events.StartLoaded(BASE), events.Advanced()), "changes damaged"),
        ((events.Advanced("x-0 offset 17: crc32"),), "x-0 offset 17: crc32"),
        ((events.Advanced(),), None),
    ],
)
def test_what_was_damaged_on_the_way_is_reported_and_wants_a_snapshot(way, reason):
    """The newest snapshot was used, so no other one is named. Nothing read before a fence counts after it."""
    recovery, effect = drive(*LOADED, *way, events.InputsChecked())
    assert recovery.fallback_reason == reason
    assert isinstance(effect, effects.GoLive)
    assert (effect.fell_back, effect.fallback_from) == (reason is not None, None)
    again = drive(*LOADED, *way, events.EffectFailed(RetryableError("x")), events.Begin())[0]
    assert again.fallback_reason is None


# ---- failures ----------------------------------------------------------------------------------

REACHED = [FENCED[:1], FENCED, CLAIMED, SEEN, FOUND, STARTED, LOADED, ADVANCED]


@pytest.mark.parametrize("reached", REACHED, ids=len)
@pytest.mark.parametrize("error", [RetryableError("no broker"), ReleaseError("fenced")])
def test_what_is_transient_starts_again_from_the_fence_in_every_phase(reached, error):
    """Also a fence: it proves nothing. Nothing that was found before counts any more."""
    recovery, effect = drive(*reached, events.EffectFailed(error))
    assert effect == effects.Wait(100, error)
    again, effect = step(recovery, events.Begin())
    assert effect == effects.Fence()
    assert again == Recovery(EXPECTED, RestoreMode.CHANGES, LIMITS, phase=Phase.FENCING, attempt=2)


@pytest.mark.parametrize("reached", REACHED, ids=len)
def test_damage_that_nothing_leads_around_fails_and_is_not_tried_for_ever(reached):
    """It stays damaged: every new attempt would only add a claim to the log."""
    _, effect = drive(*reached, events.EffectFailed(DamagedError("x-0 offset 3: crc32", offset=3)))
    assert isinstance(effect, effects.Fail)
    assert isinstance(effect.error, LogDamaged)
    assert effect.error.reaction is Reaction.STOP
    assert (effect.error.message, effect.error.facts) == ("x-0 offset 3: crc32", {"offset": 3})
    assert "restore the topic" in effect.error.hint
