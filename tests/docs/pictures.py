"""The pictures of README.md: `python -m tests.docs.pictures` draws them again.

- demo.svg: a film of docs/pictures/demo.txt. These are lines that a run of `make demo` printed, with their seconds: all
  kills, restarts and verdicts, and some of the progress.
- peers.svg: the tables of docs/benchmarks.md beside other libraries, as bars.
"""

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = DOCS / "pictures"

# -------------------------------------------------------------------------------- the film

LINE_PX, COLUMN_PX, ROWS, COLUMNS = 20, 7.8, 22, 112
LONGEST_S = 0.9
"""What took longer in the run is cut to this between two lines of the film."""
HOLD_S = 6.0
"""The last picture stays as long, then the film begins again."""
_SAID = re.compile(r"^ *([0-9.]+) s  (.*)$")
_COLOURS = {"SIGKILL": "#ff7b72", "LIVE": "#7ee787", "restore": "#79c0ff", "yes": "#7ee787"}


def film() -> str:
    """Draw the lines one after the other, as a terminal scrolls. Without animation all of the end is there."""
    lines = (PICTURES / "demo.txt").read_text(encoding="utf-8").splitlines()
    at, shown_at, before = 0.0, list[float](), 0.0
    for line in lines:
        said = _SAID.match(line)
        seconds = float(said[1]) if said else before
        at += min(max(seconds - before, 0.12), LONGEST_S)
        before = seconds
        shown_at.append(at)
    length = shown_at[-1] + HOLD_S
    width, height = COLUMNS * COLUMN_PX + 32, ROWS * LINE_PX + 40
    texts, scrolls = [], ["0%{transform:translateY(0)}"]
    for number, (line, when) in enumerate(zip(lines, shown_at, strict=True)):
        colour = next((each for word, each in _COLOURS.items() if word in line), "#c9d1d9")
        texts.append(
            f'<text y="{(number + 1) * LINE_PX}" fill="{colour}" style="animation-name:l{number}">'
            f"{escape(line[:COLUMNS])}</text>"
        )
        scrolled = max(0, number + 1 - ROWS) * LINE_PX
        percent = when / length * 100
        scrolls.append(f"{percent:.2f}%{{transform:translateY(-{scrolled}px)}}")
    percents = [when / length * 100 for when in shown_at]
    appear = "".join(
        f"@keyframes l{number}{{0%,{at:.2f}%{{opacity:0}}{at + 0.01:.2f}%,to{{opacity:1}}}}"
        for number, at in enumerate(percents)
    )
    end = max(0, len(lines) - ROWS) * LINE_PX
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"'
        ' aria-label="A run of make demo: kills, restores and the verdict">\n'
        "<style>text{font:13px ui-monospace,Menlo,Consolas,monospace;white-space:pre;"
        f"animation:{length:.1f}s infinite}}"
        f"#s{{transform:translateY(-{end}px);animation:s {length:.1f}s steps(1,end) infinite}}"
        f"@keyframes s{{{''.join(scrolls)}to{{transform:translateY(-{end}px)}}}}{appear}"
        "@media (prefers-reduced-motion:reduce){text,#s{animation:none}}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n<svg x="16" y="16" width="{width - 32:.0f}"'
        f' height="{height - 28}"><g id="s">\n' + "\n".join(texts) + "\n</g></svg></svg>\n"
    )


# -------------------------------------------------------------------------------- the bars

PANELS = (
    ("records/s from a backlog", "more is better", "records/s from a backlog, 100,000 keys"),
    ("MB with 1,000,000 keys", "less is better", "memory with 100,000 and 1,000,000 keys"),
    ("s from start to first output, 1,000,000 keys", "less is better", "start of the process to first output"),
)
OURS, OTHERS = "#3f51b5", "#9aa4b2"


def chart() -> str:
    """Draw what was measured in one series as bars side by side: the mean of a range."""
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8").partition("## Beside other libraries")[2]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    names = rows[0][1:3]
    parts = []
    for number, (title, better, label) in enumerate(PANELS):
        (row,) = [row for row in rows[2:8] if row[0].startswith(label)]
        values = [_mean(cell.rpartition(" and ")[2] if label.startswith("memory") else cell) for cell in row[1:3]]
        top = 34 + number * 84
        parts.append(f'<text x="12" y="{top}" class="t">{title} <tspan class="b">({better})</tspan></text>')
        for index, (name, value) in enumerate(zip(names, values, strict=True)):
            y, colour = top + 12 + index * 26, OTHERS if index else OURS
            shown = row[index + 1].rpartition(" and ")[2].removesuffix(" MB").removesuffix(" s")
            parts.append(
                f'<text x="12" y="{y + 14}">{name}</text><rect x="130" y="{y}" rx="3" height="19"'
                f' width="{value / max(values) * 420:.0f}" fill="{colour}"/>'
                f'<text x="{140 + value / max(values) * 420:.0f}" y="{y + 14}">{shown}</text>'
            )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 270" role="img"'
        ' aria-label="snapreplay beside Kafka Streams: rate, memory, start">\n'
        "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}"
        ".b{font-weight:400;fill:#6e7781}</style>\n"
        '<rect width="100%" height="100%" rx="8" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _mean(cell: str) -> float:
    numbers = [float(each.replace(",", "")) for each in re.findall(r"[\d,]+(?:\.\d+)?", cell)]
    return sum(numbers) / len(numbers)


DRAWN = {PICTURES / "demo.svg": film, PICTURES / "peers.svg": chart}

if __name__ == "__main__":
    for path, draw in DRAWN.items():
        path.write_text(draw(), encoding="utf-8")
