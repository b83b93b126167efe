"""docs/api.md lists every public name, and no other."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
MODULES = [
    "snapreplay",
    "snapreplay.errors",
    "snapreplay.testing",
    "snapreplay.spark",
    "snapreplay.windows",
]


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
