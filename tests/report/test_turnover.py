import math
from dataclasses import replace

import pytest

from dask_efficiency.accounts.cluster.losses import MemorySample, TaskInThread
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.turnover import (
    Arrival,
    LostWorker,
    arrival_lines,
    first_request,
    how_lost,
    killer_texts,
    last_memory_text,
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


W8, UNMEASURED = "worker w8 was lost (killed by SIGTERM)", "its memory was not measured"
RETIRED = LostWorker("w5", "retired", True, 0, {}, SECOND, 1)


def test_a_lost_worker_is_a_line_with_its_cost_and_reason() -> None:
    many = LostWorker("w8", "killed by SIGTERM", False, 10 * SECOND, dict.fromkeys("abcde", 2 * SECOND))
    assert lost_worker_line(KILLED, {}) == (
        f"worker w3 was lost (killed by SIGKILL): {UNMEASURED}; 12.0 thread-seconds of running tasks (train, load), "
        "3.0 thread-seconds of threads since its last heartbeat, 30.0 thread-seconds recomputed (14 results)"
    )
    for one, line in (
        (RETIRED, "worker w5 left (retired): 1.0 thread-seconds recomputed (1 result)"),
        (replace(RETIRED, worker=""), "with a worker that is not known: 1.0 thread-seconds recomputed (1 result)"),
        (
            LostWorker("w7", "it broke", False, 0),
            f"worker w7 was lost (it broke): {UNMEASURED}; nothing was lost with it",
        ),
        (many, f"{W8}: {UNMEASURED}; 10.0 thread-seconds of running tasks (a, b, c and 2 more)"),
    ):
        assert lost_worker_line(one, {}) == line


def test_the_most_costly_come_first_and_names_and_reasons_are_harmless() -> None:
    assert most_costly_first([RETIRED, KILLED]) == [KILLED, RETIRED]
    assert "\x1b" not in lost_worker_line(LostWorker("\x1b[31m", "\x1b[31m", False, SECOND, {"\x1b[31m": SECOND}), {})


GIB = 2**30
NO_SKEW = Skew(5, 1.0, 1.0, 1.0, "")


def samples(*sizes: float, every: float = 0.5, before: float = 0.0) -> tuple[MemorySample, ...]:
    """Samples in GiB, evenly apart, the last one some seconds before the end."""
    return tuple(
        MemorySample(round(size * GIB), round((before + every * i) * SECOND)) for i, size in enumerate(sizes[::-1])
    )[::-1]


@pytest.mark.parametrize(
    ("sizes", "limit", "text"),
    [
        ((1.5, 1.2, 2.0, 3.9), 4, "1.2 -> 3.9 of 4.0 GiB in 1.0 s"),
        # what was there before, and changes by a little, is no growth
        ((0.3, 0.3002, 0.3003, 0.3004, 3.9), 4, "0.3 -> 3.9 of 4.0 GiB in 500 ms"),
        ((3.9, 3.9), 4, "3.9 of 4.0 GiB"),
        ((0.5,), None, "512 MiB"),
        ((0.25, 0.5), None, "256 -> 512 MiB in 500 ms"),
        ((), 4, "its memory was not measured"),
    ],
)
def test_the_last_memory_of_a_lost_worker_is_the_growth_with_which_it_ended(sizes, limit, text):
    one = replace(KILLED, last_memory=samples(*sizes), memory_limit=limit and limit * GIB)
    assert last_memory_text(one) == text
    early = replace(one, last_memory=samples(*sizes, before=2))
    assert last_memory_text(early) == (f"{text}, 2.0 s before" if sizes else text)


def test_tasks_in_the_threads_of_a_lost_worker_are_named_by_prefix():
    ran = (TaskInThread("merge-1", "merge", 1.0), TaskInThread("merge-2", "merge", 0.5), TaskInThread("x", "x", None))
    one = replace(KILLED, last_memory=samples(1.2, 3.9), memory_limit=4 * GIB, in_threads=ran)
    grew = "worker w3 was lost (killed by SIGKILL): 1.2 -> 3.9 of 4.0 GiB in 500 ms"
    assert how_lost(one, {}) == f"{grew} while 2 tasks of merge ran and 1 task of x ran or was about to"
    assert how_lost(replace(one, in_threads=ran[2:]), {}) == f"{grew} while 1 task of x ran or was about to"
    usual = {"merge": replace(NO_SKEW, working_count=5, median_working=0.4 * GIB), "x": NO_SKEW}
    assert how_lost(replace(one, in_threads=ran[:2]), usual) == (
        f"{grew} while 2 tasks of merge ran, which usually take 410 MiB each"
    )
    many = tuple(TaskInThread(name, name, 1.0) for name in "abcde")
    assert how_lost(replace(one, in_threads=many), {}).endswith(
        "while 1 task of a, 1 task of b, 1 task of c and 2 more ran"
    )
    assert how_lost(replace(one, in_order=True), {}) == "worker w3 left (killed by SIGKILL)"


def test_a_key_in_a_thread_of_several_lost_workers_is_named():
    hog, other = TaskInThread("hog-1", "hog", 1.0), TaskInThread("other-1", "other", None)
    lost = [replace(KILLED, in_threads=tasks) for tasks in ((hog, other), (hog,), (hog, other))]
    assert killer_texts(lost) == ["task hog-1 was in a thread of 3 workers as they were lost"]
    assert killer_texts(lost[:1]) == []
    assert killer_texts([replace(one, in_order=True) for one in lost]) == []
