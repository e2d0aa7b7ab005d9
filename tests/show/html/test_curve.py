from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.document import Curve, Point
from dask_efficiency.show.html.curve import HEIGHT, WIDTH, curve

seconds = st.floats(1e-6, 1e6)


def block(*rows: tuple[float, float]) -> Curve:
    """Sizes and seconds, with a band of a tenth."""
    points = [Point(at, f"{at:g}", y, 0.9 * y, 1.1 * y, rows[0][1] * rows[0][0] / at, "hint") for at, y in rows]
    return Curve(tuple(points), "workers", "label")


def coordinates(outline: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.-]+)", outline)]


def test_doublings_are_equally_far_apart() -> None:
    drawn = curve(block((1, 8.0), (2, 4.0), (4, 2.0)))
    first, second, third = (float(mark.x) for mark in drawn.points)
    assert round(second - first, 2) == round(third - second, 2)


def test_time_begins_at_the_lower_end() -> None:
    drawn = curve(block((1, 10.0), (2, 5.5)))
    assert drawn.seconds[0].label == "0"
    assert float(drawn.seconds[0].y) == HEIGHT
    assert coordinates(drawn.line)[1][1] == HEIGHT / 2, "5.5 of the band's 11"


def test_perfect_scaling_is_the_ideal_line() -> None:
    drawn = curve(block((1, 8.0), (2, 4.0)))
    assert drawn.ideal == drawn.line


def test_a_single_point_stands_in_the_middle() -> None:
    assert curve(block((4, 8.0))).points[0].x == "50.00"


@given(st.lists(seconds, min_size=1, max_size=6))
def test_everything_is_within_the_figure(values: list[float]) -> None:
    drawn = curve(block(*((1 << i, value) for i, value in enumerate(values))))
    for outline in (drawn.band, drawn.line, drawn.ideal):
        for x, y in coordinates(outline):
            assert 0 <= x <= WIDTH
            assert -0.1 <= y <= HEIGHT + 0.1
    assert 1 <= len(drawn.seconds) <= 6
