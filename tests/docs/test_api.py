"""docs/api.md lists every public name, and no other."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
MODULES = ["snapreplay", "snapreplay.errors", "snapreplay.testing", "snapreplay.spark", "snapreplay.windows"]


CALLED_IN_TESTS = {"Harness", "RealHarness", "broker", "check", "check_upgrade", "record", "record_raw"}


def listed() -> dict[str, list[str]]:
    """Module to the names in the first column of its table."""
    sections = re.split(r"^## `([\w.]+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = {
        module: re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
        for module, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    return {module: re.findall(r"`(\w+)`", " ".join(names)) for module, names in rows.items()}


def test_every_module_has_its_section() -> None:
    """No other module is public."""
    assert list(listed()) == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_the_page_lists_what_is_public(name: str) -> None:
    """Each name once; each can be imported."""
    module = importlib.import_module(name)
    assert sorted(listed()[name]) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


def test_the_page_on_tests_explains_what_a_test_calls() -> None:
    """Not only in an example: each has a sentence or a row."""
    page = (PAGE.parent / "testing.md").read_text(encoding="utf-8")
    called = [name for name in listed()["snapreplay.testing"] if name in CALLED_IN_TESTS]
    assert len(called) == len(CALLED_IN_TESTS)
    assert [name for name in called if not re.search(rf"`{name}[`(]", page)] == []
