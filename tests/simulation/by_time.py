"""The effect of stream time on the state of the program, by hand: everything is searched as a whole, no line of the
product's."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from snapreplay.state.digest import DEFAULT_STORE
from tests.simulation import program
from tests.simulation.program import EVERY_MS, RING, TICK, TTL_MS, Plain

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
_STAMP = ">cq"
TIMED_STORES = ("even", DEFAULT_STORE)
"""The stores whose keys have timers."""


class Due(NamedTuple):
    """An event, in the order in which they happen; `kind`: 0 a timer, 1 an entry that expires, 2 the periodic
    timer."""

    at_ms: int
    kind: int
    store: str
    key: str


@dataclass
class PlainInTime(Plain):
    """`Plain`, with the times of its entries and its timers; without `timed` nothing is ever due."""

    timed: bool = False
    may_fail: bool = False
    now_ms: int = -1
    touched_ms: dict[str, int] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)
    next_tick_ms: int | None = None
    calls: dict[str, tuple[int, int, str, str]] = field(default_factory=dict)
    """Pending calls: id → number, time of the request, key, request."""
    call_count: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, Mapping[bytes, bytes]], **plain: Any) -> PlainInTime:
        """Return the state that is stored so; see `stored`. `plain`: the other fields."""
        found = cls(**plain)
        for store, entries in stored.items():
            for key, value in entries.items():
                if store == program.FACTS:
                    found.facts[_unpack(key)] = _unpack(value)
                elif store == "_periods":
                    found.next_tick_ms = _unpack(value)
                elif store == "_calls":
                    _, number, at_ms, asked_of, request = _unpack(value)
                    found.call_count = max(found.call_count, number)
                    if _unpack(key):
                        found.calls[_unpack(key)] = number, at_ms, asked_of.decode(), request.decode()
                elif store == "_timers":
                    found.timers[_unpack(_unpack(key)[2])] = _unpack(value)
                else:
                    stamp_bytes = struct.calcsize(_STAMP) if found.timed else 0
                    found.results[_unpack(key)] = program.number_in(_unpack(value[stamp_bytes:]))
                    if found.timed:
                        found.touched_ms[_unpack(key)] = struct.unpack_from(_STAMP, value)[1]
        return found

    def due(self, to_ms: int) -> Due | None:
        up_to_ms = max(to_ms, self.now_ms)
        found = [Due(at_ms, 0, "", key) for key, at_ms in self.timers.items()]
        for key, at_ms in self.touched_ms.items():
            store = program.store_of(self.results[key], named=self.named)
            found.append(Due(at_ms + TTL_MS, 1, store, key))
        first = min((each for each in found if each.at_ms <= up_to_ms), default=None)
        if first is not None or not self.timed or up_to_ms < (self.next_tick_ms or 0):
            return first
        return Due(up_to_ms, 2, "", "")

    def passes(self, due: Due) -> None:
        self.now_ms = max(self.now_ms, due.at_ms)
        if due.kind == 0:
            del self.timers[due.key]
        elif due.kind == 1:
            del self.results[due.key], self.touched_ms[due.key]
        else:
            self.next_tick_ms = (due.at_ms // EVERY_MS + 1) * EVERY_MS

    def fire(self, version: int, due: Due) -> tuple[str, int, int]:
        """Return what a handler of this version tells of a timer: its name, its time, the result."""
        if due.kind == 2:
            at_ms = due.at_ms - due.at_ms % EVERY_MS
            return TICK, at_ms, program.tick_result(version, len(self.results), at_ms)
        result = program.ring_result(version, self.results.get(due.key, 0), due.at_ms)
        if program.ring_writes(result):
            self._put(due.key, result)
        if program.ring_again(result):
            self.timers[due.key] = due.at_ms + program.AGAIN_MS
        return RING, due.at_ms, result

    def apply(self, version: int, key: str, text: str, timestamp_ms: int = 0) -> int:
        result = program.result_of(version, self.results.get(key, 0), program.joined(text, self.facts.get(key)))
        self._put(key, result)
        if self.timed:
            at_ms = program.ring_at(result, timestamp_ms, may_fail=self.may_fail)
            if at_ms is not None:
                self.timers[key] = at_ms
            elif program.cancels(result):
                self.timers.pop(key, None)
        return result

    def _put(self, key: str, result: int) -> None:
        if program.removes(result):
            self.results.pop(key, None)
            self.touched_ms.pop(key, None)
        else:
            self.results[key] = result
            if self.timed:
                self.touched_ms[key] = self.now_ms

    def ask(self, source: str, at_ms: int, key: str, request: str) -> None:
        """Add a pending call. `source`: the record whose handler has requested it, or the timer and the partition."""
        self.call_count += 1
        call_id = f"{source}/0"
        if source.startswith(f"{RING}-"):
            call_id = f"{source}/{self.call_count}"
        self.calls[f"{program.APP_ID}/{call_id}"] = self.call_count, at_ms, key, request

    def upgrade(self, to_schema: int) -> None:
        """Upgrade every entry through each schema on the way: it keeps its touch, and its timer is gone with it."""
        for key, result in list(self.results.items()):
            now: int | None = result
            for schema in range(self.schema, to_schema):
                now = program.upgraded(now, schema) if now is not None else None
            if now is not None:
                self.results[key] = now
                continue
            del self.results[key]
            self.touched_ms.pop(key, None)
            if program.store_of(result, named=self.named) in TIMED_STORES:
                self.timers.pop(key, None)
        self.schema = to_schema

    def correct(self, key: str, result: int | None) -> None:
        """Set an entry as a handler would, or delete it together with its timer."""
        if result is None:
            if program.store_of(self.results.pop(key), named=self.named) in TIMED_STORES:
                self.timers.pop(key, None)
            self.touched_ms.pop(key, None)
        else:
            self.results[key] = result
            if self.timed:
                self.touched_ms[key] = self.now_ms

    def stored(self) -> dict[str, dict[bytes, bytes]]:
        """Return the entries by store, as the log has them: entries with their stamps, and the timers."""
        found = {
            store: {
                _pack(key): (self._stamp(key) if store != program.FACTS else b"") + _pack(value)
                for key, value in inner.items()
            }
            for store, inner in self.entries().items()
        }
        first = "even" if self.named else "default"
        if self.timers:
            found["_timers"] = {_pack([first, RING, _pack(key)]): _pack(at_ms) for key, at_ms in self.timers.items()}
        if self.next_tick_ms is not None:
            found["_periods"] = {_pack(["", TICK, b""]): _pack(self.next_tick_ms)}
        if self.call_count:
            found["_calls"] = {
                _pack(call_id): _pack([program.ASK, number, at_ms, key.encode(), request.encode()])
                for call_id, (number, at_ms, key, request) in self.calls.items()
            }
            found["_calls"][_pack("")] = _pack(["", self.call_count, -1, None, None])
        return found

    def _stamp(self, key: str) -> bytes:
        return struct.pack(_STAMP, b"\xc1", self.touched_ms[key]) if self.timed else b""
