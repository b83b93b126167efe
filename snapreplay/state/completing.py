"""Stored values as handlers see them: with the fields that are left out where they are at their default. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from snapreplay.interrupts import of_a_signal
from snapreplay.state.fields import StoreFields
from snapreplay.state.stamp import bare

_encode = msgspec.msgpack.Encoder().encode


def completing(value_type: Any, fields: StoreFields) -> Callable[[bytes], bytes] | None:
    """Return what turns a stored value into one with all its fields, for those who read it without its type; None:
    values of this type are stored with all of them. A value that the type does not read stays as it is."""
    if not fields.layout.absent:
        return None
    decode = msgspec.msgpack.Decoder(value_type).decode

    def complete(stored: bytes) -> bytes:
        try:
            return _encode(_with_all_fields(decode(bare(stored))))
        except BaseException as error:  # whatever the user's type raises
            if of_a_signal(error):
                raise
            return stored

    return complete


def _with_all_fields(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        config, names = value.__struct_config__, value.__struct_encode_fields__
        parts = [_with_all_fields(getattr(value, name)) for name in value.__struct_fields__]
        if config.array_like:
            return parts if config.tag is None else [config.tag, *parts]
        named = {name: part for name, part in zip(names, parts, strict=True) if part is not msgspec.UNSET}
        return named if config.tag is None else {config.tag_field: config.tag, **named}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = ((each.name, getattr(value, each.name, msgspec.UNSET)) for each in dataclasses.fields(value))
        return {name: _with_all_fields(part) for name, part in given if part is not msgspec.UNSET}
    if isinstance(value, dict):
        return {key: _with_all_fields(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_all_fields(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_with_all_fields, value), key=_encode)
    return value
