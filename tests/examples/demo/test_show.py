"""Tests of what a pipe gets: plain lines, few of them."""

import io
from typing import Any

from rich.console import Console

from examples.demo.final_table import print_table
from examples.demo.plan import Kill
from examples.demo.record import Comeback, Restart, Told, Verdict
from examples.demo.show import Show
from examples.demo.verify import Findings

PROGRESS = {"percent": 50.0, "current": 1024, "target": 2048, "unit": "bytes", "eta_seconds": 0.25}


def partition(phase: str, progress: dict[str, Any] | None = None) -> dict[str, Any]:
    """One partition of a restore status."""
    return {"partition": 0, "phase": phase, "progress": progress}


def test_panel_in_a_terminal() -> None:
    """A terminal gets the same as a table: percent, amounts, time left, records, mode."""
    said = io.StringIO()
    more = {"percent": 25.0, "entries": 7, "records_replayed": 9, "mode": "replay"}
    with Show(Console(file=said, force_terminal=True, width=100)) as show:
        show.restoring({"partitions": [{**partition("loading", PROGRESS), **more}]})
    for word in ("loading", "25 %", "1,024 / 2,048 bytes", "0.25 s", "7", "9", "replay"):
        assert word in said.getvalue()


def test_pipe_gets_each_restore_state_once() -> None:
    """The same status asked a hundred times is one line."""
    said = io.StringIO()
    with Show(Console(file=said)) as show:
        for status in [partition("fencing")] * 100 + [partition("loading", PROGRESS)] * 100:
            show.restoring({"partitions": [status]})
    assert [line.split("  ")[-1] for line in said.getvalue().splitlines()] == [
        "restore: 0 fencing",
        "restore: 0 loading 50 % 1,024/2,048 bytes ETA 0.25 s",
    ]


def test_table_tells_what_differed() -> None:
    """A verdict that does not hold says NO, and below the table what differed. Every restart has its mode and seconds
    by phase in it, also one that was killed."""
    said = io.StringIO()
    found = Findings()
    for number in range(7):
        found.add(f"record 0-{number} has no output")
    verdicts = [Verdict.of("exactly once", found, "never shown"), Verdict.of("digest", Findings(), "4 partitions")]
    print_table(Console(file=said, width=160), told(), verdicts)
    text = said.getvalue()
    assert "NO  7 differ" in text
    assert "yes  4 partitions" in text
    assert "never shown" not in text
    assert text.count("exactly once: record 0-") == 5
    for word in ("1,000 records/s over 2.0 s", "killed again before it was LIVE", "restart 2 by replay"):
        assert word in text
    assert "fencing 0.100" in text


def told() -> Told:
    """A run with a kill that struck a recovery."""
    back = Comeback(0.5, 0.6, 0.9, {"fencing": 0.1}, {"replay": 4}, 12, 4)
    first = Restart(Kill(500, "processing", 0.0, "changes"), 510, "processing")
    second = Restart(Kill(500, "recovering", 0.1, "replay"), 510, "recovering: 4 loading", back)
    return Told(7, records=2200, loaded=2000, restarts=[first, second], wall_s=2.0, live_s=1.0)
