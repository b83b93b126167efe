"""The app by hand: what each input record makes of the state, and what happens as time passes.

What is due is searched for in one heap; nothing here knows how the product does it.
"""

import heapq
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
import msgspec

from tests.checker.app import RELEASE, RELEASED, TTL_MS
from tests.checker.reading import Names, Record
from tests.checker.state import Image, Stored
from tests.checker.wire import DEFAULT

ACCOUNTS, HOLDS, COUNTS, TIMERS = DEFAULT, "holds", "counts", "_timers"
RATES, CALLS = "rates", "_calls"
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
        sent: key and value of what was sent to the internal topic since this was emptied.
    """

    def __init__(self, names: Names, partition: int, stored: Stored | None = None, now_ms: int = -1) -> None:
        """
        Args:
            stored: where the input does not reach back, with the stream time that belongs to it.
        """
        self.now_ms = now_ms
        self._names, self._partition = names, partition
        self.image = Image(stored)
        self._accounts: dict[str, tuple[int, int]] = {}
        self._held: dict[str, tuple[int, int]] = {}
        self._timers: dict[str, int] = {}
        self.released = 0
        self.sent: list[tuple[bytes, bytes]] = []
        self._rates: dict[str, int] = {}
        self._pending: set[str] = set()
        self._calls = 0
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

    @property
    def unanswered(self) -> int:
        """How many calls wait for their answer."""
        return len(self._pending)

    def book(self, topic: str, record: Record) -> Expected | None:
        """The account after this record, and after everything that is due before it. None: it books nothing, as a
        record of the table, or an answer that no call waits for."""
        key = (record.key or b"").decode()
        self.now_ms = max(self.now_ms, record.timestamp_ms)
        if topic == self._names.rates:
            self._keep(key, record.value)
            return None
        if topic == self._names.answers:
            call_id, _, _, result = msgpack.unpackb(record.value or b"")
            if call_id not in self._pending:
                return None
            self._wait(call_id, None)
            return self._count(topic, record, key, json.loads(result), {})
        value = json.loads(record.value or b"")
        amount = -value["amount"] if topic.startswith("refunds") else value["amount"]
        of_payment = topic.startswith("payments")
        expected = self._count(topic, record, key, amount * self._rates.get(key, 1) if of_payment else amount, value)
        source = f"{topic}-{self._partition}-{record.offset}"
        if "to" in value and of_payment:
            self.sent.append((value["to"].encode(), msgspec.json.encode({"amount": amount, "id": source})))
        if "ask" in value and of_payment:
            self._calls += 1
            asked = ["ask", self._calls, record.timestamp_ms, record.key, str(amount).encode()]
            self._wait(f"{self._names.app_id}/{source}/0", asked)
            self.image.put(CALLS, _pack(""), _pack(["", self._calls, -1, None, None]))
        return expected

    def _count(self, topic: str, record: Record, key: str, amount: int, value: Any) -> Expected:
        n, total = self._accounts.get(key, (0, 0))
        self._set(key, n + 1, total + amount)
        if "hold_ms" in value:
            self._hold(key, amount)
            self._schedule(key, record.timestamp_ms + value["hold_ms"])
        return Expected(topic, record.offset, key, n + 1, total + amount)

    def _keep(self, key: str, rate: bytes | None) -> None:
        self._rates.pop(key, None)
        if rate is not None:
            self._rates[key] = json.loads(rate)
        self.image.put(RATES, _pack(key), None if rate is None else _pack(self._rates[key]))

    def _wait(self, call_id: str, asked: list[Any] | None) -> None:
        """Wait for the answer of a call; `asked` None: no longer."""
        (self._pending.discard if asked is None else self._pending.add)(call_id)
        self.image.put(CALLS, _pack(call_id), None if asked is None else _pack(asked))

    def _release(self, key: str) -> Expected:
        self._schedule(key, None)
        n, total = self._accounts.get(key, (0, 0))
        total += self._held.get(key, (0, 0))[0]
        self._set(key, n, total)
        self._hold(key, None)
        number, self.released = self.released, self.released + 1
        self.image.put(COUNTS, _pack(RELEASED), _pack(self.released))
        return Expected(self._names.releases, number, key, n, total)

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
        self._rates = {msgpack.unpackb(k): msgpack.unpackb(v) for k, v in stored.get(RATES, {}).items()}
        for key, value in stored.get(CALLS, {}).items():
            self._pending |= {msgpack.unpackb(key)} - {""}
            self._calls = max(self._calls, msgpack.unpackb(value)[1])
        for value in stored.get(COUNTS, {}).values():
            self.released = msgpack.unpackb(value)
