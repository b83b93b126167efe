"""Values of a map: only what reads back equal and of the same type. Pure.

Within a batch a handler sees the object that it stored; after it, what the bytes decode to. If the
two differed, state and outputs would depend on where a batch ended. To keep the check cheap,
`are_flat` decides by types alone for values without nesting (0.1 to 0.2 µs); everything else is
decoded again and compared, many values at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar, get_args

import msgspec
from msgspec import inspect

from snapreplay.errors import RecordError, StopError, UsageError
from snapreplay.state.read_back import MutableObjects, Place, comparing, differing
from snapreplay.state.round_trip import FlatCheck, flat_check, is_shareable, shown
from snapreplay.state.stamp import bare
from snapreplay.state.steps import Steps

V = TypeVar("V")

UNREADABLE_HINT = (
    "nothing is lost: deploy the version that wrote it, with its types, again. Then change types only "
    "compatibly: new fields of a Struct need defaults"
)


def unsupported_type(type_: object) -> str:
    """Returns what to do about a type that msgspec cannot decode."""
    members = [one for one in get_args(type_) if isinstance(one, type)]
    structs = [one for one in members if issubclass(one, msgspec.Struct)]
    untagged = [one.__name__ for one in structs if not one.__struct_config__.tag]
    if len(structs) > 1 and untagged:
        tagged = ", ".join(f"class {name}(msgspec.Struct, tag=True)" for name in untagged)
        return f"give each Struct of the union a tag: {tagged}"
    return "use a msgspec Struct, a dataclass, dict, list, or a scalar type"


class StoredValueUnreadable(StopError):
    """A stored key or value does not fit its declared type, which was changed since it was written."""


class Missing(Enum):
    """Marks a missing value; None is a value."""

    ABSENT = 0
    DELETED = 1


ABSENT: Final = Missing.ABSENT
DELETED: Final = Missing.DELETED


class ValueCodec(Generic[V]):
    """`pack`, `unpack` and `are_flat` are plain functions, so that a record costs no further call;
    `unencodable` and `misfit` make errors of what they raise.

    Dicts are encoded in sorted order, so that equal values are equal bytes. A dict that a handler
    extends in place may therefore iterate in another order once it is read back, and no result may
    depend on that order.

    Attributes:
        are_flat: whether values need no `reading_back`, because their types alone prove that they read back.
        shareable: whether values are immutable through and through, so that one object may be stored
            under many keys.
    """

    def __init__(self, value_type: type[V]) -> None:
        """
        Raises:
            UsageError: msgspec cannot decode this type.
        """
        try:
            node = inspect.type_info(value_type)
            self.unpack: Callable[[bytes], V] = msgspec.msgpack.Decoder(value_type).decode
        except (TypeError, ValueError, NameError) as error:
            raise UsageError(
                f"MapState: {value_type!r} cannot be a value type: {error}",
                hint=unsupported_type(value_type),
            ) from error
        self.type = value_type
        self.place = "state"  # in messages; "state.items" in a named store
        self.pack = msgspec.msgpack.Encoder(order="deterministic").encode
        self.are_flat: FlatCheck = flat_check(node)
        self.shareable = is_shareable(node)

    def stamped(self) -> ValueCodec[V]:
        """Become the codec of values that may have a stamp: `unpack` passes over it. Returns itself."""
        decode = self.unpack
        self.unpack = lambda stored: decode(bare(stored))
        return self

    def unpack_past_stamp(self, key: object, stored: bytes, cause: Exception) -> V:
        """What failed to `unpack` may have a stamp, of the time when the map had a ttl.

        Raises:
            StoredValueUnreadable: it has none, or does not fit.
        """
        value = bare(stored)
        if value is stored:
            raise self.misfit(key, cause) from cause
        try:
            return self.unpack(value)
        except msgspec.MsgspecError as error:
            raise self.misfit(key, error) from error

    def unencodable(self, key: object, value: V, cause: Exception) -> RecordError:
        """Return the error for a value that failed to `pack`."""
        return RecordError(
            f"{self.place}[{key!r}]: a {type(value).__name__} cannot be encoded: {cause}",
            hint="use ints of at most 64 bits, strings without lone surrogates, and dicts with str keys",
            key=key,
        )

    def misfit(self, key: object, cause: Exception) -> StoredValueUnreadable:
        """Return the error for stored bytes that failed to `unpack`: the type was changed since they were written."""
        return StoredValueUnreadable(
            f"{self.place}[{key!r}] was written as a type other than {self.type!r}: {cause}",
            hint=UNREADABLE_HINT,
            key=key,
        )

    def reading_back(
        self,
        keys: Sequence[object],
        values: Sequence[V],
        packed: Sequence[bytes],
        objects: MutableObjects,
    ) -> Steps[None]:
        """Check fully that values read back equal and of the same types. Adds the mutable objects in them to `objects`.

        Raises:
            RecordError: names the key, the place in its value and both types.
        """
        yield
        backs = list(map(self._read_back, keys, packed))
        if (yield from comparing(values, backs, objects)):
            return
        for key, value, back in zip(keys, values, backs, strict=True):
            found = yield from differing(value, back)
            if found is not None:
                path, part, part_back = found
                raise RecordError(
                    f"{self.place}[{key!r}]{path} is {shown(part)} but would read back as {shown(part_back)}",
                    hint="store the value that it reads back as, or declare the type, "
                    "for example MapState(str, tuple[int, int])",
                    key=key,
                )
        raise AssertionError("together they differ, one by one they do not")

    def _read_back(self, key: object, encoded: bytes) -> V:
        try:
            return self.unpack(encoded)
        except Exception as error:  # whatever the user's type raises
            raise RecordError(
                f"{self.place}[{key!r}] would not read back as {self.type!r}: {error}",
                hint="store a value of the declared type",
                key=key,
            ) from error


def shared_object(place: Place, other: Place) -> RecordError:
    """Returns the error for one mutable object in two places, which would be two objects after the batch.

    The key of a place is (the map as messages name it, key in it).
    """
    ((name, key), path), ((other_name, other_key), other_path) = place, other
    return RecordError(
        f"{name}[{key!r}]{path} and {other_name}[{other_key!r}]{other_path} hold the same object",
        hint="store a copy in one of them",
        key=key,
    )
