"""The app by hand: what each input record makes of the state, and what happens as time passes.

Whatever is due is searched for in one heap; nothing here knows how the product does it.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

from tests.checker.app import RELEASE, RELEASED, TTL_MS
from tests.checker.reading import Record
from tests.checker.state import Image, Stored
from tests.checker.wire import DEFAULT

ACCOUNTS, HOLDS, COUNTS, TIMERS = DEFAULT, "holds", "counts", "_timers"
_pack = msgpack.packb
_STAMP = struct.Struct(">cq")
"""docs/FORMAT.md "Time": in front of a value that expires."""
TIMER, EXPIRY = 0, 1
"""At the same time a timer fires before an entry expires."""


class Expected(NamedTuple):
    """The one right output of an input record; of a timer, `topic` is that of the releases, `offset` their number."""

    topic: str
    offset: int
    key: str
    n: int
    sum: int


class _Due(NamedTuple):
    """An event, in the order in which they happen; `place`: the encoded key in the store of the timers, or of what
    expires."""

    at_ms: int
    kind: int
    place: bytes
    key: str


class Ledger:
    """Count and sum per key, refunds count negative; amounts that are held, until they expire or are released.

    Attributes:
        now_ms: the stream time.
        image: the state as it is stored.
        released: how many timers have fired.
    """

    def __init__(self, releases: str, stored: Stored | None = None, now_ms: int = -1) -> None:
        """
        Args:
            releases: what the outputs of timers are called.
            stored: where the input does not reach back, with the stream time that belongs to it.
        """
        self.now_ms = now_ms
        self._releases = releases
        self.image = Image(stored)
        self._accounts: dict[str, tuple[int, int]] = {}
        self._held: dict[str, tuple[int, int]] = {}
        self._timers: dict[str, int] = {}
        self.released = 0
        self._due: list[_Due] = []
        self._read(stored or {})

    def passes(self, up_to_ms: int, most: int | None = None) -> Iterator[Expected | None]:
        """Yield what is due up to this time, one after the other, `most` of them: the output of a timer, or None
        for an entry that expires."""
        up_to_ms, count = max(up_to_ms, self.now_ms), 0
        while (most is None or count < most) and (due := self._next(up_to_ms)) is not None:
            self.now_ms, count = max(self.now_ms, due.at_ms), count + 1
            if due.kind == TIMER:
                yield self._release(due.key)
            else:
                self._hold(due.key, None)
                yield None

    def book(self, topic: str, record: Record) -> Expected:
        """The account after this record, and after everything that is due before it."""
        value, key = json.loads(record.value or b""), (record.key or b"").decode()
        amount = -value["amount"] if topic.startswith("refunds") else value["amount"]
        self.now_ms = max(self.now_ms, record.timestamp_ms)
        n, total = self._accounts.get(key, (0, 0))
        self._set(key, n + 1, total + amount)
        if "hold_ms" in value:
            self._hold(key, amount)
            self._schedule(key, record.timestamp_ms + value["hold_ms"])
        return Expected(topic, record.offset, key, n + 1, total + amount)

    def _release(self, key: str) -> Expected:
        self._schedule(key, None)
        n, total = self._accounts.get(key, (0, 0))
        total += self._held.get(key, (0, 0))[0]
        self._set(key, n, total)
        self._hold(key, None)
        number, self.released = self.released, self.released + 1
        self.image.put(COUNTS, _pack(RELEASED), _pack(self.released))
        return Expected(self._releases, number, key, n, total)

    def _set(self, key: str, n: int, total: int) -> None:
        self._accounts[key] = n, total
        self.image.put(ACCOUNTS, _pack(key), _pack({"n": n, "sum": total}))

    def _hold(self, key: str, amount: int | None) -> None:
        self._held.pop(key, None)
        if amount is None:
            self.image.put(HOLDS, _pack(key), None)
            return
        self._held[key] = amount, self.now_ms
        self.image.put(HOLDS, _pack(key), _STAMP.pack(b"\xc1", self.now_ms) + _pack(amount))
        heapq.heappush(self._due, _Due(self.now_ms + TTL_MS, EXPIRY, _pack(key), key))

    def _schedule(self, key: str, at_ms: int | None) -> None:
        self._timers.pop(key, None)
        place: bytes = _pack([HOLDS, RELEASE, _pack(key)])
        self.image.put(TIMERS, place, None if at_ms is None else _pack(at_ms))
        if at_ms is not None:
            self._timers[key] = at_ms
            heapq.heappush(self._due, _Due(at_ms, TIMER, place, key))

    def _next(self, up_to_ms: int) -> _Due | None:
        while self._due and self._due[0].at_ms <= up_to_ms:
            due = heapq.heappop(self._due)
            if due.kind == TIMER and self._timers.get(due.key) == due.at_ms:
                return due
            held = self._held.get(due.key)
            if due.kind == EXPIRY and held is not None and held[1] + TTL_MS == due.at_ms:
                return due
        return None

    def _read(self, stored: Stored) -> None:
        """Take over what a snapshot holds."""
        for key, value in stored.get(ACCOUNTS, {}).items():
            account: Any = msgpack.unpackb(value)
            self._accounts[msgpack.unpackb(key)] = account["n"], account["sum"]
        for key, value in stored.get(HOLDS, {}).items():
            _, touched_ms = _STAMP.unpack_from(value)
            name = msgpack.unpackb(key)
            self._held[name] = msgpack.unpackb(value[_STAMP.size :]), touched_ms
            heapq.heappush(self._due, _Due(touched_ms + TTL_MS, EXPIRY, key, name))
        for place, value in stored.get(TIMERS, {}).items():
            name = msgpack.unpackb(msgpack.unpackb(place)[2])
            self._timers[name] = msgpack.unpackb(value)
            heapq.heappush(self._due, _Due(self._timers[name], TIMER, place, name))
        for value in stored.get(COUNTS, {}).values():
            self.released = msgpack.unpackb(value)
