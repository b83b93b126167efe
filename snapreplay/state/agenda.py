"""The times at which keys are due: by time, kept beside the entries that say so, never stored. Pure.

Buckets of about a second hold the keys, so that adding and removing one costs two dict operations, however many are
kept. Only a bucket that comes to be due is put in order, in sorted runs: in one piece, 100,000 keys of one moment would
block the event loop for 30 ms.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from snapreplay.state.steps import Steps

_BUCKET_BITS = 10
"""A bucket covers 2^10 = 1,024 ms."""

_RUN = 512
"""Keys put in order in one step, which takes about a millisecond."""

# Plain tuples: one with names costs a quarter of a microsecond more, and each timer makes some (measured).
Due = tuple[int, bytes]
"""A time and a key. They are due in the order of these tuples."""

_Move = tuple[bytes, int | None, int | None]
"""A key, when it was due before and when it is now; None: not in the agenda."""


class NotInOrder(Exception):
    """An order that is missing: `ordering` comes first."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda


class _Bucket:
    """The keys of about a second."""

    __slots__ = ("_added", "_ahead", "_order", "at_ms")

    def __init__(self) -> None:
        self.at_ms: dict[bytes, int] = {}
        self._order: Iterator[Due] | None = None  # of what was in it when it was put in order
        self._ahead: Due | None = None  # the next of `_order`
        self._added: list[Due] = []  # a heap of what was added since

    def add(self, key: bytes, at_ms: int) -> None:
        self.at_ms[key] = at_ms
        if self._order is not None:
            heapq.heappush(self._added, (at_ms, key))

    @property
    def is_ordered(self) -> bool:
        return self._order is not None

    def first(self) -> Due | None:
        """Return the first one, once they are in order. What was removed or moved since then is passed over."""
        ahead, at_ms = self._ahead, self.at_ms
        while ahead is not None and at_ms.get(ahead[1]) != ahead[0]:
            self._ahead = ahead = next(self._order or iter(()), None)
        added = self._added
        while added and at_ms.get(added[0][1]) != added[0][0]:
            heapq.heappop(added)
        if added and (ahead is None or added[0] < ahead):
            ahead = added[0]
        return ahead

    def ordering(self) -> Steps[None]:
        """Put them in order. Nothing may be added or removed before the last step."""
        entries = iter(self.at_ms.items())
        runs: list[Iterator[Due]] = []
        while run := [(at_ms, key) for key, at_ms in islice(entries, _RUN)]:
            run.sort(reverse=True)
            runs.append(_emptying(run))
            yield
        self._order = heapq.merge(*runs)
        self._ahead = next(self._order, None)


def _emptying(run: list[Due]) -> Iterator[Due]:
    """Take from the end on. What was taken is freed at once: all of it together would take 10 ms (measured)."""
    while run:
        yield run.pop()


class Agenda:
    """The agenda of a map: encoded key → when it is due. It follows a map through the life of its batches, see
    `Store`."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._numbers: list[int] = []  # a heap of the keys of `_buckets`
        self._touched: list[_Move] = []
        self._staged: list[_Move] = []
        self._sealed: list[_Move] = []

    def __len__(self) -> int:
        return sum(len(bucket.at_ms) for bucket in self._buckets.values())

    @property
    def not_before_ms(self) -> int | None:
        """Nothing is due before this time, which is up to a second too early; None: nothing at all."""
        return self._numbers[0] << _BUCKET_BITS if self._first_bucket() is not None else None

    @property
    def next_ms(self) -> int | None:
        """The time when the first key is due, to be shown; None: nothing is. Of very many keys in one second which
        are not in order yet, only the second is looked at."""
        bucket = self._first_bucket()
        if bucket is None:
            return None
        if bucket.is_ordered:
            first = bucket.first()
            return None if first is None else first[0]
        few = len(bucket.at_ms) <= _RUN
        return min(bucket.at_ms.values()) if few else self._numbers[0] << _BUCKET_BITS

    def ordering(self, up_to_ms: int) -> Steps[None]:
        """Make `first` possible. Nothing may be set before the last step."""
        bucket = self._first_bucket(up_to_ms)
        if bucket is not None and not bucket.is_ordered:
            yield from bucket.ordering()

    def first(self, up_to_ms: int) -> Due | None:
        """Return the first key that is due at or before `up_to_ms`; it stays in the agenda. Raises NotInOrder:
        `ordering` was not called, or what was in order is gone."""
        bucket = self._first_bucket(up_to_ms)
        if bucket is None:
            return None
        if not bucket.is_ordered:
            raise NotInOrder(self)
        due = bucket.first()
        return due if due is not None and due[0] <= up_to_ms else None

    def set(self, key: bytes, old_ms: int | None, new_ms: int | None) -> None:
        """Move a key from `old_ms`, where it must be, to `new_ms`; None: in the agenda no more, or not yet."""
        self._touched.append((key, old_ms, new_ms))
        self.load(key, old_ms, new_ms)

    def load(self, key: bytes, old_ms: int | None, new_ms: int | None) -> None:
        """Set at once and for good: what is loaded is committed already."""
        if old_ms is not None:
            del self._buckets[old_ms >> _BUCKET_BITS].at_ms[key]
        if new_ms is not None:
            number = new_ms >> _BUCKET_BITS
            bucket = self._buckets.get(number)
            if bucket is None:
                bucket = self._buckets[number] = _Bucket()
                heapq.heappush(self._numbers, number)
            bucket.add(key, new_ms)

    # ------------------------------------------------------------------ the life of a batch

    def rollback(self) -> None:
        """Undo what was set since the last `stage`."""
        self._undo(self._touched)

    def stage(self) -> None:
        self._staged += self._touched
        self._touched = []

    def seal(self) -> None:
        self._sealed, self._staged = self._staged, []

    def merge(self) -> None:
        self._sealed = []

    def drop(self) -> None:
        """Undo everything since the last `merge`."""
        for moves in (self._touched, self._staged, self._sealed):
            self._undo(moves)

    def _undo(self, moves: list[_Move]) -> None:
        while moves:
            key, old_ms, new_ms = moves.pop()
            self.load(key, new_ms, old_ms)

    def _first_bucket(self, up_to_ms: int | None = None) -> _Bucket | None:
        """Return the first bucket if it may have a key that is due by then. An emptied bucket stays until it is the
        first: its number is in the heap only once."""
        numbers = self._numbers
        while numbers:
            bucket = self._buckets[numbers[0]]
            if bucket.at_ms:
                return bucket if up_to_ms is None or numbers[0] << _BUCKET_BITS <= up_to_ms else None
            del self._buckets[heapq.heappop(numbers)]
        return None
