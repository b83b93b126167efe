"""What a fold by hand expects of the state and the outputs of an app, and where they differ from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from snapreplay.app.topic import Topic


class Expected(msgspec.Struct, frozen=True):
    """The result of a fold by hand, for `RealHarness.compare`. What is left out is not compared.

    Attributes:
        state: the entries of all partitions; of `Stores`: of each store, by its name.
        outputs: topic → (key, value) of each output; those of one key in the order in which they are sent.
    """

    state: Mapping[Any, Any] | None = None
    outputs: Mapping[Topic[Any, Any], Iterable[tuple[Any, Any]]] = {}


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


def entry_difference(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    """Say which key differs first, in the order of `expected`, with both values; empty if none does."""
    for key in dict.fromkeys((*expected, *found)):
        here, there = found.get(key, _MISSING), expected.get(key, _MISSING)
        if here != there:
            return f"key {key!r}: {here!r:.500}, expected {there!r:.500}"
    return ""


def output_difference(found: Iterable[tuple[Any, Any]], expected: Iterable[tuple[Any, Any]]) -> str:
    """Say the same of outputs, of which each key has a sequence."""
    of_found, of_expected = _by_key(found), _by_key(expected)
    for key in dict.fromkeys((*of_expected, *of_found)):
        values = zip_longest(of_found.get(key, ()), of_expected.get(key, ()), fillvalue=_MISSING)
        for number, (here, there) in enumerate(values, 1):
            if here != there:
                return f"key {key!r}, output {number} of it: {here!r:.500}, expected {there!r:.500}"
    return ""


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    values: dict[Any, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
