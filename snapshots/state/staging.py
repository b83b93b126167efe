"""From the objects that a batch touched to the bytes it leaves: everything encoded and checked. Pure.

In bulk, by columns, because value by value it costs twice as much; one by one only to name the key
at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Literal, TypeVar

from snapreplay.snapshots.errors import RecordError
from snapreplay.snapshots.state.fidelity import SCALARS, Owners
from snapreplay.snapshots.state.keys import UNENCODABLE
from snapreplay.snapshots.state.shards import Place
from snapreplay.snapshots.state.values import DELETED, Mark, ValueCodec, shared_object

K = TypeVar("K")
V = TypeVar("V")

Live = Mapping[K, V | Literal[Mark.DELETED]]

key_of = itemgetter(0)
"""The encoded key of a `Place`."""


def encode_all(
    live: Live[K, V], places: Sequence[Place], codec: ValueCodec[V], entry_bytes_max: int
) -> list[bytes | None]:
    """What each value of `live` encodes to, None for a deleted one; `places` is in the same order.

    Raises:
        RecordError: a value cannot be encoded, would not read back as it is, shares a mutable
            object with another one, or is too large. Names the key.
    """
    values: list[V] = [value for value in live.values() if value is not DELETED]
    try:
        packed = list(map(codec.pack, values))
    except UNENCODABLE:
        _refuse_unencodable(live, codec)
        raise
    encoded: list[bytes | None] = [*packed]
    if len(values) < len(live):
        rest = iter(packed)
        encoded = [None if value is DELETED else next(rest) for value in live.values()]
    if not codec.are_flat(values) or not (codec.shareable or _all_different(values)):
        _refuse_unfaithful(live, encoded, codec)
    if sum(map(len, packed)) + sum(map(len, map(key_of, places))) > entry_bytes_max:
        _refuse_too_large(live, places, encoded, entry_bytes_max)
    return encoded


def _all_different(values: Sequence[object]) -> bool:
    return len(set(map(id, values))) == len(values)


def _refuse_unencodable(live: Live[K, V], codec: ValueCodec[V]) -> None:
    for key, value in live.items():
        if value is not DELETED:
            try:
                codec.pack(value)
            except UNENCODABLE as error:
                raise codec.unencodable(key, value, error) from error


def _refuse_unfaithful(
    live: Live[K, V], encoded: Sequence[bytes | None], codec: ValueCodec[V]
) -> None:
    owners: Owners = {}
    for key, value in live.items():
        if not codec.shareable and value is not DELETED and type(value) not in SCALARS:
            owner, _ = owners.setdefault(id(value), (key, ""))
            if owner is not key:
                raise shared_object(f"[{key!r}]", f"[{owner!r}]", key)
    for (key, value), new in zip(live.items(), encoded, strict=True):
        if value is not DELETED and new is not None and not codec.are_flat((value,)):
            codec.verify(key, value, new, owners)


def _refuse_too_large(
    live: Live[K, V],
    places: Sequence[Place],
    encoded: Sequence[bytes | None],
    entry_bytes_max: int,
) -> None:
    for key, place, new in zip(live, places, encoded, strict=True):
        size_bytes = len(place[0]) + len(new or b"")
        if size_bytes > entry_bytes_max:
            raise RecordError(
                f"state[{key!r}] takes {size_bytes} bytes with its key, "
                f"the limit is {entry_bytes_max}",
                hint="spread it over several keys: an entry must fit into one Kafka record",
                key=key,
                size_bytes=size_bytes,
                size_bytes_max=entry_bytes_max,
            )
