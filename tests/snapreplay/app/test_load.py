"""Tests of the way from a name to an app, and from each mistake to the way out."""

import contextlib
import importlib
import sys
import textwrap
import uuid

import pytest

from snapreplay.api.cli.options import load_apps
from snapreplay.app.app import App
from snapreplay.app.load import check_together, load_app, name_of
from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError
from snapreplay.service.program import run
from snapreplay.state.map import MapState

GOOD = """
from snapreplay import App, MapState, Topic
payments = Topic("payments")
app = other = App("ledger", inputs=[payments], state=lambda: MapState(str, int))
@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] = 1
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory of one's own, forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder, source, stem=None):
    """A module of a name that nothing else has."""
    name = stem or f"app_{uuid.uuid4().hex[:8]}"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(textwrap.dedent(source))
    return name


def refused(name, *words):
    with pytest.raises(UsageError) as caught:
        load_app(name)
    for word in words:
        assert word in str(caught.value)


def test_a_module_of_the_working_directory_is_found(here):
    """With the default attribute, and with one named."""
    name = write(here, GOOD)
    assert load_app(name).app_id == "ledger"
    assert load_app(f"{name}:other") is load_app(f"{name}:app")


def test_a_file_is_imported_under_its_stem(here):
    """Anybody else who imports that name gets the same module, so the same app."""
    name = write(here / "sub", GOOD)
    app = load_app(f"sub/{name}.py")
    assert importlib.import_module(name).app is app
    assert load_app(f"sub/{name}.py:other") is app


def test_a_file_finds_its_neighbours(here):
    """Modules beside the file can be imported, from wherever one starts."""
    neighbour = write(here / "sub", "LIMIT = 5\n")
    name = write(here / "sub", f"from {neighbour} import LIMIT\n{GOOD}")
    assert load_app(str(here / "sub" / f"{name}.py")).app_id == "ledger"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\nraise ValueError('boom')", ["ValueError: boom", "line 2: raise ValueError"]),
        ("x = (1\n", ["SyntaxError", "line 1"]),
        ("x = 1\0", ["SyntaxError", "null bytes"]),
    ],
)
def test_modules_that_cannot_be_imported_show_cause_and_line(here, source, words):
    """The user's line, not the import system's."""
    name = write(here, source)
    refused(name, name, *words)
    refused(f"{name}.py", name, *words)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("MapState(str, int, defaut=int)", ["TypeError: ", "'defaut'"]),
        ("MapState(str, int)['ada']", ["MissingKey: ", "state['ada'] is not in the map"]),
    ],
)
def test_a_state_that_cannot_be_made_shows_cause_and_line(here, wrong, words):
    """The user's line, not one of this package. What the package itself refuses has a message of its own."""
    name = write(here, GOOD.replace("MapState(str, int)", wrong))
    refused(name, f"the state of app 'ledger' cannot be made: {words[0]}", *words, f"({name}.py line 4: app = other = ")
    with pytest.raises(UsageError, match=r"^MapState: 3 cannot be a key type"):
        load_app(write(here, GOOD.replace("MapState(str, int)", "MapState(3, int)")))


def test_files_that_would_be_another_module_are_refused(here):
    """No Python name, and a name already taken."""
    refused(f"{write(here, GOOD, 'my-app')}.py", "my-app", "rename")
    name = write(here / "one", GOOD)
    write(here / "two", GOOD, name)
    load_app(f"one/{name}.py")
    refused(f"two/{name}.py", "taken by", "rename")


@pytest.mark.parametrize(
    ("in_one", "in_two", "module"),
    [
        ("rates.py", "rates.py", "rates"),
        ("rates.py", "rates/__init__.py", "rates"),
        ("lib/rates.py", "lib/rates.py", "lib.rates"),
        ("lib/rates.py", "lib/taxes.py", None),
        ("rates.py", "taxes.py", None),
        ("data/rates.json", "data/rates.json", None),
        ("tests/test_unit.py", "tests/test_unit.py", None),
    ],
)
def test_apps_whose_folders_share_a_module_name_are_refused_together(here, in_one, in_two, module):
    """Also a module of the working directory with a file elsewhere. Each remedy of the hint helps."""
    for path in (f"one/{in_one}", f"two/{in_two}"):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).touch()
    names = ["one/first.py", "one/other.py:app", "two/second.py:app"]
    check_together(names[:2])  # one folder
    check_together(names[2:])  # separate processes
    if module is None:
        check_together(names)
        return
    with pytest.raises(UsageError, match=f"one and .*two both have a module '{module}'"):
        check_together(names)
    with contextlib.chdir(here / "one"), pytest.raises(UsageError, match=f"both have a module '{module}'"):
        check_together(["first", "../two/second.py"])
    (here / "one" / in_one).rename((here / "one" / in_one).with_name("renamed.py"))
    check_together(names)


def test_an_app_never_gets_the_module_of_another_folder(here):
    """Nothing was imported when the command is refused."""
    neighbour, names = f"rates_{uuid.uuid4().hex[:8]}", []
    for rate, folder in enumerate(("one", "two")):
        write(here / folder, f"RATE = {rate}", neighbour)
        names.append(f"{folder}/{write(here / folder, f'from {neighbour} import RATE{GOOD}')}.py")
    with pytest.raises(UsageError, match=f"both have a module '{neighbour}'"):
        load_apps(names)
    assert neighbour not in sys.modules


def test_a_program_cannot_run_apps_of_folders_that_share_a_module_name(here):
    """As on the command line, before any broker is asked."""
    neighbour, apps = f"rates_{uuid.uuid4().hex[:8]}", []
    for folder in ("one", "two"):
        write(here / folder, "RATE = 1", neighbour)
        apps.append(load_app(f"{folder}/{write(here / folder, GOOD.replace('ledger', folder))}.py"))
    with pytest.raises(UsageError, match=f"both have a module '{neighbour}'"):
        run(apps)


def test_what_is_no_file_is_named(here):
    """A directory, a link to itself, a name that no file can have."""
    write(here / "sub", GOOD, "one")
    (here / "odd.py").mkdir()
    (here / "loop.py").symlink_to("loop.py")
    for folder in (".", "sub/", "./sub/.", "odd.py", str(here)):
        refused(folder, "is a directory")
    refused("sub/", "sub/one.py")
    refused("sub", "modules in it: sub.one")
    refused("loop.py", "is no file")
    check_together(["loop.py", "sub/one.py"])  # explained when it is loaded
    refused(f"{'x' * 300}.py", "does not exist")


def test_incomplete_apps_are_refused(here):
    """No handler, and an async one: found before any broker is asked."""
    refused(write(here, GOOD.replace("@app.handler(payments)\n", "")), "no handler")
    refused(write(here, GOOD.replace("def on_payment", "async def on_payment")), "async", "@app.call()")


def test_apps_made_in_functions_have_no_name():
    """Only what another process could import has one."""
    topic = Topic("payments")
    app = App("ledger", inputs=[topic], state=lambda: MapState(str, int))
    assert name_of(app) is None

    @app.handler(topic)
    def on_payment(record, state, out): ...

    assert name_of(app) is None
