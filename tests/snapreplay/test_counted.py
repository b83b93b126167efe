"""Numbers of things in messages."""

import pytest

from snapreplay.counted import counted, counted_are, counted_or_no, some


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(0, "offset"), "0 offsets"),
        (counted(1, "entry"), "1 entry"),
        (counted(1_048_576, "entry"), "1,048,576 entries"),
        (counted(2, "key"), "2 keys"),
        (counted(3, "batch"), "3 batches"),
        (counted(2, "index"), "2 indexes"),
        (counted_are(1, "offset"), "1 offset is"),
        (counted_are(2, "offset"), "2 offsets are"),
        (counted_or_no(0, "finding"), "no findings"),
        (counted_or_no(1, "entry"), "1 entry"),
        (counted_or_no(2_000, "finding"), "2,000 findings"),
        (some("abcd"), "a, b, c, d"),
        (some("abcde"), "a, b, c and 2 more"),
    ],
)
def test_a_noun_and_a_verb_follow_their_number(said, expected):
    """Singular for one, plural for none and many, thousands apart; none is a word where it reads better."""
    assert said == expected
