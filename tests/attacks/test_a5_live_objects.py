"""Attack A5: live objects cross the state's boundary, and outputs or state depend on where batches end."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, Topic
from snapreplay.app.harness import Harness, record
from snapreplay.errors import RecordError

payments, balances = Topic("payments"), Topic("balances")
Handler = Callable[[Any, Any, Any], None]


def app(handler: Handler, **options: Any) -> App[Any]:
    """One input, one output, a map of dicts."""
    given: dict[str, Any] = {"default": lambda: {"balance": 0}} | options
    made: App[Any] = App(
        "a5", inputs=[payments], outputs=[balances], state=lambda: MapState(str, dict, **given)
    )
    made.handler(payments)(handler)
    return made


def add(record: Any, state: Any, out: Any) -> None:
    """The output is the very object that later records of the batch change."""
    account = state[record.key]
    account["balance"] += record.value
    out.send(balances, key=record.key, value=account)


def fed(
    handler: Handler, records: list[tuple[str, Any]], size: int, **options: Any
) -> Harness[Any]:
    """The records in batches of `size`, with a crash after each batch."""
    harness = Harness(app(handler, **options))
    made = [record(payments, key=key, value=value) for key, value in records]
    for start in range(0, len(made), size):
        harness.feed_batch(made[start : start + size])
        harness.crash(seed=start)
    return harness


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9)), min_size=1, max_size=12),
    st.integers(1, 12),
)
def test_a5_each_output_shows_its_own_moment(records, size):
    """Two payments of one account in one batch send two balances, whatever the batch."""
    sums: dict[str, int] = {}
    expected = []
    for key, amount in records:
        sums[key] = sums.get(key, 0) + amount
        expected.append((key, {"balance": sums[key]}))
    harness = fed(add, records, size)
    assert [(sent.key, sent.value) for sent in harness.outputs(balances)] == expected
    assert {key: harness.state[key]["balance"] for key in sums} == sums


@pytest.mark.parametrize(
    "value", [(1, 2), {1}, bytearray(b"x"), 2**64, {1: "int key"}, [(1,)], {"deep": {"er": {1}}}]
)
@pytest.mark.parametrize("size", [1, 2])
def test_a5_what_would_not_read_back_is_refused_by_name(value, size):
    """A tuple reads back as a list, a set not at all: within the batch it would be one thing, after it another."""

    def keep(record: Any, state: Any, out: Any) -> None:
        state[record.key] = {"v": value if record.value else 0}

    with pytest.raises(RecordError, match="payments-0-1") as refused:
        fed(keep, [("a", 0), ("the key", 1)], size)
    assert "the key" in refused.value.message


@pytest.mark.parametrize("size", [1, 3])
def test_a5_one_object_under_two_keys_is_refused(size):
    """They would be one account until the batch ends, and two afterwards."""

    def alias(record: Any, state: Any, out: Any) -> None:
        state["one"] = state["two"] = {"balance": record.value}

    with pytest.raises(RecordError, match="payments-0-0"):
        fed(alias, [("a", 1), ("a", 2)], size)
