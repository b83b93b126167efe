"""The order of a recovery, event by event: what is answered, what failed, and what must never be skipped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core import recovery as core
from snapreplay.service.core.located import (
    DuplicateInstance,
    Expected,
    Found,
    LogPinned,
    NoRoad,
    NotInitialised,
    WrongLog,
)
from snapreplay.service.core.locate import Window
from snapreplay.service.core.phase import Phase, may_follow
from snapreplay.service.core.recovery import Limits, Recovery, Road, step
from snapreplay.snapshots.errors import DamagedError, ReleaseError, RetryableError, StopError
from snapreplay.snapshots.format.records import Claim
from snapreplay.snapshots.plan import FromGenesis, FromSnapshot, LogStarts, NoUsableSnapshot
from tests.support.entries import increment, pointer

EXPECTED = Expected(
    "ledger",
    "cluster-1",
    2,
    4,
    frozenset({"payments", "refunds"}),
    "ledger-increments",
    "one",
    "p1",
)
LIMITS = Limits(pin_patience_ms=1000, backoff_ms_min=100, backoff_ms_max=1000)
LAST = Found(increment(9, owner_epoch=30, pointers=[pointer(8), pointer(5)]), 29)
WHOLE = LogStarts(0, 0, {"payments": 0, "refunds": 0})
TRIMMED = LogStarts(14, 0, {"payments": 0, "refunds": 0})


def claim(instance_id="two"):
    return Claim("c2", "ledger", "cluster-1", "p2", instance_id, "web-7", 4711, 0)


def drive(*events, road=Road.CHANGES):
    """The recovery after these events, and the last effect."""
    recovery, effect = Recovery(EXPECTED, road, LIMITS), None
    for event in events:
        recovery, effect = step(recovery, event)
    return recovery, effect


FENCED = (core.Begin(), core.FenceDone())
CLAIMED = (*FENCED, core.ClaimAcknowledged("c1", 30))
SEEN = (*CLAIMED, core.ClaimSeen(0, None))
FOUND = (*SEEN, core.WindowRead(LAST))
STARTED = (*FOUND, core.StartsRead(WHOLE))
LOADED = (*STARTED, core.StartLoaded())
ADVANCED = (*LOADED, core.Advanced())


def test_the_whole_way_to_live():
    """Fence, claim, see it, find the last increment, read the starts, load, advance, check the inputs, live."""
    recovery, effects = Recovery(EXPECTED, Road.CHANGES, LIMITS), []
    for event in (*ADVANCED, core.InputsChecked()):
        recovery, effect = step(recovery, event)
        effects.append((recovery.phase, effect))
    start = FromSnapshot(pointer(8))
    assert effects == [
        (Phase.FENCING, core.Fence()),
        (Phase.CLAIMING, core.WriteClaim()),
        (Phase.LOCATING, core.SeeClaim("c1", 30, fresh_client=False)),
        (Phase.LOCATING, core.ReadWindow(Window(28, 30, 2))),
        (Phase.LOCATING, core.ReadStarts(LAST)),
        (Phase.LOADING, core.Load(start)),
        (Phase.ADVANCING, core.Advance(start, LAST, Road.CHANGES)),
        (Phase.ADVANCING, core.CheckInputs(LAST)),
        (Phase.LIVE, core.GoLive(LAST, 30, start, None)),
    ]


# ---- the claim ---------------------------------------------------------------------------------


def test_a_hidden_claim_is_looked_for_with_a_new_client():
    """A stale leader, or a foreign open transaction: asked again for as long as that may last."""
    recovery, effect = drive(*CLAIMED, core.ClaimHidden(30, 40, 999))
    assert recovery.phase is Phase.LOCATING
    assert effect == core.SeeClaim("c1", 30, fresh_client=True)


def test_a_claim_hidden_beyond_patience_needs_an_operator():
    """Named with last stable offset and high watermark; never taken for an empty log."""
    _, effect = drive(*CLAIMED, core.ClaimHidden(30, 40, 1001))
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, LogPinned)
    assert effect.error.facts["last_stable_offset"] == 30


def test_a_newer_claim_ends_the_recovery():
    """Its owner has fenced us already: whatever we find now may be old."""
    recovery, effect = drive(*CLAIMED, core.ClaimSeen(0, claim()))
    assert recovery.phase is Phase.FENCED
    assert effect == core.Yield(claim())


def test_a_newer_claim_with_our_instance_id_is_a_duplicate():
    """The older claim stays down: no ping-pong."""
    _, effect = drive(*CLAIMED, core.ClaimSeen(0, claim(instance_id="one")))
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, DuplicateInstance)


# ---- the last increment ------------------------------------------------------------------------


def test_empty_windows_grow_back_to_the_log_start():
    """Aborted tails and earlier claims are stepped over, nothing is left out."""
    windows, events = [], list(SEEN)
    while isinstance(effect := drive(*events)[1], core.ReadWindow):
        windows.append((effect.window.start_offset, effect.window.end_offset))
        events.append(core.WindowRead(None))
    assert windows == [(28, 30), (14, 28), (0, 14)]
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, NotInitialised)


def test_a_trimmed_log_is_searched_from_its_start():
    """The last window begins where the log does."""
    _, effect = drive(*CLAIMED, core.ClaimSeen(29, None))
    assert effect == core.ReadWindow(Window(29, 30, 2))


def test_a_log_that_holds_nothing_but_our_claim_is_not_a_new_app():
    """FAILED with the hint to init, never an empty state."""
    _, effect = drive(*CLAIMED, core.ClaimSeen(30, None))
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, NotInitialised)


def test_another_apps_increment_is_refused():
    """Whatever it says is not about us."""
    other = Found(increment(9, owner_epoch=31), 29)
    _, effect = drive(*SEEN, core.WindowRead(other))
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, WrongLog)


# ---- where to start ----------------------------------------------------------------------------


def test_unusable_snapshots_are_passed_over_newest_first_down_to_genesis():
    """Each with its reason; LIVE records the newest as fallen back from."""
    recovery, effect = drive(*STARTED, core.SnapshotUnusable("s8", "crc32"))
    assert effect == core.Load(FromSnapshot(pointer(5)))
    recovery, effect = step(recovery, core.SnapshotUnusable("s5", "gone"))
    assert isinstance(effect, core.Load)
    assert isinstance(effect.start, FromGenesis)
    assert (recovery.phase, recovery.fallback_from) == (Phase.LOADING, "s8")
    for event in (core.StartLoaded(), core.Advanced(), core.InputsChecked()):
        recovery, effect = step(recovery, event)
    assert isinstance(effect, core.GoLive)
    assert effect.fallback_from == "s8"


def test_without_snapshot_and_without_a_whole_log_there_is_nothing_to_start_from():
    """Every snapshot is named with its reason; the state is never silently empty."""
    found = (*FOUND, core.StartsRead(TRIMMED))
    _, effect = drive(
        *found, core.SnapshotUnusable("s8", "crc32"), core.SnapshotUnusable("s5", "gone")
    )
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, NoUsableSnapshot)
    assert effect.error.facts["reasons"] == {"s8": "crc32", "s5": "gone"}


# ---- the two roads -----------------------------------------------------------------------------


@pytest.mark.parametrize("road", list(Road))
def test_a_closed_road_leads_back_to_the_start_and_to_the_other_one(road):
    """The state is half-way, so the same start is loaded again."""
    closed = core.RoadClosed(road, DamagedError("changes damaged"))
    recovery, effect = drive(*LOADED, closed, road=road)
    assert (recovery.phase, effect) == (Phase.LOADING, core.Load(FromSnapshot(pointer(8))))
    _, effect = step(recovery, core.StartLoaded())
    assert effect == core.Advance(FromSnapshot(pointer(8)), LAST, road.other)


def test_with_both_roads_closed_both_reasons_are_told():
    """FAILED; no third attempt."""
    first = core.RoadClosed(Road.CHANGES, DamagedError("changes damaged"))
    second = core.RoadClosed(Road.REPLAY, RetryableError("input trimmed"))
    _, effect = drive(*LOADED, first, core.StartLoaded(), second)
    assert isinstance(effect, core.Fail)
    assert isinstance(effect.error, NoRoad)
    assert "changes damaged" in effect.error.message
    assert "input trimmed" in effect.error.message


# ---- failures ----------------------------------------------------------------------------------

REACHED = [FENCED[:1], FENCED, CLAIMED, SEEN, FOUND, STARTED, LOADED, ADVANCED]


@pytest.mark.parametrize("reached", REACHED, ids=len)
@pytest.mark.parametrize("error", [RetryableError("no broker"), ReleaseError("fenced")])
def test_what_is_transient_starts_again_from_the_fence_in_every_phase(reached, error):
    """Also a fence: it proves nothing. Nothing that was found before counts any more."""
    recovery, effect = drive(*reached, core.EffectFailed(error))
    assert effect == core.Wait(100, error)
    again, effect = step(recovery, core.Begin())
    assert effect == core.Fence()
    assert again == Recovery(EXPECTED, Road.CHANGES, LIMITS, phase=Phase.FENCING, attempt=2)


@pytest.mark.parametrize("reached", REACHED, ids=len)
@pytest.mark.parametrize("error", [StopError("cut"), DamagedError("crc32")])
def test_what_a_person_must_decide_fails_in_every_phase(reached, error):
    """Damage that no other snapshot or road gets around, too."""
    assert drive(*reached, core.EffectFailed(error))[1] == core.Fail(error)


def test_pauses_double_up_to_the_longest():
    """And stay there, however long the cluster is away."""
    error, delays = RetryableError("no broker"), []
    recovery = Recovery(EXPECTED, Road.CHANGES, LIMITS)
    for _ in range(40):
        recovery, _ = step(recovery, core.Begin())
        recovery, effect = step(recovery, core.EffectFailed(error))
        assert isinstance(effect, core.Wait)
        delays.append(effect.delay_ms)
    assert delays[:5] == [100, 200, 400, 800, 1000]
    assert set(delays[5:]) == {1000}


@pytest.mark.parametrize(
    "event", [core.WindowRead(None), core.StartsRead(WHOLE), core.StartLoaded(), core.Advanced()]
)
def test_an_event_before_the_one_it_follows_is_a_defect(event):
    """It raises instead of guessing."""
    with pytest.raises(AssertionError, match="before the one it follows"):
        drive(core.Begin(), event)


# ---- any course of events ----------------------------------------------------------------------


def answers(effect):
    """All that can come of an effect."""
    failed = [core.EffectFailed(RetryableError("r")), core.EffectFailed(StopError("s"))]
    match effect:
        case core.Fence():
            good = [core.FenceDone()]
        case core.WriteClaim():
            good = [core.ClaimAcknowledged("c1", 30)]
        case core.SeeClaim():
            newer = [core.ClaimSeen(0, claim()), core.ClaimSeen(0, claim("one"))]
            good = [core.ClaimSeen(0, None), core.ClaimHidden(30, 40, 5), *newer]
        case core.ReadWindow():
            good = [core.WindowRead(LAST), core.WindowRead(None)]
        case core.ReadStarts():
            good = [core.StartsRead(WHOLE), core.StartsRead(TRIMMED)]
        case core.Load(FromSnapshot(which)):
            good = [core.StartLoaded(), core.SnapshotUnusable(which.snapshot_id, "crc32")]
        case core.Load():
            good = [core.StartLoaded()]
        case core.Advance(road=road):
            good = [core.Advanced(), core.RoadClosed(road, DamagedError("d"))]
        case core.CheckInputs():
            good = [core.InputsChecked()]
        case _:
            return [core.Begin()]
    return [*good, *failed]


ENDS = (core.GoLive, core.Yield, core.Fail)
PROOF = [
    core.FenceDone,
    core.ClaimAcknowledged,
    core.ClaimSeen,
    core.WindowRead,
    core.StartsRead,
    core.StartLoaded,
    core.Advanced,
    core.InputsChecked,
]


@given(st.data())
def test_live_is_reached_only_by_the_whole_proof_in_one_attempt(data):
    """Whatever happens: allowed transitions only, and LIVE only after every step since the last fence."""
    recovery, effect = step(Recovery(EXPECTED, Road.CHANGES, LIMITS), core.Begin())
    since_fence = []
    for _ in range(60):
        if isinstance(effect, ENDS):
            break
        event = data.draw(st.sampled_from(answers(effect)))
        since_fence = [] if isinstance(event, core.Begin) else [*since_fence, type(event)]
        before = recovery.phase
        recovery, effect = step(recovery, event)
        assert recovery.phase is before or may_follow(before, recovery.phase)
    if isinstance(effect, core.GoLive):
        last_seen = {kind: len(since_fence) - since_fence[::-1].index(kind) for kind in PROOF}
        assert sorted(PROOF, key=last_seen.__getitem__) == PROOF
    assert (recovery.phase is Phase.LIVE) == isinstance(effect, core.GoLive)
