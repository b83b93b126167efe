"""What a command prints and ends with: results to standard output (tables or JSON), everything else to standard error,
and the exit codes. Scripts rely on the codes: never renumber.

rich itself respects NO_COLOR and non-terminals; piped tables get more than 80 columns.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import IntEnum, StrEnum
from errno import EISDIR
from os import strerror
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING

import msgspec

from snapreplay.api.cli.logs import is_json
from snapreplay.devbroker.files import LocalBrokerUnavailable
from snapreplay.errors import (
    AccessError,
    Reaction,
    RebuildError,
    RetryableError,
    SnapreplayError,
    StopError,
    UsageError,
)
from snapreplay.service.core.kafka_errors import ClockRefused, NotAuthenticated, RefusedRecord
from snapreplay.service.signals import STOPPED_LATE

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table

PIPED_COLUMNS = 200


class Format(StrEnum):
    """The form in which a command prints its result."""

    TABLE = "table"
    JSON = "json"


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # If the parent closed it, it is None; then rich writes nothing, as print does.
    chosen = stream is None or stream.isatty() or "COLUMNS" in os.environ
    fixed = None if chosen else PIPED_COLUMNS
    return Console(stderr=stderr, width=fixed, highlight=False)


def print_json(value: object) -> None:
    """Print one document per line, so that a stream of them can be read line by line. Structs are objects."""
    print(json.dumps(value, ensure_ascii=False, default=msgspec.to_builtins), flush=True)


def note(line: str) -> None:
    """Print a line for people that is not the result. A full or closed standard error ends nothing."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


@contextmanager
def written_whole(path: Path | None) -> Iterator[IO[str] | None]:
    """Provide a file to write into. It takes its name only when it is complete, so that after a failure the
    one from before is still there.

    Raises:
        UsageError: it cannot be written; at the beginning, if that is known then.
    """
    if path is None:
        yield None
        return
    with _named(path):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, strerror(EISDIR))
        file = NamedTemporaryFile(  # noqa: SIM115 - it is closed below, before it is renamed
            "w", encoding="utf-8", errors="backslashreplace", dir=path.parent, prefix=f".{path.name}.", delete=False
        )
    unfinished = Path(file.name)
    try:
        yield file
        with _named(path):
            file.close()
            unfinished.chmod(0o644)
            unfinished.replace(path)
    finally:
        file.close()
        unfinished.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="name a file in a folder that exists and may be written to",
        ) from error


def print_error(message: str, hint: str) -> None:
    """Print one block on standard error: what is wrong, and what to do. In a log of JSON it is one more record."""
    from rich.text import Text

    if is_json():
        logging.getLogger("snapreplay").critical("%s (%s)", message, hint)
        return

    out = console(stderr=True)
    out.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    if hint:
        out.print(Text.assemble((" hint: ", "bold cyan"), hint), soft_wrap=True)


def moment(at: datetime | str) -> str:
    """Write a time in UTC for people: to the second. JSON has it in full."""
    return f"{str(at)[:19].replace(' ', 'T')}Z"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else moment(value) if isinstance(value, datetime) else str(value)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], right: str = "", whole: str = "") -> Table:
    """Make a table; `right` names the columns, blank-separated, that are aligned to the right, and `whole` those that
    stay in one line as long as others can be folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: JustifyMethod = "right" if column in right.split() else "left"
        # Folded, because a phase or an id that is cut is of no use.
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column in whole.split())
    for row in rows:
        made.add_row(*(Text(_cell(each)) for each in row))
    return made


def confirm(question: str, answer: str = "") -> None:
    """Ask; without a yes, or the answer that is given, the command ends here, as refused."""
    import typer

    if not (typer.prompt(question, err=True) == answer if answer else typer.confirm(question, err=True)):
        note("nothing was changed")
        raise typer.Exit(ExitCode.REFUSED)


def must_ask(*, yes: bool, dry_run: bool) -> bool:
    """Say whether to ask first, or raise UsageError: there is no terminal to ask at."""
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask for confirmation",
            hint="check the result of `--dry-run`, then run with `--yes`",
        )
    return asks


class ExitCode(IntEnum):
    OK = 0
    FINDINGS = 1  # the audit found something, an operation failed or was refused, not healthy
    REFUSED = 2  # the command, the app or the settings are wrong; nothing was started
    UNREACHABLE = 3  # no broker or no service answered, or there is no local broker
    OPERATOR = 4  # the topics are not as they must be; the hint says what to do
    CUT_OFF = STOPPED_LATE  # `run` had not stopped in time
    NOT_YET = 5  # no partition failed, but not all are live


class OperationRefused(SnapreplayError):
    """The service answered with an error, or the command cannot be carried out.

    Safe: The refused part was not started, and the service continues. If the message says that a part was started, or
    that this is not known, `snapreplay operations` shows it.
    """

    # `code` is the exit code of the command
    reaction = Reaction.REFUSE

    def __init__(self, message: str, *, hint: str, code: ExitCode, **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)
        self.code = code


def code_of(error: SnapreplayError) -> ExitCode:
    """Return the exit code for an error that ended a command."""
    match error:
        case OperationRefused():
            return error.code
        case NotAuthenticated() | RefusedRecord():  # the settings are wrong, as a rule, or the record
            return ExitCode.REFUSED
        case AccessError() | ClockRefused():
            return ExitCode.OPERATOR
        case RetryableError() | LocalBrokerUnavailable():  # a UsageError, but not the user's
            return ExitCode.UNREACHABLE
        case UsageError():
            return ExitCode.REFUSED
        case StopError() | RebuildError():
            return ExitCode.OPERATOR
        case _:
            return ExitCode.FINDINGS


def message_of(error: SnapreplayError) -> str:
    """Return the message, with the name for `snapreplay explain` where the class says more than the message."""
    return f"{error.message} [{type(error).__name__}]" if isinstance(error, StopError | RebuildError) else error.message


def hint_of(error: SnapreplayError) -> str:
    """Return the error's own hint, or what to check first if the cluster did not answer."""
    if not error.hint and isinstance(error, RetryableError):
        return "check that the cluster is up, and give its address with --bootstrap-servers"
    return error.hint
