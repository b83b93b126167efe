"""The growth of the cost of Spark's jobs with keys, records and partitions: `python -m benchmarks.spark_growth`.

One of the three is changed at a time. Each point has a broker and a log of its own; the second run of each job counts
(`benchmarks.spark`). It takes about 12 minutes on two quiet cores, and begins no point after `--minutes`. The results
become docs/pictures/spark_growth.json, and the picture beside it is drawn from them; `--draw` only draws.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import harness
from benchmarks.spark import make_log, measured

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "spark_growth.json"
JOBS = ("audit changes, Spark", "audit replay, Spark", "compact, Spark", "state, Spark")
COLORS = ("#5b7db1", "#b15b5b", "#5b9e6d", "#8a6db1")


class Size(msgspec.Struct, frozen=True):
    """The size of a log."""

    keys: int = 300_000
    records: int = 1_000_000
    partitions: int = 4


GRID = {"keys": (100_000, 300_000, 900_000), "records": (300_000, 1_000_000, 2_000_000), "partitions": (1, 4, 16)}
"""What is changed; all else is as `Size` says."""


class Point(msgspec.Struct, frozen=True):
    """CPU seconds of the second run, by job."""

    size: Size
    cpu_seconds: dict[str, float]


class Growth(msgspec.Struct, frozen=True):
    """The measurements of all sizes. `left_out`: sizes for which there was no time."""

    machine: str
    points: list[Point]
    left_out: list[Size] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--draw", action="store_true", help="only draw what was measured before")
    arguments = parser.parse_args()
    results: Path = arguments.results
    if not arguments.draw:
        growth = _measure(arguments.minutes)
        results.write_bytes(msgspec.json.format(msgspec.json.encode(growth)) + b"\n")
    growth = msgspec.json.decode(results.read_bytes(), type=Growth)
    results.with_suffix(".svg").write_text(drawing(growth), encoding="utf-8")


def sizes() -> list[Size]:
    """Return each size once; the one that all three have first."""
    every = [msgspec.structs.replace(Size(), **{n: v}) for n, vs in GRID.items() for v in vs]
    return list(dict.fromkeys([Size(), *every]))


def _measure(minutes: float) -> Growth:
    end, points = time.monotonic() + 60 * minutes, list[Point]()
    todo = sizes()
    while todo and time.monotonic() < end:
        size = todo.pop(0)
        with harness.local_broker() as broker:
            servers = broker.bootstrap_servers
            make_log(servers, size.keys, size.records, size.partitions)
            points.append(Point(size, {job: measured(job, servers)[-1].cpu_seconds for job in JOBS}))
        cells = "  ".join(f"{job} {cost:.1f}" for job, cost in points[-1].cpu_seconds.items())
        print(f"{size.keys:,} keys, {size.records:,} records, {size.partitions} partitions: {cells}", flush=True)
    for size in todo:
        print(f"no time left for {size}")
    return Growth(harness.machine(), points, todo)


WIDTH, HEIGHT, LEFT, TOP = 300, 220, 44, 30
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - LEFT - 16, 140


def drawing(growth: Growth) -> str:
    """Draw a panel for each of the three; both axes begin at 0, and all panels have one scale of seconds."""
    highest = max((c for p in growth.points for c in p.cpu_seconds.values()), default=1.0)
    panels = [
        f'<g transform="translate({number * WIDTH} 0)">{"".join(_panel(name, growth.points, highest))}</g>'
        for number, name in enumerate(GRID)
    ]
    width = WIDTH * len(GRID)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 30}" width="{width}"'
        f' height="{HEIGHT + 30}" role="img" aria-labelledby="t" font-family="Helvetica, Arial, sans-serif"'
        f' font-size="11">\n<title id="t">CPU seconds of Spark\'s jobs by keys, records and partitions</title>\n'
        f'<rect width="{width}" height="{HEIGHT + 30}" fill="#fff"/>\n'
        + "\n".join([*panels, *_legend()])
        + "\n</svg>\n"
    )


def _panel(name: str, points: Sequence[Point], highest: float) -> Iterator[str]:
    base = msgspec.structs.asdict(Size())
    shown = sorted(
        (msgspec.structs.asdict(p.size)[name], p.cpu_seconds)
        for p in points
        if msgspec.structs.asdict(p.size) | {name: base[name]} == base
    )
    last, bottom = max(GRID[name]), TOP + _PLOT_HEIGHT
    yield f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">CPU seconds by {name}</text>'
    yield f'<path d="M{LEFT} {TOP}V{bottom}H{LEFT + _PLOT_WIDTH}" fill="none" stroke="#333"/>'
    for share in (0.0, 0.5, 1.0):
        y = round(bottom - share * _PLOT_HEIGHT, 1)
        yield f'<text x="{LEFT - 4}" y="{y + 4}" text-anchor="end">{share * highest:.1f}</text>'
    for value, _ in shown:
        x = round(LEFT + value / last * _PLOT_WIDTH, 1)
        yield f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{_short(value)}</text>'
    for job, color in zip(JOBS, COLORS, strict=True):
        places = [
            (round(LEFT + value / last * _PLOT_WIDTH, 1), round(bottom - costs[job] / highest * _PLOT_HEIGHT, 1))
            for value, costs in shown
        ]
        line = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}"/>' for x, y in places)


def _legend() -> Iterator[str]:
    for number, (job, color) in enumerate(zip(JOBS, COLORS, strict=True)):
        x = LEFT + number * 180
        yield f'<circle cx="{x}" cy="{HEIGHT + 10}" r="4" fill="{color}"/>'
        yield f'<text x="{x + 9}" y="{HEIGHT + 14}">{job.removesuffix(", Spark")}</text>'


def _short(value: int) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value // 1000} k" if value >= 1000 else str(value)


if __name__ == "__main__":
    main()
