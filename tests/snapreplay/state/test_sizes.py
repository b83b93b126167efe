"""Tests of how large entries are."""

import pytest

from snapreplay.state.sizes import largest_entry_bytes


@pytest.mark.parametrize(
    ("entries", "largest"),
    [({}, 0), ({b"ab": b"cde", b"f": b"g"}, 5), ({b"abc": None, b"d": b"e"}, 3)],
)
def test_the_largest_entry_is_key_and_value(entries, largest):
    """A tombstone has only its key."""
    assert largest_entry_bytes(entries) == largest
