"""The app that the simulator runs, and the same by hand: a plain dict, no line of the product.

Its results depend on the order of the records of a key; each output names the input record it is of and the version
of the handlers that made it.
"""

import random
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.call import Call
from snapreplay.app.codecs import nullable, utf8
from snapreplay.app.topic import Topic
from snapreplay.state.committed import CommittedStores
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores, maps_of
from tests.simulation.loop import HOST

APP_ID = "sim"
INPUTS = ("left", "right")
OUTPUT = "out"
AGAIN = names.internal_topic(APP_ID, "again")
"""An internal topic, of apps that send some of their records to themselves under another key."""
TABLE, FACTS = "table", "facts"
"""The topic of a table and its store, of apps that have one."""
ASK = "ask"
"""A call to the outside, of apps that make some."""
ANSWERS = names.internal_topic(APP_ID, f"{ASK}-results")
INCREMENTS = names.increments_topic(APP_ID)
SNAPSHOTS = names.snapshots_topic(APP_ID)
LETTERS = names.dead_letters_topic(APP_ID)
TOPICS = {"increments": INCREMENTS, "snapshots": SNAPSHOTS, "output": OUTPUT, "letters": LETTERS}
POISON = "poison"
"""The handler raises."""
BULKY = "bulky"
"""The broker refuses what the handler sends."""
KEYS = tuple(f"k{number}" for number in range(6))

TTL_MS, EVERY_MS, AGAIN_MS = 300, 250, 121
"""Of the entries, of the periodic timer, and after which a timer may set itself again."""
RING, TICK = "ring", "tick"

GOOD = 1
"""Cannot process poison, and sends bulky outputs."""
TOLERANT = 2
"""A hotfix: what was refused counts as 0, all else as before."""
CHANGED = 3
"""Computes something else: never to be taken for the code that wrote the log."""

_NOISE = "".join(random.Random(7).choices("0123456789abcdefghijklmnopqrstuv", k=40_000))


@dataclass(frozen=True)
class Produced:
    """One output, read back. `timestamp_ms` of its input record: it tells two records at one offset apart."""

    version: int
    topic: str
    offset: int
    result: int
    timestamp_ms: int = -1
    schema: int = 1


def made_by(version: int, schema: int) -> str:
    """Return what each output says of the code that made it."""
    return f"{version}.{schema}"


def parse(value: bytes) -> Produced:
    code, topic, *numbers = value.decode().split("|")
    version, schema = map(int, code.split("."))
    return replace(Produced(version, topic, *map(int, numbers)), schema=schema)


