"""Values of a map: only what reads back equal and of the same type. Pure.

Within a batch a handler sees the object that it stored; after it, what the bytes decode to. If the two differed, state
and outputs would depend on where a batch ended. To keep the check cheap, `are_flat` decides by types alone for values
without nesting (0.1 to 0.2 µs); everything else is decoded again and compared, many values at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from struct import Struct
from typing import Final, Generic, TypeVar, get_args

import msgspec
from msgspec import inspect

from snapreplay.errors import RecordError, StopError, UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.canonical import encoder_of, nodes_in
from snapreplay.state.fields import store_fields
from snapreplay.state.read_back import LEVELS_MAX, MutableObjects, Place, comparing, differing, nested_deeper
from snapreplay.state.round_trip import FlatCheck, flat_check, is_shareable, shown_apart, unwritable
from snapreplay.state.steady import refuse_unsteady
from snapreplay.state.steps import Steps

V = TypeVar("V")

UNREADABLE_HINT = (
    "nothing is lost: declare a type that reads what is stored: a default for a new field, `int | str` for a changed"
    " type; or raise `schema_version` and declare with `@app.upgrade(from_schema=…, value=TYPE_THAT_WAS_STORED)` what"
    " becomes of each entry; or, if this version has written nothing yet, deploy the version that wrote it, with its"
    " types, again"
)


def unsupported_type(type_: object) -> str:
    """Return what to do about a type that msgspec cannot decode."""
    members = [one for one in get_args(type_) if isinstance(one, type)]
    structs = [one for one in members if issubclass(one, msgspec.Struct)]
    untagged = [one.__name__ for one in structs if not one.__struct_config__.tag]
    if len(structs) > 1 and untagged:
        tagged = ", ".join(f"class {name}(msgspec.Struct, tag=True)" for name in untagged)
        return f"give each Struct of the union a tag: {tagged}"
    return "use a msgspec Struct, a dataclass, dict, list, or a scalar type"


class StoredValueUnreadable(StopError):
    """A stored key or value does not fit its declared type, which was changed since it was written.

    Safe: The partition stops before the value is used, and the stored value stays as it is.
    """


class Missing(Enum):
    """Marks a missing value; None is a value."""

    ABSENT = 0
    DELETED = 1


ABSENT: Final = Missing.ABSENT
DELETED: Final = Missing.DELETED


class ValueCodec(Generic[V]):
    """A codec of values; `pack`, `unpack` and `are_flat` are plain functions, so that a record costs no further call;
    `unencodable` and `misfit` make errors of what they raise.

    What is read back is in the order in which it was made; only sets are sorted, see `canonical`.

    Attributes:
        are_flat: whether values need no `reading_back`, because their types alone prove that they read back.
        shareable: whether values are immutable through and through, so that one object may be stored
            under many keys.
        fields: what values may have in them.
    """

    def __init__(self, value_type: type[V], dropped: tuple[str, ...] = ()) -> None:
        """Take `value_type`, or raise UsageError: msgspec cannot decode this type."""
        try:
            node = inspect.type_info(value_type)
            self.unpack: Callable[[bytes], V] = msgspec.msgpack.Decoder(value_type).decode
        except (TypeError, ValueError, NameError) as error:
            raise UsageError(
                f"MapState: {value_type!r} cannot be a value type: {error}", hint=unsupported_type(value_type)
            ) from error
        _refuse_unstorable(value_type, node)
        refuse_unsteady(node)
        self.type = value_type
        self.fields = store_fields(node, dropped)
        self.place = "state"  # in messages; "state.items" in a named store
        self.pack: Callable[[V], bytes] = encoder_of(node)
        self.are_flat: FlatCheck = flat_check(node)
        self.shareable = is_shareable(node)

    def stamped(self) -> ValueCodec[V]:
        """Become the codec of values that may have a stamp: `unpack` passes over it. Returns itself."""
        decode = self.unpack
        self.unpack = lambda stored: decode(bare(stored))
        return self

    def unpack_past_stamp(self, key: object, stored: bytes, cause: Exception) -> V:
        """Unpack what failed before: it may have a stamp, of the time when the map had a ttl. Raises
        StoredValueUnreadable: it has none, or does not fit."""
        value = bare(stored)
        if value is stored:
            raise self.misfit(key, cause) from cause
        try:
            return self.unpack(value)
        except msgspec.MsgspecError as error:
            raise self.misfit(key, error) from error

    def unencodable(self, key: object, value: V, cause: Exception) -> RecordError:
        found = unwritable(value, cause)
        why = str(cause) if found is None else f"{self.place}[{key!r}]{found.path} {found.why}"
        return RecordError(
            f"{self.place}[{key!r}]: a {type(value).__name__} cannot be encoded: {why}",
            hint=unsupported_type(self.type) if found is None else found.hint,
            key=key,
        )

    def misfit(self, key: object, cause: BaseException) -> StoredValueUnreadable:
        """Return the error for stored bytes that failed to `unpack`: the type was changed since they were written."""
        return StoredValueUnreadable(
            f"{self.place}[{key!r}] was written as a type other than {self.type!r}: {cause}",
            hint=UNREADABLE_HINT,
            key=key,
        )

    def reading_back(
        self, keys: Sequence[object], values: Sequence[V], packed: Sequence[bytes], objects: MutableObjects
    ) -> Steps[None]:
        """Check fully that values read back equal and of the same types. Adds the mutable objects in them to `objects`.
        Raises RecordError: names the key, the place in its value and both types."""
        yield
        backs = list(map(self._read_back, keys, packed))
        if (yield from comparing(values, backs, objects, LEVELS_MAX)):
            return
        for key, value, back in zip(keys, values, backs, strict=True):
            found = yield from differing(value, back)
            if nested_deeper(value, LEVELS_MAX):
                raise RecordError(
                    f"{self.place}[{key!r}] is nested deeper than {LEVELS_MAX} levels",
                    hint="store it in parts, or as a text or bytes",
                    key=key,
                )
            if found is not None:
                path, part, part_back = found
                if known := unwritable(value, TypeError()):
                    where = f"{self.place}[{key!r}]{known.path}"
                    raise RecordError(f"{where} {known.why}", hint=known.hint, key=key)
                text, text_back = shown_apart(part, part_back)
                hint = (
                    "store the value that it reads back as, or declare the type,"
                    " for example MapState(str, tuple[int, int])"
                )
                if isinstance(part, datetime):
                    hint = "an offset is not kept: store `value.astimezone(UTC)`, and the zone as a text beside it"
                raise RecordError(
                    f"{self.place}[{key!r}]{path} is {text} but would read back as {text_back}", hint=hint, key=key
                )
        raise AssertionError("together they differ, one by one they do not")

    def _read_back(self, key: object, encoded: bytes) -> V:
        try:
            return self.unpack(encoded)
        except BaseException as error:  # the user's type may raise anything
            if of_a_signal(error):
                raise
            raise RecordError(
                f"{self.place}[{key!r}] would not read back as {self.type!r}: {error}",
                hint="store a value of the declared type",
                key=key,
            ) from error


def _refuse_unstorable(value_type: object, node: inspect.Type) -> None:
    """Raise UsageError if a dict in it has other keys than texts: its first entry would be refused."""
    for each in nodes_in(node):
        if isinstance(each, inspect.DictType) and not isinstance(
            each.key_type, inspect.StrType | inspect.AnyType | inspect.LiteralType
        ):
            kind = type(each.key_type).__name__.removesuffix("Type").lower()
            raise UsageError(
                f"MapState: {value_type!r} cannot be a value type: the keys of a dict in it are of type {kind}, not"
                " str",
                hint="make texts of the keys, `dict[str, …]`; or make the keys a part of the map's own:"
                " `MapState(tuple[str, int], …)`",
            )


def shared_object(place: Place, other: Place) -> RecordError:
    """Return the error for one mutable object in two places, which would be two objects after the batch.

    The key of a place is (the map as messages name it, key in it).
    """
    ((name, key), path), ((other_name, other_key), other_path) = place, other
    return RecordError(
        f"{name}[{key!r}]{path} and {other_name}[{other_key!r}]{other_path} hold the same object",
        hint="store a copy in one of them",
        key=key,
    )


# --------------------------------------------------------------------- the time of the last touch

# A map whose entries expire stores it in front of each value. The byte 0xC1 is in no msgpack, so any reader can tell a
# value with a stamp from one without.

_STAMP = Struct(">cq")
_MARK = b"\xc1"


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
