"""Cuts lists into pages: of so many rows, behind the last one of the page before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from snapreplay.api import problems

AFTER = "`next_after` of the answer before: what comes behind it."
NEXT = "Given as `after`, it leads to the next page; null: there is none."
R = TypeVar("R")
N = TypeVar("N", str, int)


def cut(rows: Sequence[R], name: Callable[[R], N], after: N | None, limit: int) -> tuple[Sequence[R], N | None]:
    """Return the page behind the row of this name (None: the first one), and the name that leads to the next page;
    None: there is none.

    Raises:
        ProblemError: no row has this name (any more).
    """
    start = 0
    if after is not None:
        start = next((place for place, each in enumerate(rows, 1) if name(each) == after), -1)
        if start < 0:
            raise problems.unknown_after()
    page = rows[start : start + limit]
    return page, name(page[-1]) if start + limit < len(rows) else None
