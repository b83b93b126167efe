"""The harness runs an app as a partition would, and a crash brings the same state back."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Diverged, Harness
from snapreplay.app.made_record import Sent, record
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.map import MapState

payments, balances = Topic("payments"), Topic("balances")


def make(handler, state=lambda: MapState(str, dict, default=lambda: {"n": 0})):
    app = App("ledger", inputs=[payments], outputs=[balances], state=state)
    app.handler(payments)(handler)
    return app


def add(record, state, out):
    state[record.key]["n"] += record.value
    out.send(balances, key=record.key, value=state[record.key]["n"], headers=[("at", b"x")])
    if record.value < 0:
        raise ValueError(record.value)


def test_feeding_changes_state_and_gives_outputs():
    """Offsets rise by one, times by a millisecond, also after a record with one of its own; outputs come decoded."""
    harness = Harness(make(add))
    harness.feed(payments, key="ada", value=5)
    fed = harness.feed_batch([record(payments, key="ada", value=2), record(payments, key="bob", value=1)])
    assert [(one.offset, one.timestamp) for one in fed] == [(1, 2), (2, 3)]
    assert dict(harness.state) == {"ada": {"n": 7}, "bob": {"n": 1}}
    assert harness.state.stream_time_ms == 3
    header = (("at", b"x"),)
    assert harness.outputs(balances) == [
        Sent("ada", 5, header, None, 1),
        Sent("ada", 7, header, None, 2),
        Sent("bob", 1, header, None, 3),
    ]
    later = [record(payments, key="k", value=1, timestamp_ms=90), record(payments, key="k", value=1)]
    assert [one.timestamp for one in harness.feed_batch(later)] == [90, 91]


@given(st.lists(st.sampled_from(["feed", "batch", "snapshot", "crash"]), max_size=20), st.integers())
@settings(max_examples=50)
def test_crashes_and_snapshots_never_change_anything(actions, seed):
    """After any events in between, state and outputs are those of an undisturbed run."""
    disturbed, plain = Harness(make(add)), Harness(make(add))
    values = itertools.count()
    for action in actions:
        if action == "snapshot":
            disturbed.snapshot()
        elif action == "crash":
            disturbed.crash(seed=seed)
        else:
            size = 1 if action == "feed" else 4
            batch = [record(payments, key=f"k{next(values) % 5}", value=n) for n in range(size)]
            for harness in (disturbed, plain):
                harness.feed_batch(batch)
    assert disturbed.digest == plain.digest
    assert disturbed.state.stream_time_ms == plain.state.stream_time_ms
    assert disturbed.all_outputs == plain.all_outputs


def test_policy_fail_raises_after_the_good_prefix():
    """As the service does: what came before the failing record is committed."""
    harness = Harness(make(add))
    with pytest.raises(RecordError, match="payments-0-1"):
        harness.feed_batch([record(payments, key="ada", value=n) for n in (5, -1, 3)])
    assert dict(harness.state) == {"ada": {"n": 5}}
    assert harness.feed_batch([record(payments, key="ada", value=1)])[0].offset == 1
    harness.crash()
    assert dict(harness.state) == {"ada": {"n": 6}}


def test_policy_dead_letter_skips_and_replay_skips_the_same():
    """The letter and its reason can be looked at; a crash does not bring the record back."""
    harness = Harness(make(add), policy=ErrorPolicy.DEAD_LETTER)
    harness.feed_batch([record(payments, key="ada", value=n) for n in (5, -1, 3)])
    harness.feed_raw(payments, b"k", b"\xff", timestamp_ms=5)
    assert [str(one.record_id) for one in harness.errors] == ["payments-0-1", "payments-0-3"]
    assert "value cannot be read as json" in harness.errors[1].message
    assert [(one.topic, one.value) for one in harness.dead_letters] == [
        ("ledger-dead-letters", b"-1"),
        ("ledger-dead-letters", b"\xff"),
    ]
    harness.crash()
    assert dict(harness.state) == {"ada": {"n": 8}}
    assert len(harness.outputs(balances)) == 2


def test_reading_the_state_changes_nothing():
    """A test may look at a missing key: the default it made is forgotten."""
    harness = Harness(make(add))
    before = harness.digest
    assert harness.state["unknown"] == {"n": 0}
    harness.feed(payments, key="ada", value=0)
    assert "unknown" not in dict(harness.state)
    assert harness.digest.count == 1
    assert before.count == 0


def test_a_view_is_of_the_last_committed_batch():
    """It follows the batches and a crash, is read-only, and a handler that reads it sees the batch before its own."""
    seen = []

    def reading(record, state, out):
        add(record, state, out)
        seen.append(dict(view))

    harness = Harness(make(reading), partition=3)
    view = harness.view()
    assert (view.partition, dict(view)) == (3, {})
    harness.feed(payments, key="ada", value=5)
    harness.feed(payments, key="ada", value=1)
    assert (view["ada"], seen) == ({"n": 6}, [{}, {"ada": {"n": 5}}])
    harness.state["ada"]["n"] = 9
    view["ada"]["n"] = 8
    assert view["ada"] == {"n": 6}
    harness.crash()
    assert dict(view) == {"ada": {"n": 6}}


COUNTS = itertools.count()


def counting_state(record, state, out):
    state[record.key]["n"] = next(COUNTS)


def counting_output(record, state, out):
    out.send(balances, key=record.key, value=next(COUNTS))


def failing_later(record, state, out):
    if next(COUNTS) >= 2:
        raise ValueError("later")


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (counting_state, "payments-0-0 .*another state"),
        (counting_output, "payments-0-0 .*other outputs"),
        (failing_later, "ValueError: later"),
    ],
)
def test_a_crash_finds_what_is_kept_outside_the_state(monkeypatch, handler, words):
    """Replay runs the handler again: the record whose effect differs is named. One that fails only then is no dead
    letter: replay skips what is listed."""
    monkeypatch.setitem(globals(), "COUNTS", itertools.count())
    harness = Harness(make(handler), policy=ErrorPolicy.DEAD_LETTER)
    harness.feed(payments, key="ada", value=1)
    harness.feed(payments, key="ada", value=1)
    with pytest.raises(Diverged, match=words):
        harness.crash()


@pytest.mark.parametrize("other", [payments, Topic("balance")])
def test_outputs_of_another_topic_are_refused(other):
    """With an empty list, a test that names the wrong topic could pass."""
    with pytest.raises(UsageError, match=f"{other.name} is not an output"):
        Harness(make(add)).outputs(other)
