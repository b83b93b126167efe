"""What the seeds together must have gone through, or the simulator proves less than it says."""

from __future__ import annotations

from tests.simulation.faults import fault_kinds
from tests.simulation.scenario import EVENTS

PHASES = ("assigned", "fencing", "claiming", "locating", "loading", "advancing", "live")

WANTED: tuple[str, ...] = (
    *fault_kinds(),
    *dict.fromkeys(EVENTS),
    *(f"phase {name}" for name in (*PHASES, "fenced", "failed", "closed")),
    "mode changes",
    "mode replay",
    "mode none",
    "start genesis",
    "start snapshot",
    "recovery with several attempts",
    "stale leader",
    "trigger succeeded",
    "trigger skipped",
    "trigger failed",
    "stepped down for a younger process of the same name",
    "came back after the younger process was gone",
    "retry failed",
    "hotfix",
    "replaced by equal",
    "replaced by longer",
    "replaced by shorter",
    "replaced by prefix",
    "refused: InputReplaced",
    "refused: InputShorter",
    "fetch of a topic that is gone",
    "epilogue restart",
    "epilogue changed code",
    "changed code refused",
    "looked at while it was sealed",
    "pipeline: staging in steps",
    "pipeline: _applied in steps",
    "replay: finishing in steps",
    "snapshot_writer: slicing in steps",
)
"""Fault kinds as "site.kind", events, phases, modes, and what else is rare."""

RARE = {"refused: InputShorter"}
"""Met by 4 histories in 1,000: which ones is luck, so only a longer run must have met it."""
