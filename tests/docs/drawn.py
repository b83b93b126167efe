"""The drawings of ARCHITECTURE.md, made from the code: `python -m tests.docs.drawn` draws them anew."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import grimp

from tests.docs import ownerships, recoveries

DOCUMENT = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
SPLIT = ("service", "snapshots")
"""Folders that are shown by what is in them."""

Edges = set[tuple[str, str]]


def place_of(module: str) -> str:
    """Say where a module is shown: "snapreplay.service.live.committer" → "service/live"."""
    parts = module.split(".")[1:]
    return "/".join(parts[: 2 if parts[:1] and parts[0] in SPLIT else 1])


def imports() -> Edges:
    """Say who imports whom, without what follows from the rest."""
    graph = grimp.build_graph("snapreplay", exclude_type_checking_imports=True)
    edges = {
        (place_of(module), place_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    return reduced({(above, below) for above, below in edges if above != below and below})


def reduced(edges: Edges) -> Edges:
    """Leave out each edge that a longer way stands for. There is no circle: the contracts see to it."""
    below: dict[str, set[str]] = {}
    for upper, lower in edges:
        below.setdefault(upper, set()).add(lower)

    @cache
    def reach(place: str) -> set[str]:
        return set().union(*({each} | reach(each) for each in below.get(place, ())))

    return {
        (upper, lower) for upper, lower in edges if not any(lower in reach(other) for other in below[upper] - {lower})
    }


def layers() -> str:
    """Draw the layers as Mermaid."""
    lines = [f"    {upper} --> {lower}" for upper, lower in sorted(imports())]
    return "\n".join(("```mermaid", "graph TD", *lines, "```", ""))


DRAWINGS = {"layers": layers, "recoveries": recoveries.drawing, "ownerships": ownerships.drawing}


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
