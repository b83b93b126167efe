"""Upgrades of stored entries to another `schema_version`, as an app declares them. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from snapreplay.app.code_version import place_of
from snapreplay.errors import UsageError
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.fields import StoreFields
from snapreplay.state.keys import KeyCodec
from snapreplay.state.stores import maps_of
from snapreplay.state.values import ValueCodec

OK = TypeVar("OK")
OV = TypeVar("OV")
Entry = tuple[Any, Any] | tuple[str, Any, Any]
UpgradeFunction = Callable[[OK, OV], Entry | Iterable[Entry] | None]
"""Makes the entries that an old entry becomes."""


class DeclaredUpgrade(NamedTuple):
    """A declared upgrade of one store.

    Attributes:
        store: "default" in a state of one map.
        keys: codec of the stored keys; None: that of the present store.
        values: codec of the stored values.
        function: (old key, old value) → None, one entry, or an iterable of entries. An entry is (key, value), or
            (store, key, value).
    """

    from_schema: int
    store: str
    keys: KeyCodec[Any] | None
    values: ValueCodec[Any]
    function: UpgradeFunction[Any, Any]


def check_upgrade_function(function: Callable[..., object]) -> None:
    """Raise UsageError if it could not be called with an old key and an old value."""
    if not callable(function):
        raise UsageError(f"upgrade {function!r} is not callable")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"upgrade {place_of(function)} is async", hint="use def: all that it needs is in the entry")
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"upgrade {place_of(function)} cannot be called with (key, value): {error}") from error


def check_leads_on(app_id: str, from_schema: int, schema_version: int) -> None:
    """Raise UsageError if the app's schema_version is not a later one."""
    if from_schema >= schema_version:
        raise UsageError(
            f"{app_id}: @app.upgrade(from_schema={from_schema}) leads nowhere: the app has schema_version"
            f" {schema_version}",
            hint=f"raise it: `App(…, schema_version={from_schema + 1})`",
        )


def check_upgrades(app_id: str, upgrades: Collection[DeclaredUpgrade], state: object) -> None:
    """Raise UsageError if the state cannot be upgraded so: it is no map, or has no such store."""
    known = {name or DEFAULT_STORE for name in maps_of(state)}
    if upgrades and not known:
        raise UsageError(
            f"{app_id}: @app.upgrade is for a state of maps, and {type(state).__name__} is none",
            hint="let restore() of the state read the older entries",
        )
    retired = set(getattr(state, "retired", ())) | {DEFAULT_STORE}
    for each in upgrades:
        if each.keys is not None and each.store not in known | retired:
            raise UsageError(
                f"{app_id}: upgrade {place_of(each.function)} is for store {each.store!r}, which the state"
                f" neither has nor retires; it has {', '.join(sorted(known))}",
                hint=f"correct the name; or say that the state had it: `Stores(…, retired=({each.store!r},))`",
            )
        if each.keys is None and each.store not in known:
            raise UsageError(
                f"{app_id}: upgrade {place_of(each.function)} is for store {each.store}, which the state does"
                " not have any more, so the type of its keys is not known",
                hint=f"say it: `@app.upgrade({each.from_schema}, …, key=str, store={each.store!r})`",
            )


def upgraded_stores(places: Collection[tuple[int, str]], from_schema: int, schema_version: int) -> frozenset[str]:
    """Return the stores whose entries are upgraded if they were written with `from_schema`.

    Each upgrade leads to the next schema_version. Empty: one of them is missing, or there is nothing to do.

    Args:
        places: the schema_version and store that each upgrade is from.
        schema_version: of the app.
    """
    numbers = {number for number, _ in places}
    if not numbers.issuperset(range(from_schema, schema_version)):
        return frozenset()
    return frozenset(store for number, store in places if from_schema <= number < schema_version)


def fields_read(
    declared: Mapping[str, StoreFields], upgrades: Mapping[tuple[int, str], StoreFields], from_schema: int
) -> dict[str, StoreFields]:
    """Return the fields, by store, that an app reads in a state of `from_schema`: those of the first upgrade of a
    store, or those that are declared."""
    older = {
        store: upgrades[number, store] for number, store in sorted(upgrades, reverse=True) if number >= from_schema
    }
    return {**declared, **older}
