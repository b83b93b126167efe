"""Code that is refused: the hint names what to write instead. What each module refuses has its tests there too."""

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.app.load import load_app
from snapreplay.errors import SnapreplayError
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.format.chunks import ChunkWriter
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX
from snapreplay.state.stores import store_of
from snapreplay.testing import Harness, check, record
from tests.snapshots.format.test_chunks import slice_of

IN = Topic("in")
ANY: Any = 5
UNTYPED: Any = MapState
HARNESS: Any = Harness
CHECK: Any = check
ONE_MAP = MapState(str, int)
LARGEST = random.Random(11).randbytes(RECORD_BYTES_MAX)


def app(does: Callable[[Any], None] = lambda state: None, state: Any = None) -> App[Any]:
    made: App[Any] = App("refused", inputs=[IN], state=state or (lambda: MapState(str, int)))
    made.handler(IN)(lambda record, state, out: does(state))
    made.validate()
    return made


def stores_made() -> Any:
    """A state that a partition has."""
    made = Stores(n=MapState(str, int))
    store_of(made)
    return made


def pending() -> None:
    """A timer named `gone` is due in an app without it."""
    made = app(lambda state: state.schedule("k", 9, timer="gone"))
    made.timer("gone")(lambda timer, state, out: None)
    harness = Harness(made)
    harness.feed(IN, key="k", value=1, timestamp_ms=1)
    harness.snapshot()
    del made.timers["gone"]
    made.timer("other")(lambda timer, state, out: None)
    harness.crash()
    harness.advance_time(9)


@pytest.mark.parametrize(
    ("hint", "wrong"),
    [
        ("inputs: in", lambda: Harness(app()).feed(Topic("out"), key="k", value=1)),
        ("pass as default= a function without", lambda: UNTYPED(str, int, default=lambda: "x")),
        ("`default=lambda: []`", lambda: UNTYPED(str, list, default=[])),
        (
            "split the value over several keys",
            lambda: asyncio.run(run_cooperatively(ChunkWriter("s").chunks([slice_of(4, {b"k": LARGEST})]))),
        ),
        ("and pass a list of them", lambda: HARNESS(app()).feed_batch(record(IN, key="k", value=1))),
        ("make each record with", lambda: CHECK(app(), [{"key": "k", "value": 1}])),
        ("pass the object that `App(…)` returned", lambda: HARNESS("ledger.py")),
        (
            "store it under a key",
            lambda: Harness(app(lambda state: setattr(state, "total", 1))).feed(IN, key="k", value=1),
        ),
        ('`@app.timer("gone")`; one that does nothing discards them', pending),
        ("keep it in a MapState", lambda: Stores(n=ANY)),
        ("use up to 64 letters, digits and underscores", lambda: Stores(_n=MapState(str, int))),
        ("`state.n.clear()`", lambda: setattr(stores_made(), "n", MapState(str, int))),
        ("`state.n.clear()` deletes", lambda: delattr(stores_made(), "n")),
        ("Stores(items=MapState(str, dict))", lambda: store_of(Stores())),
        ("make one for each", lambda: store_of(Stores(a=ONE_MAP, b=ONE_MAP))),
        ("that the app had before", lambda: store_of(Stores(a=MapState(str, int), retired=("a",)))),
        ('`retired=("offers",)`', lambda: store_of(Stores(a=MapState(str, int), retired="offers"))),
    ],
)
def test_the_hint_says_what_to_write(hint: str, wrong: Callable[[], Any]) -> None:
    """Of code that no type checker would let pass, mostly."""
    with pytest.raises(SnapreplayError) as refused:
        wrong()
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", "module:app, path/to/file.py"),
        ("one:", "module:app, path/to/file.py"),
        ("__main__:app", "name the file"),
        (".", "files there: one.py"),
        ("tow.py", "did you mean one.py?"),
        ("one:other", "apps in it: app; use one:app"),
        ("json.py", "rename it"),
    ],
)
def test_an_app_that_cannot_be_loaded(name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a name that names none, by a file that is not there, or is called as a module of Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    text = "from snapreplay import App, MapState, Topic\n"
    text += "app = App('a', inputs=[Topic('in')], state=lambda: MapState(str, int))\n"
    text += "app.handler(app.inputs[0])(lambda record, state, out: None)\n"
    (tmp_path / "one.py").write_text(text)
    if name == "json.py":
        (tmp_path / "json.py").write_text(text)
    with pytest.raises(SnapreplayError) as refused:
        load_app(name)
    assert hint in refused.value.hint
