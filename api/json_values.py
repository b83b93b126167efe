"""Shows stored values as JSON. Bytes that are no text are {"base64": "…"}, and what is nested deeper than `LEVELS_MAX`
is {"not_shown": "…"}. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from snapreplay.state.values import bare

BASE64 = "base64"
LEVELS_MAX = 100
"""Of dicts and lists in each other. Far below what the readers of JSON take: some stop at 512 levels, Python's at its
recursion limit."""
TOO_DEEP = {"not_shown": f"nested deeper than {LEVELS_MAX} levels"}


def document_of_bytes(data: bytes) -> Any:
    """Show text where it is UTF-8, else {"base64": "…"}."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def builtins_of(value: object) -> Any:
    """Show any value that msgspec knows as JSON has it; the keys of dicts become text."""
    try:
        return _json(msgspec.to_builtins(value, builtin_types=(bytes,)))
    except RecursionError:
        return TOO_DEEP


def _json(plain: object, level: int = 0) -> Any:
    if isinstance(plain, bytes):
        return document_of_bytes(plain)
    if not isinstance(plain, Mapping | list | tuple | set | frozenset):
        return plain
    if level == LEVELS_MAX:
        return TOO_DEEP
    if isinstance(plain, Mapping):
        return {_name(key): _json(value, level + 1) for key, value in plain.items()}
    return [_json(each, level + 1) for each in plain]


def _name(key: object) -> str:
    shown = _json(key)
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


def shown_value(data: bytes) -> Any:
    """Show a stored value, without the time of the last touch; what is no value, as bytes."""
    try:
        return builtins_of(msgspec.msgpack.decode(bare(data)))
    except (msgspec.MsgspecError, ValueError):
        return document_of_bytes(data)
    except RecursionError:
        return TOO_DEEP


def encoded(value: object) -> bytes:
    """Encode as JSON. An error of the app may quote half a character, which becomes an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(node: Any) -> Any:
    if isinstance(node, str):
        return node.encode("utf-8", "backslashreplace").decode()
    if isinstance(node, dict):
        return {_encodable(key): _encodable(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_encodable(each) for each in node]
    return node
