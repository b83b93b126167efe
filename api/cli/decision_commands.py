"""Commands with which a person finds what is wrong, repairs it or decides: doctor, accept, patch, upgrade, inputs; and
those that keep a state under a name, or give one up: savepoint, reset, delete."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from snapreplay.api.cli import options
from snapreplay.api.cli.options import cluster_of
from snapreplay.api.cli.output import (
    ExitCode,
    Format,
    confirm,
    console,
    must_ask,
    note,
    print_json,
    table,
    written_whole,
)
from snapreplay.app.ways import look_again
from snapreplay.counted import counted, counted_or_no
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snapreplay.service.control.kafka_reads import SavepointShown
    from snapreplay.service.core.search import FoundIncrement
    from snapreplay.service.decisions.inputs import Proposed
    from snapreplay.service.decisions.patch import Patch
    from snapreplay.service.decisions.upgrade_trial import UpgradeTrial
    from snapreplay.service.publish.state import Begun


async def doctor(
    app: options.LoadedIfNamed, *, settings: options.OfCluster, output: options.Output = Format.TABLE
) -> ExitCode:
    """Examine brokers, topics, permissions, open transactions and state, and say what to repair.

    Exit code 0: no findings; 1: findings; 2: could not run."""
    from snapreplay.service.doctor.collect import examine

    report = await examine(app, settings)
    if output is Format.JSON:
        print_json(report)
    else:
        out = console()
        looked_at = ((name, f"{count:,}") for name, count in report.looked_at.items())
        out.print(table(("looked at", "count"), looked_at, right="count"))
        for finding in report.findings:
            out.print(f"{finding.check}: {finding.where}", style="bold", markup=False)
            print(f"  {finding.problem}")
            print(f"  remedy: {finding.remedy}")
        print(
            f"{report.app_id or 'cluster'}: {counted_or_no(len(report.findings), 'finding')} ({report.seconds:.1f} s)"
        )
    return ExitCode.FINDINGS if report.findings else ExitCode.OK


async def accept(
    app: options.Loaded,
    *,
    partition: options.FailedPartition,
    finding: options.Finding,
    reason: options.Reason,
    dry_run: options.DryRun = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Accept what a recovery found, and let the partition continue from there.

    The log keeps who decided it, when and why. Run `snapreplay retry` afterwards."""
    from snapreplay.service.decisions.accept import carry_out, propose

    def tell(news: str) -> None:
        note(f"partition {partition}: {news}")

    acceptance = await propose(app, settings, cluster_of(settings), partition, finding, reason, tell)
    decision = acceptance.decision
    if output is Format.TABLE:
        print(f"partition {partition}: {decision['finding']}\n  {decision['problem']}")
        for line in acceptance.plan:
            print(f"  - {line}")
        print(f"  by {decision['by']}: {decision['reason']}", flush=True)
    if not dry_run:
        tell("writing the snapshot and the decision")
    accepted = None if dry_run else await carry_out(acceptance)
    now = f"accepted: {_written(accepted)}. Now run {look_again(partition)}" if accepted else ""
    said = {name: decision[name] for name in ("finding", "problem", "reason", "by")}
    document = {"partition": partition, **said, "plan": list(acceptance.plan), **_begun(accepted)}
    _say(output, document, now or "dry run: nothing was written")


def _say(output: Format, document: object, line: str) -> None:
    """Print what became of a decision: as one JSON document, or as this line; empty: there is nothing to say."""
    if output is Format.JSON:
        print_json(document)
    elif line:
        print(line, flush=True)


def _written(begun: Begun) -> str:
    return f"increment {begun.increment.batch} at offset {begun.offset}, snapshot {begun.snapshot_id}"


def _begun(begun: Begun | None) -> dict[str, object]:
    return {**_place(begun), "snapshot_id": begun.snapshot_id if begun else None}


def _decision(done: Begun | FoundIncrement | None) -> dict[str, object] | None:
    return dict(done.increment.decision or {}) if done else None


