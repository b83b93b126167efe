"""The picture of how the jobs' costs grow shows what was measured."""

from xml.etree import ElementTree

import pytest

from benchmarks.spark_growth import GRID, JOBS, Growth, Point, drawing, sizes


def test_every_point_is_where_its_figures_say():
    """Both axes begin at 0; the middle size is a point of each of the three panels."""
    every = sizes()
    assert len(every) == 7
    points = [Point(s, dict.fromkeys(JOBS, float(n + 1))) for n, s in enumerate(every)]
    svg = drawn(Growth("here", points))
    panels = [each for each in svg if each.tag.endswith("}g")]
    assert len(panels) == len(GRID)
    for panel, (name, values) in zip(panels, GRID.items(), strict=True):
        (line, *_) = [each for each in panel if each.tag.endswith("polyline")]
        places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        shown = {getattr(p.size, name): p.cpu_seconds[JOBS[0]] for p in points if _is_of(p, name)}
        assert sorted(shown) == sorted(values)
        (x0, y0), (x1, y1) = places[0], places[-1]
        small, large = min(shown), max(shown)
        assert (x0 - 44) / (x1 - 44) == pytest.approx(small / large, abs=0.01)
        assert (170 - y0) / (170 - y1) == pytest.approx(shown[small] / shown[large], abs=0.01)


def test_what_was_not_measured_is_not_drawn():
    """No time was left for it."""
    first = Point(sizes()[0], dict.fromkeys(JOBS, 1.0))
    svg = drawn(Growth("here", [first], sizes()[1:]))
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == (len(GRID) + 1) * len(JOBS)


def drawn(growth):
    return ElementTree.fromstring(drawing(growth))  # noqa: S314 - our own text


def _is_of(point: Point, name: str) -> bool:
    others = [n for n in GRID if n != name]
    return all(getattr(point.size, n) == getattr(sizes()[0], n) for n in others)
