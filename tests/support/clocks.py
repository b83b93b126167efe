"""The clocks of this machine, set by a test."""

from collections.abc import Callable

import pytest

from snapreplay.service import clock


def time_is(monkeypatch: pytest.MonkeyPatch, now_ms: Callable[[], int]) -> None:
    """Let the time of day be `now_ms()`, and let as much time pass as it says: no jump."""
    monkeypatch.setattr(clock, "wall_ms", now_ms)
    monkeypatch.setattr(clock, "boot_seconds", lambda: now_ms() / 1000)
