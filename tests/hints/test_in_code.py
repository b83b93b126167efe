"""Hints about an app's code: what is refused, then the same as the hint says, which is taken."""

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Topic, i64, json, nullable, utf8
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.load import load_app
from snapreplay.app.ranges import SkippedRange
from snapreplay.app.record import Output
from snapreplay.errors import SnapreplayError
from snapreplay.service.kafka.batching import TransactionBatches
from snapreplay.service.publish.snapshot_writer import encoded
from snapreplay.snapshots.format.changes import split_changes
from snapreplay.snapshots.format.chunks import ChunkWriter
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, encode
from snapreplay.snapshots.format.records import ChunkRef, Increment
from snapreplay.state.stores import store_of
from snapreplay.testing import Harness
from tests.hints.following import refused_then_taken
from tests.service.kafka.test_batching import SHAPES
from tests.snapshots.format.test_chunks import slice_of
from tests.support import apps
from tests.support.entries import increment, manifest

IN, OUT = Topic("in"), Topic("out")


def app(handler: Callable[..., Any] | None = None, state: Any = None, inputs: Any = (IN,), **options: Any) -> App[Any]:
    made: App[Any] = App("hints", inputs=inputs, state=state or (lambda: MapState(str, int)), **options)
    if handler is not None:
        made.handler(inputs[0])(handler)
    made.validate()
    return made


def unhandled() -> App[Any]:
    return App("hints", inputs=[IN], state=of(str, int))


def wrong(value: Any) -> Any:
    """Return what no type checker would let pass."""
    return value


class Account(msgspec.Struct):
    n: int


ONE_FOR_ALL = apps.Tape()


def ignore(record: Any, state: Any, out: Any) -> None:
    """A handler that does nothing."""


async def later(record: Any, state: Any, out: Any) -> None:
    """No handler."""


def yielding(record: Any, state: Any, out: Any) -> Any:
    yield record


def sending(record: Any, state: Any, out: Any) -> None:
    out.send(OUT, key=record.key, value=1)


def fed(
    handler: Callable[..., Any], value: Any = 1, state: Any = None, inputs: Any = (IN,), **options: Any
) -> Harness[Any]:
    """A harness that was given one record."""
    harness = Harness(app(handler, state, inputs, outputs=options.pop("outputs", (OUT,)), **options))
    harness.feed(inputs[0], key="k", value=value)
    return harness


def stores(value: Any, key: Any = "k") -> Callable[..., None]:
    def handler(record: Any, state: Any, out: Any) -> None:
        state[key] = value

    return handler


def shares(copied: bool) -> Callable[..., None]:
    def handler(record: Any, state: Any, out: Any) -> None:
        both: list[int] = []
        state["a"], state["b"] = both, list(both) if copied else both

    return handler


def of(key: Any, value: Any) -> Any:
    return lambda: MapState(key, value)


class Half(apps.Tape):
    """Begins and cannot roll back."""

    def begin(self) -> None:
        """Nothing."""


