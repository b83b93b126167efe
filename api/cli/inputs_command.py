"""The command that adds and retires inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.options import Loaded, OfCluster, Output
from snapreplay.api.cli.output import Format, console, must_ask, note, print_json
from snapreplay.app.ways import look_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snapreplay.service.core.search import FoundIncrement
    from snapreplay.service.decisions.inputs import Proposed


async def inputs(
    app: Loaded,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="earliest|latest|resume|TIME",
            help="Where a new input begins: at its start, at its end, where it was retired, or at a time.",
        ),
    ] = "",
    retire: Annotated[
        list[str] | None,
        typer.Option("--retire", metavar="TOPIC", help="Retire a topic of a pattern that does not exist any more."),
    ] = None,
    leave_records: Annotated[
        bool, typer.Option("--leave-records", help="Also retire an input with records that were not processed.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the log keeps it.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it is done.")] = False,
    settings: OfCluster,
    output: Output = Format.TABLE,
) -> None:
    """Make the inputs of an app those that its code declares: add new ones, retire the others.

    Run it with the new version of the app, before that version starts. A partition that is done is left alone."""
    from snapreplay.service.decisions.inputs import Wish, carry_out, propose
    from snapreplay.service.kafka.cluster import KafkaCluster

    wish = Wish(start, tuple(retire or ()), leave_records, reason)
    proposed = await propose(app, settings, KafkaCluster(settings), wish)
    due = [each for each in proposed if each.change]
    asks = bool(due) and must_ask(yes=yes, dry_run=dry_run)
    if asks or output is Format.TABLE:
        _print_inputs(proposed, stderr=output is Format.JSON)
    if asks and not typer.confirm("Change these inputs?", err=True):
        note("nothing was changed")
        raise typer.Exit(ExitCode.REFUSED)
    for each in due:
        done = None if dry_run else await carry_out(each)
        if output is Format.JSON:
            print_json(_inputs_document(each, done))
        elif done is not None:
            print(f"partition {each.context.partition}: changed by increment {done.increment.batch} at {done.offset}")
    if due and output is Format.TABLE:
        again = look_again(due[0].context.partition)
        print("dry run: nothing was written" if dry_run else f"now start this version, or run {again}")


def _print_inputs(proposed: Sequence[Proposed], *, stderr: bool) -> None:
    out = console(stderr=stderr)
    for each in proposed:
        found = each.last.increment
        listed = ", ".join(f"{name} at {at}" for name, at in sorted(found.positions.items()))
        out.print(f"partition {each.context.partition}, batch {found.batch}: {listed}", markup=False, soft_wrap=True)
        for line in each.change.lines or ["no change"]:
            out.print(f"  - {line}", markup=False, soft_wrap=True)
    if any(each.change for each in proposed):
        out.print("A running owner is fenced. The state stays as it is, and no outputs are written.", soft_wrap=True)


def _inputs_document(proposed: Proposed, done: FoundIncrement | None) -> dict[str, object]:
    return {
        "partition": proposed.context.partition,
        "changes": proposed.change.lines,
        "dry_run": done is None,
        "batch": done.increment.batch if done else None,
        "offset": done.offset if done else None,
        "decision": dict(done.increment.decision or {}) if done else None,
    }
