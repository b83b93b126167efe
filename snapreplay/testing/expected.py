"""What a fold by hand expects of the state and the outputs of an app, and where they differ from it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.stores import maps_of


class Expected(msgspec.Struct, frozen=True):
    """The expected result, computed by a function of your own, for `RealHarness.compare`.

    Attributes:
        state: the entries of all partitions; for `Stores`, those of each store by name. None: the state is not
            compared. Otherwise every store is compared.
        outputs: topic → (key, value) of each output; those of one key in the order sent. Other topics are not
            compared.
    """

    state: Mapping[Any, Any] | None = None
    outputs: Mapping[Topic[Any, Any], Iterable[tuple[Any, Any]]] = {}


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


def state_difference(states: Iterable[object], expected: Mapping[Any, Any], everywhere: Collection[str] = ()) -> str:
    """Say which key differs first in the states of all partitions, with both values; empty if none does. Stores that
    are `everywhere` must have the expected entries in each partition.

    Raises:
        UsageError: a state is not made of maps, several partitions have the same key, or a store is not in the states.
    """
    copies: list[tuple[str, Mapping[Any, Any]]] = []
    stores = _entries(states, everywhere, copies)
    known = dict.fromkeys(name for name, _ in (*copies, *stores.items()))
    if "" in known:
        expected = {"": expected}
    if unknown := sorted(set(expected) - set(known)):
        raise UsageError(f"the state has no store {unknown[0]!r}", hint=f"its stores are {', '.join(known)}")
    for name, found in (*copies, *stores.items()):
        if difference := _entry_difference(found, expected.get(name, {})):
            return f"store {name!r}, {difference}" if name else difference
    return ""


def _entries(
    states: Iterable[object], everywhere: Collection[str], copies: list[tuple[str, Mapping[Any, Any]]]
) -> dict[str, dict[Any, Any]]:
    """Return the entries of all partitions, by the name of the store; that of a single map is empty. The stores that
    are `everywhere` are added to `copies` instead, each partition's."""
    found: dict[str, dict[Any, Any]] = {}
    for state in states:
        for name, entries in maps_of(state).items():
            if (name or DEFAULT_STORE) in everywhere:
                copies.append((name, entries))
                continue
            of_all = found.setdefault(name, {})
            if twice := of_all.keys() & entries.keys():
                raise UsageError(
                    f"several partitions have an entry with key {min(map(repr, twice))}", hint=_BY_YOURSELF
                )
            of_all.update(entries)
    return found


_BY_YOURSELF = "compare `await harness.state(partition)` of each partition yourself"


def _entry_difference(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    for key in dict.fromkeys((*expected, *found)):
        here, there = found.get(key, _MISSING), expected.get(key, _MISSING)
        if here != there:
            return f"key {key!r}: {here!r:.500}, expected {there!r:.500}"
    return ""


def output_difference(found: Iterable[tuple[Any, Any]], expected: Iterable[tuple[Any, Any]]) -> str:
    """Say which output of which key differs first, with both values; empty if none does."""
    of_found, of_expected = _by_key(found), _by_key(expected)
    for key in dict.fromkeys((*of_expected, *of_found)):
        values = zip_longest(of_found.get(key, ()), of_expected.get(key, ()), fillvalue=_MISSING)
        for number, (here, there) in enumerate(values, 1):
            if here != there:
                return f"key {key!r}, output {number}: {here!r:.500}, expected {there!r:.500}"
    return ""


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    values: dict[Any, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
