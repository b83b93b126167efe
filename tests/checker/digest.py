"""docs/FORMAT.md "Digest", written down a second time."""

from __future__ import annotations

from typing import NamedTuple

import xxhash

MASK = (1 << 64) - 1


class Digest(NamedTuple):
    """How many entries, and the two sums, mod 2^64."""

    entries: int
    a: int
    b: int

    def __str__(self) -> str:
        """As statuses show it: "count:a:b", the sums in 16 hexadecimal digits."""
        return f"{self.entries}:{self.a:016x}:{self.b:016x}"


class Sums:
    """A digest that entries are put into and taken from."""

    def __init__(self) -> None:
        self.count = self.a = self.b = 0

    def put(self, key: bytes, value: bytes) -> None:
        a, b = terms(key, value)
        self.add(1, a, b)

    def take(self, key: bytes, value: bytes) -> None:
        a, b = terms(key, value)
        self.add(-1, -a, -b)

    def add(self, count: int, a: int, b: int) -> None:
        self.count += count
        self.a = (self.a + a) & MASK
        self.b = (self.b + b) & MASK

    @property
    def digest(self) -> Digest:
        return Digest(self.count, self.a, self.b)


def terms(key: bytes, value: bytes) -> tuple[int, int]:
    """What an entry adds to both sums."""
    a = xxhash.xxh64_intdigest(value, xxhash.xxh64_intdigest(key, 42))
    b = xxhash.xxh64_intdigest(key, xxhash.xxh64_intdigest(value, 42))
    return a, b
