"""Tests of internal topics without a broker: how they are declared, and that a harness handles what is sent to them."""

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app.harness import Harness
from snapreplay.app.names import is_internal_topic
from snapreplay.errors import UsageError
from snapreplay.testing import check, record
from tests.support import apps


def orders_of(app, count=30):
    return [record(app.inputs[0], key=f"o{n}", value={"amount": n}) for n in range(count)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("by-customer", "twice"),
        ("", "characters|empty|own topic"),
        ("a b", "characters"),
        ("x-increments", "own topic of another app"),
        ("internal-x", "own topic of another app"),
        ("x-internal-y", "own topic of another app"),
        ("x" * 240, "characters"),
        (None, "not a str"),
    ],
)
def test_names_are_refused_that_kafka_or_another_app_would_take(name, words):
    """Twice the same one, too."""
    app = App("shop", inputs=[Topic("orders")], state=lambda: MapState(str, int))
    app.topic("by-customer")
    with pytest.raises(UsageError, match=words):
        app.topic(name)


@pytest.mark.parametrize(
    ("topic", "is_one"),
    [
        ("shop-internal-x", True),
        ("shop-internal-x-y", True),
        ("shop-increments", False),
        ("shop-internal-x-increments", False),
        ("shop-internal-x-internal-y", False),
        ("bigshop-internal-x", False),
    ],
)
def test_own_topics_of_an_app_with_a_longer_id_are_no_internal_ones(topic, is_one):
    """`delete shop` must not delete the topics of app `shop-internal-x`."""
    assert is_internal_topic("shop", topic) is is_one


def test_a_harness_handles_what_is_sent_to_an_internal_topic():
    """After the batch that has sent it; crashes change nothing."""
    app = apps.rekeyed("shop")
    harness = Harness(app)
    harness.feed_batch(orders_of(app))
    assert sum(each["n"] for each in harness.state.values()) == 30
    assert [each.topic for each in harness.records] == [app.inputs[0].name] * 30 + [app.inputs[1].name] * 30
    harness.crash()
    harness.snapshot()
    harness.feed(app.inputs[0], key="o30", value={"amount": 30})
    harness.crash(seed=1)
    assert sum(each["n"] for each in harness.state.values()) == 31
    apart = Harness(app, feeds_internal=False)
    apart.feed_batch(orders_of(app))
    assert len(apart.outputs(app.inputs[1])) == 30
    assert len(apart.state) == 0


def test_check_does_not_depend_on_when_an_internal_record_is_handled():
    """In a batch of several records a later one of them comes first. The cluster decides; a check compares like with
    like."""
    app = App("shop", inputs=[Topic("orders")], outputs=[Topic("out")], state=lambda: MapState(str, int, default=int))
    marks = app.topic("marks")

    @app.handler(app.inputs[0])
    def on_order(record, state, out):
        out.send(app.outputs[0], key="all", value=state["all"])
        out.send(marks, key="all", value=1)

    @app.handler(marks)
    def on_mark(record, state, out):
        state["all"] = 2 * state["all"] + 1

    check(app, orders_of(app))


def test_a_loop_that_never_ends_is_named():
    """Instead of a test that never ends."""
    app = App("shop", inputs=[Topic("orders")], state=lambda: MapState(str, int))
    again = app.topic("again")

    @app.handler(app.inputs[0])
    @app.handler(again)
    def forward(record, state, out):
        out.send(again, key=record.key, value=record.value)

    with pytest.raises(UsageError, match="shop-internal-again: the app would feed itself endlessly"):
        Harness(app).feed(app.inputs[0], key="a", value=1)


def test_the_hash_of_the_key_decides_even_for_the_key_of_the_record():
    """Its producer may hash differently, and the other records of this key would be elsewhere."""
    app = App("shop", inputs=[Topic("orders")], outputs=[Topic("out")], state=lambda: MapState(str, int))
    same = app.topic("same")

    @app.handler(app.inputs[0])
    @app.handler(same)
    def forward(record, state, out):
        if record.topic == "orders":
            for topic in (app.outputs[0], same):
                out.send(topic, key=record.key, value=record.value)

    harness = Harness(app)
    harness.feed(app.inputs[0], key="a", value=1)
    assert [(each.topic, each.same_key) for each in harness.all_outputs] == [("out", True), (same.name, False)]
