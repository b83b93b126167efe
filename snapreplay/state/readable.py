"""Checks that all stored entries can be read as the declared types, before a handler meets one that cannot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import MsgspecError

from snapreplay.interrupts import of_a_signal
from snapreplay.state.keys import KeyCodec
from snapreplay.state.shards import Shards
from snapreplay.state.stamp import bare
from snapreplay.state.values import ValueCodec

CHECK_ENTRIES, CHECK_BYTES = 128, 64 * 1024
"""Read in one step, which takes well below a millisecond."""


def reading_all(
    shards: Shards, keys: KeyCodec[Any], values: ValueCodec[Any], each_shard_max: int | None
) -> Iterator[int]:
    """Read as `Store.checking` says. An entry that is overwritten or deleted meanwhile does no harm."""
    for index in range(shards.mask + 1 if shards.digest.count else 0):
        entries = shards.entries(index, each_shard_max)
        start = 0
        while start < len(entries):
            end, size_bytes = start, 0
            while end < min(start + CHECK_ENTRIES, len(entries)) and size_bytes < CHECK_BYTES:
                size_bytes += len(entries[end][1])
                end += 1
            _read(shards, keys, values, index, entries[start:end])
            yield end - start
            start = end


def _read(
    shards: Shards, keys: KeyCodec[Any], values: ValueCodec[Any], index: int, entries: Iterable[tuple[bytes, bytes]]
) -> None:
    lookup, read_key, read = shards.lookups[index], keys.unpack, values.unpack
    for encoded, value in entries:
        try:
            key = read_key(encoded)
        except MsgspecError as error:
            if lookup(encoded) is not None:
                raise keys.misfit(encoded, error) from error
            continue
        try:
            read(bare(value))
        except BaseException as error:
            if of_a_signal(error):
                raise
            if lookup(encoded) == value:
                raise values.misfit(key, error) from error
