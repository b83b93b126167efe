"""The sizes of the entries of a state. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from snapreplay.state.contract import StateChanges


def largest_entry_bytes(entries: Mapping[bytes, bytes | None]) -> int:
    """Return encoded key and value together, in bytes; 0 without entries. A tombstone has only its key."""
    return max((len(key) + len(value or b"") for key, value in entries.items()), default=0)


def largest_entries(changes: StateChanges) -> dict[str, int]:
    """Return for each store the bytes of its largest entry."""
    return {name: largest_entry_bytes(entries) for name, entries in changes.items()}


def larger_of(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return for each store the larger of both."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
