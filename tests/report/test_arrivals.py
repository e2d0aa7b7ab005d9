from __future__ import annotations

import math

from dask_efficiency.report.arrivals import Arrival, first_request, lines


def test_workers_that_were_asked_for_before_are_only_counted() -> None:
    arrivals = [Arrival("a", math.nan, 2.0, 2.5), Arrival("b", math.nan, 3.0, math.nan)]
    assert first_request(arrivals) == ""
    assert lines(arrivals) == ["2 came during the window, the first after 2.0 s"]


def test_how_long_workers_took_from_request_to_first_task_is_told_as_medians() -> None:
    arrivals = [Arrival("a", 1.0, 2.0, 2.5), Arrival("b", 1.0, 4.0, 4.7), Arrival("c", 1.0, 5.0, math.nan)]
    assert lines(arrivals)[1] == (
        "3 workers asked for, the first after 1.0 s: from request to joining 3.0 s, "
        "from there to the first task 600 ms (medians)"
    )


def test_nothing_is_said_where_none_came() -> None:
    assert lines([]) == []
