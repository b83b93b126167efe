"""The time of the last touch in front of a stored value: of maps whose entries expire. Pure.

The byte 0xC1 is in no msgpack, so a value with a stamp is told from one without by whoever reads it.
"""

from __future__ import annotations

from operator import methodcaller
from struct import Struct

_STAMP = Struct(">cq")
_MARK = b"\xc1"

is_marked = methodcaller("startswith", _MARK)
"""Whether a value may have a stamp; `touched_at` says whether it has."""


def stamped(touched_ms: int, value: bytes) -> bytes:
    return _STAMP.pack(_MARK, touched_ms) + value


def touched_at(stored: bytes) -> int | None:
    """Return the stream time of the last touch in milliseconds; None: the value has no stamp."""
    if stored[:1] != _MARK or len(stored) <= _STAMP.size:
        return None
    touched_ms: int = _STAMP.unpack_from(stored)[1]
    return touched_ms


def bare(stored: bytes) -> bytes:
    """Return the value as msgpack, with or without a stamp before."""
    return stored if touched_at(stored) is None else stored[_STAMP.size :]