def _place(done: Begun | FoundIncrement | None) -> dict[str, object]:
    """Say where a decision stands; None: it was a dry run."""
    batch, offset = (done.increment.batch, done.offset) if done else (None, None)
    return {"dry_run": done is None, "batch": batch, "offset": offset}


async def patch(
    app: options.Loaded,
    file: options.PatchFile,
    *,
    reason: options.LineReason = "",
    undo: options.Undo = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Correct entries of the state: in each partition all of them, or none.

    A line is {"store": …, "key": …, "expected": …, "value": …, "reason": …}. It is refused if the entry does not have
    the expected value. The log keeps who corrected what, when and why."""
    from snapreplay.service.decisions.patch import carry_out, close, propose

    asks = must_ask(yes=yes, dry_run=dry_run)
    if undo is not None and undo.exists() and not dry_run:
        raise UsageError(
            f"{undo} exists, and may hold the only lines that take an interrupted run back",
            hint="name another file for --undo",
        )
    patches = await propose(app, settings, cluster_of(settings), _lines(file), reason, note)
    if not patches:
        return
    try:
        if asks or output is Format.TABLE:
            _print_patches(patches, stderr=output is Format.JSON)
        if asks:
            confirm("Correct these entries?")
        with written_whole(None if dry_run else undo) as out:
            if out is not None:
                out.writelines(f"{one.undone()}\n" for each in patches for one in each.corrections)
        for each in patches:
            begun = None if dry_run else await carry_out(each)
            lines = [{"line": one.line, "entry": one.place, "reason": one.reason} for one in each.corrections]
            document = {"partition": each.partition, "entries": lines, "decision": _decision(begun), **_begun(begun)}
            entries = counted(len(each.corrections), "entry")
            done = f"{entries} corrected by {_written(begun)}" if begun else f"dry run, {entries} would be corrected"
            _say(output, document, f"partition {each.partition}: {done}")
    finally:
        await close(patches)


async def upgrade(
    app: options.Loaded,
    *,
    dry_run: options.DryRun = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> ExitCode:
    """Upgrade the stored entries of every partition in memory, and say which would fail. Nothing is written.

    The old version may run. With the same schema_version every entry is read with this version's types.

    Exit code 0: this version can take over all partitions; 1: not all of them; 2: could not run."""
    from snapreplay.service.decisions.upgrade_trial import try_upgrade

    if not dry_run:
        raise UsageError(
            "upgrade without --dry-run does nothing: the owners upgrade their partitions when this version starts",
            hint="try it first: `snapreplay upgrade APP --dry-run`; then start this version: `snapreplay run APP`",
        )
    trials = await try_upgrade(app, settings, cluster_of(settings), note)
    if output is Format.JSON:
        print_json([_tried_document(each) for each in trials])
    else:
        _print_trials(trials, app.schema_version)
    failed = any(each.error for each in trials)
    return ExitCode.FINDINGS if failed else ExitCode.OK


def _print_trials(trials: Sequence[UpgradeTrial], schema_version: int) -> None:
    for each in trials:
        name = f"partition {each.partition}"
        if each.error is not None:
            print(f"{name}: {type(each.error).__name__}: {each.error.message}")
            if each.error.hint:
                print(f"{name}: hint: {each.error.hint}")
        elif each.upgraded is None:
            print(f"{name}: {counted(each.entries, 'entry')} of schema_version {schema_version} can be read")
        else:
            print(
                f"{name}: {counted(each.entries, 'entry')} of schema_version {each.schema_version} would become"
                f" {each.upgraded:,} of {schema_version}"
            )
    failed = sum(each.error is not None for each in trials)
    print(
        f"{failed} of {counted(len(trials), 'partition')} would fail: do not start this version; nothing was written"
        if failed
        else "this version can take over every partition; nothing was written"
    )


def _tried_document(trial: UpgradeTrial) -> dict[str, object]:
    error = trial.error
    return {
        "partition": trial.partition,
        "batch": trial.batch,
        "schema_version": trial.schema_version,
        "entries": trial.entries,
        "upgraded": trial.upgraded,
        "error": error and {"kind": type(error).__name__, "message": error.message, "hint": error.hint, **error.facts},
    }


def _lines(file: Path) -> list[bytes]:
    if str(file) == "-":
        return sys.stdin.buffer.readlines()
    try:
        return file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="name a file of JSON lines") from error


def _print_patches(patches: Sequence[Patch], *, stderr: bool) -> None:
    from snapreplay.service.decisions.patch import with_timers
    from snapreplay.state.correction import shown

    rows = []
    for each in patches:
        timers = each.timers
        for one in each.corrections:
            becomes = f"{shown(one.value)}{with_timers(timers.get(one.line, ()))}"
            rows.append((each.partition, one.place, shown(one.expected), becomes, one.reason))
    out = console(stderr=stderr)
    out.print(table(("partition", "entry", "is", "becomes", "reason"), rows, right="partition"))
    out.print(
        "A full snapshot of the corrected state is written. A running owner is fenced for as long as that takes. No"
        " outputs are written.",
        soft_wrap=True,
    )


async def inputs(
    app: options.Loaded,
    *,
    start: options.InputFrom = "",
    retire: options.Retire = None,
    leave_records: options.LeaveRecords = False,
    reason: options.Reason = "",
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Change the inputs of an app to those that its code declares: add new ones, retire the others.

    Run it with the new version of the app, before that version starts. Partitions that are changed already are
    skipped."""
    from snapreplay.service.decisions.inputs import Wish, carry_out, propose

    wish = Wish(start, tuple(retire or ()), leave_records, reason)
    proposed = await propose(app, settings, cluster_of(settings), wish)
    due = [each for each in proposed if each.change]
    asks = bool(due) and must_ask(yes=yes, dry_run=dry_run)
    if asks or output is Format.TABLE:
        _print_inputs(proposed, stderr=output is Format.JSON)
    if asks:
        confirm("Change these inputs?")
    for each in due:
        done = None if dry_run else await carry_out(each)
        number = each.context.partition
        document = {"partition": number, "changes": each.change.lines, **_place(done), "decision": _decision(done)}
        changed = f"partition {number}: changed by increment {done.increment.batch} at {done.offset}" if done else ""
        _say(output, document, changed)
    if due and output is Format.TABLE:
        again = look_again(due[0].context.partition)
        print("dry run: nothing was written" if dry_run else f"now start this version, or run {again}")


def _print_inputs(proposed: Sequence[Proposed], *, stderr: bool) -> None:
    tell = note if stderr else print
    for each in proposed:
        found = each.last.increment
        listed = ", ".join(f"{name} at {at}" for name, at in sorted(found.positions.items()))
        tell(f"partition {each.context.partition}, batch {found.batch}: {listed}")
        for line in each.change.lines or ["no change"]:
            tell(f"  - {line}")
    if any(each.change for each in proposed):
        tell("A running owner is fenced. The state stays as it is, and no outputs are written.")


async def create(
    app: options.Loaded,
    name: options.SavepointName,
    *,
    reason: options.SavepointReason = "",
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Save the state of each partition, after its last committed batch, under a name.

    The app may run. The partitions are saved at different moments."""
    from snapreplay.service.decisions.savepoints import create

    _print_parts(await create(app, settings, cluster_of(settings), name, reason), output)


async def list_(app: options.Loaded, *, settings: options.OfCluster, output: options.Output = Format.TABLE) -> None:
    """List the savepoints of an app, also those that cannot be used, and why."""
    from snapreplay.service.decisions.savepoints import find
    from snapreplay.service.topics.savepoint_names import names_of

    cluster = cluster_of(settings)
    found = [await find(app.app_id, name, cluster, prove=False) for name in await names_of(app.app_id, cluster)]
    if output is Format.JSON:
        for each in found:
            print_json(each)
        return
    columns = ("savepoint", "usable", "partitions", "entries", "saved at", "by", "reason")
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
    from snapreplay.service.decisions.savepoints import find, refuse_unusable

    found = await find(app.app_id, name, cluster_of(settings), prove=True)
    _print_parts(found, output)
    refuse_unusable(found)


async def drop(
    app: options.Loaded, name: options.SavepointName, *, yes: options.Yes = False, settings: options.OfCluster
) -> None:
    """Delete a savepoint permanently. Apps that began with it keep their state."""
    from snapreplay.service.decisions.savepoints import drop

    if must_ask(yes=yes, dry_run=False):
        confirm(f"Delete savepoint {name} of app {app.app_id}?")
    print("\n".join(f"deleted {topic}" for topic in await drop(app.app_id, name, cluster_of(settings))))


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
    """Set a stopped app back to a savepoint, or to an empty state. Its present state is discarded.

    Records after the new position are processed again, and their outputs are written a second time."""
    from snapreplay.service.decisions.reset import ResetTarget, carry_out, propose

    asks = must_ask(yes=yes, dry_run=dry_run)
    proposed = await propose(app, settings, cluster_of(settings), ResetTarget(savepoint, start), reason)
    due = [each for each in proposed if not each.is_done]
    if asks or output is Format.TABLE:
        tell = print if output is Format.TABLE else note
        for each in proposed:
            said = "is there already" if each.is_done else each.decision["decided"]
            tell(f"partition {each.context.partition}, batch {each.last.increment.batch}: {said}")
    if asks and due:
        confirm("Discard the present state?")
    for each in due:
        begun = None if dry_run else await carry_out(each)
        number = each.context.partition
        document = {"partition": number, "decision": dict(each.decision), "positions": each.before.positions}
        _say(output, document | _begun(begun), f"partition {number}: reset by {_written(begun)}" if begun else "")
    if dry_run and output is Format.TABLE:
        print("dry run: nothing was written")


async def delete(
    app_id: options.AppId,
    *,
    dead_letters: options.DeadLetters = False,
    savepoints: options.AllSavepoints = False,
    dry_run: options.DryRun = False,
    yes: options.YesOfApp = "",
    settings: options.OfCluster,
    output: options.Output = Format.TABLE,
) -> None:
    """Delete the topics and groups of an app. Its inputs and outputs stay, and so do other apps.

    Refused while a process of the app is a member of its group."""
    from snapreplay.service.decisions.deletion import carry_out, propose

    if yes and yes != app_id:
        raise UsageError(f"--yes {yes} is not the app id {app_id}", hint=f"to delete {app_id}: `--yes {app_id}`")
    asks = must_ask(yes=bool(yes), dry_run=dry_run)
    cluster = cluster_of(settings)
    deletion = await propose(app_id, cluster, dead_letters=dead_letters, savepoints=savepoints)
    if asks or output is Format.TABLE:
        tell = print if output is Format.TABLE else note
        for verb, topics in (("deletes", deletion.topics), ("keeps", deletion.kept)):
            for topic in topics:
                tell(f"{verb} {topic}")
    if asks:
        confirm("Type the app id to delete it", app_id)
    if not dry_run:
        await carry_out(deletion, cluster)
    document = {"deleted": list(deletion.topics), "kept": list(deletion.kept), "dry_run": dry_run}
    deleted = f"deleted app {app_id}: {counted(len(deletion.topics), 'topic')}"
    _say(output, document, "dry run: nothing was deleted" if dry_run else deleted)


def _print_parts(savepoint: SavepointShown, output: Format) -> None:
    if output is Format.JSON:
        print_json(savepoint)
        return
    columns = ("partition", "batch", "entries", "digest", "positions", "saved at", "problem")
    rows = [map(_cell, structs.astuple(part)) for part in savepoint.partitions]
    console().print(table(columns, rows, right="partition batch entries"))


def _cell(value: object) -> object:
    return ", ".join(f"{key}: {each}" for key, each in value.items()) if isinstance(value, dict) else value


def _row(found: SavepointShown) -> list[object]:
    entries = sum(part.entries or 0 for part in found.partitions)
    kept_at = max((part.kept_at for part in found.partitions if part.kept_at), default=None)
    usable = found.problems[0] if found.problems else True
    return [found.savepoint, usable, len(found.partitions), entries, kept_at, found.by, found.reason]
