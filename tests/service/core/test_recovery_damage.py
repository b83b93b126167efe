"""What a recovery says of damage that it got past: each wants a new snapshot, so that the next one need not meet it."""

from snapreplay.errors import DamagedError
from snapreplay.service.core import effects, events
from snapreplay.snapshots.plan import LogStarts
from tests.service.core.test_recovery import FOUND, LOADED, drive


def test_an_increment_that_could_not_be_read_is_told():
    """The newest snapshot and the preferred mode were used all the same: no other one is named."""
    proof = (events.Advanced("x-0 offset 17: crc32"), events.InputsChecked())
    recovery, effect = drive(*LOADED, *proof)
    assert recovery.fallback_reason == "x-0 offset 17: crc32"
    assert isinstance(effect, effects.GoLive)
    assert (effect.fell_back, effect.fallback_from) == (True, None)


def test_a_trimmed_newest_snapshot_is_told_like_a_damaged_one():
    """It was passed over without being read; before a snapshot was tried and found damaged, and after."""
    trimmed = events.StartsRead(LogStarts(0, 81, {}))
    recovery, _ = drive(*FOUND, trimmed)
    assert recovery.fallback_from == "s8"
    assert "now starts at 81" in (recovery.fallback_reason or "")
    unusable = events.SnapshotUnusable("s8", "crc32")
    recovery, _ = drive(*LOADED, unusable)
    assert (recovery.fallback_from, recovery.fallback_reason) == ("s8", "crc32")


def test_on_the_way_without_damage_nothing_is_told():
    """And no snapshot is wanted."""
    recovery, effect = drive(*LOADED, events.Advanced(), events.InputsChecked())
    assert recovery.fallback_reason is None
    assert isinstance(effect, effects.GoLive)
    assert not effect.fell_back


def test_damage_of_an_attempt_before_is_forgotten():
    """Nothing read before a fence counts after it."""
    proof = (events.Advanced("damaged"), events.EffectFailed(DamagedError("x")), events.Begin())
    recovery, _ = drive(*LOADED, *proof)
    assert recovery.fallback_reason is None
