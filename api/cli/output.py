"""Results to standard output (tables or JSON), everything else to standard error.

rich itself respects NO_COLOR and non-terminals; piped tables get more than 80 columns.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from errno import EISDIR
from os import strerror
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING

from snapreplay.api.cli.logs import is_json
from snapreplay.errors import UsageError

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
    """Print one document per line, so that a stream of them can be read line by line."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def note(line: str) -> None:
    """Print a line for people that is not the result. A full or closed standard error ends nothing."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


@contextmanager
def written_whole(path: Path | None) -> Iterator[IO[str] | None]:
    """Provide a file to write into. It takes its name only at the end: nobody sees half of it, and after a failure the
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
        made.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    return made


def confirm(question: str, answer: str = "") -> None:
    """Ask; without a yes, or the answer that is given, the command ends here, as refused."""
    import typer

    from snapreplay.api.cli.exits import ExitCode

    if not (typer.prompt(question, err=True) == answer if answer else typer.confirm(question, err=True)):
        note("nothing was changed")
        raise typer.Exit(ExitCode.REFUSED)


def must_ask(*, yes: bool, dry_run: bool) -> bool:
    """Say whether to ask first, or raise UsageError: there is nobody to ask."""
    asks = not (yes or dry_run)
    if asks and not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask whether it is to be done", hint="look at `--dry-run`, then run with `--yes`"
        )
    return asks
