"""The app of a run, its topics, and the verdict on what is in the topics in the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from snapreplay.errors import UsageError
from tests.chaos.report import Outcome
from tests.checker import app as checked
from tests.checker import verify
from tests.support.deadlines import scaled
from tests.support.stage import Stage

HEALED_S = 60.0
PREPARED_S = 30.0


def prepare(
    bootstrap_servers: str, app_id: str, partitions: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make all topics and the genesis; the names of inputs and outputs.

    Again for as long as a broker has not heard of a topic that another one has just made.
    """
    app = checked.make(app_id)
    deadline = time.monotonic() + scaled(PREPARED_S)
    while True:
        try:
            asyncio.run(Stage(bootstrap_servers, app, partitions).prepare())
        except UsageError:
            if time.monotonic() > deadline:
                raise
        else:
            return tuple(t.name for t in app.inputs), tuple(t.name for t in app.outputs)


def judge(outcome: Outcome, bootstrap_servers: str, app_id: str, outcomes: Path) -> None:
    """Put the checker's verdict into the outcome. `outcomes`: folder of the journals that the processes wrote."""
    healed_s = scaled(HEALED_S)
    verdict = verify(bootstrap_servers, app_id, outcomes=outcomes, deadline_seconds=healed_s)
    outcome.verdict = str(verdict)
    outcome.counts = dict(sorted(verdict.counts.items()))
    outcome.violations = [str(violation) for violation in verdict.violations]
    outcome.unchecked = verdict.unchecked
