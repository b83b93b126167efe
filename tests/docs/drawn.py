"""The tables of docs/internals/steps.md that are made from the code: `python -m tests.docs.drawn` writes them."""

from __future__ import annotations

from pathlib import Path

from tests.docs import ownerships, recoveries

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "internals" / "steps.md"
DRAWINGS = {"recoveries": recoveries.drawing, "ownerships": ownerships.drawing}


def document() -> str:
    """Return the page with the tables of today."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, drawing in DRAWINGS.items():
        begin, end = f"<!-- drawn: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + drawing() + end + after
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
