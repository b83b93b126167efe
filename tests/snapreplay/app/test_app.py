"""An app that could not run is refused when it is written down, with the way out."""

import functools
from typing import Any

import pytest

from snapreplay.app.app import APP_ID_MAX, App
from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores

payments, rates, balances = Topic("payments"), Topic("rates"), Topic("balances")


def make(app_id="ledger", inputs=(payments,), outputs=(balances,), **given):
    given.setdefault("state", lambda: MapState(str, int))
    return App(app_id, inputs=inputs, outputs=outputs, **given)


def handle(record, state, out):
    state[record.key] = 1


def refused(call, *words):
    with pytest.raises(UsageError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return caught.value


@pytest.mark.parametrize("app_id", ["", ".", "..", "a b", "a/b", "x" * (APP_ID_MAX + 1), "é", None, 3])
def test_illegal_app_ids_are_refused(app_id):
    """The id is shown."""
    refused(lambda: make(app_id), repr(app_id))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inputs": []}, ["no inputs"]),
        ({"inputs": ["payments"]}, ["'payments'", "Topic('payments')"]),
        ({"inputs": [payments, Topic("payments")]}, ["payments", "twice in inputs"]),
        ({"outputs": [balances, Topic("balances")]}, ["balances", "twice in outputs"]),
        ({"outputs": [Topic("payments")]}, ["payments", "app.topic"]),
        ({"inputs": [Topic("ledger-increments")]}, ["ledger-increments", "own topics"]),
        ({"outputs": [Topic("ledger-dead-letters")]}, ["ledger-dead-letters", "own topics"]),
        ({"inputs": [Topic("ledger-internal-x")]}, ["ledger-internal-x", "own topics"]),
        ({"outputs": [Topic("ledger-internal-x")]}, ["ledger-internal-x", "own topics"]),
        ({"version": ""}, ["version=''"]),
        ({"schema_version": 0}, ["schema_version=0"]),
        ({"schema_version": True}, ["schema_version=True"]),
    ],
)
def test_topics_and_versions_are_checked(given, words):
    """Each mistake is named with its value."""
    refused(lambda: make(**given), *words)


def test_handler_of_an_unknown_topic_is_refused():
    """The inputs are listed; an equal name on another object is not the same topic."""
    refused(lambda: make().handler(rates), "rates", "inputs=[…]: payments")
    refused(lambda: make().handler(Topic("payments")), "same Topic object")


def test_second_handler_of_a_topic_is_refused():
    """Both functions are named with their places."""
    app = make()
    app.handler(payments)(handle)
    refused(lambda: app.handler(payments)(lambda r, s, o: None), "two handlers", "test_app.py", "handle")


class AsyncCallable:
    async def __call__(self, record, state, out): ...


async def coroutine_handler(record, state, out): ...


async def async_generator_handler(record, state, out):
    yield


def generator_handler(record, state, out):
    yield 1


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (coroutine_handler, "async"),
        (async_generator_handler, "async"),
        (AsyncCallable(), "async"),
        (functools.partial(coroutine_handler), "async"),
        (generator_handler, "generator"),
        (lambda record: None, "cannot be called with"),
        (lambda r, s, o, *, must: None, "must"),
        (7, "not callable"),
    ],
)
def test_what_cannot_be_called_as_a_handler_is_refused(function, word):
    """Seen at decoration, not at the first record."""
    refused(lambda: make().handler(payments)(function), word)


class Counter:
    def __call__(self, record, state, out):
        state["n"] = 1

    def method(self, record, state, out):
        state["m"] = 1


@pytest.mark.parametrize(
    "function", [handle, Counter(), Counter().method, functools.partial(handle), lambda r, s, o, more=1: None]
)
def test_anything_callable_with_three_arguments_is_a_handler(function):
    """Also objects, methods, partials and lambdas; what was decorated can still be called and tested by itself."""
    app = make()
    assert app.handler(payments)(function) is function
    app.validate()
    assert app.version.startswith("code:")


SHARED = MapState(str, int)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"inputs": [payments, rates]}, "rates has no handler"),
        ({"state": lambda: SHARED}, "twice"),
        ({"state": lambda: Stores(items=SHARED)}, "each partition needs its own"),
        ({"state": lambda: MapState}, "class MapState"),
        ({"state": dict}, "cannot be the state"),
    ],
)
def test_validate_refuses_what_could_not_run(given, word):
    """An input without a handler; a state that partitions would share, or that is none."""
    app = make(**given)
    app.handler(payments)(handle)
    refused(app.validate, word)


def test_the_version_follows_the_handlers():
    """A version read early is not kept when a handler comes later."""
    app = make(inputs=[payments, rates])
    before = app.version
    app.handler(payments)(handle)
    assert app.version != before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"inputs": payments}, "use inputs=[Topic(…)]"),
        ({"inputs": "in"}, "use inputs=[Topic(…)]"),
        ({"outputs": balances}, "use outputs=[Topic(…)]"),
        ({"state": MapState(str, int)}, "`state=lambda: MapState(…)`"),
        ({"state": MapState}, "`state=lambda: MapState(…)`"),
    ],
)
def test_one_topic_and_one_state_are_no_lists_and_no_functions(given, said):
    """The refusal names the argument. What its hint says is accepted."""
    right: Any = {"inputs": [payments], "outputs": [balances], "state": lambda: MapState(str, int)}
    with pytest.raises(UsageError) as refused:
        App("a", **{**right, **given})
    assert said in refused.value.hint
    App("a", **right)
