"""Commands that keep a state under a name, and those that give one up: savepoint, reset, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snapreplay.api.cli import options
from snapreplay.api.cli.output import Format, confirm, console, must_ask, note, print_json, table
from snapreplay.counted import counted
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snapreplay.service.decisions.deletion import Deletion
    from snapreplay.service.decisions.reset import Reset
    from snapreplay.service.decisions.savepoints import Savepoint
    from snapreplay.service.publish.state import Begun


async def create(
    app: options.Loaded,
    name: options.SavepointName,
    *,
    reason: options.SavepointReason = "",
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Keep the state of every partition, after its last committed batch, under a name.

    The app may run. Each partition is kept at its own moment."""
    from snapreplay.service.decisions.savepoints import create
    from snapreplay.service.kafka.cluster import KafkaCluster

    _print_parts(await create(app, settings, KafkaCluster(settings), name, reason), output)


async def list_(app: options.Loaded, *, settings: options.OfCluster, output: options.Output = Format.TABLE) -> None:
    """List the savepoints of an app, also those that cannot be used, and why."""
    from snapreplay.service.decisions.savepoints import find
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.topics.savepoint_names import names_of

    cluster = KafkaCluster(settings)
    found = [
        await find(app.app_id, name, settings, cluster, prove=False) for name in await names_of(app.app_id, cluster)
    ]
    if output is Format.JSON:
        for each in found:
            print_json(_document(each))
        return
    columns = ("savepoint", "usable", "partitions", "entries", "kept at", "by", "reason")
    console().print(table(columns, map(_row, found), right="partitions entries"))


async def show(
    app: options.Loaded,
    name: options.SavepointName,
    *,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Show the parts of a savepoint, and prove them: every entry is read and compared with the digest.

    Exit code 4: it cannot be used."""
    from snapreplay.service.decisions.savepoints import find, unusable
    from snapreplay.service.kafka.cluster import KafkaCluster

    found = await find(app.app_id, name, settings, KafkaCluster(settings), prove=True)
    _print_parts(found, output)
    if found.problems:
        raise unusable(found)


async def drop(
    app: options.Loaded, name: options.SavepointName, *, yes: options.Yes = False, settings: options.OfCluster
) -> None:
    """Delete a savepoint for good. Apps that have begun with it keep their state."""
    from snapreplay.service.decisions.savepoints import drop
    from snapreplay.service.kafka.cluster import KafkaCluster

    if must_ask(yes=yes, dry_run=False):
        confirm(f"Delete savepoint {name} of app {app.app_id}?")
    print("\n".join(f"deleted {topic}" for topic in await drop(app.app_id, name, KafkaCluster(settings))))


async def reset(
    app: options.Loaded,
    *,
    savepoint: options.ResetTo = "",
    start: options.ResetFrom = "",
    reason: options.Reason = "",
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Set a stopped app back to a savepoint, or to an empty state. Its present state is given up.

    Records behind the new place are processed again, and their outputs are written a second time."""
    from snapreplay.service.decisions.reset import ResetTarget, carry_out, propose
    from snapreplay.service.kafka.cluster import KafkaCluster

    asks = must_ask(yes=yes, dry_run=dry_run)
    proposed = await propose(app, settings, KafkaCluster(settings), ResetTarget(savepoint, start), reason)
    due = [each for each in proposed if not each.is_done]
    if asks or output is Format.TABLE:
        _print_resets(proposed, stderr=output is Format.JSON)
    if asks and due:
        confirm("Give up the present state?")
    for each in due:
        begun = None if dry_run else await carry_out(each)
        if output is Format.JSON:
            print_json(_reset_document(each, begun))
        elif begun is not None:
            at = f"increment {begun.increment.batch} at offset {begun.offset}"
            print(f"partition {each.context.partition}: reset by {at}, snapshot {begun.snapshot_id}", flush=True)
    if dry_run and output is Format.TABLE:
        print("dry run: nothing was written")


def _print_resets(proposed: Sequence[Reset], *, stderr: bool) -> None:
    tell = note if stderr else print
    for each in proposed:
        said = "is there already" if each.is_done else each.decision["decided"]
        batch = each.last.increment.batch
        tell(f"partition {each.context.partition}, batch {batch}: {said}")


def _reset_document(reset: Reset, begun: Begun | None) -> dict[str, object]:
    return {
        "partition": reset.context.partition,
        "decision": dict(reset.decision),
        "positions": reset.before.positions,
        "dry_run": begun is None,
        "batch": begun.increment.batch if begun else None,
        "offset": begun.offset if begun else None,
        "snapshot_id": begun.snapshot_id if begun else None,
    }


async def delete(
    app_id: options.AppId,
    *,
    dead_letters: options.DeadLetters = False,
    savepoints: options.AllSavepoints = False,
    dry_run: options.DryDeletion = False,
    yes: options.YesOfApp = "",
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Delete the topics and groups of an app. Its inputs and outputs stay, and so do other apps.

    Refused while a process of the app is a member of its group."""
    from snapreplay.service.decisions.deletion import carry_out, propose
    from snapreplay.service.kafka.cluster import KafkaCluster

    if yes and yes != app_id:
        raise UsageError(f"--yes {yes} is not the app id {app_id}", hint=f"to delete {app_id}: `--yes {app_id}`")
    asks = must_ask(yes=bool(yes), dry_run=dry_run)
    cluster = KafkaCluster(settings)
    deletion = await propose(app_id, cluster, dead_letters=dead_letters, savepoints=savepoints)
    if asks or output is Format.TABLE:
        _print_deletion(deletion, stderr=output is Format.JSON)
    if asks:
        confirm("Type the app id to delete it", app_id)
    if not dry_run:
        await carry_out(deletion, cluster)
    if output is Format.JSON:
        print_json({"deleted": list(deletion.topics), "kept": list(deletion.kept), "dry_run": dry_run})
    else:
        topics = counted(len(deletion.topics), "topic")
        print("dry run: nothing was deleted" if dry_run else f"deleted app {app_id}: {topics}")


def _print_deletion(deletion: Deletion, *, stderr: bool) -> None:
    tell = note if stderr else print
    for topic in deletion.topics:
        tell(f"deletes {topic}")
    for topic in deletion.kept:
        tell(f"keeps {topic}")


def _print_parts(savepoint: Savepoint, output: Format) -> None:
    document = _document(savepoint)
    if output is Format.JSON:
        print_json(document)
        return
    columns = ("partition", "batch", "entries", "digest", "positions", "kept", "problem")
    rows = [map(_cell, part.values()) for part in document["partitions"]]
    console().print(table(columns, rows, right="partition batch entries"))


def _cell(value: object) -> object:
    return ", ".join(f"{key}: {each}" for key, each in value.items()) if isinstance(value, dict) else value


def _document(savepoint: Savepoint) -> dict[str, Any]:
    import msgspec

    from snapreplay.service.decisions.savepoints import shown

    document: dict[str, Any] = msgspec.to_builtins(shown(savepoint))
    return document


def _row(savepoint: Savepoint) -> list[object]:
    document = _document(savepoint)
    parts = document["partitions"]
    entries = [part["entries"] for part in parts if part["entries"] is not None]
    kept_at = max((part["kept_at"] for part in parts if part["kept_at"]), default=None)
    state = savepoint.problems[0] if savepoint.problems else "yes"
    return [savepoint.name, state, len(parts), sum(entries), kept_at, document["by"], document["reason"]]
