"""Finds lost changes: a default of `state.get` that a handler changed in place and did not store."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from snapreplay.app.record import InputRecord, id_of
from snapreplay.state.map import MapState
from snapreplay.state.stores import maps_of


class LostChange(AssertionError):
    """A handler changed the default that `state.get` returned, and did not store it."""


class DefaultWatch:
    """Watches the maps of a state."""

    def __init__(self, view: object) -> None:
        self._maps = [
            (f"state.{name}" if name else "state", each, _watched(each)) for name, each in maps_of(view).items()
        ]

    def check(self, records: Sequence[InputRecord]) -> None:
        """Check after these records were applied. Raises LostChange: a default was changed and its key is missing."""
        for place, view, defaults in self._maps:
            for key, default, before in defaults:
                if default != before and key not in view:
                    where = f"up to {id_of(records[-1])}" if records else "a timer"
                    raise LostChange(
                        f"{where}: {place}.get({key!r}, …) returned its default {before!r}, which was changed to"
                        f" {default!r}, and the change is lost: use {place}[key] with MapState(default=…) or"
                        f" {place}.setdefault, or store the value"
                    )
        self.forget()

    def forget(self) -> None:
        for _, _, defaults in self._maps:
            defaults.clear()


def _watched(view: MapState[Any, Any]) -> list[tuple[Any, Any, Any]]:
    """Return a list of each missing key, its default, and a copy of that, which `get` of this map keeps up from now on.
    Only the object's class changes: handlers may test for MapState, so a proxy would not do."""
    defaults: list[tuple[Any, Any, Any]] = []
    plain: Any = type(view)

    def get(self: Any, key: Any, default: Any = None) -> Any:
        value = plain.get(self, key, default)
        if default is not None and value is default:
            defaults.append((key, default, copy.deepcopy(default)))
        return value

    view.__class__ = type(plain.__name__, (plain,), {"get": get, "__module__": plain.__module__})
    return defaults
