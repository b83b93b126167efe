"""The command tree. Commands import what they need when they run: `version` needs nothing."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from snapreplay.api.cli import (
    accept_command,
    audit_command,
    compact_command,
    dev_command,
    doctor_command,
    feed_command,
    new_command,
    redrive_command,
    remote_commands,
    service_commands,
    tail_command,
)
from snapreplay.api.cli.exits import code_of, hint_of
from snapreplay.api.cli.output import print_error
from snapreplay.errors import SnapreplayError
from snapreplay.service.kafka.client_log import summarise_client_log


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
def _root(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del debug  # read from the context when an error arrives
    summarise_client_log()


# In the order of `--help`.
new_command.register(app)
dev_command.register(app)
feed_command.register(app)
tail_command.register(app)
service_commands.register(app)
remote_commands.register(app)
accept_command.register(app)
redrive_command.register(app)
doctor_command.register(app)
audit_command.register(app)
compact_command.register(app)


@app.command(rich_help_panel="Other")
def version() -> None:
    """Print the version."""
    from snapreplay import __version__

    print(f"snapreplay {__version__}")
