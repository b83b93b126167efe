"""Results to standard output (tables or JSON), everything else to standard error.

rich itself respects NO_COLOR and non-terminals; piped tables get more than 80 columns.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_COLUMNS = 200


class Format(StrEnum):
    """How a command prints its result."""

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
    """One document per line, so that a stream of them can be read line by line."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def note(line: str) -> None:
    """Print a line for people that is not the result."""
    print(line, file=sys.stderr, flush=True)


def print_error(message: str, hint: str) -> None:
    """Print one block on standard error: what is wrong, and what to do."""
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    if hint:
        out.print(Text.assemble((" hint: ", "bold cyan"), hint), soft_wrap=True)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], right: str = "") -> Table:
    """`right` names the columns, blank-separated, that are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right.split() else "left")
    for row in rows:
        made.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    return made
