"""The audit without Spark, with the service's Kafka client.

`python -m snapreplay.service.auditing` replays one stretch of a log once more, in a process with another hash seed. It
reads its order from standard input, because the order holds secrets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import snapreplay
from snapreplay.app.load import checked_app
from snapreplay.errors import StopError, UsageError
from snapreplay.service.blocking import BlockingReader
from snapreplay.service.config.settings import Settings
from snapreplay.service.config.table import given_in
from snapreplay.snapshots.jobs import audit as plain_audit
from snapreplay.snapshots.jobs.fixed_logs import PartitionLogs
from snapreplay.snapshots.proof.replay import Segment, repeated
from snapreplay.snapshots.proof.report import AuditReport, Level


class Repetition(msgspec.Struct, frozen=True):
    """The order to replay a segment once more. `settings`: those that were given, secrets included."""

    app: str
    app_id: str
    settings: dict[str, Any]
    segment: Segment


def audit(settings: Settings, app_id: str, level: Level = Level.INTEGRITY, app: str | None = None) -> AuditReport:
    """Prove what the app's own two topics hold at this moment, one partition after the other.

    The owners may write and trim meanwhile. A partition takes as much memory as its state.

    Args:
        level: what is proven; each level includes those before it.
        app: `module:app` or a path. Level REPLAY needs it.

    Returns the report; it is clean if `findings` is empty.

    Raises:
        UsageError: the app is not that of `app_id`, or there is none for level REPLAY.
        SnapreplayError: the audit could not run: a topic is missing, no broker answers.
    """
    loaded = None
    if level is Level.REPLAY:
        if app is None:
            raise UsageError("a replay runs the app's handlers, so it needs the app")
        loaded = checked_app(app, app_id)

    def repeat(segment: Segment) -> str:
        return _by_another_seed(Repetition(app or "", app_id, given_in(settings), segment))

    with BlockingReader(settings) as reader:
        return plain_audit.audit(reader, app_id, level, loaded, repeat=repeat)


def _by_another_seed(again: Repetition) -> str:
    """Return the fingerprint of the first difference, or raise StopError: the process did not answer."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ended = subprocess.run(
        _command("snapreplay.service.auditing"),
        input=msgspec.json.encode(again),
        stdout=subprocess.PIPE,
        env=_environment({**os.environ, "PYTHONHASHSEED": seed}),
        check=False,
    )
    if ended.returncode:
        raise StopError(f"the replay by a second process could not run: exit code {ended.returncode}")
    return ended.stdout.decode()


def main() -> None:
    answer = os.dup(1)
    os.dup2(2, 1)  # what the app prints is no answer
    again = msgspec.json.decode(sys.stdin.buffer.read(), type=Repetition)
    app = checked_app(again.app, again.app_id)
    with BlockingReader(Settings(**again.settings)) as reader:
        logs = PartitionLogs(reader, again.app_id, again.segment.partition)
        fingerprint = repeated(app, again.segment, logs)
    with os.fdopen(answer, "w") as line:
        line.write(fingerprint)


if __name__ == "__main__":
    main()


def _command(module: str) -> list[str]:
    """Return the words that run a module of this package, to be followed by its arguments."""
    # Without -P a file of the user in the working directory could stand before a library.
    return [sys.executable, "-P", "-m", module]


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which `_command` finds this code."""
    package = str(Path(snapreplay.__file__).parent.parent)
    paths = [package, *given.get("PYTHONPATH", "").split(os.pathsep)]
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
