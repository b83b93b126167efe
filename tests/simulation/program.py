"""The app that the simulator runs, and the same by hand: a plain dict, no line of the product.

Its results depend on the order of the records of a key; each output names the input record it is of and the version
of the handlers that made it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.codecs import utf8
from snapreplay.app.topic import Topic
from snapreplay.state.committed import CommittedStores
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores, maps_of

APP_ID = "sim"
INPUTS = ("left", "right")
OUTPUT = "out"
POISON = "poison"
"""The handler raises."""
BULKY = "bulky"
"""The broker refuses what the handler sends."""
KEYS = tuple(f"k{number}" for number in range(6))

GOOD = 1
"""Cannot process poison, and sends bulky outputs."""
TOLERANT = 2
"""A hotfix: what was refused counts as 0, all else as before."""
CHANGED = 3
"""Computes something else: never to be taken for the code that wrote the log."""

_NOISE = "".join(random.Random(7).choices("0123456789abcdefghijklmnopqrstuv", k=40_000))


@dataclass(frozen=True)
class Produced:
    """One output, read back."""

    version: int
    topic: str
    offset: int
    result: int


def parse(value: bytes) -> Produced:
    version, topic, offset, result = value.decode().split("|")
    return Produced(int(version), topic, int(offset), int(result))


def refused(version: int, text: str) -> bool:
    """Whether the handlers of this version cannot apply it."""
    return text in (POISON, BULKY) and version != TOLERANT


def result_of(version: int, old: int, text: str) -> int:
    number = int(text) if text.isdigit() else 0
    return (old * 31 + number + (1 if version == CHANGED else 0)) % 1_000_003


def removes(result: int) -> bool:
    """Whether the key is deleted instead of stored."""
    return result % 7 == 0


def stored(result: int, *, fat: bool) -> str:
    """The state's value: the result, in fat states with incompressible text behind it."""
    if not fat:
        return str(result)
    start = result % (len(_NOISE) - 4000)
    return f"{result}:{_NOISE[start : start + 4000]}"


def store_of(result: int, *, named: bool) -> str:
    """The store that holds the result: with named stores a key moves between them."""
    return ("even", "odd")[result % 2] if named else DEFAULT_STORE


@dataclass
class Plain:
    """The state of one partition, folded by hand."""

    fat: bool
    named: bool
    results: dict[str, int] = field(default_factory=dict)

    def apply(self, version: int, key: str, text: str) -> int:
        """The result that the output must hold."""
        result = result_of(version, self.results.get(key, 0), text)
        if removes(result):
            self.results.pop(key, None)
        else:
            self.results[key] = result
        return result

    def entries(self) -> dict[str, dict[str, str]]:
        """By store."""
        found: dict[str, dict[str, str]] = {}
        for key, result in self.results.items():
            store = found.setdefault(store_of(result, named=self.named), {})
            store[key] = stored(result, fat=self.fat)
        return found


def one_map() -> MapState[str, str]:
    return MapState(str, str)


def two_stores() -> Stores:
    return Stores(odd=one_map(), even=one_map())


def shown(view: Any) -> dict[str, dict[str, str]]:
    """What is in a view, by store; stores without entries are left out, as by `Plain`."""
    stores = vars(view) if isinstance(view, CommittedStores) else {DEFAULT_STORE: view}
    return {name: dict(store) for name, store in stores.items() if store}


@lru_cache(maxsize=32)
def app_of(version: int, input_count: int, *, fat: bool, named: bool) -> App[Any]:
    """Made once per variant: what a process deploys. `named`: its state has two stores."""
    inputs = [Topic(name, value=utf8) for name in INPUTS[:input_count]]
    output = Topic(OUTPUT, value=utf8)
    app: App[Any] = App(
        APP_ID,
        inputs=inputs,
        outputs=[output],
        state=two_stores if named else one_map,
        version="1",  # as given once, and never again
    )

    def handle(record: Any, state: Any, out: Any) -> None:
        if record.value == POISON and version != TOLERANT:
            for store in maps_of(state).values():
                store[record.key] = POISON  # half of the work is done, and must leave no trace
            out.send(output, key=record.key, value=POISON)
            raise ValueError(POISON)
        stores = maps_of(state)
        old = next((s[record.key] for s in stores.values() if record.key in s), None)
        result = result_of(version, int(old.partition(":")[0]) if old else 0, record.value)
        chosen = store_of(result, named=True) if named else ""
        for name, store in stores.items():
            if removes(result) or name != chosen:
                store.pop(record.key, None)
            else:
                store[record.key] = stored(result, fat=fat)
        value = f"{version}|{record.topic}|{record.offset}|{result}"
        if refused(version, record.value):
            value += BULKY
        out.send(output, key=record.key, value=value)

    for topic in inputs:
        app.handler(topic)(handle)
    return app
