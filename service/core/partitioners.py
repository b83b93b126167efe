"""The hashes by which producers choose the partition of a key. Pure.

Java's clients and ours hash by murmur2, librdkafka (Python's confluent-kafka, Go, .NET, Node.js) by CRC-32 unless
configured otherwise. A record with a null or an empty key may lie anywhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

MURMUR2 = "murmur2"
_SEED, _FACTOR, _WORD = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


class Hash(NamedTuple):
    """A hash that producers use: the partition that it gives a key, of so many, and who uses it."""

    partition: Callable[[bytes, int], int]
    used_by: str


@lru_cache(maxsize=1 << 17)
def murmur_positive(key: bytes) -> int:
    """Hash a key by murmur2, as Kafka's own clients do, without its sign. Pure Python, hence the cache."""
    value, whole = _SEED ^ len(key), len(key) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _WORD
        part = (part ^ part >> 24) * _FACTOR & _WORD
        value = (value * _FACTOR & _WORD) ^ part
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _WORD
    value = (value ^ value >> 13) * _FACTOR & _WORD
    return (value ^ value >> 15) & 0x7FFFFFFF


def _fnv1a(key: bytes, count: int) -> int:
    value = 0x811C9DC5
    for byte in key:
        value = ((value ^ byte) * 0x01000193) & _WORD
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return abs(signed) % count  # as Sarama: the remainder of a negative number is negative in Go, and is negated


HASHES: Mapping[str, Hash] = {
    MURMUR2: Hash(lambda key, count: murmur_positive(key) % count, "Java's clients"),
    "crc32": Hash(lambda key, count: zlib.crc32(key) % count, "librdkafka unless configured otherwise"),
    "fnv1a": Hash(_fnv1a, "Sarama"),
}


def misplaced(key: bytes | None, partition: int, partition_count: int, name: str) -> str:
    """Say why a key does not lie where this hash puts it; "": it does, or it is null or empty."""
    if not key:
        return ""
    at = HASHES[name].partition(key, partition_count)
    if at == partition:
        return ""
    fits = (other for other, each in HASHES.items() if each.partition(key, partition_count) == partition)
    other = next(fits, None)
    by = "" if other is None else f", as {other} does ({HASHES[other].used_by})"
    return f"key {shown_key(key)} is in partition {partition}{by}, but {name} gives partition {at}"


def shown_key(key: bytes) -> str:
    """Return a key as it can be recognised in a line: as text if it is one, at most 60 characters."""
    try:
        text = repr(key.decode())
    except UnicodeDecodeError:
        text = repr(key)
    return text if len(text) <= 60 else f"{text[:60]}…"
