"""Headers are pairs of a name and bytes; anything else is refused by name."""

import pytest

from snapreplay.app.out import checked_headers
from snapreplay.errors import RecordError, UsageError


def test_pairs_are_taken_in_their_order():
    """Lists count as pairs, a name may come twice."""
    given = [("a", b"1"), ["a", b"2"]]
    assert checked_headers("payments", given, UsageError) == (("a", b"1"), ("a", b"2"))
    assert checked_headers("payments", (), UsageError) == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ab": b"1"}, r"headers=\{'ab': b'1'\} is of type dict"),
        ("ab", "headers='ab' is no list of pairs"),
        (b"ab", "headers=b'ab' is no list of pairs"),
        (5, "headers=5 is no list of pairs"),
        (["ab"], r"header 'ab' is not a \(str, bytes\) pair"),
        ([("a", "1")], r"header \('a', '1'\) is not a"),
        ([("a", b"1", 2)], r"header \('a', b'1', 2\) is not a"),
    ],
)
def test_anything_else_is_named(given, said):
    """A dict of two-letter names would pass for pairs; by the class of the caller."""
    with pytest.raises(RecordError, match=f"output to x: {said}"):
        checked_headers("output to x", given, RecordError)
