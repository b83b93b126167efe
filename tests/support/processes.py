"""Other processes, looked at from outside, and waiting in a plain thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.support.deadlines import scaled


def is_running(pid: int) -> bool:
    """Say whether a process of this id is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(holds: Callable[[], object], what: object = "", seconds: float = 30.0) -> None:
    """Wait for a condition; says what it was when it does not come true in time."""
    deadline = time.monotonic() + scaled(seconds)
    while not holds():
        assert time.monotonic() < deadline, f"not within {scaled(seconds):.0f} s: {what}"
        time.sleep(0.01)  # between two looks, under the deadline
