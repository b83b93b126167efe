"""Shows stored values as JSON. Bytes that are no text are {"base64": "…"}. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from snapreplay.state.keys import stored_key
from snapreplay.state.stamp import bare

BASE64 = "base64"


def document_of_bytes(data: bytes) -> Any:
    """Show text where it is UTF-8, else {"base64": "…"}."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def builtins_of(value: object) -> Any:
    """Show any value that msgspec knows as JSON has it; the keys of dicts become text."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return _json(plain)


def _json(plain: object) -> Any:
    if isinstance(plain, bytes):
        return document_of_bytes(plain)
    if isinstance(plain, Mapping):
        return {_name(key): _json(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple | set | frozenset):
        return [_json(each) for each in plain]
    return plain


def _name(key: object) -> str:
    shown = _json(key)
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


def shown_key(data: bytes) -> Any:
    """Show the key of a map, or of another state the app's own bytes."""
    try:
        return builtins_of(stored_key(data))
    except (msgspec.MsgspecError, ValueError):
        return document_of_bytes(data)


def shown_value(data: bytes) -> Any:
    """Show a value as `shown_key` does a key, without the time of the last touch."""
    try:
        return builtins_of(msgspec.msgpack.decode(bare(data)))
    except (msgspec.MsgspecError, ValueError):
        return document_of_bytes(data)
