"""Tables and joins: handlers that keep a topic in a store, and bring together what has the same key. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from snapreplay.app.out import Out
from snapreplay.app.record import Record
from snapreplay.app.timer import Timer
from snapreplay.app.topic import InternalTopic, Topic, TopicPattern
from snapreplay.app.windowed import check_durations, check_store, note_late, store_in, time_of
from snapreplay.errors import RecordError, UsageError

K = TypeVar("K")
V = TypeVar("V")
L = TypeVar("L")
R = TypeVar("R")
S = TypeVar("S")

_NOTHING: Any = object()

Changed = Callable[[Record[Any, Any], Any, Any, Out], None]
"""Called with the record of a table, the value before it or None, state and out."""


class Table(Generic[K, V]):
    """A compacted topic, kept in a store: the newest value of each key. Made by `App.table`."""

    def __init__(self, topic: Topic[K, V | None], store: str, *, is_broadcast: bool = False) -> None:
        if not topic.value.nullable:
            raise UsageError(
                f"table {topic.name}: a null value deletes a key, but {topic.value.name} takes none",
                hint=f'declare `Topic("{topic.name}", …, value=nullable(…))`',
            )
        if is_broadcast and (isinstance(topic, InternalTopic | TopicPattern) or topic.partitioner is not None):
            raise UsageError(
                f"table {topic.name}: only a topic of its own, without partitioner=, can be broadcast",
                hint="every partition reads all of it, wherever a key lies: declare it by its name alone",
            )
        self.topic, self.store, self.is_broadcast = topic, store, is_broadcast
        self.changed: list[Changed] = []

    def __call__(self, record: Record[K, V | None], state: Any, out: Out) -> None:
        if record.key is None:
            raise RecordError("a record of a table needs a key", hint="its producer must set one")
        kept = store_in(state, self.store)
        before = kept.get(record.key)
        if record.value is not None:
            kept[record.key] = record.value
        elif before is not None:
            del kept[record.key]
        for each in self.changed:
            each(record, before, state, out)

    def check(self, state: object) -> None:
        """Raise UsageError if the state has no store for it."""
        check_store(f"table {self.topic.name}", state, self.store, "str")

    def __repr__(self) -> str:
        return f"table {self.topic.name}"


class Pair(msgspec.Struct, Generic[K, L, R], frozen=True):
    """The values of both sides of a join; None if a side has no value.

    Attributes:
        timestamp_ms: of the newer record; in a join of topic and table, of the topic's record. Outputs have it, too.
    """

    key: K
    left: L
    right: R
    timestamp_ms: int


PairHandler = Callable[[Pair[K, L, R], S, Out], None]


def with_table(
    function: PairHandler[Any, Any, Any, Any], table: Table[Any, Any], *, is_left: bool
) -> Callable[[Any, Any, Out], None]:
    """Return the handler of a stream that is joined with a table."""

    def joined(record: Record[Any, Any], state: Any, out: Out) -> None:
        value = store_in(state, table.store).get(record.key)
        if is_left or value is not None:
            function(Pair(record.key, record.value, value, record.timestamp_ms), state, out)

    return joined


def of_tables(
    function: PairHandler[Any, Any, Any, Any], left: Table[Any, Any], right: Table[Any, Any], *, is_left: bool
) -> None:
    """Let each change of a joined row call the function."""
    for each in (left, right):
        if each.is_broadcast:
            raise UsageError(
                f"{each!r} is broadcast: its changes reach every partition, and each would call the function",
                hint="join a topic with it; or let the table be partitioned as the other one, without broadcast=True",
            )

    def left_changed(record: Record[Any, Any], before: Any, state: Any, out: Out) -> None:
        other = store_in(state, right.store).get(record.key)
        if (is_left or other is not None) and (before is not None or record.value is not None):
            function(Pair(record.key, record.value, other, record.timestamp_ms), state, out)

    def right_changed(record: Record[Any, Any], before: Any, state: Any, out: Out) -> None:
        other = store_in(state, left.store).get(record.key)
        if other is not None and (before is not None or record.value is not None):
            function(Pair(record.key, other, record.value, record.timestamp_ms), state, out)

    left.changed.append(left_changed)
    right.changed.append(right_changed)


class StreamJoin:
    """Two streams, joined where their records have the same key and lie within some time of each other.

    Each side has an ordered store (key, timestamp, offset) → value. A record leaves it when no record can come any more
    that it could match: by a timer of the join's name, or `<name>-unmatched` if the join is a left one and nothing has
    matched it so far.
    """

    def __init__(
        self,
        name: str,
        stores: tuple[str, str],
        within_ms: int,
        grace_ms: int,
        late: tuple[Topic[Any, Any] | None, Topic[Any, Any] | None],
        function: PairHandler[Any, Any, Any, Any],
        *,
        is_left: bool,
    ) -> None:
        check_durations(0, within_ms=within_ms, grace_ms=grace_ms)
        if len(set(stores)) != 2:
            raise UsageError(f"join {name}: stores={stores!r} are not two names", hint='use `stores=("left", "right")`')
        self.name, self.stores = name, stores
        self._within_ms, self._grace_ms, self._function, self._is_left = within_ms, grace_ms, function, is_left
        self._late = late

    @property
    def unmatched(self) -> str:
        return f"{self.name}-unmatched"

    def add(self, side: int, record: Record[Any, Any], state: Any, out: Out) -> None:
        """Handle a record of the left input, 0, or of the right one, 1."""
        at_ms, key = time_of(record), record.key
        mine, other = (store_in(state, self.stores[each]) for each in (side, 1 - side))
        if at_ms + self._grace_ms < mine.stream_time_ms:
            note_late(self.name, self._late[side], record, out)
            return
        entry, is_matched = (key, at_ms, record.offset), False
        mine[entry] = record.value
        start_ms, end_ms = at_ms - self._within_ms, at_ms + self._within_ms + 1
        for found, value in other.range(start=(key, start_ms), end=(key, end_ms)):
            is_matched = True
            if side == 1 and self._is_left and other.cancel(found, timer=self.unmatched):
                other.schedule(found, self._leaves_ms(found[1]), timer=self.name)
            pair = (record.value, value) if side == 0 else (value, record.value)
            self._call(Pair(key, *pair, max(at_ms, found[1])), state, out)
        is_waiting = self._is_left and side == 0 and not is_matched
        mine.schedule(entry, self._leaves_ms(at_ms), timer=self.unmatched if is_waiting else self.name)

    def _leaves_ms(self, at_ms: int) -> int:
        return at_ms + self._within_ms + self._grace_ms + 1

    def _call(self, pair: Pair[Any, Any, Any], state: Any, out: Out) -> None:
        out.at_ms = pair.timestamp_ms
        self._function(pair, state, out)

    def leave(self, timer: Timer[Any], state: Any, out: Out) -> None:  # noqa: ARG002 - all handlers have these three
        store_in(state, timer.store).pop(timer.key, None)

    def leave_unmatched(self, timer: Timer[Any], state: Any, out: Out) -> None:
        value = store_in(state, timer.store).pop(timer.key, _NOTHING)
        if value is not _NOTHING:
            self._call(Pair(timer.key[0], value, None, timer.key[1]), state, out)

    def check(self, state: object) -> None:
        """Raise UsageError if the state lacks one of its stores."""
        for each in self.stores:
            check_store(str(self), state, each, "tuple[str, int, int]", is_ordered=True)

    def __repr__(self) -> str:
        return f"join {self.name}"