class Pairs:
    """State that gives what it was told to."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def snapshot(self) -> Any:
        return self._entries

    def restore(self, entries: Any) -> None:
        """Nothing."""


OTHER_OUT = Topic("out")
ENTRY = b"x" * 900_000
NULLS = Topic("in", value=nullable(json(int)))


def sends(topic: Topic[Any, Any], value: Any = 1) -> Callable[..., None]:
    return lambda record, state, out: out.send(topic, key="k", value=value)


LARGEST = random.Random(11).randbytes(RECORD_BYTES_MAX)
HALF = LARGEST[: RECORD_BYTES_MAX // 2]


def batched(partition: int | None) -> TransactionBatches:
    """One output for a topic of four partitions."""
    batches = TransactionBatches(SHAPES, 0)
    batches.add_outputs([Output("log", b"k", b"v", partition, False, None)], "log", 0)
    return batches


STRICT = Topic("strict", value=i64)
LOOSE = Topic("strict", value=nullable(i64))


def skipping(count: int) -> Increment:
    """Make an increment of a batch in which every other record was refused."""
    start = 1 << 40
    return increment(1, skipped=[SkippedRange("in", start + 2 * n, start + 2 * n + 1) for n in range(count)])


def chunks(count: int) -> list[ChunkRef]:
    return [ChunkRef((1 << 40) + n, n, 900_000, n) for n in range(count)]


BIG = "x" * 2_000_000
STRICT_OUT = Topic("outt")

CASES: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "an input's own Topic object": (
        "use the same Topic object as inputs=[…]: in",
        lambda: unhandled().handler(Topic("elsewhere"))(ignore), lambda: unhandled().handler(IN)(ignore),
    ),
    "a handler per input": ("decorate a function", app, lambda: app(ignore)),
    "a state of its own per partition": (
        "state=lambda: MapState(…)",
        lambda: app(ignore, state=lambda: ONE_FOR_ALL), lambda: app(ignore, state=of(str, int)),
    ),
    "no async": ("def, not async def", lambda: app(later), lambda: app(ignore)),
    "no generator": ("use out.send instead of yield", lambda: app(yielding), lambda: fed(sending)),
    "an app id": (
        "use 1 to 200 letters", lambda: App("a b", inputs=[IN], state=apps.Tape),
        lambda: App("a-b", inputs=[IN], state=apps.Tape),
    ),
    "a version": (
        'version="2026-11-3", or leave it out', lambda: app(ignore, version=3),
        lambda: (app(ignore, version="2026-11-3"), app(ignore)),
    ),
    "a Topic": ("Topic('in')", lambda: app(ignore, inputs=["in"]), lambda: app(ignore, inputs=[Topic("in")])),
    "an input": ('inputs=[Topic("…")]', lambda: app(inputs=[]), lambda: app(ignore, inputs=[Topic("x")])),
    "a topic name": ("letters, digits", lambda: Topic("a b"), lambda: Topic("a.b_c-d")),
    "a codec": ("raw, utf8, i64, i32, json(type)", lambda: Topic("t", key=wrong(str)), lambda: Topic("t", key=utf8)),
    "a codec that is made": (
        "value=json() or", lambda: Topic("t", value=wrong(json)), lambda: Topic("t", value=json()),
    ),
    "nulls": (
        "declare value=nullable(json(int)) in its Topic",
        lambda: fed(ignore, None, inputs=(Topic("in", value=json(int)),)),
        lambda: fed(ignore, None, inputs=(NULLS,)),
    ),
    "null outputs": (
        "declare the topic with value=nullable(i64)",
        lambda: fed(sends(STRICT, None), outputs=(STRICT,)), lambda: fed(sends(LOOSE, None), outputs=(LOOSE,)),
    ),
    "one Topic object per output": (
        "declare a topic once and import it", lambda: fed(sends(OTHER_OUT)), lambda: fed(sends(OUT)),
    ),
    "a declared output": (
        "did you mean out? outputs: out; to add it, use App(outputs=[…])",
        lambda: fed(sends(STRICT_OUT)), lambda: fed(sends(STRICT_OUT), outputs=(STRICT_OUT,)),
    ),
    "an output that fits": ("send less, or raise", lambda: fed(sends(OUT, BIG)), lambda: fed(sends(OUT, "x"))),
    "dead letters": (
        "give the state begin() and rollback()",
        lambda: Harness(app(ignore, apps.Tape), policy=ErrorPolicy.DEAD_LETTER),
        lambda: Harness(app(ignore, apps.Undoable), policy=ErrorPolicy.DEAD_LETTER),
    ),
    "a harness's input": (
        "inputs: in", lambda: Harness(app(ignore)).feed(OUT, key="k", value=1),
        lambda: Harness(app(ignore)).feed(IN, key="k", value=1),
    ),
    "a key type": ("such as tuple[str, int]", lambda: MapState(float, int), lambda: MapState(tuple[str, int], int)),
    "a key of the type": ("convert it: str(...)", lambda: fed(stores(1, key=7)), lambda: fed(stores(1, key=str(7)))),
    "a key that fits": (
        "use ints of at most 64 bits", lambda: fed(stores(1, key=2**70), state=of(int, int)),
        lambda: fed(stores(1, key=2**60), state=of(int, int)),
    ),
    "a value type": (
        "use a msgspec Struct", lambda: MapState(str, wrong(object())), lambda: MapState(str, Account),
    ),
    "a codec's type": ("use a msgspec Struct", lambda: json(object()), lambda: json(Account)),
    "a value that can be written": (
        "use ints of at most 64 bits", lambda: fed(stores(2**70)), lambda: fed(stores(2**60)),
    ),
    "a value of the declared type": (
        "store a value of the declared type", lambda: fed(stores("seven"), state=of(str, int)),
        lambda: fed(stores(7), state=of(str, int)),
    ),
    "a value that reads back": (
        "declare the type, for example MapState(str, tuple[int, int])",
        lambda: fed(stores((1, 2)), state=of(str, object)),
        lambda: (fed(stores((1, 2)), state=of(str, tuple[int, int])), fed(stores([1, 2]), state=of(str, object))),
    ),
    "an object in one place": (
        "store a copy in one of them",
        lambda: fed(shares(copied=False), state=of(str, list)), lambda: fed(shares(copied=True), state=of(str, list)),
    ),
    "a default": (
        "pass as default= a function without arguments that returns a value of that type",
        lambda: MapState(str, int, default=lambda: wrong("x")),
        lambda: MapState(str, int, default=lambda: 0),
    ),
    "a default that is called": (
        "`default=lambda: []`",
        lambda: MapState(str, list, default=wrong([])), lambda: MapState(str, list, default=list),
    ),
    "a value that is small enough": (
        "spread it over several keys",
        lambda: fed(stores("x" * 900_000), state=of(str, str)), lambda: fed(stores("x"), state=of(str, str)),
    ),
    "both or none": ("implement both, or none", lambda: app(ignore, Half), lambda: app(ignore, apps.Undoable)),
    "unique keys": (
        "return each key only once",
        lambda: store_of(Pairs([(b"a", b""), (b"a", b"")])), lambda: store_of(Pairs([(b"a", b""), (b"b", b"")])),
    ),
    "entries that fit": (
        "split it into several entries",
        lambda: store_of(Pairs([(b"a", ENTRY)])), lambda: store_of(Pairs([(b"a", b"x"), (b"b", b"x")])),
    ),
    "entries of bytes": (
        "a tuple (key bytes, value bytes)",
        lambda: store_of(Pairs([("a", "b")])), lambda: store_of(Pairs([(b"a", b"b")])),
    ),
    "a change that fits into a record": (
        "keep less under one key: split the value over several keys",
        lambda: split_changes(7, {"s": {b"k": LARGEST}}), lambda: split_changes(7, {"s": {b"k-1": HALF, b"k-2": HALF}}),
    ),
    "an entry that fits into a chunk": (
        "keep less under one key: split the value over several keys",
        lambda: asyncio.run(encoded(ChunkWriter("s"), [slice_of(4, {b"k": LARGEST})])),
        lambda: asyncio.run(encoded(ChunkWriter("s"), [slice_of(4, {b"k-1": HALF, b"k-2": HALF})])),
    ),
    "a partition that is there": (
        "send to a partition below the count, or let the key decide",
        lambda: batched(partition=4), lambda: (batched(partition=3), batched(partition=None)),
    ),
    "a view": (
        "keep the state in a MapState", lambda: store_of(apps.Tape()).committed_view(),
        lambda: store_of(MapState(str, int)).committed_view(),
    ),
    "a state": (
        "pass as state= a function that returns a new MapState(str, ...)",
        lambda: store_of({}), lambda: store_of(MapState(str, int)),
    ),
    "an increment of a smaller batch": (
        "make batches smaller with the setting `batch.records_max`",
        lambda: encode(skipping(60_000)), lambda: encode(skipping(15_000)),
    ),
    "a manifest of a partition with less state": (
        "spread the state over more partitions",
        lambda: encode(manifest("s", chunks(90_000))), lambda: encode(manifest("s", chunks(22_500))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_code_is_taken_once_it_is_as_the_hint_says(name):
    """Refused with this hint; done, and nothing is refused any more."""
    refused_then_taken(*CASES[name])


APP = """
from snapreplay import App, MapState, Topic
app = App('a', inputs=[Topic('in')], state=lambda: MapState(str, int))
@app.handler(app.inputs[0])
def ignore(record, state, out): ...
"""

# What is refused, with which hint, and what is done: files by name and their text, and the name to load.
LOADS: dict[str, tuple[str, dict[str, str], str, dict[str, str], str]] = {
    "a name": ("module:app, path/to/file.py", {"one.py": APP}, "", {}, "one:app"),
    "a module's name": ("module:app, path/to/file.py", {"one.py": APP}, ":app", {}, "one:app"),
    "an attribute's name": ("module:app, path/to/file.py", {"one.py": APP}, "one:", {}, "one:app"),
    "no module that runs": ("name the file", {"one.py": APP}, "__main__:app", {}, "one.py"),
    "the module": ("did you mean hinted_one?", {"hinted_one.py": APP}, "hinted_on:app", {}, "hinted_one:app"),
    "the file": ("did you mean two.py?", {"two.py": APP}, "tow.py", {}, "two.py"),
    "no name of Python's": ("rename it", {"json.py": APP}, "json.py", {"three.py": APP}, "three.py"),
    "no name that is taken": ("rename the file", {"pytest.py": APP}, "pytest.py", {"four.py": APP}, "four.py"),
    "what it imports": (
        "install it, or start in the directory that it can be imported from",
        {"five.py": "import hinted_helper\n" + APP}, "five.py",
        {"hinted_helper.py": ""}, "five.py",
    ),
    "no program": (
        '__name__ == "__main__":', {"six.py": APP + "\nraise SystemExit(1)"}, "six.py",
        {"six.py": APP + "\nif __name__ == '__main__':\n    raise SystemExit(1)"}, "six.py",
    ),
    "the attribute": ("apps in it: app; use seven:app", {"seven.py": APP}, "seven:other", {}, "seven:app"),
    "no directory": ("files there: nine.py", {"nine.py": APP}, ".", {}, "nine.py"),
    "the app": ("apps in it: app; use eight:app", {"eight.py": APP}, "eight:ignore", {}, "eight:app"),
}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", LOADS)
def test_an_app_is_loaded_once_it_is_where_the_hint_says(desk, name):
    """Refused with this hint; files and name as it says, and it is there."""
    says, files, wrong, then, right = LOADS[name]
    for path, text in files.items():
        (desk / path).write_text(text)
    with pytest.raises(SnapreplayError) as refused:
        load_app(wrong)
    assert says in refused.value.hint
    for module in {path.stem for path in desk.glob("*.py")} - {"json", "pytest"}:
        sys.modules.pop(module, None)
    for path, text in then.items():
        (desk / path).write_text(text)
    assert load_app(right).app_id == "a"


def test_a_stored_value_of_another_type_is_read_by_the_type_that_wrote_it():
    """The type goes back, or is one that still reads it: a new field with a default."""

    class Old(msgspec.Struct):
        n: int

    class Incompatible(msgspec.Struct):
        n: int
        m: int

    class Compatible(msgspec.Struct):
        n: int
        m: int = 0

    def read(value_type: Any) -> Any:
        state = MapState(str, value_type)
        written = msgspec.msgpack.encode({"n": 1})
        store_of(state).apply_changes({"default": {msgspec.msgpack.encode("k"): written}})
        return state["k"]

    with pytest.raises(SnapreplayError, match="declare a type that reads what is stored"):
        read(Incompatible)
    assert read(Old).n == read(Compatible).n == 1
