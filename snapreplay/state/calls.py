"""Pending calls to the outside: entries of a reserved store, so snapshots, digests and audits know them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.state.contract import CALLS_STORE, ENTRY_BYTES_MAX
from snapreplay.state.keys import KeyCodec
from snapreplay.state.mapstore import MapStore
from snapreplay.state.steps import Steps
from snapreplay.state.values import ValueCodec

_COUNTER = ""
"""The key of the entry whose `number` the last call had."""

_AT_ONCE = 1024


class UnknownCall(StopError):
    """Calls are pending, and the app does not declare them: they were renamed or removed.

    Safe: The partition stops before the first record. The calls stay as they are, with all entries.
    """


class PendingCall(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A call that has no answer yet.

    Attributes:
        name: of the declared call.
        number: of calls with several pending ones, the lower number was requested first.
        at_ms: time of the record or timer that has requested it; -1: it had none.
        key, request: encoded.
    """

    name: str
    number: int
    at_ms: int = -1
    key: bytes | None = None
    request: bytes | None = None


class Numbered(NamedTuple):
    """A pending call with its id."""

    id: str
    call: PendingCall


class CallStore(MapStore[str, PendingCall]):
    """The store of pending calls: id → `PendingCall`. `names`: of the calls that the app declares."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(None, KeyCodec(str), ValueCodec(PendingCall), ENTRY_BYTES_MAX)
        self.give_name(CALLS_STORE)
        self._names = frozenset(names)

    def next_number(self) -> int:
        """Count a call, and return its number."""
        last = self.look(_COUNTER)
        number = 1 if last is None else last.number + 1
        self.put(_COUNTER, PendingCall("", number))
        return number

    def add(self, call_id: str, call: PendingCall) -> None:
        self.put(call_id, call)

    def take(self, call_id: str) -> PendingCall | None:
        """Remove a pending call; None: it is not pending."""
        found = self.look(call_id) if call_id != _COUNTER else None
        if found is not None:
            self.remove(call_id)
        return found

    # ------------------------------------------------------------------ what is committed

    def pending(self) -> list[Numbered]:
        """Return the committed pending calls, in the order requested."""
        return self.requested(dict(each for part in self.shards.by_shard() for each in part.items()))

    def requested(self, changes: Mapping[bytes, bytes | None]) -> list[Numbered]:
        """Return the calls that these changes of the store add, in the order requested."""
        found = [
            Numbered(self.decode_key(key), self._unpack(value)) for key, value in changes.items() if value is not None
        ]
        return sorted((each for each in found if each.id != _COUNTER), key=lambda each: each.call.number)

    def removed(self, changes: Mapping[bytes, bytes | None]) -> list[str]:
        """Return the ids of the calls that are not pending any more."""
        return [self.decode_key(key) for key, value in changes.items() if value is None]

    def refusing(self) -> Steps[None]:
        """Read all pending calls. Raises UnknownCall: the app does not declare one of them."""
        names = (self._unpack(value).name for part in self.shards.by_shard() for value in part.values())
        unknown = yield from counting_others(names, {*self._names, ""})
        if unknown:
            raise _unknown_calls(unknown, sorted(self._names))


def counting_others(names: Iterator[str], known: Collection[str]) -> Steps[Counter[str]]:
    """Count the names that are not known."""
    found: Counter[str] = Counter()
    while block := list(islice(names, _AT_ONCE)):
        found.update(each for each in block if each not in known)
        yield
    return found


def _unknown_calls(counts: Mapping[str, int], known: Sequence[str]) -> UnknownCall:
    listed = ", ".join(f"{counted(count, 'call')} {name!r}" for name, count in sorted(counts.items()))
    name = min(counts)
    return UnknownCall(
        f"the log has {listed} pending, which this app does not declare: it has {', '.join(map(repr, known))}",
        hint=f'nothing is lost. If the call was renamed, give it its name again: `@app.call(name="{name}")`. To drop'
        " what is pending, declare it with a function that returns or raises at once, and a handler that does nothing,"
        " until none is pending",
        calls=sorted(counts),
    )
