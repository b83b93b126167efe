"""Two views of a log, put side by side."""

from __future__ import annotations

import pytest

from tests.checker.reading import Cursor, Record, both


def log(*offsets: int, value: bytes = b"v") -> list[Record]:
    return [Record(offset, None, value, ()) for offset in offsets]


def test_what_only_one_reader_sees_is_not_committed() -> None:
    """Every record comes once, in order, with whether a read_committed reader gets it."""
    odd: list[object] = []
    found = list(both(iter(log(1, 4)), iter(log(0, 1, 2, 4, 5)), lambda *what: odd.append(what)))
    assert [(each.offset, each.committed) for each in found] == [
        (0, False),
        (1, True),
        (2, False),
        (4, True),
        (5, False),
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("committed", "everything", "offset"),
    [(log(0, 3), log(0, 4), 3), (log(0, 9), log(0, 4), 9), (log(0, value=b"other"), log(0), 0)],
    ids=["missing", "missing at the end", "two values at one offset"],
)
def test_two_readers_that_do_not_agree_are_told_of(
    committed: list[Record], everything: list[Record], offset: int
) -> None:
    """One offset has one record, whoever reads it."""
    odd: list[int] = []
    list(both(iter(committed), iter(everything), lambda offset, _: odd.append(offset)))
    assert odd == [offset]


def test_a_cursor_keeps_what_was_not_taken() -> None:
    """A record at or above the end is still there for the next range."""
    cursor = Cursor(iter(log(1, 2)))
    taken = [cursor.below(end) for end in (1, 2, 2, 3, 9)]
    assert [each and each.offset for each in taken] == [None, 1, None, 2, None]
