"""Attack B14: the order of a dict differs after a restore, a delete or another hash seed, and so do results."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, Topic
from snapreplay.app.harness import Harness, record

words, answers = Topic("words"), Topic("answers")
SHARES = (0.1, 0.2, 0.3, 1e16, -1e16, 1e-9)  # their sum depends on the order


def on_word(record: Any, state: Any, out: Any) -> None:
    """Sends what depends on the order of iteration: keys, a float sum, the first and the last key."""
    if record.value is None:
        state.pop(record.key, None)
    else:
        state[record.key] = record.value
    total = 0.0
    for value in state.values():
        total += value
    keys = list(state)
    assert keys == [key for key, _ in state.items()]
    out.send(answers, key=record.key, value=[keys, repr(total)])


def harness() -> Harness[Any]:
    app: App[Any] = App(
        "b14", inputs=[words], outputs=[answers], state=lambda: MapState(str, float)
    )
    app.handler(words)(on_word)
    return Harness(app)


STEPS = st.lists(
    st.tuples(st.text("abö", min_size=1, max_size=3), st.sampled_from([*SHARES, *SHARES, None])),
    min_size=1,
    max_size=15,
)


@settings(max_examples=40)
@given(STEPS, st.integers(1, 6), st.integers(0, 5))
def test_b14_iteration_does_not_remember_how_the_state_came_to_be(steps, size, seed):
    """Restored in shuffled order after every batch, with deletes and re-inserts: the outputs are those of one
    process that never crashed, record by record."""
    records = [record(words, key=key, value=value) for key, value in steps]
    straight, crashing = harness(), harness()
    for each in records:
        straight.feed_batch([each])
    for start in range(0, len(records), size):
        crashing.feed_batch(records[start : start + size])
        crashing.crash(seed=seed)
        if start % 2:
            crashing.snapshot()
    assert crashing.outputs(answers) == straight.outputs(answers)
    assert list(crashing.state.items()) == list(straight.state.items())
