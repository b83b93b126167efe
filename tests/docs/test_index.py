"""docs/README.md leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

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
