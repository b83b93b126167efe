"""Counts for messages: "1 offset is gone", "2 offsets are gone". Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SOME = 3
LINES = 10


def counted(count: int, noun: str) -> str:
    """Return the number with its noun, such as "1 entry", "1,024 entries". `noun` is singular and English."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{count:,} {noun}es"
    if noun.endswith("y") and noun[-2:-1] not in set("aeiou"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}s"


def counted_or_no(count: int, noun: str) -> str:
    """Return the number with its noun, and a word for none: "no findings", "1 finding", "2 findings"."""
    text = counted(count, noun)
    return text if count else f"no {text.removeprefix('0 ')}"


def some(names: Iterable[str]) -> str:
    """Return the names in their order, or the first three and how many there are besides: for a line that is read."""
    every = list(names)
    more = len(every) - SOME
    return ", ".join(every) if more < 2 else f"{', '.join(every[:SOME])} and {more:,} more"


def lines_of(lines: Sequence[str]) -> str:
    """Return them one below the other, indented, or the first ten and how many there are besides."""
    more = len(lines) - LINES
    return "".join(f"\n  {each}" for each in [*lines[:LINES], *([f"and {more} more"] if more > 0 else [])])


def counted_are(count: int, noun: str) -> str:
    """Return the number with its noun and the verb: "1 offset is", "2 offsets are"."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"
