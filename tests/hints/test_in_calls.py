"""Hints about calls that a type checker would not let pass: refused, then done as the hint says, and taken."""

from collections.abc import Callable
from typing import Any

import pytest

from snapreplay import MapState, Service, Settings, Topic, i64, json, raw
from snapreplay.testing import Harness, check, record
from tests.hints.following import refused_then_taken
from tests.hints.test_in_code import IN, OUT, app, fed, ignore, of, sends, stores, wrong

BY_NUMBER = Topic("by-number", key=i64)
BLOBS = Topic("blobs", key=raw)
HEADERS = {"trace": b"7"}


def does(action: Callable[[Any, Any], object]) -> Callable[..., None]:
    """A handler."""

    def handler(record: Any, state: Any, out: Any) -> None:
        action(state, out)

    return handler


CASES: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "the Topic object, not its name": (
        "'out' is a name: pass the Topic object", lambda: fed(sends(wrong("out"))), lambda: fed(sends(OUT)),
    ),
    "a call of out.send": (
        "call it as `out.send(topic, key=…, value=…)`",
        lambda: fed(does(lambda state, out: out.send(OUT, "k", 1))),
        lambda: fed(does(lambda state, out: out.send(OUT, key="k", value=1))),
    ),
    "an output's key": (
        "pass a str, or declare the topic with key=i64",
        lambda: fed(does(lambda state, out: out.send(OUT, key=5, value=1))),
        lambda: (
            fed(does(lambda state, out: out.send(OUT, key="5", value=1))),
            fed(does(lambda state, out: out.send(BY_NUMBER, key=5, value=1)), outputs=(BY_NUMBER,)),
        ),
    ),
    "the keys of a dict in an output": (
        "use dicts with str keys: `'1'` for `1`",
        lambda: fed(sends(OUT, [{1: 2}])), lambda: fed(sends(OUT, [{"1": 2}])),
    ),
    "the keys of a dict in the state": (
        "use dicts with str keys: `'1'` for `1`",
        lambda: fed(stores({1: 2}), state=of(str, dict)), lambda: fed(stores({"1": 2}), state=of(str, dict)),
    ),
    "text that can be written": (
        "use strings without lone surrogates, or bytes",
        lambda: fed(stores(["\ud800"]), state=of(str, list[str])),
        lambda: fed(stores([b"\xd8"]), state=of(str, list[bytes])),
    ),
    "a record's key": (
        "pass a bytes, or declare the topic with key=json()",
        lambda: record(BLOBS, key=wrong([5])),
        lambda: (record(BLOBS, key=b"5"), record(Topic("blobs", key=json()), key=[5])),
    ),
    "headers of an output": (
        "of a dict, `headers=list(headers.items())`",
        lambda: fed(does(lambda state, out: out.send(OUT, key="k", value=1, headers=HEADERS))),
        lambda: fed(does(lambda state, out: out.send(OUT, key="k", value=1, headers=list(HEADERS.items())))),
    ),
    "headers of a record": (
        'pass a list of pairs: `headers=[("trace", b"7")]`',
        lambda: record(IN, headers=wrong("trace")), lambda: record(IN, headers=[("trace", b"7")]),
    ),
    "a header of a text": (
        "of a text, `text.encode()`",
        lambda: record(IN, headers=wrong([("trace", "7")])), lambda: record(IN, headers=[("trace", b"7")]),
    ),
    "a list of records": (
        "`testing.record(topic, key=…, value=…)`, and pass a list of them",
        lambda: Harness(app(ignore)).feed_batch(wrong(record(IN, key="k", value=1))),
        lambda: Harness(app(ignore)).feed_batch([record(IN, key="k", value=1)]),
    ),
    "records to check": (
        "make each record with `testing.record(topic, key=…, value=…)`",
        lambda: check(app(ignore), wrong([{"key": "k", "value": 1}])),
        lambda: check(app(ignore), [record(IN, key="k", value=1)]),
    ),
    "an App to test": (
        "pass the object that `App(…)` returned", lambda: Harness(wrong("ledger.py")), lambda: Harness(app(ignore)),
    ),
    "an App to run": (
        "pass the object that `App(…)` returned",
        lambda: Service(wrong("ledger.py"), Settings()), lambda: Service(app(ignore), Settings()),
    ),
    "settings that are Settings": (
        "of a dict, `Settings(**table)`",
        lambda: Service(app(ignore), wrong({"http": {"port": 0}})),
        lambda: Service(app(ignore), Settings(**wrong({"http": {"port": 0}}))),
    ),
    "settings by name": (
        "a dict is unpacked, `Settings(**table)`",
        lambda: wrong(Settings)({"http": {"port": 0}}), lambda: wrong(Settings)(http={"port": 0}),
    ),
    "a key that is missing": (
        "use `MapState(…, default=…)` or `state.get(key)`",
        lambda: fed(does(lambda state, out: state["x"])),
        lambda: (
            fed(does(lambda state, out: state["x"]), state=lambda: MapState(str, int, default=int)),
            fed(does(lambda state, out: state.get("x"))),
        ),
    ),
    "what a map keeps": (
        "store it under a key: `state['total'] = …`",
        lambda: fed(does(lambda state, out: setattr(state, "total", 1))),
        lambda: fed(does(lambda state, out: state.update(total=1))),
    ),
    "a key to delete": (
        "use `state.pop(key, None)`",
        lambda: fed(does(lambda state, out: state.pop("x"))),
        lambda: fed(does(lambda state, out: state.pop("x", None))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_call_is_taken_once_it_is_as_the_hint_says(name):
    """Refused with this hint; done, and nothing is refused any more."""
    refused_then_taken(*CASES[name])
