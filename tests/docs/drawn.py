"""The drawings of ARCHITECTURE.md, made from the code: `python -m tests.docs.drawn` draws them anew."""

from __future__ import annotations

from pathlib import Path

from tests.docs import layers, ownerships, recoveries

DOCUMENT = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
DRAWINGS = {
    "layers": layers.drawing,
    "recoveries": recoveries.drawing,
    "ownerships": ownerships.drawing,
}


def document() -> str:
    """ARCHITECTURE.md with the drawings of today."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, drawing in DRAWINGS.items():
        begin, end = f"<!-- drawn: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + drawing() + end + after
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
