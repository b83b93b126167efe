"""Tests that changed code has another version; the same code has the same one, in every process."""

import ast
import functools
import gc
import importlib
import itertools
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from snapreplay.app.code_version import _parsed, code_version, own_modules, place_of
from snapreplay.errors import UsageError
from tests.support.files import app_in, changed


def wrapped(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def test_decorated_functions_are_looked_through():
    """The version is of the user's function, not of the wrapper."""

    def one(record, state, out):
        state["a"] = 1

    def two(record, state, out):
        state["a"] = 2

    assert code_version([wrapped(one)]) == code_version([one]) != code_version([wrapped(two)])
    assert code_version([functools.partial(one)]) == code_version([one])


def test_what_a_closure_holds_counts():
    """Handlers made in a function: the rule that they were given, and its parameters."""

    def made(rule, fee):
        def handler(record, state, out):
            state[record.key] = rule(fee)

        return handler

    def double(x):
        return x * 2

    def triple(x):
        return x * 3

    assert code_version([made(double, 1)]) == code_version([made(double, 1)])
    others = {code_version([made(double, 2)]), code_version([made(triple, 1)])}
    assert code_version([made(double, 1)]) not in others
    assert len(others) == 2


def test_place_names_function_file_and_line():
    """A message can send its reader there."""
    line = test_place_names_function_file_and_line.__code__.co_firstlineno
    assert place_of(test_place_names_function_file_and_line) == (
        f"test_place_names_function_file_and_line (test_code_version.py:{line})"
    )
    assert place_of(print) == "print"


Files = dict[str, str]

FILES: Files = {
    "shop.py": """
from snapreplay import App, Topic
from helpers import fee
from tables import RATES
from book import Book
payments = Topic("payments")
app = App("shop", inputs=[payments], state=Book, version="1")

@app.handler(payments)
def on_payment(record, state, out):
    \"\"\"What it does.\"\"\"
    from late import LIMIT
    from far.off.places import HERE
    state.add(fee(record.value) * RATES["a"])
""",
    "helpers.py": "import deep.inner as inner\ndef fee(x):\n    return inner.BY_NAME['one'](x)\n",
    "tables.py": "RATES = {'a': 3}\n",
    "late.py": "LIMIT = 5\n",
    "far/off/places.py": "from .maps import HERE\n",
    "far/off/maps.py": "from sibling import HERE\n",
    "sibling/__init__.py": "from .inner import HERE\n",
    "sibling/inner.py": "HERE = 7\n",
    "book.py": """
from snapreplay import MapState, Stores
class Book(Stores):
    \"\"\"A state.\"\"\"
    def __init__(self):
        super().__init__()
        self.entries = MapState(str, int)
    def add(self, x):
        self.total += x  # all of it
""",
    "deep/__init__.py": "from . import settings\n",
    "deep/inner.py": "from .settings import BASE\nBY_NAME = {'one': lambda x: x * BASE}\n",
    "deep/settings.py": "BASE = 2\n",
    "unused.py": "X = 1\n",
}

VersionOf = Callable[..., str]


@pytest.fixture
def version_in(tmp_path: Path) -> VersionOf:
    """The version of the app among these files, written into a directory of their own."""
    numbers = itertools.count()

    def version(files: Files, folder: str = "app") -> str:
        return app_in(tmp_path / f"place_{next(numbers)}" / folder, files).version

    return version


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("shop.py", "fee(record.value) *", "fee(record.value) +"),
        ("helpers.py", "'one'](x)", "'one'](-x)"),
        ("tables.py", "3", "4"),
        ("tables.py", "3", "3.0"),
        ("book.py", "self.total += x", "self.total -= x"),
        ("deep/inner.py", "x * BASE", "x + BASE"),
        ("deep/settings.py", "2", "3"),
        ("late.py", "5", "6"),
        ("sibling/inner.py", "7", "8"),
    ],
)
def test_a_change_in_any_module_of_the_app_is_another_version(version_in, name, old, new):
    """The state's class, a helper's helper, a table of which only the value is imported, a lambda in a dict, what a
    handler imports when it runs; a given version that was not raised makes no difference."""
    assert version_in(FILES).startswith("1+code:")
    assert version_in(changed(FILES, name, old, new)) != version_in(FILES)


def test_it_makes_no_difference_what_has_been_imported(tmp_path, monkeypatch):
    """The same modules before any of them is imported and after all of them are; asking imports nothing."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = own_modules(["shop"])
    expected = {name.removesuffix(".py").replace("/", ".") for name in FILES} - {"unused"}
    assert set(before) == {name.removesuffix(".__init__") for name in expected}
    assert not set(before) & set(sys.modules)
    try:
        for name in before:
            importlib.import_module(name)
        assert own_modules(["shop"]) == before
    finally:
        for name in ("far", "far.off", *before):
            sys.modules.pop(name, None)


def test_half_a_file_is_named(version_in):
    """Somebody is writing it: no SyntaxError without a place."""
    with pytest.raises(UsageError, match=r"late\.py, a module of the app, .*line 1"):
        version_in(FILES | {"late.py": "LIMIT = (\n"})


@pytest.mark.parametrize(
    "files",
    [
        changed(FILES, "book.py", "  # all of it", ""),
        changed(FILES, "book.py", "A state.", "The state."),
        changed(FILES, "book.py", '    """A state."""\n', ""),
        changed(FILES, "shop.py", '    """What it does."""\n', ""),
        changed(FILES, "helpers.py", "def fee", "\n\n# the fee\ndef fee"),
        FILES | {"unused.py": "X = 2\n"},
    ],
)
def test_comments_lines_and_docstrings_make_no_difference(version_in, files):
    """Nor does a file beside the app that is not imported."""
    assert version_in(files) == version_in(FILES)


def test_what_is_installed_is_not_the_authors(version_in, tmp_path, monkeypatch):
    """A library in site-packages may change without another version."""
    library = tmp_path / "lib/site-packages/library.py"
    library.parent.mkdir(parents=True)
    files = changed(FILES, "helpers.py", "import deep", "import library, deep")
    found = set()
    for text in ("X = 1\n", "X = 23\n"):
        library.write_text(text)
        monkeypatch.syspath_prepend(str(library.parent))
        found.add(version_in(files))
    assert len(found) == 1


def test_of_an_installed_app_its_own_modules_count(version_in):
    """Its top-level package; what else is installed does not."""
    installed = {
        name: version_in(files, "lib/site-packages")
        for name, files in {
            "as it is": FILES,
            "app": changed(FILES, "shop.py", 'RATES["a"]', 'RATES["a"] * 2'),
            "other": changed(FILES, "tables.py", "3", "4"),
        }.items()
    }
    assert installed["app"] != installed["as it is"] == installed["other"]


def test_a_collection_that_parses_does_not_disturb_the_version():
    """CPython 3.11 fails then: "AST constructor recursion depth mismatch"."""

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            ast.parse("1")

    source = b"def function():\n    return 1\n" * 300
    expected = _parsed(source, "")
    gc.collect()
    with collecting_often():
        Garbage()
        assert _parsed(source, "") == expected


@contextmanager
def collecting_often():
    """Let the collector look at young objects each time that a few hundred are made."""
    before = gc.get_threshold()
    gc.set_threshold(300, 1000, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
