"""How large the entries of a state are. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def largest_entry_bytes(entries: Mapping[bytes, bytes | None]) -> int:
    """Encoded key and value together, in bytes; 0 without entries. A tombstone has only its key."""
    return max((len(key) + len(value or b"") for key, value in entries.items()), default=0)
