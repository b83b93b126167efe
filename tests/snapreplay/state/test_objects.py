"""State that is not a map."""

from collections.abc import Iterable
from typing import Any

import pytest

from snapreplay.errors import UsageError
from snapreplay.state.contract import ENTRY_BYTES_MAX, ShardSlice
from snapreplay.state.objects import ObjectStore
from snapreplay.state.steps import all_of


class Book:
    """An order book: a list, in an order of its own."""

    def __init__(self) -> None:
        self.orders = [b"opening"]

    def snapshot(self) -> Iterable[tuple[bytes, bytes]]:
        return ((b"%d" % i, order) for i, order in enumerate(self.orders))

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.orders = [order for _, order in entries]


class UndoBook(Book):
    stream_time_ms = -1

    def begin(self) -> None:
        self.before = list(self.orders)

    def rollback(self) -> None:
        self.orders = self.before


def read(store: ObjectStore, raw_bytes_max: int = 20) -> list[ShardSlice]:
    """All slices of a snapshot."""
    cursor = store.mark()
    slices: list[ShardSlice] = []
    while found := all_of(cursor.slicing(raw_bytes_max)):
        slices += found
    cursor.release()
    return slices


def batch(store: ObjectStore, *orders: bytes) -> None:
    """One committed batch."""
    store.begin()
    store.view.orders += orders
    all_of(store.staging())
    assert all_of(store.sealing()).changes == {}
    store.merge()


def test_a_snapshot_restores_an_equal_object() -> None:
    """In the order in which the entries were given, in parts or whole."""
    store, other = ObjectStore(Book()), ObjectStore(Book())
    batch(store, *(b"order %d" % i for i in range(50)))
    slices = read(store)
    assert len(slices) > 5
    other.clear()
    for part in slices:
        other.load([part])
    other.loaded()
    assert other.view.orders == store.view.orders
    assert other.size_bytes == store.size_bytes > 0


def test_the_image_stays_while_the_object_changes() -> None:
    """It was taken as a whole."""
    store = ObjectStore(Book())
    cursor = store.mark()
    batch(store, b"later")
    (part,) = all_of(cursor.slicing(1000))
    assert list(part.entries.values()) == [b"opening"]


def test_a_rollback_is_the_objects_own() -> None:
    """After it the object is as committed, and may be marked."""
    store = ObjectStore(UndoBook())
    assert store.can_roll_back
    store.begin()
    store.view.orders.append(b"half")
    store.rollback()
    store.drop()
    assert [*read(store)[0].entries.values()] == [b"opening"]


def test_without_rollback_a_failed_batch_needs_a_restore() -> None:
    """Everything is refused until `clear`."""
    store = ObjectStore(Book())
    assert not store.can_roll_back
    store.begin()
    store.view.orders.append(b"half")
    for refused in (store.rollback, store.begin, lambda: all_of(store.sealing()), store.mark):
        with pytest.raises(RuntimeError, match="clear and restore"):
            refused()
    store.clear()
    batch(store, b"x")
    assert store.view.orders == [b"opening", b"x"]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_dropped_batch_cannot_be_undone(*, sealed: bool) -> None:
    """What was staged has changed the object, rollback or not."""
    store = ObjectStore(UndoBook())
    store.begin()
    all_of(store.staging())
    if sealed:
        all_of(store.sealing())
    store.drop()
    with pytest.raises(RuntimeError, match="clear and restore"):
        store.mark()
    store.clear()
    store.mark()


def test_what_was_committed_can_be_kept_and_nothing_else() -> None:
    """`can_drop` says at each moment whether giving up would leave exactly the committed state."""
    store = ObjectStore(UndoBook())
    seen = [store.can_drop]
    begin, merge, drop = store.begin, store.merge, store.drop
    for step in (begin, store.staging, store.sealing, merge, drop):
        steps = step()
        if steps is not None:
            all_of(steps)
        seen.append(store.can_drop)
    assert seen == [True, False, False, False, True, True]
    store.mark()
    store.begin()
    all_of(store.staging())
    store.drop()
    assert not store.can_drop


def test_an_object_holds_one_batch_at_most() -> None:
    """No second one, and no snapshot, while one is under way."""
    store = ObjectStore(UndoBook())
    store.begin()
    with pytest.raises(RuntimeError, match="committed batches only"):
        store.mark()
    all_of(store.staging())
    with pytest.raises(RuntimeError, match="committed batches only"):
        store.mark()
    all_of(store.sealing())
    with pytest.raises(RuntimeError, match="a sealed batch waits"):
        store.begin()
    with pytest.raises(RuntimeError, match="a sealed batch waits"):
        all_of(store.sealing())
    store.merge()
    with pytest.raises(RuntimeError, match="no sealed batch"):
        store.merge()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(b"a", b"1"), (b"a", b"2")], "key b'a' twice"),
        ([("a", b"1")], r"\('a', b'1'\)"),
        ([(b"a", bytearray(b"1"))], "bytearray"),
        ([(b"a", b"1", b"2")], "b'2'"),
        ([b"ab"], "b'ab'"),
        ([(b"a", b"x" * ENTRY_BYTES_MAX)], "800001 bytes"),
    ],
)
def test_a_snapshot_that_breaks_the_contract_is_refused(entries: Any, message: str) -> None:
    """At construction and at each mark, with what was wrong."""
    book = Book()
    store = ObjectStore(book)
    book.snapshot = lambda: entries  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=message):
        store.mark()
    with pytest.raises(UsageError, match=message):
        ObjectStore(book)
