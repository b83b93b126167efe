"""Attack A5: live objects cross the state's boundary, and outputs depend on where batches end. Values that do not read
back, or stand under two keys: tests/snapreplay/state/test_values.py; keys: test_map.py there."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, Topic
from snapreplay.app.harness import Harness
from snapreplay.app.made_record import record

payments, balances = Topic("payments"), Topic("balances")


def add(record: Any, state: Any, out: Any) -> None:
    """The output is the very object that later records of the batch change."""
    account = state[record.key]
    account["balance"] += record.value
    out.send(balances, key=record.key, value=account)


def accounts() -> MapState[str, dict[str, int]]:
    return MapState(str, dict, default=lambda: {"balance": 0})


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9)), min_size=1, max_size=12), st.integers(1, 12))
@example([("a", 1), ("a", 2)], 2)
def test_a5_each_output_shows_its_own_moment(records, size):
    """Two payments of one account in one batch send two balances, in any batch and after any crash."""
    app: App[Any] = App("a5", inputs=[payments], outputs=[balances], state=accounts)
    app.handler(payments)(add)
    harness = Harness(app)
    made = [record(payments, key=key, value=value) for key, value in records]
    for start in range(0, len(made), size):
        harness.feed_batch(made[start : start + size])
        harness.crash(seed=start)
    sums: dict[str, int] = {}
    expected = []
    for key, amount in records:
        sums[key] = sums.get(key, 0) + amount
        expected.append((key, {"balance": sums[key]}))
    assert [(sent.key, sent.value) for sent in harness.outputs(balances)] == expected
    assert {key: harness.state[key]["balance"] for key in sums} == sums
