"""Encodes and checks the objects that a batch touched. Pure.

This is done in bulk, by columns, because value by value costs twice as much. Values are checked one by
one only to name the key at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from snapreplay import engine
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.contract import ENTRY_BYTES_MAX
from snapreplay.state.keys import UNENCODABLE
from snapreplay.state.read_back import MutableObjects, met_twice
from snapreplay.state.shards import Slots
from snapreplay.state.steady import HINT, is_unsteady
from snapreplay.state.steps import Steps, all_of
from snapreplay.state.values import DELETED, Missing, ValueCodec, shared_object

K = TypeVar("K")
V = TypeVar("V")

Objects = Mapping[K, V | Literal[Missing.DELETED]]

_key_of = itemgetter(0)


BLOCK = 512
"""Keys encoded and checked in one step: their objects fit into a core's cache, which saves 0.3 µs per
key in a batch of 5,000 (measured)."""

FIRST_BLOCK, BLOCK_BYTES = 4, 64 * 1024
"""Blocks of large values are smaller, and of the first ones nobody knows how large they are. A single value
is always encoded whole, and decoded whole."""


class Touched(NamedTuple, Generic[K, V]):
    """The objects that a batch touched in one map, and in the same order the places of their keys."""

    objects: Objects[K, V]
    places: Slots
    codec: ValueCodec[V]
    entry_bytes_max: int


Encoded = dict[bytes, bytes | None]
"""Encoded key → encoded value, None if deleted, in the order of the objects."""


def encoding(maps: Sequence[Touched[Any, Any]]) -> Steps[list[Encoded]]:
    """Return what a batch touched in each of its maps, or raise RecordError: a value cannot be encoded, is too large,
    would not read back as it is, or shares a mutable object with another one. It names the key."""
    objects: Any = MutableObjects() if engine.compiled is None else engine.compiled.MutableObjects()
    encoded: list[Encoded] = []
    for touched in maps:
        found = yield from _encoding(touched, objects)
        encoded.append(found)
    if objects.met_again:
        yield from _refusing_shared(maps)
    return encoded


def _encoding(touched: Touched[Any, Any], objects: MutableObjects) -> Steps[Encoded]:
    live, places, codec, entry_bytes_max = touched
    encoded: Encoded = {}
    entries, names = list(live.values()), list(live)
    encode = _encode if engine.compiled is None else engine.compiled.encode
    start, size = 0, min(FIRST_BLOCK, BLOCK)
    while start < len(entries):
        stop = start + size
        block = entries[start:stop]
        some = places[start:stop]
        keys = list(map(_key_of, some)) if isinstance(some, list) else some.keys()
        try:
            values, packed, size_bytes = encode(keys, block, codec.pack, DELETED, encoded)
        except UNENCODABLE:
            values = [value for value in block if value is not DELETED]
            _refuse_unencodable(_kept(names[start:stop], block), values, codec)
            raise
        yield
        if size_bytes > entry_bytes_max:
            _refuse_too_large(touched, names[start:stop], keys, encoded)
        if not codec.are_flat(values):
            kept = _kept(names[start:stop], block)
            yield from codec.reading_back(kept, values, packed, objects)
        elif not codec.shareable:
            objects.add(values)
        size = max(1, min(BLOCK, 8 * size, BLOCK_BYTES * len(block) // size_bytes))
        start = stop
    return encoded


def _encode(
    keys: list[bytes], block: list[Any], pack: Callable[[Any], bytes], deleted: object, encoded: Encoded
) -> tuple[list[Any], list[bytes], int]:
    """Add each key with its packed value to `encoded`. Return the values that are not deleted, what was packed, and the
    bytes of all."""
    values = [value for value in block if value is not deleted]
    packed = list(map(pack, values))
    encoded.update(zip(keys, _with_deleted(block, packed), strict=True))
    return values, packed, sum(map(len, keys)) + sum(map(len, packed))


def _with_deleted(block: Sequence[object], packed: Sequence[bytes]) -> Iterable[bytes | None]:
    if len(packed) == len(block):
        return packed
    rest = iter(packed)
    return (None if value is DELETED else next(rest) for value in block)


def _kept(names: Sequence[K], block: Sequence[object]) -> Sequence[K]:
    return [name for name, value in zip(names, block, strict=True) if value is not DELETED]


def _refuse_unencodable(names: Sequence[K], values: Sequence[V], codec: ValueCodec[V]) -> None:
    for key, value in zip(names, values, strict=True):
        try:
            codec.pack(value)
        except UNENCODABLE as error:
            raise codec.unencodable(key, value, error) from error


def _refuse_too_large(touched: Touched[K, V], names: Sequence[K], keys: Sequence[bytes], encoded: Encoded) -> None:
    limit, place = touched.entry_bytes_max, touched.codec.place
    for key, key_bytes in zip(names, keys, strict=True):
        size_bytes = len(key_bytes) + len(encoded[key_bytes] or b"")
        if size_bytes > limit:
            raise RecordError(
                f"{place}[{key!r}] takes {size_bytes} bytes with its key, but the limit is {limit}",
                hint="spread it over several keys: an entry must fit into one Kafka record",
                key=key,
                size_bytes=size_bytes,
                size_bytes_max=limit,
            )


def _refusing_shared(maps: Sequence[Touched[Any, Any]]) -> Steps[None]:
    live = {
        (touched.codec.place, key): value
        for touched in maps
        for key, value in touched.objects.items()
        if value is not DELETED
    }
    places = yield from met_twice(live)
    if places is not None:
        raise shared_object(*places)


def encoded_default(values: ValueCodec[V], default: Callable[[], V]) -> bytes | None:
    """Encode the default, or raise UsageError: `default` cannot be called, or what it returns cannot be stored."""
    if not callable(default):
        raise UsageError(
            f"MapState: default={default!r} cannot be called, but each missing key needs a value of its own",
            hint=f"pass a function: `default=lambda: {default!r}`",
        )
    if is_unsteady(default):
        raise UsageError("MapState: default= is not always the same: each process would make another one", hint=HINT)
    value = default()
    touched = Touched({"new key": value}, [(b"", None, 0)], values, ENTRY_BYTES_MAX)
    try:
        (encoded,) = all_of(encoding([touched]))
    except RecordError as error:
        raise UsageError(
            f"MapState: default= returned {value!r}, which cannot be a value of type {values.type!r}: {error}",
            hint="pass as default= a function without arguments that returns a value of that type",
        ) from error
    return encoded[b""]
