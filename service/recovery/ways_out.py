"""The ways out that the hint of a failed recovery may recommend: only what can succeed, so that is checked before
it is printed."""

from __future__ import annotations

from snapreplay.app.ways import look_again, new_app
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import SchemaDiffers
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.recovery.acceptable_failures import (
    Finding,
    Resolution,
    command,
    findings_of,
)
from snapreplay.service.recovery.acceptable_snapshot import newest_acceptable_snapshot
from snapreplay.service.recovery.mismatch import CodeChanged, ReplayFailed
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.log_bounds import read_starts
from snapreplay.snapshots.log.loading import Nowhere
from snapreplay.snapshots.plan import FromSnapshot, NoUsableSnapshot, plan_start


async def with_way_out(
    error: SnapreplayError, context: Context, recovery: Recovery
) -> SnapreplayError:
    """Return the same error. Its hint also holds the exact command to accept it where that leads to a state; where
    none is left, it says what remains.

    Raises:
        Unreachable, ReadStalled: it could not be found out.
    """
    findings = findings_of(error, context, recovery.last)
    if not findings:
        return error
    before = f"{error.hint}; or " if error.hint else ""
    try:
        offered = [each for each in findings if await _leads_to_a_state(each, context, recovery)]
    except SchemaDiffers as other:
        error.hint = f"{before}{other.message}: {other.hint}"
        return error
    if offered:
        ways = "; or ".join(f"`{command(each, context)}`: {each.way}" for each in offered)
        error.hint = f"{before}accept it: {ways}; then {look_again(context.partition)}"
        if offered[0].way in {Resolution.SKIP, Resolution.REREAD} and _has_changes(
            context, recovery
        ):
            options = f" --state-of {context.app.app_id} --from earliest"
            error.hint += f"; or take the state along to a new app id: {new_app(options)}"
    elif not isinstance(error, NoUsableSnapshot):  # which has looked for the same
        error.hint = f"{before}{nothing_left()}"
    return error


def nothing_left() -> str:
    """Name the ways out if no snapshot is whole and the log does not lead from its beginning to its end."""
    return (
        "bring the topics back from a backup or mirror (no snapshot is whole, so there is no state to accept);"
        f" or process the input again under a new app id: {new_app()}"
    )


async def _leads_to_a_state(finding: Finding, context: Context, recovery: Recovery) -> bool:
    from_snapshot = isinstance(recovery.start, FromSnapshot)
    if (
        recovery.start is None and recovery.last is not None
    ):  # the state in memory, or the search for a start failed
        from_snapshot = recovery.kept is not None and bool(recovery.last.increment.pointers)
    match finding.way:
        case Resolution.SKIP | Resolution.REREAD:
            return from_snapshot or recovery.state_is_last or _has_changes(context, recovery)
        case Resolution.AS_REPLAYED if not _refuses_records(finding.error):
            return True
        case Resolution.KEEP_LOG | Resolution.FROM_LAST:
            return await _log_leads_to_a_state(context, recovery)
        case _:
            return (
                from_snapshot
                or (await newest_acceptable_snapshot(context, Nowhere()))[0] is not None
            )


async def _log_leads_to_a_state(context: Context, recovery: Recovery) -> bool:
    last = recovery.last
    if last is None:
        return False
    starts = await read_starts(context, last, disregard_manifests=True)
    try:
        plan_start(last.increment, last.offset, starts, {})
    except NoUsableSnapshot:
        return False
    return True


def _refuses_records(error: SnapreplayError) -> bool:
    """Say whether nothing can be replayed, so that only a snapshot helps."""
    return isinstance(error, CodeChanged) and isinstance(error.__cause__, ReplayFailed)


def _has_changes(context: Context, recovery: Recovery) -> bool:
    """Say whether the last batches can be restored without the input."""
    last, closed = recovery.last, recovery.unavailable_mode
    if last is None or (closed is not None and closed.mode is RestoreMode.CHANGES):
        return False
    if not context.app.new_store().keeps_changes:
        return False
    return last.increment.changes is not None or last.increment.is_empty
