"""Finds lost changes: a default returned by `state.get(key, default)` and then changed in place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from snapreplay.app.record import InputRecord, id_of
from snapreplay.state.map import MapState
from snapreplay.state.stores import maps_of


class LostChange(AssertionError):
    """The handler changed a default that `get` returned and did not store it."""


class DefaultWatch:
    """Watches the maps of a state; does nothing for a state that is no map."""

    def __init__(self, view: object) -> None:
        self._maps = [
            (f"state.{name}" if name else "state", each, _watched(each))
            for name, each in maps_of(view).items()
        ]

    def check(self, records: Sequence[InputRecord]) -> None:
        """Check after these records were applied.

        Raises:
            LostChange: a default was changed in place and its key is still missing.
        """
        for place, view, handed_out in self._maps:
            for key, default, before in handed_out:
                if default != before and key not in view:
                    where = f"up to {id_of(records[-1])}" if records else "a timer"
                    raise LostChange(
                        f"{where}: {place}.get({key!r}, …) returned its"
                        f" default {before!r}, which was changed to {default!r}, and the change is lost:"
                        f" use {place}[key] with MapState(default=…) or {place}.setdefault, or store the value"
                    )
        self.forget()

    def forget(self) -> None:
        for _, _, handed_out in self._maps:
            handed_out.clear()


def _watched(view: MapState[Any, Any]) -> list[tuple[Any, Any, Any]]:
    """Changes the class of this object only. A proxy would not do, because handlers may test for MapState."""
    handed_out: list[tuple[Any, Any, Any]] = []
    plain: Any = type(view)

    def get(self: Any, key: Any, default: Any = None) -> Any:
        value = plain.get(self, key, default)
        if default is not None and value is default:
            handed_out.append((key, default, copy.deepcopy(default)))
        return value

    view.__class__ = type("Watched", (plain,), {"get": get})
    return handed_out
