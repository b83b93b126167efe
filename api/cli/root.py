"""The command tree. Commands import what they need when they run: `version` needs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from snapreplay.api.cli.author_commands import dev, new
from snapreplay.api.cli.exits import Judging, code_of, hint_of
from snapreplay.api.cli.listing_commands import group_changes, history, operations, processes, snapshots
from snapreplay.api.cli.options import as_typed
from snapreplay.api.cli.output import print_error
from snapreplay.api.cli.record_commands import feed, redrive, tail
from snapreplay.api.cli.remote_commands import (
    ZeroOrOne,
    adopt,
    cancel,
    config,
    drain,
    drill,
    health,
    lag,
    pause,
    plan,
    restore_status,
    resume,
    retry,
    trigger_snapshot,
    undrain,
)
from snapreplay.api.cli.repair_commands import accept, doctor, inputs, patch, upgrade
from snapreplay.api.cli.savepoint_commands import create, delete, drop, list_, reset, show
from snapreplay.api.cli.service_commands import ensure, init, run
from snapreplay.api.cli.spark_commands import audit, compact, draft_upgrade
from snapreplay.api.cli.state_commands import get, scan
from snapreplay.errors import SnapreplayError
from snapreplay.service.kafka.client_log import CLIENT_LOGGER, summarise_client_log


class _Group(TyperGroup):
    """Prints an error of ours as one block and ends with its exit code, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SnapreplayError as error:
            if ctx.params["debug"]:
                raise
            print_error(error.message, hint_of(error))
            raise typer.Exit(code_of(error)) from error


app = typer.Typer(
    cls=_Group,
    help="Exactly-once, crash-proof in-memory state for Kafka programs in Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(*, debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    summarise_client_log()
    if not debug and logging.lastResort is not None:
        # The Kafka client's lines are for commands with a log. In any other one, an error of ours says what they do.
        logging.lastResort.addFilter(lambda record: record.name.partition(".")[0] != CLIENT_LOGGER)


def version() -> None:
    """Print the version."""
    from snapreplay import __version__

    print(f"snapreplay {__version__}")


# In the order in which a user needs them, as `--help` shows them.
_COMMANDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Develop an app": (new, dev, feed, tail),
    "Run an app on a cluster": (init, run),
    "Operate a running app": (
        *(restore_status, plan, lag, get, scan, trigger_snapshot, adopt, retry, pause, resume, drill),
        *(processes, operations, snapshots, history, group_changes),
        *(cancel, drain, undrain, health, config, inputs, upgrade, accept, patch, redrive, doctor, reset, delete),
    ),
    "Prove and compact": (audit, compact, draft_upgrade),
    "Other": (version,),
}
# Others read their exit codes.
_CLASSES = {
    health: ZeroOrOne,
    doctor: Judging,
    audit: Judging,
    compact: Judging,
    draft_upgrade: Judging,
    upgrade: Judging,
}
for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        app.command(cls=_CLASSES.get(_function), rich_help_panel=_panel)(as_typed(_function))

_topics = typer.Typer(help="`topics ensure`: create or check the topics of an app.", no_args_is_help=True)
_topics.command("ensure")(as_typed(ensure))
app.add_typer(_topics, name="topics", rich_help_panel="Run an app on a cluster")

_savepoint = typer.Typer(help="Keep the state of an app under a name: create, list, show, drop.", no_args_is_help=True)
_savepoint.command("create")(as_typed(create))
_savepoint.command("list")(as_typed(list_))
_savepoint.command("show")(as_typed(show))
_savepoint.command("drop")(as_typed(drop))
app.add_typer(_savepoint, name="savepoint", rich_help_panel="Operate a running app")
