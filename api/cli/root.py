"""The command tree. Commands import what they need when they run: `version` needs nothing."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, Signature, getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from snapreplay.api.cli import asking_commands as asking
from snapreplay.api.cli.asking_commands import get, scan
from snapreplay.api.cli.author_commands import dev, new
from snapreplay.api.cli.decision_commands import (
    accept,
    create,
    delete,
    doctor,
    drop,
    inputs,
    list_,
    patch,
    reset,
    show,
    upgrade,
)
from snapreplay.api.cli.operation_commands import VERBS
from snapreplay.api.cli.options import Argument, ErrorName, carry_out, options_of
from snapreplay.api.cli.output import ExitCode, OperationRefused, code_of, hint_of, message_of, note, print_error
from snapreplay.api.cli.record_commands import feed, redrive, tail
from snapreplay.api.cli.running import ensure, init, run
from snapreplay.api.cli.spark_commands import audit, compact
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.sources import environment_name
from snapreplay.service.kafka.client_log import CLIENT_LOGGER, summarise_client_log


class _Group(TyperGroup):
    """Prints a SnapreplayError as one block and ends with its exit code, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SnapreplayError as error:
            if ctx.params["debug"]:
                raise
            print_error(message_of(error), hint_of(error))
            raise typer.Exit(code_of(error)) from error


@contextmanager
def refused_unless_it_runs() -> Iterator[None]:
    """Print any error and end with REFUSED, in commands whose code 1 means findings.

    For a script the reason makes no difference: the command could not run.
    """
    try:
        yield
    except typer.Exit:  # it has judged
        raise
    except SnapreplayError as error:
        print_error(message_of(error), hint_of(error))
        raise typer.Exit(ExitCode.REFUSED) from error
    except Exception as error:  # Python would end with 1, which means findings here
        traceback.print_exc()
        raise typer.Exit(ExitCode.REFUSED) from error


class _Judging(TyperCommand):
    """A command whose code 1 means findings."""

    def invoke(self, *arguments: Any) -> Any:
        with refused_unless_it_runs():
            return super().invoke(*arguments)


class _ZeroOrOne(TyperCommand):
    """Ends with 1 also for a wrong command line and wrong settings, because a container runtime reads the code."""

    def parse_args(self, *arguments: Any) -> list[str]:
        try:
            return super().parse_args(*arguments)
        except typer.Exit:  # --help
            raise
        except Exception as error:  # typer does not export the class that it raises for a wrong call
            raise OperationRefused(
                getattr(error, "format_message", error.__str__)(),
                hint="see `snapreplay health --help`",
                code=ExitCode.FINDINGS,
            ) from error

    def invoke(self, *arguments: Any) -> Any:
        try:
            return super().invoke(*arguments)
        except SnapreplayError as error:
            note(str(error))
            raise typer.Exit(ExitCode.FINDINGS) from error


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
        # The Kafka client's lines are for commands with a log. In any other one, our error says what they do.
        logging.lastResort.addFilter(lambda record: record.name.partition(".")[0] != CLIENT_LOGGER)


def explain(name: ErrorName) -> None:
    """Explain an error: what it means, what the partition does, and what is safe meanwhile."""
    from snapreplay.api.cli.explaining import explained

    print(explained(name))


def version() -> None:
    """Print the version, and which engine runs."""
    from snapreplay import __version__, engine

    why = f" ({engine.why_pure})" if engine.why_pure else ""
    print(f"snapreplay {__version__}\nengine: {engine.name}{why}")


def _as_typed(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a command's function as typer calls it: with the options of the table, and its result as exit code."""
    typed = [each.replace(annotation=_of_typer(each)) for each in options_of(function)]

    def call(**given: Any) -> None:
        raise typer.Exit(carry_out(function, given))

    call.__name__, call.__doc__ = function.__name__, _prose(function)
    call.__annotations__ = {each.name: each.annotation for each in typed}
    call.__signature__ = Signature(typed)  # type: ignore[attr-defined]  # a function has none for mypy; typer reads it
    return call


def _prose(function: Callable[..., Any]) -> str:
    """Return the help of a command. Typer breaks its lines itself, and keeps each break that is there."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", getdoc(function) or "")


def _of_typer(parameter: Parameter) -> Any:
    kind, (option,) = parameter.annotation.__origin__, parameter.annotation.__metadata__
    if isinstance(option, Argument):
        return Annotated[kind, typer.Argument(metavar=option.metavar, help=option.help, min=option.least)]
    limits: dict[str, Any] = {"min": option.least, "max": option.most}
    given = f" Setting {option.setting}, {environment_name(option.setting)}." if option.setting else ""
    names = option.names.split()
    return Annotated[kind, typer.Option(*names, metavar=option.metavar, help=f"{option.help}{given}", **limits)]


# In the order in which a user needs them, as `--help` shows them.
_COMMANDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Develop an app": (new, dev, feed, tail),
    "Run an app on a cluster": (init, run),
    "Operate a running app": (
        *(asking.restore_status, asking.plan, asking.lag, get, scan),
        *VERBS.values(),
        *(asking.processes, asking.operations, asking.snapshots, asking.history),
        *(asking.health, inputs, upgrade, accept, patch, redrive, doctor, reset, delete),
    ),
    "Prove and compact": (audit, compact),
    "Other": (explain, version),
}
# Others read their exit codes.
_CLASSES: dict[Callable[..., Any], type[TyperCommand]] = {
    asking.health: _ZeroOrOne,
    **dict.fromkeys((doctor, audit, compact, upgrade), _Judging),
}
for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        app.command(cls=_CLASSES.get(_function), rich_help_panel=_panel)(_as_typed(_function))

_topics = typer.Typer(help="`topics ensure`: create or check the topics of an app.", no_args_is_help=True)
_topics.command("ensure")(_as_typed(ensure))
app.add_typer(_topics, name="topics", rich_help_panel="Run an app on a cluster")

_savepoint = typer.Typer(help="Keep the state of an app under a name: create, list, show, drop.", no_args_is_help=True)
for _function in (create, list_, show, drop):
    _savepoint.command(_function.__name__.rstrip("_"))(_as_typed(_function))
app.add_typer(_savepoint, name="savepoint", rich_help_panel="Operate a running app")
