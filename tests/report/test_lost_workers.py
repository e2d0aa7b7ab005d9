from __future__ import annotations

import pytest

from dask_efficiency.report.lost_workers import LostWorker, line, most_costly_first
from tests.report.samples import SECOND

KILLED = LostWorker(
    "w3", "killed by SIGKILL", False, 15 * SECOND, {"load": 2 * SECOND, "train": 10 * SECOND}, 30 * SECOND, 14
)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            KILLED,
            (
                "worker w3 was lost (killed by SIGKILL): 12.0 thread-seconds of running tasks (train, load), "
                "3.0 thread-seconds of threads since it was last heard of, 30.0 thread-seconds recomputed (14 results)"
            ),
        ),
        (
            LostWorker("w5", "retired", True, 0, {}, SECOND, 1),
            "worker w5 left (retired): 1.0 thread-seconds recomputed (1 result)",
        ),
        (
            LostWorker("", "", False, 0, {}, SECOND, 2),
            "with a worker that is not known: 1.0 thread-seconds recomputed (2 results)",
        ),
        (
            LostWorker("w7", "its connection broke", False, 0),
            "worker w7 was lost (its connection broke): nothing was lost with it",
        ),
        (
            LostWorker("w8", "killed by SIGTERM", False, 10 * SECOND, dict.fromkeys("abcde", 2 * SECOND)),
            "worker w8 was lost (killed by SIGTERM): 10.0 thread-seconds of running tasks (a, b, c and 2 more)",
        ),
    ],
)
def test_what_a_worker_cost_and_why_it_went_is_a_line(one: LostWorker, said: str) -> None:
    assert line(one) == said


def test_those_that_cost_most_come_first() -> None:
    less = LostWorker("w5", "retired", True, 0, {}, SECOND, 1)
    assert most_costly_first([less, KILLED]) == [KILLED, less]


def test_names_and_reasons_are_harmless() -> None:
    assert "\x1b" not in line(LostWorker("\x1b[31m", "\x1b[31m", False, SECOND, {"\x1b[31m": SECOND}))
