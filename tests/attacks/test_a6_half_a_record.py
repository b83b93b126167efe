"""Attack A6: a record fails in the middle, and half of what it did stays in state or outputs."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, Topic
from snapreplay.app.harness import Harness, record
from snapreplay.testing import ErrorPolicy

payments, balances = Topic("payments"), Topic("balances")

HALVES = ("raise", "unencodable", "oversize", "undecodable", "unwritable key")


def book(record: Any, state: Any, out: Any) -> None:
    """Changes two accounts in place, deletes a third and sends, and then fails as its value says."""
    state[record.key]["n"] += 1
    state.pop("gone", None)
    out.send(balances, key=record.key, value=dict(state[record.key]))
    match record.value:
        case "raise":
            raise ValueError("in the middle")
        case "unencodable":
            state["other"]["n"] = {1}
        case "oversize":
            out.send(balances, key=record.key, value="x" * 5000)
        case "unwritable key":
            state[True] = {"n": 1}
        case _:
            state["other"]["n"] += 1
            state["gone"] = {"n": record.offset}


def harness() -> Harness[Any]:
    app: App[Any] = App(
        "a6",
        inputs=[payments],
        outputs=[balances],
        state=lambda: MapState(str, dict, default=lambda: {"n": 0}),
    )
    app.handler(payments)(book)
    return Harness(app, policy=ErrorPolicy.DEAD_LETTER, output_limits={"balances": 2000})


def made(values: list[str]) -> list[Any]:
    records = []
    for number, value in enumerate(values):
        raw = record(payments, key="ab"[number % 2], value=value)
        if value == "undecodable":
            raw = type(raw)(raw.topic, raw.partition, raw.offset, raw.timestamp, raw.key, b"{", ())
        records.append(raw)
    return records


def effect(found: Harness[Any]) -> tuple[Any, ...]:
    return dict(found.state), [(sent.key, sent.value) for sent in found.outputs(balances)]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(("fine", *HALVES)), min_size=1, max_size=8), st.integers(1, 8))
@example(["fine", *HALVES, "fine"], 7)
def test_a6_a_failed_record_leaves_nothing_but_its_dead_letter(values, size):
    """State and outputs are those of the good records alone, in any batch; a replay skips the same ones."""
    found, without = harness(), harness()
    records = made(values)
    for start in range(0, len(records), size):
        found.feed_batch(records[start : start + size])
    good = [number for number, value in enumerate(values) if value == "fine"]
    for number in range(len(values)):  # alone, at its own offset
        if number in good:
            without.feed_batch([records[number]])
        else:
            without._positions["payments"] += 1
    assert effect(found) == effect(without)
    assert len(found.dead_letters) == len(found.errors) == len(values) - len(good)
    failed = [str(error.record_id) for error in found.errors]
    assert failed == [f"payments-0-{n}" for n in range(len(values)) if n not in good]
    found.crash()  # by both modes, or it raises Diverged
