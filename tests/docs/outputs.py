"""Reads what a page shows below a line that is typed, and says whether that is what the line prints."""

import re

from tests.docs.snippets import blocks, typed

_NUMBER = re.compile(r"\b\d+:(?=[\da-f:]*[a-f])[\da-f:]+…?|\b(?=[a-f]*\d)[\da-f]{4,}\b…?|\d[\d,.:-]*")
"""A digest, an id, a number or a time."""


def shape(said: str) -> str:
    """Leave words and columns: no number, no time, no id, no name of a file, no line below a head."""
    said = _NUMBER.sub("#", re.sub(r"[\w./-]+\.py\b", "FILE.py", said))
    return "\n".join(" ".join(line.split()) for line in said.splitlines() if line.strip(" ─"))


def shown(line: str) -> str:
    """Return the shape of what the pages show below this line: in its console, or in the block of text behind it."""
    every = blocks()
    (at,) = [n for n, each in enumerate(every) if each.language in ("sh", "console") and list(typed(each)) == [line]]
    found, after = every[at], every[at + 1]
    if found.language == "console":
        return shape(found.text.partition("\n")[2])
    assert after.language == "text", after.place
    return shape(after.text)


def not_printed(line: str, said: str) -> list[str]:
    """List what the pages show below this line, without what was printed, in any order."""
    printed = shape(said).splitlines()
    return [each for each in shown(line).splitlines() if not any(_fits(each, one) for one in printed)]


def _fits(wanted: str, said: str) -> bool:
    return re.fullmatch(re.escape(wanted).replace("…", ".*"), said) is not None
