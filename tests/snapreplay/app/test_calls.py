"""Tests of calls to the outside without a broker: how they are declared, requested, answered and cancelled."""

import pytest

from snapreplay import App, MapState, Stores, Topic, json, nullable, utf8
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Harness
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.calls import UnknownCall
from snapreplay.testing import record
from tests.support import apps

ORDERS = [("a", {"amount": 1}), ("b", {"amount": 2}), ("a", {"amount": 3})]


def fed(app, **given):
    harness = Harness(app, **given)
    for key, value in ORDERS:
        harness.feed(app.inputs[0], key=key, value=value)
    return harness


def test_answers_come_back_with_the_key_of_the_request():
    """By a function or by a table; after a crash the state and what is pending are the same."""
    app = apps.priced("shop")
    price = app.calls["price"]
    harness = fed(app, calls={price: lambda call: call.request["amount"] * 10})
    harness.crash()
    assert {key: each["sum"] for key, each in harness.state.items()} == {"a": 40, "b": 20}
    assert harness.pending(price) == []
    by_table = fed(app, calls={price: {"a": 7, "b": ValueError("no price")}})
    by_table.crash(seed=1)
    assert dict(by_table.state) == {
        "a": {"sum": 14, "errors": [], "seen": 2},
        "b": {"sum": 0, "errors": ["ValueError: no price"], "seen": 1},
    }


def test_what_nothing_answers_stays_pending_with_an_id_of_its_place():
    """In the order requested; a crash changes nothing, and an answer counts once."""
    app = apps.priced("shop")
    price = app.calls["price"]
    harness = fed(app)
    calls = harness.pending(price)
    assert [(each.id, each.key) for each in calls] == [
        ("shop/payments-shop-0-0/0", "a"),
        ("shop/payments-shop-0-1/0", "b"),
        ("shop/payments-shop-0-2/0", "a"),
    ]
    harness.crash()
    assert harness.pending(price) == calls
    for _ in range(2):
        harness.answer(price, calls[1], 5)
    assert dict(harness.state) == {"b": {"sum": 5, "errors": [], "seen": 1}}
    assert harness.pending(price) == [calls[0], calls[2]]
    harness.crash(seed=2)
    assert harness.pending(price) == [calls[0], calls[2]]


def test_an_answer_of_a_cancelled_call_is_not_handled():
    """Nor is an answer that names another call."""
    orders = Topic("orders")
    app = App("shop", inputs=[orders], state=lambda: MapState(str, str))

    @app.call()
    async def ask(call):
        """Never called."""

    @app.call(name="tell")
    async def other(call):
        """Never called."""

    @app.handler(orders)
    def on_order(record, state, out):
        if record.value == "ask":
            state[record.key] = out.call(ask, record.key, 1)
        else:
            state["was"] = str(out.cancel(state[record.key]))

    @ask.handler
    @other.handler
    def on_answer(record, state, out):
        state["answered"] = record.value.id

    harness = Harness(app)
    harness.feed(orders, key="a", value="ask")
    (call,) = harness.pending(ask)
    harness.answer(other, call, 1)
    assert harness.pending(ask) == [call]
    harness.feed(orders, key="a", value="cancel")
    assert (harness.pending(ask), harness.state["was"]) == ([], "True")
    harness.answer(ask, call, 1)
    harness.feed(orders, key="a", value="cancel")
    assert (harness.state["was"], harness.state.get("answered")) == ("False", None)
    harness.crash()


