"""Tests of which modules make an app's version, and what in them."""

import ast
import importlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from snapreplay.app.user_modules import is_own, own_modules
from snapreplay.errors import UsageError
from tests.support.files import app_in, changed

Files = dict[str, str]

BASE: Files = {
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
class Book:
    \"\"\"A state.\"\"\"
    def __init__(self):
        self.total = 0
    def add(self, x):
        self.total += x  # all of it
    def snapshot(self):
        return []
    def restore(self, entries):
        list(entries)
""",
    "deep/__init__.py": "from . import settings\n",
    "deep/inner.py": "from .settings import BASE\nBY_NAME = {'one': lambda x: x * BASE}\n",
    "deep/settings.py": "BASE = 2\n",
    "unused.py": "X = 1\n",
}

VersionOf = Callable[..., str]


@pytest.fixture
def version_of(tmp_path: Path) -> VersionOf:
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
def test_a_change_in_any_module_of_the_app_is_another_version(version_of, name, old, new):
    """The state's class, a helper's helper, a table of which only the value is imported, a lambda in a dict, what a
    handler imports when it runs; a given version that nobody raised makes no difference."""
    assert version_of(BASE).startswith("1+code:")
    assert version_of(changed(BASE, name, old, new)) != version_of(BASE)


def test_it_makes_no_difference_what_has_been_imported(tmp_path, monkeypatch):
    """The same modules before any of them is imported and after all of them are; asking imports nothing."""
    for name, text in BASE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = own_modules(["shop"])
    expected = {name.removesuffix(".py").replace("/", ".") for name in BASE} - {"unused"}
    assert set(before) == {name.removesuffix(".__init__") for name in expected}
    assert not set(before) & set(sys.modules)
    try:
        for name in before:
            importlib.import_module(name)
        assert own_modules(["shop"]) == before
    finally:
        for name in ("far", "far.off", *before):
            sys.modules.pop(name, None)


def test_half_a_file_is_named(version_of):
    """Somebody is writing it: no SyntaxError without a place."""
    with pytest.raises(UsageError, match=r"late\.py, a module of the app, .*line 1"):
        version_of(BASE | {"late.py": "LIMIT = (\n"})


@pytest.mark.parametrize(
    "files",
    [
        changed(BASE, "book.py", "  # all of it", ""),
        changed(BASE, "book.py", "A state.", "The state."),
        changed(BASE, "book.py", '    """A state."""\n', ""),
        changed(BASE, "shop.py", '    """What it does."""\n', ""),
        changed(BASE, "helpers.py", "def fee", "\n\n# the fee\ndef fee"),
        BASE | {"unused.py": "X = 2\n"},
    ],
)
def test_comments_lines_and_docstrings_make_no_difference(version_of, files):
    """Nor does a file beside the app that nobody imports."""
    assert version_of(files) == version_of(BASE)


def test_the_place_makes_no_difference(version_of):
    """Another directory, as on another machine."""
    assert version_of(BASE, "srv/another") == version_of(BASE)


def test_what_is_installed_is_not_the_authors(version_of, tmp_path, monkeypatch):
    """A library in site-packages may change without another version."""
    library = tmp_path / "lib/site-packages/library.py"
    library.parent.mkdir(parents=True)
    files = changed(BASE, "helpers.py", "import deep", "import library, deep")
    found = set()
    for text in ("X = 1\n", "X = 23\n"):
        library.write_text(text)
        monkeypatch.syspath_prepend(str(library.parent))
        found.add(version_of(files))
    assert len(found) == 1


def test_of_an_installed_app_its_own_modules_count(version_of):
    """Its top-level package; what else is installed does not."""
    installed = {
        name: version_of(files, "lib/site-packages")
        for name, files in {
            "as it is": BASE,
            "app": changed(BASE, "shop.py", 'RATES["a"]', 'RATES["a"] * 2'),
            "other": changed(BASE, "tables.py", "3", "4"),
        }.items()
    }
    assert installed["app"] != installed["as it is"] == installed["other"]


def test_a_file_of_the_author_may_be_named_like_one_of_the_standard_library(tmp_path, monkeypatch):
    """Where it lies says whose it is."""
    for name, place, own in (
        ("statistics", tmp_path / "statistics.py", True),
        ("statistics", Path(ast.__file__).with_name("statistics.py"), False),
        ("queue", tmp_path / "site-packages" / "queue.py", False),
    ):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__file__=str(place)))
        assert is_own(name) is own, place
