import math
from dataclasses import replace

from dask_efficiency.report.turnover import (
    Arrival,
    LostWorker,
    arrival_lines,
    first_request,
    lost_worker_line,
    most_costly_first,
)
from tests.report.samples import SECOND


def test_workers_asked_for_before_are_only_counted_and_of_others_the_times_are_medians() -> None:
    arrivals = [Arrival("a", math.nan, 2.0, 2.5), Arrival("b", math.nan, 3.0, math.nan)]
    assert first_request(arrivals) == ""
    assert arrival_lines(arrivals) == ["2 joined during the window, the first after 2.0 s"]
    assert arrival_lines([]) == []
    arrivals = [Arrival("a", 1.0, 2.0, 2.5), Arrival("b", 1.0, 4.0, 4.7), Arrival("c", 1.0, 5.0, math.nan)]
    assert arrival_lines(arrivals)[1] == (
        "3 workers asked for, the first after 1.0 s: from request to joining 3.0 s, "
        "from there to the first task 600 ms (medians)"
    )


KILLED = LostWorker(
    "w3", "killed by SIGKILL", False, 15 * SECOND, {"load": 2 * SECOND, "train": 10 * SECOND}, 30 * SECOND, 14
)


RETIRED = LostWorker("w5", "retired", True, 0, {}, SECOND, 1)


def test_a_lost_worker_is_a_line_with_its_cost_and_reason() -> None:
    many = LostWorker("w8", "killed by SIGTERM", False, 10 * SECOND, dict.fromkeys("abcde", 2 * SECOND))
    assert lost_worker_line(KILLED) == (
        "worker w3 was lost (killed by SIGKILL): 12.0 thread-seconds of running tasks (train, load), "
        "3.0 thread-seconds of threads since its last heartbeat, 30.0 thread-seconds recomputed (14 results)"
    )
    for one, line in (
        (RETIRED, "worker w5 left (retired): 1.0 thread-seconds recomputed (1 result)"),
        (replace(RETIRED, worker=""), "with a worker that is not known: 1.0 thread-seconds recomputed (1 result)"),
        (LostWorker("w7", "it broke", False, 0), "worker w7 was lost (it broke): nothing was lost with it"),
        (many, "worker w8 was lost (killed by SIGTERM): 10.0 thread-seconds of running tasks (a, b, c and 2 more)"),
    ):
        assert lost_worker_line(one) == line


def test_the_most_costly_come_first_and_names_and_reasons_are_harmless() -> None:
    assert most_costly_first([RETIRED, KILLED]) == [KILLED, RETIRED]
    assert "\x1b" not in lost_worker_line(LostWorker("\x1b[31m", "\x1b[31m", False, SECOND, {"\x1b[31m": SECOND}))
