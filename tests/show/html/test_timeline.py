import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.show.html.timeline import HEIGHT, MAX_TICKS, WIDTH, DrawnTimeline, through, ticks
from tests.report.samples import timelines


def outlines(drawn: DrawnTimeline) -> list[list[tuple[str, int]]]:
    """The steps of each area, from the top of the stack down."""
    return [[(step[0], int(step[1:])) for step in re.findall(r"[Vh]\d+", area.path)] for area in drawn.areas]


def test_areas_are_stacked_to_the_threads_that_were_there() -> None:
    # 4 threads: 1 computes and 3 are idle, then 2 compute and none is idle; the last bin is half as long
    timeline = Timeline(10, 15, {"thread-cpu": (10, 10), "idle": (30, 0)})
    idle, cpu = outlines(through(timeline, ()))
    third = WIDTH // 3
    assert idle == [("V", 0), ("h", 2 * third), ("V", HEIGHT // 2), ("h", third), ("V", HEIGHT)]
    assert cpu == [("V", HEIGHT * 3 // 4), ("h", 2 * third), ("V", HEIGHT // 2), ("h", third), ("V", HEIGHT)]


def test_the_axis_says_how_many_threads_there_were() -> None:
    assert through(Timeline(10, 10, {"idle": (40,)}), ()).threads == "4"
    assert through(Timeline(10, 10, {"idle": (25,)}), ()).threads == "2.5"


@given(timelines().filter(lambda timeline: any(map(any, timeline.activity.values()))))
def test_an_area_never_leaves_the_figure_and_ends_where_it_does(timeline: Timeline) -> None:
    found = outlines(through(timeline, ()))
    assert len(found) == len(timeline.activity)
    for steps in found:
        assert steps[-1] == ("V", HEIGHT)
        assert sum(x for kind, x in steps if kind == "h") == WIDTH
        assert all(0 <= y <= HEIGHT for kind, y in steps if kind == "V")


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.05, ["0 s", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]),
        (1.5, ["0 s", "200 ms", "400 ms", "600 ms", "800 ms", "1 s", "1.2 s", "1.4 s"]),
        (61.0, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]),
        (600.0, ["0 s", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (6 * 3600.0, ["0 s", "1 h", "2 h", "3 h", "4 h", "5 h", "6 h"]),
        (10_000.0, ["0 s", "30 min", "1 h", "90 min", "2 h", "150 min"]),
        (4 * 86400.0, ["0 s", "12 h", "1 d", "36 h", "2 d", "60 h", "3 d", "84 h", "4 d"]),
    ],
)
def test_the_labels_of_the_time_axis_are_round(seconds: float, labels: list[str]) -> None:
    drawn = through(Timeline(round(seconds * 1e9), round(seconds * 1e9), {"idle": (1,)}), ())
    assert [tick.label for tick in drawn.ticks] == labels


@given(st.floats(1e-4, 3e6))
def test_ticks_are_few_and_evenly_spaced(seconds: float) -> None:
    found = ticks(seconds)
    assert 2 <= len(found) <= MAX_TICKS + 1
    assert found[0] == 0
    assert found[-1] <= seconds * (1 + 1e-6)
    steps = [right - left for left, right in pairwise(found)]
    assert max(steps) == pytest.approx(min(steps))
