"""A difference between a replay and what was recorded, narrowed to a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from snapreplay.app.fold import Applied
from snapreplay.counted import counted
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import Increment


def narrowed(
    increment: Increment, changes: Sequence[bytes], applied: Applied | None
) -> Callable[[], str]:
    """The first key whose value is another one, by the recorded changes."""

    def says() -> str:
        if increment.changes is None or applied is None:
            return "no changes were recorded to compare"
        recorded: dict[bytes, bytes | None] = {}
        for stores in check_changes(increment.changes, changes):
            for store in stores.values():
                recorded |= store
        replayed = applied.sealed.changes
        keys = [k for k in {**recorded, **replayed} if _at(recorded, k) != _at(replayed, k)]
        if not keys:
            return "by the same changes of the state"
        key = keys[0]
        return (
            f"the state differs in {counted(len(keys), 'key')}, first {_shown(key)}: recorded"
            f" {_shown(_at(recorded, key))}, replayed {_shown(_at(replayed, key))}"
        )

    return says


_UNTOUCHED = b"\xc1"  # no MessagePack
_SHOWN_MAX = 200


def _at(changes: Mapping[bytes, bytes | None], key: bytes) -> bytes | None:
    return changes.get(key, _UNTOUCHED)


def _shown(stored: bytes | None) -> str:
    if stored is None:
        return "deleted"
    if stored == _UNTOUCHED:
        return "not touched"
    try:
        text = repr(msgspec.msgpack.decode(stored))
    except (ValueError, RecursionError):
        text = repr(stored)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
