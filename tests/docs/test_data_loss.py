"""docs/data-loss.md: twenty questions, each with one line and the test that shows the answer."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| … (.*\?) \| (.*) \| `(test_\w+)` in `(tests/\S+\.py)` \|$", re.MULTILINE)


def test_every_answer_names_a_test_that_exists() -> None:
    """A test that is renamed or removed takes its answer with it."""
    page = (ROOT / "docs" / "data-loss.md").read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert len(rows) == page.count("| … ") == 20
    for question, answer, test, path in rows:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE), test
        assert answer.startswith(("No", "Yes", "What", "The state")), question
