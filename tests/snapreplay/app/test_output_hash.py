"""Tests of what was sent, as docs/FORMAT.md "Outputs" says it, and in pieces."""

from typing import Any

import msgpack
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app import output_hash
from snapreplay.app.output_hash import PIECE_OUTPUTS, hashing
from snapreplay.app.record import Output
from snapreplay.state.steps import all_of

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
        patch.setattr(output_hash, "PIECE_OUTPUTS", size)
        patch.setattr(output_hash, "PIECE_BYTES", 200)
        assert all_of(hashing(sent)) == by_hand(sent)


def test_large_batches_are_hashed_in_steps() -> None:
    """From one output on twice as many each time, up to a limit; one by one where they are large."""
    doubled = PIECE_OUTPUTS.bit_length()  # 1, 2, 4, … PIECE_OUTPUTS
    assert sum(1 for _ in hashing([BASE] * (3 * PIECE_OUTPUTS - 1))) == doubled + 1
    assert sum(1 for _ in hashing([BASE] * (3 * PIECE_OUTPUTS))) == doubled + 2
    large = Output("balances", b"ada", bytes(1 << 20), None, True, None)
    assert sum(1 for _ in hashing([large] * 20)) == 20
    assert all_of(hashing([BASE] * 1000)) == by_hand([BASE] * 1000)


@pytest.mark.parametrize(
    "changed",
    [
        {"key": b"bob"},
        {"key": None},
        {"key": b""},
        {"value": b"6"},
        {"value": None},
        {"partition": 0},
        {"same_key": False},
        {"timestamp_ms": 0},
        {"headers": (("a", b""),)},
    ],
)
def test_everything_of_an_output_counts(changed: dict[str, Any]) -> None:
    """Null and empty are not the same."""
    fields = {name: getattr(BASE, name) for name in BASE.__struct_fields__}
    assert all_of(hashing([Output(**(fields | changed))])) != all_of(hashing([BASE]))


def test_order_counts_and_nothing_sent_is_nothing() -> None:
    """Two outputs exchanged are other outputs."""
    other = Output("balances", b"bob", b"5", None, True, None)
    assert all_of(hashing([BASE, other])) != all_of(hashing([other, BASE]))
    assert all_of(hashing([])) == {}
