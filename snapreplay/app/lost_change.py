"""Finds lost changes: a default returned by `state.get(key, default)` and then changed in place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from snapreplay.app.record import InputRecord
from snapreplay.state.map import MapState


class LostChange(AssertionError):
    """The handler changed a default that `get` returned and did not store it."""


class DefaultWatch:
    """Watches one `MapState`; does nothing for any other state."""

    def __init__(self, view: object) -> None:
        self._view: Any = view
        self._handed_out: list[tuple[Any, Any, Any]] = []
        if isinstance(view, MapState):
            _give_class(view, self._handed_out)

    def check(self, records: Sequence[InputRecord]) -> None:
        """Check after these records were applied.

        Raises:
            LostChange: a default was changed in place and its key is still missing.
        """
        for key, default, before in self._handed_out:
            if default != before and key not in self._view:
                last = records[-1]
                raise LostChange(
                    f"up to {last.topic}-{last.partition}-{last.offset}: state.get({key!r}, …) returned its"
                    f" default {before!r}, which was changed to {default!r}, and the change is lost:"
                    " use state[key] with MapState(default=…) or state.setdefault, or store the value"
                )
        self.forget()

    def forget(self) -> None:
        self._handed_out.clear()


def _give_class(view: MapState[Any, Any], handed_out: list[tuple[Any, Any, Any]]) -> None:
    """Changes the class of this object only. A proxy would not do, because handlers may test for MapState."""
    plain: Any = type(view)

    def get(self: Any, key: Any, default: Any = None) -> Any:
        value = plain.get(self, key, default)
        if default is not None and value is default:
            handed_out.append((key, default, copy.deepcopy(default)))
        return value

    view.__class__ = type("Watched", (plain,), {"get": get})
