"""The audit without Spark, with the service's Kafka client."""

from __future__ import annotations

from snapreplay.app.load import checked_app
from snapreplay.errors import UsageError
from snapreplay.service.blocking import BlockingReader
from snapreplay.service.config.settings import Settings
from snapreplay.snapshots.jobs import audit as plain_audit
from snapreplay.snapshots.proof.report import AuditReport, Level


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
    with BlockingReader(settings) as reader:
        return plain_audit.audit(reader, app_id, level, loaded)
