"""Tests that what a handler sees of a record is the same on every pass."""

import msgpack
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app import record as module
from snapreplay.app.out import checked_headers
from snapreplay.app.record import PIECE_OUTPUTS, Output, Record, hashing
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.steps import all_of


def test_random_depends_on_app_and_record_only():
    """Two passes over a record draw the same numbers; another record or app draws others."""
    one = Record("app", "payments", 3, 7, 5, "k", {"amount": 1})
    again = Record("app", "payments", 3, 7, 6, "other", None)
    draws = [record.random.random() for record in (one, again, one)]
    assert len(set(draws)) == 1
    assert Record("app", "payments", 3, 8, 5, "k", None).random.random() != draws[0]
    assert Record("other", "payments", 3, 7, 5, "k", None).random.random() != draws[0]


def test_pairs_are_taken_in_their_order():
    """Lists count as pairs, a name may come twice."""
    given = [("a", b"1"), ["a", b"2"]]
    assert checked_headers("payments", given, UsageError) == (("a", b"1"), ("a", b"2"))
    assert checked_headers("payments", (), UsageError) == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ab": b"1"}, r"headers=\{'ab': b'1'\} is not a list of pairs"),
        ("ab", "headers='ab' is not a list of pairs"),
        (b"ab", "headers=b'ab' is not a list of pairs"),
        (5, "headers=5 is not a list of pairs"),
        (["ab"], r"header 'ab' is not a \(str, bytes\) pair"),
        ([("a", "1")], r"header \('a', '1'\) is not a"),
        ([("a", b"1", 2)], r"header \('a', b'1', 2\) is not a"),
    ],
)
def test_anything_else_is_named(given, said):
    """A dict of two-letter names would pass for pairs; by the class of the caller."""
    with pytest.raises(RecordError, match=f"output to x: {said}"):
        checked_headers("output to x", given, RecordError)


BASE = Output("balances", b"ada", b"5", None, True, None)
outputs = st.builds(
    Output,
    st.sampled_from(["balances", "alerts"]),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.none() | st.integers(0, 2**31),
    st.booleans(),
    st.none() | st.integers(0, 2**62),
    st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple),
)


def by_hand(sent: list[Output]) -> dict[str, int]:
    """Hash with another library, all at once."""
    found = {}
    for topic in {one.topic for one in sent}:
        packed = [
            msgpack.packb(
                [
                    topic,
                    one.key,
                    one.value,
                    one.partition,
                    one.same_key,
                    one.timestamp_ms,
                    [list(header) for header in one.headers],
                ]
            )
            for one in sent
            if one.topic == topic
        ]
        found[topic] = xxhash.xxh64_intdigest(b"".join(packed))
    return found


@given(st.lists(outputs, max_size=40), st.integers(1, 40))
def test_it_is_what_the_format_says_however_it_is_cut(sent: list[Output], size: int) -> None:
    """Per topic, in the order sent; pieces of any number and size give the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_OUTPUTS", size)
        patch.setattr(module, "PIECE_BYTES", 200)
        assert all_of(hashing(sent)) == by_hand(sent)


def test_large_batches_are_hashed_in_steps() -> None:
    """From one output on twice as many each time, up to a limit; one by one where they are large."""
    doubled = PIECE_OUTPUTS.bit_length()  # 1, 2, 4, … PIECE_OUTPUTS
    assert sum(1 for _ in hashing([BASE] * (3 * PIECE_OUTPUTS - 1))) == doubled + 1
    assert sum(1 for _ in hashing([BASE] * (3 * PIECE_OUTPUTS))) == doubled + 2
    large = Output("balances", b"ada", bytes(1 << 20), None, True, None)
    assert sum(1 for _ in hashing([large] * 20)) == 20
    assert all_of(hashing([BASE] * 1000)) == by_hand([BASE] * 1000)
