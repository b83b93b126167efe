"""Keys as text, for URLs and command lines: a str as it is, an int in digits, bytes in base64, a tuple as a JSON array
of its parts, in which bytes are base64 as well. Pure."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from snapreplay.errors import RecordError, UsageError
from snapreplay.state.keys import K, KeyCodec

INT_CHARS_MAX = 20
"""Of 64 bits, with a sign."""
_HOW = {str: "write it as it is", int: "write it in digits, such as 7", bytes: "write it in base64, such as dGVh"}


class WrongKey(UsageError):
    """A text is no key of this map, or no bound of its keys. The text is not repeated: it may be a secret, or huge.

    Attributes:
        why: of what type the keys are, and how such a key is written.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def key_of(text: str, codec: KeyCodec[K]) -> K:
    """Read a key, or raise WrongKey."""
    key: Any = _read(text, codec)
    try:
        codec.encode(key)
    except RecordError:
        raise _wrong(codec) from None
    return key  # type: ignore[no-any-return]  # the codec has checked it


def bound_of(text: str, codec: KeyCodec[Any]) -> Any:
    """Read a key, or the first parts of one. `KeyCodec.bounds` checks it. Raises WrongKey."""
    return _read(text, codec)


def text_of(key: object) -> str:
    """Write a key as `key_of` reads it."""
    if isinstance(key, str | int):
        return str(key)
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return msgspec.json.encode(key).decode()


def _read(text: str, codec: KeyCodec[Any]) -> Any:
    try:
        if codec.parts:
            raw = msgspec.json.decode(text, type=list[msgspec.Raw])
            if len(raw) <= len(codec.parts):
                return tuple(msgspec.json.decode(each, type=part) for each, part in zip(raw, codec.parts, strict=False))
        elif codec.type is str:
            return text
        elif codec.type is int and len(text) <= INT_CHARS_MAX and str(int(text)) == text:
            return int(text)
        elif codec.type is bytes and text_of(found := base64.b64decode(text, validate=True)) == text:
            return found
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    raise _wrong(codec)


def _wrong(codec: KeyCodec[Any]) -> WrongKey:
    how = _HOW.get(codec.type, 'write its parts as a JSON array, such as ["tea",7]; bytes in it in base64')
    return WrongKey(f"the keys of this store are {codec.name}: {how}")
