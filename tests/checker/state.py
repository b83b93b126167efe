"""The state twice: as bytes, folded from the changes, and as the app's sums, folded from the input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import msgpack

from tests.checker import wire
from tests.checker.verdict import Check, Verdict
from tests.checker.wire import Digest, Sums, terms

STORE = "default"


class DigestCheck:
    """The recorded digests against those of a state that was come by in another way."""

    def __init__(self, way: str, verdict: Verdict) -> None:
        self._way = way
        self._verdict = verdict
        self._differs = False

    def compare(self, found: wire.Increment, state: Image | Ledger | None, where: str) -> None:
        """A violation where they begin to differ, not at every batch after; none for what is not known."""
        if state is None or found.digest is None:
            return
        self._verdict.counts[f"digests checked by {self._way}"] += 1
        differs = state.digest != found.digest
        if differs and not self._differs:
            what = f"batch {found.batch} has digest {found.digest}, by {self._way} it is {state.digest}"
            self._verdict.add(Check.STATE, where, what)
        self._differs = differs


class Image:
    """Entries as stored. Memory: that of the state."""

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        self.entries = entries or {}
        self._sums = Sums()
        for key, value in self.entries.items():
            self._sums.put(key, value)

    @property
    def digest(self) -> Digest:
        return self._sums.digest

    def apply(self, changes: wire.Changes) -> int:
        """Fold one record of changes in; how many entries it has."""
        entries = changes.stores.get(STORE, {})
        for key, value in entries.items():
            before = self.entries.get(key)
            if before is not None:
                self._sums.take(key, before)
            if value is not None:
                self._sums.put(key, value)
                self.entries[key] = value
            elif before is not None:
                del self.entries[key]
        return len(entries)


class Expected(NamedTuple):
    """The one right output of an input record."""

    topic: str
    offset: int
    key: str
    n: int
    sum: int


class _Account(NamedTuple):
    n: int
    sum: int
    a: int
    b: int


class Ledger:
    """The app by hand: count and sum per key, refunds count negative. Memory: one tuple per key."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._sums = Sums()

    @property
    def digest(self) -> Digest:
        return self._sums.digest

    @classmethod
    def of(cls, image: Mapping[bytes, bytes]) -> Ledger:
        """From stored entries, where the input does not reach back."""
        made = cls()
        for key, value in image.items():
            account = msgpack.unpackb(value)
            made._set(msgpack.unpackb(key), account["n"], account["sum"])
        return made

    def book(self, topic: str, offset: int, raw_key: bytes, value: bytes) -> Expected:
        """The account after this record."""
        amount, key = json.loads(value)["amount"], raw_key.decode()
        before = self._accounts.get(key)
        n, total = (before.n, before.sum) if before else (0, 0)
        n, total = n + 1, total + (-amount if topic.startswith("refunds") else amount)
        self._set(key, n, total)
        return Expected(topic, offset, key, n, total)

    def _set(self, key: str, n: int, total: int) -> None:
        before = self._accounts.get(key)
        if before is not None:
            self._sums.add(-1, -before.a, -before.b)
        a, b = terms(msgpack.packb(key), msgpack.packb({"n": n, "sum": total}))
        self._sums.add(1, a, b)
        self._accounts[key] = _Account(n, total, a, b)