def sent_again(topic: str, text: str) -> str | None:
    """Return the key under which the app sends a record of this input to itself; None: it does not."""
    number = int(text) if text.isdigit() else 1
    return KEYS[number // 2 % len(KEYS)] if topic != AGAIN and number % 2 == 0 else None


def asks(topic: str, text: str) -> str | None:
    """Return what the app asks the outside when it handles a record of this topic; None: nothing."""
    return text if topic != ANSWERS and text.isdigit() and int(text) % 3 == 0 else None


def ring_asks(result: int) -> str | None:
    """Return what a timer asks the outside; None: nothing."""
    return str(result) if result % 2 == 0 else None


def answer_to(request: str, *, is_bad: bool) -> str:
    """Return what the outside says: the same each time. Some answers cannot be handled, if any may be bad."""
    number = int(request) * 7 + 1
    return (POISON, BULKY)[number % 2] if is_bad and number % 5 == 0 else str(number % 1000)


def answered(value: bytes) -> tuple[str, str]:
    """Return the id of the call in a record of `ANSWERS`, and what its handler takes for the text of the record."""
    call_id, _, error, result = msgspec.msgpack.decode(value)
    return call_id, "" if error else result.decode()


def text_of(topic: str, value: bytes | None) -> str:
    """Return what the handler of a record takes for its text."""
    return answered(value or b"")[1] if topic == ANSWERS else (value or b"").decode()


def joined(text: str, fact: str | None) -> str:
    """Return what a record counts as, with the table's value for its key."""
    return str(int(text) + int(fact)) if fact is not None and text.isdigit() else text


def refused(version: int, text: str) -> bool:
    return text in (POISON, BULKY) and version != TOLERANT


def result_of(version: int, old: int, text: str) -> int:
    number = int(text) if text.isdigit() else 0
    return (old * 31 + number + (1 if version == CHANGED else 0)) % 1_000_003


def removes(result: int) -> bool:
    return result % 7 == 0


def stored(result: int, *, fat: bool, schema: int = 1) -> str:
    """The state's value: the result, behind a sign per upgrade, in fat states with incompressible text behind it."""
    text = "+" * (schema - 1) + str(result)
    if not fat:
        return text
    start = result % (len(_NOISE) - 4000)
    return f"{text}:{_NOISE[start : start + 4000]}"


def number_in(value: str) -> int:
    """Return the result in a stored value of any schema."""
    return int(value.partition(":")[0].lstrip("+"))


def upgraded(result: int, from_schema: int) -> int | None:
    """The result after an upgrade; None: the entry is gone. Twice is not once, and the store stays the same."""
    return None if result % 5 == 0 else (3 * result + 1000 * from_schema) % 1_000_002


def ring_at(result: int, timestamp_ms: int, *, may_fail: bool) -> int | None:
    """Say for when a record sets the timer of its key; None: it does not. Some fail, if any may."""
    at_ms = timestamp_ms + result % 400
    return None if result % 3 else at_ms + (0 if may_fail or not is_trap(at_ms) else 1)


def cancels(result: int) -> bool:
    """Say whether a record that sets no timer cancels that of its key."""
    return result % 5 == 0


def is_trap(at_ms: int) -> bool:
    """Say whether the handler of a timer for this time fails, or what it sends is refused."""
    return at_ms % 4 == 0


def trapped(version: int, at_ms: int, *, may_fail: bool) -> bool:
    return may_fail and is_trap(at_ms) and version != TOLERANT


def ring_result(version: int, old: int, at_ms: int) -> int:
    return (old * 37 + at_ms + (1 if version == CHANGED else 0)) % 1_000_003


def ring_writes(result: int) -> bool:
    """Else the timer leaves the entry alone, and does not touch it."""
    return result % 3 != 0


def ring_again(result: int) -> bool:
    return result % 4 == 0


def tick_result(version: int, entry_count: int, at_ms: int) -> int:
    return entry_count + at_ms % 1000 + (1 if version == CHANGED else 0)


def store_of(result: int, *, named: bool) -> str:
    """The store that holds the result: with named stores a key moves between them."""
    return ("even", "odd")[result % 2] if named else DEFAULT_STORE


@dataclass
class Plain:
    """The state of one partition, folded by hand."""

    fat: bool
    named: bool
    results: dict[str, int] = field(default_factory=dict)
    schema: int = 1
    facts: dict[str, str] = field(default_factory=dict)

    def apply(self, version: int, key: str, text: str) -> int:
        result = result_of(version, self.results.get(key, 0), joined(text, self.facts.get(key)))
        if removes(result):
            self.results.pop(key, None)
        else:
            self.results[key] = result
        return result

    def entries(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {FACTS: dict(self.facts)} if self.facts else {}
        for key, result in self.results.items():
            store = found.setdefault(store_of(result, named=self.named), {})
            store[key] = stored(result, fat=self.fat, schema=self.schema)
        return found


def new_state(*, named: bool, timed: bool, tables: bool) -> Any:
    def one_map() -> MapState[str, str]:
        return MapState(str, str, ttl_ms=TTL_MS if timed else None)

    facts: dict[str, Any] = {FACTS: MapState(str, str)} if tables else {}
    return Stores(odd=one_map(), even=one_map(), **facts) if named else one_map()


def results_in(state: Any) -> dict[str, Any]:
    """Return the stores with results, by name."""
    return {name: store for name, store in maps_of(state).items() if name != FACTS}


def shown(view: Any) -> dict[str, dict[str, str]]:
    """Return what is in a view, by store; stores without entries are left out, as by `Plain`."""
    stores = vars(view) if isinstance(view, CommittedStores) else {DEFAULT_STORE: view}
    return {name: dict(store) for name, store in stores.items() if store}


def inputs_of(names: tuple[str, ...], *, by_pattern: bool) -> list[Topic[str, str]]:
    if by_pattern:
        return [Topic.matching("|".join(names), value=utf8)]
    return [Topic(name, value=utf8) for name in names]


@lru_cache(maxsize=32)
def app_of(
    version: int,
    input_names: tuple[str, ...],
    *,
    fat: bool,
    named: bool,
    timed: bool = False,
    may_fail: bool = False,
    schema: int = 1,
    by_pattern: bool = False,
    rekeys: bool = False,
    calls: bool = False,
    tables: bool = False,
    broadcast: bool = False,
) -> App[Any]:
    """Made once per variant: what a process deploys.

    Args:
        named: its state has two stores.
        timed: its entries expire, and it has timers.
        may_fail: some timers do.
        schema: of what it stores; it upgrades what all earlier ones have stored.
        by_pattern: it does not name its inputs.
        rekeys: it sends some records to itself.
        calls: it asks the outside about some records and timers.
        tables: it joins its records with a table; it is `named`, too.
        broadcast: each of its partitions reads the whole table.
    """
    facts: Any = Topic(TABLE, value=nullable(utf8)) if tables else None
    inputs = [*inputs_of(input_names, by_pattern=by_pattern), *([facts] if tables else [])]
    output = Topic(OUTPUT, value=utf8)
    app: App[Any] = App(
        APP_ID,
        inputs=inputs,
        outputs=[output],
        state=partial(new_state, named=named, timed=timed, tables=tables),
        version="1",  # as given once, and never again
        schema_version=schema,
    )
    code = made_by(version, schema)
    again: Any = app.topic("again", value=utf8) if rekeys else None

    ask: Any = _add_call(app) if calls else None

    def handle(record: Any, state: Any, out: Any) -> None:
        if record.value == POISON and version != TOLERANT:
            for store in results_in(state).values():
                store[record.key] = POISON  # half of the work is done, and must leave no trace
            out.send(output, key=record.key, value=POISON)
            raise ValueError(POISON)
        stores = results_in(state)
        old = next((s[record.key] for s in stores.values() if record.key in s), None)
        text = joined(record.value, state.facts.get(record.key)) if tables else record.value
        result = result_of(version, number_in(old) if old else 0, text)
        put(stores, record.key, result, fat=fat, schema=schema)
        if timed:
            at_ms = ring_at(result, record.timestamp_ms, may_fail=may_fail)
            _set(first_store(stores), record.key, result, at_ms)
        value = f"{code}|{record.topic}|{record.offset}|{result}|{record.timestamp_ms}"
        if refused(version, record.value):
            value += BULKY
        out.send(output, key=record.key, value=value)
        if again is not None and (key := sent_again(record.topic, record.value)) is not None:
            out.send(again, key=key, value=record.value)
        if ask is not None and (request := asks(record.topic, record.value)) is not None:
            out.call(ask, record.key, request)

    def handle_answer(record: Any, state: Any, out: Any) -> None:
        answer = record.value
        handle(msgspec.structs.replace(record, value="" if answer.error else answer.result), state, out)

    if tables:
        app.table(facts, store=FACTS, broadcast=broadcast)
    for topic in app.inputs:
        if topic.name not in (ANSWERS, TABLE):
            app.handler(topic)(handle)
    if ask is not None:
        ask.handler(handle_answer)
    if timed:
        _add_timers(app, version, ask, fat=fat, may_fail=may_fail)
    for from_schema in range(1, schema):
        for store in ("odd", "even") if named else (DEFAULT_STORE,):
            app.upgrade(from_schema=from_schema, store=store, value=str)(partial(_upgrade, from_schema, fat))
    return app


def _upgrade(from_schema: int, fat: bool, key: str, old: str) -> tuple[str, str] | None:
    result = upgraded(number_in(old), from_schema)
    return None if result is None else (key, stored(result, fat=fat, schema=from_schema + 1))


def _add_call(app: App[Any]) -> Any:
    @app.call(name=ASK, request=utf8, result=utf8, timeout_ms=1000, retries=None)
    async def ask(call: Call[str, str]) -> str:
        """Let the world of the process that runs it answer."""
        host: Any = HOST.get()
        result: str = await host.asked(call)
        return result

    return ask


def _add_timers(app: App[Any], version: int, ask: Any, *, fat: bool, may_fail: bool) -> None:
    output, schema = app.outputs[0], app.schema_version
    code = made_by(version, schema)

    @app.timer(RING)
    def ring(timer: Any, state: Any, out: Any) -> None:
        stores = results_in(state)
        olds = (store.get(timer.key) for store in stores.values())
        old = next((each for each in olds if each is not None), None)
        result = ring_result(version, number_in(old) if old else 0, timer.at_ms)
        fails = trapped(version, timer.at_ms, may_fail=may_fail)
        bulky = BULKY if fails and timer.at_ms % 8 else ""
        if fails and not bulky:
            first_store(stores)[timer.key] = POISON
            first_store(stores).schedule(timer.key, timer.at_ms + 1, timer=RING)
            out.send(output, key=timer.key, value=POISON)
            raise ValueError(POISON)
        if ring_writes(result):
            put(stores, timer.key, result, fat=fat, schema=schema)
        if ring_again(result):
            first_store(stores).schedule(timer.key, timer.at_ms + AGAIN_MS, timer=RING)
        out.send(output, key=timer.key, value=f"{code}|{RING}|{timer.at_ms}|{result}{bulky}")
        if ask is not None and (request := ring_asks(result)) is not None:
            out.call(ask, timer.key, request)

    @app.timer("tick", every_ms=EVERY_MS)
    def tick(timer: Any, state: Any, out: Any) -> None:
        count = sum(map(len, results_in(state).values()))
        value = f"{code}|{TICK}|{timer.at_ms}|{tick_result(version, count, timer.at_ms)}"
        out.send(output, key=TICK, value=value, partition=timer.partition)


def put(stores: Any, key: str, result: int, *, fat: bool, schema: int) -> None:
    """Put it into its store, and out of the other one."""
    chosen = store_of(result, named=True) if "" not in stores else ""
    for name, store in stores.items():
        if removes(result) or name != chosen:
            store.pop(key, None)
        else:
            store[key] = stored(result, fat=fat, schema=schema)


def _set(store: Any, key: str, result: int, at_ms: int | None) -> None:
    if at_ms is not None:
        store.schedule(key, at_ms, timer=RING)
    elif cancels(result):
        store.cancel(key, timer=RING)


def first_store(stores: Any) -> Any:
    """Return the store whose keys have the timers."""
    return stores["even" if "even" in stores else ""]
