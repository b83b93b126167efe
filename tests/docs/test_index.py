"""docs/README.md leads to every page that a user reads."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = sorted({*(ROOT / "docs").glob("*.md"), ROOT / "deploy" / "README.md"} - {INDEX, ROOT / "docs" / "FORMAT.md"})


def test_the_index_names_every_page_once_in_one_of_five_groups() -> None:
    """What is not for users is in docs/internals/, and FORMAT.md."""
    _, *groups = re.split(r"^## ", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [group.split("\n")[0] for group in groups] == ["Start", "Guides", "Operate", "Reference", "Explain"]
    linked = re.findall(r"\]\(([^)#]+\.md)\)", "".join(groups))
    assert sorted((INDEX.parent / each).resolve() for each in linked) == PAGES
