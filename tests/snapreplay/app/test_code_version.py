"""Tests that changed code has another version; the same code has the same one, in every process."""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from snapreplay.app.code_version import code_version
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
    handler imports when it runs; a given version that nobody raised makes no difference."""
    assert version_in(FILES).startswith("1+code:")
    assert version_in(changed(FILES, name, old, new)) != version_in(FILES)


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
    """Nor does a file beside the app that nobody imports."""
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