def test_a_batch_that_fails_requests_nothing():
    """A thousand calls, and the last record fails; then each good record requests its own, under the same id."""
    app = apps.priced("shop")
    price = app.calls["price"]
    asked = []

    def answer(call):
        asked.append(call.id)
        return 1

    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER, calls={price: answer})
    records = [record(app.inputs[0], key="a", value={"amount": n}) for n in range(1000)]
    bad = record(app.inputs[0], key="a", value={"poison": True})
    harness.feed_batch([*records, bad])
    assert asked == [f"shop/payments-shop-0-{n}/0" for n in range(1000)]
    assert harness.state["a"]["seen"] == 1000
    with pytest.raises(RecordError, match="poison"):
        fed(app).feed_batch([*records, bad])
    harness.crash()


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("shares", [False, True])
def test_an_answer_that_is_a_dead_letter_ends_its_call(timed, shares):
    """Without its effects; a crash, by changes and by replay, agrees. One object under two keys lets a batch fail as a
    whole, so the replay goes record by record, too."""
    orders, one = Topic("orders"), {"shared": 1}
    app = App("shop", inputs=[orders], state=lambda: MapState(str, dict))

    @app.call()
    async def ask(call):
        """Never called."""

    @app.handler(orders)
    def on_order(record, state, out):
        state[record.key] = {"request": record.value}
        out.call(ask, record.key, record.value)
        if timed:
            state.schedule(record.key, record.timestamp_ms + 10_000, timer="later")

    @ask.handler
    def on_answer(record, state, out):
        state[record.key] = one if shares else {"result": record.value.result}
        if record.value.result % 3 == 1:
            out.call(ask, "again", 1)
            raise ValueError("no such result")

    if timed:
        app.timer("later")(lambda timer, state, out: None)
    asked = []

    def answer(call):
        asked.append(call.key)
        return call.request

    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER, calls={ask: answer})
    harness.feed_batch([record(orders, key=f"k{n}", value=n) for n in range(9)])
    assert asked == [f"k{n}" for n in range(9)]
    assert harness.pending(ask) == []
    assert [letter.key for letter in harness.dead_letters] == [b"k1", b"k4", b"k7"]
    assert harness.state["k1"] == {"request": 1}
    assert harness.state["k2"] == (one if shares else {"result": 2})
    harness.crash()
    assert harness.pending(ask) == []


def test_a_skipped_record_of_another_program_ends_no_call():
    """It is no answer."""
    app = apps.priced("shop")
    price = app.calls["price"]
    harness = fed(app, policy=ErrorPolicy.DEAD_LETTER)
    calls = harness.pending(price)
    for value in (None, b"", b"no reply", b"\x92\xa1\xff\x01"):
        harness.feed_raw(price.topic, b"a", value)
    assert (len(harness.dead_letters), harness.pending(price)) == (4, calls)
    harness.crash()


def test_an_answer_has_the_time_of_its_request():
    """As in a service. It does not move stream time, and what is fed next is later than all."""
    orders = Topic("orders")
    app = App("shop", inputs=[orders], state=lambda: MapState(str, int))

    @app.call()
    async def ask(call):
        """Never called."""

    @app.handler(orders)
    def on_order(record, state, out):
        state[f"asked {record.key}"] = record.timestamp_ms
        out.call(ask, record.key, 1)

    @ask.handler
    def on_answer(record, state, out):
        state[record.key] = record.timestamp_ms

    answered = Harness(app, calls={ask: lambda call: 1})
    answered.feed_batch([record(orders, key=key, value=1, timestamp_ms=ms) for key, ms in (("a", 1000), ("b", 5000))])
    answered.feed(orders, key="c", value=1)
    assert dict(answered.state) == {"asked a": 1000, "a": 1000, "asked b": 5000, "b": 5000, "asked c": 5001, "c": 5001}
    assert answered.stream_time_ms == 5001
    later = Harness(app)
    later.feed(orders, key="a", value=1, timestamp_ms=1000)
    later.feed(orders, key="b", value=1, timestamp_ms=5000)
    later.answer(ask, later.pending(ask)[0], 1)
    later.feed(orders, key="c", value=1)
    assert (later.state["a"], later.stream_time_ms) == (1000, 5001)
    later.crash()


