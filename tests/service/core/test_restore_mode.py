"""The two modes."""

from snapreplay.service.core.restore_mode import RestoreMode


def test_each_mode_is_the_others_fallback():
    """And their values are those of restore.mode."""
    assert RestoreMode("changes").other is RestoreMode.REPLAY
    assert RestoreMode("replay").other is RestoreMode.CHANGES
