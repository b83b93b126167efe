"""Which modules make an app's version, and what in them."""

import ast
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from snapreplay.snapshots.program.user_modules import is_own
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
    state.add(fee(record.value) * RATES["a"])
""",
    "helpers.py": "import deep.inner as inner\ndef fee(x):\n    return inner.BY_NAME['one'](x)\n",
    "tables.py": "RATES = {'a': 3}\n",
    "late.py": "LIMIT = 5\n",
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
    ],
)
def test_a_change_in_any_module_of_the_app_is_another_version(version_of, name, old, new):
    """The state's class, a helper's helper, a table of which only the value is imported, a lambda in a dict; a given
    version that nobody raised makes no difference."""
    assert version_of(BASE).startswith("1+code:")
    assert version_of(changed(BASE, name, old, new)) != version_of(BASE)


def test_a_module_that_is_imported_late_counts_once_it_is_imported(version_of):
    """An import inside a function, of a module that something else has imported."""
    early = changed(BASE, "helpers.py", "import deep", "import late, deep")
    other = early | {"late.py": "LIMIT = 6\n"}
    assert version_of(early) != version_of(other)


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
