"""Keys and values of an app's map as Arrow columns, by the types that the app declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import inspect

from snapreplay.app.app import App
from snapreplay.errors import DamagedError, UsageError
from snapreplay.state.keys import KeyCodec
from snapreplay.state.map import MapState

_SCALARS: dict[type, pa.DataType] = {
    inspect.BoolType: pa.bool_(),
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.StrType: pa.string(),
    inspect.BytesType: pa.binary(),
}
_RECORDS = (inspect.StructType, inspect.DataclassType)
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


class Column(NamedTuple):
    """A column of `type`; `value` makes what Arrow takes for it of a decoded one, None: it takes it as it is."""

    type: pa.DataType
    value: Callable[[Any], Any] | None = None


class Stored:
    """Decodes stored keys, or values, into a column."""

    def __init__(self, declared: Any, *, is_key: bool = False) -> None:
        self._declared = declared
        self._is_key = is_key
        self._column = _column(inspect.type_info(declared), ())
        self.type = self._column.type

    def array(self, stored: Sequence[bytes | None]) -> pa.Array:
        """Convert to Arrow, or raise DamagedError: a stored one is not of the declared type."""
        # Made here: a decoder cannot be sent to the executors.
        decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(self._declared).decode
        if self._is_key:  # a key of several parts is no msgpack
            decode = KeyCodec(self._declared).unpack
        try:
            values = [None if each is None else decode(each) for each in stored]
        except msgspec.MsgspecError as error:
            raise DamagedError(
                f"something stored is not of type {self._declared!r}: {error}",
                hint="leave out the option app: `stored` json or raw needs no types",
            ) from error
        value = self._column.value
        if value is not None:
            values = [None if each is None else value(each) for each in values]
        return pa.array(values, self.type)


def stored_types(app: App[Any]) -> tuple[Stored, Stored]:
    """Return the types of keys and values.

    Raises:
        UsageError: its state is no map.
    """
    state = app.state()
    if not isinstance(state, MapState):
        raise UsageError(
            f"option app: the state of {app.app_id!r} is a {type(state).__name__}, not a map with declared types",
            hint="name the app with app.id instead",
        )
    key_type, value_type = state.__snapreplay_types__()
    return Stored(key_type, is_key=True), Stored(value_type)


def _column(node: inspect.Type, above: tuple[Any, ...]) -> Column:
    """Make a column: structs become structs, by field; what Arrow has no type for becomes JSON text. `above`: the
    classes around."""
    if (scalar := _SCALARS.get(type(node))) is not None:
        return Column(scalar)
    if isinstance(node, _RECORDS):
        return _struct(node, above)
    if isinstance(node, _LISTS):
        item = _column(node.item_type, above)
        return Column(pa.list_(item.type), lambda values: [_of(item, each) for each in values])
    if isinstance(node, inspect.DictType) and isinstance(node.key_type, inspect.StrType):
        return _map(_column(node.value_type, above))
    if isinstance(node, inspect.UnionType):
        others = [each for each in node.types if not isinstance(each, inspect.NoneType)]
        if len(others) == 1:
            column = _column(others[0], above)
            return Column(column.type, lambda value: None if value is None else _of(column, value))
    return Column(pa.string(), _as_text)


def _struct(node: inspect.StructType | inspect.DataclassType, above: tuple[Any, ...]) -> Column:
    if node.cls in above or not node.fields:  # Arrow has neither recursive types nor empty structs
        return Column(pa.string(), _as_text)
    columns = {each.name: _column(each.type, (*above, node.cls)) for each in node.fields}

    def value(record: Any) -> dict[str, Any]:
        return {name: _of(column, getattr(record, name)) for name, column in columns.items()}

    return Column(pa.struct([(name, column.type) for name, column in columns.items()]), value)


def _map(item: Column) -> Column:
    def value(values: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(name, _of(item, each)) for name, each in values.items()]

    return Column(pa.map_(pa.string(), item.type), value)


def _of(column: Column, value: Any) -> Any:
    return value if column.value is None else column.value(value)


def _as_text(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return '{"not_shown":"nested too deep"}'
