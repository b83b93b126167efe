"""The mutants: the `*.txt` beside this file, by the part of the scheme that they break.

A paragraph is a mutant: its name and the rule that it breaks; the tests that should notice, as arguments for pytest;
and a hunk for each place that is changed. See `Patch` for what a hunk says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.patch import Patch

PARTS = (
    "recoveries",
    "commits",
    "snapshots",
    "ownerships",
    "identities",
    "pointers",
    "seals",
    "losses",
    "times",
    "http",
)


def _mutants(text: str) -> Iterator[Mutant]:
    _heading, *paragraphs = text.strip().split("\n\n")
    for paragraph in paragraphs:
        head, *hunks = paragraph.split("\n@ ")
        title, _, tests = head.partition("\n")
        name, _, rule = title.partition(": ")
        yield Mutant(name, rule, tuple(tests.split()), tuple(map(_patch, hunks)))


def _patch(hunk: str) -> Patch:
    where, *lines = hunk.split("\n")
    old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
    return Patch(where, old, new)


GALLERY = tuple(
    mutant
    for part in PARTS
    for mutant in _mutants(Path(__file__).with_name(f"{part}.txt").read_text())
)