def test_a_handler_of_an_answer_and_a_timer_may_call_again():
    """A timer that fires twice for one time requests two calls."""
    orders = Topic("orders")
    app = App("shop", inputs=[orders], state=lambda: Stores(n=MapState(str, int, default=int)))

    @app.call(request=nullable(json()), result=nullable(utf8))
    async def ask(call):
        """Never called."""

    @app.handler(orders)
    def on_order(record, state, out):
        state.n.schedule(record.key, 5, timer="later")

    @app.timer("later")
    def later(timer, state, out):
        out.call(ask, timer.key, None)

    @ask.handler
    def on_answer(record, state, out):
        state.n[record.key] += 1
        assert (record.value.request, record.value.result) == (None, None)
        if state.n[record.key] % 3:
            out.call(ask, record.key, None)

    ids = []
    harness = Harness(app, calls={ask: lambda call: ids.append(call.id)})
    for _ in range(2):
        harness.feed(orders, key="a", value=1, timestamp_ms=10)
        harness.feed(orders, key="b", value=1, timestamp_ms=10)
    harness.advance_time(20)
    assert dict(harness.state.n) == {"a": 6, "b": 6}
    assert len(ids) == len(set(ids)) == 12
    harness.crash()


def test_a_call_that_was_renamed_or_removed_while_some_are_pending_is_refused():
    """By name, before the first record."""
    harness = fed(apps.priced("shop"))
    with pytest.raises(UnknownCall, match=r"3 calls 'price'.* has 'cost'") as caught:
        harness.handed_over(apps.priced("shop", call_name="cost"))
    assert '@app.call(name="price")' in caught.value.hint
    heir = apps.priced("shop")
    assert len(harness.handed_over(heir).pending(heir.calls["price"])) == 3


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda app: app.call()(lambda call: 1), "is not async"),
        (lambda app: app.call(timeout_ms=0), "timeout_ms=0"),
        (lambda app: app.call(retries=-1), "retries=-1"),
        (lambda app: app.call(concurrency=True), "concurrency=True"),
        (lambda app: app.call(result=json), "result=.*is not a codec"),
        (lambda app: app.call(name="a b"), "a b"),
        (lambda app: app.call(name="twice"), "twice in inputs"),
    ],
)
def test_a_call_that_cannot_work_is_refused(declare, words):
    """When it is declared."""
    app = App("shop", inputs=[Topic("orders")], state=lambda: MapState(str, int))

    async def ask(call):
        """Never called."""

    app.call(name="twice")(ask)
    with pytest.raises(UsageError, match=words):
        declare(app)(ask)


def test_an_app_is_complete_with_a_handler_for_answers_and_a_state_that_is_a_map():
    """Both are named."""
    app = App("shop", inputs=[Topic("orders")], state=lambda: MapState(str, int))

    @app.call()
    async def ask(call):
        """Never called."""

    app.handler(app.inputs[0])(lambda record, state, out: None)
    with pytest.raises(UsageError, match="call ask has no handler"):
        app.validate()
    ask.handler(lambda record, state, out: None)
    app.validate()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (lambda out, ask: out.call("ask", "a", 1), "'ask'.*not one of the app's calls"),
        (lambda out, ask: out.call(ask, 5, 1), "call ask: key 5 is int"),
        (lambda out, ask: out.call(ask, "a", object()), "call ask: request"),
        (lambda out, ask: out.call(ask, None, 1), "key None"),
        (lambda out, ask: out.call(ask, "a", "x" * 900_000), "_calls"),
    ],
)
def test_what_cannot_be_requested_is_the_error_of_the_record(request_, words):
    """It names the call and the value."""
    orders = Topic("orders")
    app = App("shop", inputs=[orders], state=lambda: MapState(str, int))

    @app.call()
    async def ask(call):
        """Never called."""

    ask.handler(lambda record, state, out: None)
    app.handler(orders)(lambda record, state, out: request_(out, ask) and None)
    with pytest.raises(RecordError, match=words):
        Harness(app).feed(orders, key="a", value=1)
