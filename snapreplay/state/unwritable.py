"""The part of a value that cannot be written, where it is, and what to do about it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from snapreplay.errors import RecordError
from snapreplay.state.round_trip import shown

_DEPTH_MAX = 20
"""Deeper inside nobody looks: the encoder's own reason is told."""

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class Unwritable(NamedTuple):
    """The name of the value, `path` and `why` are a sentence."""

    path: str
    why: str
    hint: str


def lost_attribute(place: str, name: str) -> RecordError:
    """Return the error for an attribute that a handler sets on a map."""
    return RecordError(
        f"{place}.{name} would be lost: a map keeps its entries and nothing else",
        hint=f"store it under a key: `{place}[{name!r}] = …`",
    )


_Judge = Callable[[object], tuple[str, str] | None]


def unwritable(value: object, cause: BaseException) -> Unwritable | None:
    """Return what in `value` made an encoder raise `cause`; None: it is not known."""
    judge = _judge(cause)
    if judge is not None:
        for path, part in _parts(value, "", 0):
            found = judge(part)
            if found is not None:
                return Unwritable(path, *found)
    return None


def _judge(cause: BaseException) -> _Judge | None:
    match cause:
        case UnicodeEncodeError():
            return _surrogates
        case OverflowError():
            return _too_long
        case TypeError() | ValueError():
            return _other_keys
        case _:
            return None


def _other_keys(part: object) -> tuple[str, str] | None:
    for key in part if isinstance(part, dict) else ():
        if not isinstance(key, str):
            return (
                f"is a dict with the key {shown(key)}, but keys of a dict must be str",
                f"use dicts with str keys: `{str(key)!r}` for `{key!r}`",
            )
    return None


def _too_long(part: object) -> tuple[str, str] | None:
    if isinstance(part, int) and not _INT_MIN <= part <= _INT_MAX:
        return f"is {shown(part)}", "use ints of at most 64 bits, or text"
    return None


def _surrogates(part: object) -> tuple[str, str] | None:
    hint = "use strings without lone surrogates, or bytes"
    if _has_surrogates(part):
        return f"is {shown(part)}", hint
    for key in part if isinstance(part, dict) else ():
        if _has_surrogates(key):
            return f"is a dict with the key {shown(key)}", hint
    return None


def _has_surrogates(part: object) -> bool:
    return isinstance(part, str) and any("\ud800" <= each <= "\udfff" for each in part)


def _parts(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    """Yield the value and all that is inside it, each with its place."""
    yield path, value
    if depth >= _DEPTH_MAX:
        return
    inside: list[tuple[str, object]] = []
    if isinstance(value, dict):
        inside = [(f"[{key!r}]", each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        inside = [(f"[{number}]", each) for number, each in enumerate(value)]
    elif isinstance(value, msgspec.Struct):
        inside = [(f".{name}", getattr(value, name)) for name in value.__struct_fields__]
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        inside = [(f".{name}", getattr(value, name, None)) for name in names]
    for place, each in inside:
        yield from _parts(each, f"{path}{place}", depth + 1)
