"""A state that is not a map: a user's object that is written and read back as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.state.contract import (
    ENTRY_BYTES_MAX,
    Cursor,
    Sealed,
    ShardSlice,
    State,
    StateChanges,
    Store,
    unknown_store,
)
from snapreplay.state.cursor import ShardCursor
from snapreplay.state.digest import DEFAULT_STORE, Digest, adding_up
from snapreplay.state.steps import Steps, all_of

_NO_CHANGES = Sealed({}, None)


class ObjectStore(Store):
    """A `Store` around a `State`. It has no changes and no digest per batch; each snapshot has one.

    The object holds at most one batch that is not merged. `begin` refuses a second one, because nothing could undo the
    older of the two. What `snapshot()` returned at construction is kept for `clear`.
    """

    keeps_changes = False
    digest = None
    shard_count = 1
    size_bytes = 0
    quiet_before_ms = -1

    def __init__(self, state: State) -> None:
        """Hold `state`, or raise UsageError: only one of `begin` and `rollback`, or a `snapshot()` that breaks its
        contract."""
        self.view: Any = state
        self._begin = getattr(state, "begin", None)
        self._rollback = getattr(state, "rollback", None)
        if (self._begin is None) != (self._rollback is None):
            raise UsageError(
                f"{type(state).__name__} has only one of begin() and rollback()", hint="implement both, or none"
            )
        self.can_roll_back = self._begin is not None
        self.clock = self
        self._stream_time_ms = -1
        self._shows_stream_time = hasattr(state, "stream_time_ms")
        self._open = False  # begun, and neither staged nor rolled back
        self._staged = False  # holds more than the last committed batch
        self.is_sealed = False
        self._spoilt = False
        self._loading: dict[bytes, bytes] = {}
        self._initial = _entries(state)

    @property
    def stream_time_ms(self) -> int:
        """The stream time, also set on the object if it had an attribute of this name when it was made."""
        return self._stream_time_ms

    @stream_time_ms.setter
    def stream_time_ms(self, value: int) -> None:
        self._stream_time_ms = value
        if self._shows_stream_time:
            self.view.stream_time_ms = value

    @property
    def can_drop(self) -> bool:
        return not (self._spoilt or self._staged or self._open)

    def begin(self) -> None:
        self._refuse_spoilt()
        if self.is_sealed:
            raise RuntimeError("a sealed batch waits: an object cannot hold a second one")
        self._open = True
        if self._begin is not None:
            self._begin()

    def staging(self) -> Steps[None]:
        """Stage in a single step: nothing is encoded before the next snapshot."""
        yield
        self._staged, self._open = True, False

    def rollback(self) -> None:
        """Undo the batch, or raise RuntimeError: the state has no rollback(); restore it instead."""
        if self._rollback is None:
            self._spoilt = True
            self._refuse_spoilt()
        else:
            self._rollback()
            self._open = False

    def sealing(self) -> Steps[Sealed]:
        self._refuse_spoilt()
        if self.is_sealed:
            raise RuntimeError("a sealed batch waits: merge or drop it before the next seal")
        yield
        self.is_sealed = True
        return _NO_CHANGES

    def merge(self) -> None:
        if not self.is_sealed:
            raise RuntimeError("no sealed batch to merge")
        self.is_sealed = self._staged = False

    def drop(self) -> None:
        self._spoilt = not self.can_drop
        self.is_sealed = self._staged = self._open = False

    def apply_changes(self, changes: StateChanges, cleared: Sequence[str] = ()) -> NoReturn:
        """Raise UsageError, always."""
        del cleared
        count = sum(map(len, changes.values()))
        raise UsageError(
            f"{type(self.view).__name__} is not a map: {counted(count, 'change')} cannot be applied to it,"
            " because it is recovered by replay"
        )

    def mark(self) -> Cursor:
        """Take and hash all of `snapshot()` in this call; slice it later."""
        self._refuse_spoilt()
        if self._staged or self._open:
            raise RuntimeError("a batch is not merged yet: a snapshot is of committed batches only")
        entries = _entries(self.view)
        self.size_bytes = sum(map(len, entries)) + sum(map(len, entries.values()))
        return ShardCursor([entries], all_of(adding_up(entries.items())))  # in steps: other threads run between two

    def digesting(self) -> Steps[Digest]:
        self._refuse_spoilt()
        return (yield from adding_up(_pairs(self.view)))

    def clear(self, shard_count: int = shard_count) -> None:  # noqa: ARG002 - one shard, always
        self._open = self._staged = self.is_sealed = self._spoilt = False
        self._loading = {}
        self.size_bytes = 0
        self.stream_time_ms = -1
        self.view.restore(iter(self._initial.items()))

    def freeing(self) -> Steps[None]:
        self.clear()
        yield

    def load(self, slices: Iterable[ShardSlice], store: str = DEFAULT_STORE) -> None:
        if store != DEFAULT_STORE:
            raise unknown_store(store, DEFAULT_STORE)
        for part in slices:
            self._loading.update(part.entries)
            self.size_bytes += sum(map(len, part.entries)) + sum(map(len, part.entries.values()))

    def loaded(self) -> None:
        """Give the entries to `restore` in the order in which `snapshot` returned them."""
        entries, self._loading = self._loading, {}
        self.view.restore(iter(entries.items()))

    def committed_view(self) -> NoReturn:
        """Raise UsageError, always."""
        raise UsageError(
            f"{type(self.view).__name__} is not a map: there is no view of its last committed batch",
            hint="keep the state in a MapState, or send what others need to an output topic",
        )

    def _refuse_spoilt(self) -> None:
        if self._spoilt:
            raise RuntimeError(f"{type(self.view).__name__} holds part of an abandoned batch: clear and restore it")


def _entries(state: State) -> dict[bytes, bytes]:
    name = f"{type(state).__name__}.snapshot()"
    entries: dict[bytes, bytes] = {}
    for key, value in _pairs(state):
        if key in entries:
            raise UsageError(f"{name} returned key {key!r} twice", hint="return each key only once")
        if len(key) + len(value) > ENTRY_BYTES_MAX:
            raise UsageError(
                f"{name} returned an entry of {len(key) + len(value)} bytes under key {key[:40]!r}, "
                f"but the limit is {ENTRY_BYTES_MAX}",
                hint="split it into several entries: each must fit into one Kafka record",
            )
        entries[key] = value
    return entries


def _pairs(state: State) -> Iterator[tuple[bytes, bytes]]:
    for entry in state.snapshot():
        given: Any = entry
        if not isinstance(given, tuple) or [type(part) for part in given] != [bytes, bytes]:
            raise UsageError(
                f"{type(state).__name__}.snapshot() returned {given!r:.80}, which is not an entry",
                hint="return each entry as a tuple (key bytes, value bytes)",
            )
        yield entry
