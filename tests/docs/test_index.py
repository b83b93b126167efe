"""docs/README.md leads to every page, and every page says for whom it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = sorted(
    {*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "deploy" / "README.md"} - {INDEX, ROOT / "README.md"}
)


def test_the_index_names_every_page_once_under_one_of_four_kinds() -> None:
    """Diátaxis: learn it, do something with it, look something up, understand it."""
    _, *kinds = re.split(r"^## ", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [kind.split("\n")[0] for kind in kinds] == ["Tutorial", "How-to", "Reference", "Explanation"]
    linked = re.findall(r"\]\(([^)#]+\.md)\)", "".join(kinds))
    assert sorted((INDEX.parent / each).resolve() for each in linked) == PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_whom_it_is_for(page: Path) -> None:
    """One sentence: for whom, and for what."""
    title, first = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert title.startswith("# ")
    without_targets = re.sub(r"\]\([^)]*\)", "]", first)
    assert re.match(r"This page is for [^:]+: \w.*\.", without_targets, re.DOTALL), first
