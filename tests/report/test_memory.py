from __future__ import annotations

from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.memory import MemoryOfWorker
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sections.metered import memory, moved
from dask_efficiency.report.values import MeteredRow
from tests.report.samples import report_of, seconds

GIB = 2**30
Row = tuple[str, str, str, float]


def with_memory(**workers: list[Row]) -> EfficiencyReport:
    rows = [
        MeteredRow(worker, "memory", "s", prefix, label, unit, value)
        for worker, of_worker in workers.items()
        for prefix, label, unit, value in of_worker
    ]
    return report_of(seconds(thread_cpu=10), metered=rows)


REPORT = with_memory(
    a=[
        ("", "process", "bytes", 4 * GIB),
        ("", "process", "byte-seconds", 9 * GIB),
        ("", "held", "bytes", 3 * GIB),
        ("", "limit", "bytes", 8 * GIB),
        ("", "host", "bytes", 64 * GIB),
        ("", "spill", "bytes", 6 * GIB),
        ("", "growth", "bytes/hour", -5),
        ("", "container", "bytes", 5 * GIB),
        ("load", "held at peak", "bytes", GIB),
        ("load", "spilled at peak", "bytes", 7),
        ("sum", "held at peak", "bytes", 2 * GIB),
        ("load", "held", "byte-seconds", 2.5 * GIB),
        ("load", "spilled", "byte-seconds", 1.5 * GIB),
        ("", "overcounted", "bytes", 9),
        ("Band", "actors", "bytes", 8),
    ],
    b=[("", "process", "bytes", 5 * GIB), ("sum", "held", "byte-seconds", 3 * GIB)],
)


def test_the_memory_of_a_worker_has_what_was_in_it_at_its_peak() -> None:
    assert [*REPORT.memory] == ["b", "a"]
    assert REPORT.memory["a"] == MemoryOfWorker(
        limit=8 * GIB,
        thresholds={"spill": 6 * GIB},
        peak=4 * GIB,
        held_peak=3 * GIB,
        spilled_peak=0,
        at_peak={"load": (GIB, 7), "sum": (2 * GIB, 0)},
        held=2.5 * GIB,
        spilled=1.5 * GIB,
        process=9.0 * GIB,
        growth=-5.0,
        host=64 * GIB,
        container=5 * GIB,
        overcounted=9,
        actors={"Band": 8},
    )
    assert REPORT.memory["a"].unmanaged_at_peak == GIB
    assert REPORT.memory["b"].growth is None


def test_byte_seconds_are_by_prefix_of_all_workers() -> None:
    assert REPORT.byte_seconds == {"load": (2.5 * GIB, 1.5 * GIB), "sum": (3.0 * GIB, 0.0)}
    assert [*REPORT.byte_seconds] == ["load", "sum"]


def test_memory_is_listed_by_prefix_with_what_tasks_take() -> None:
    working = {"working_count": 3, "median_working": GIB, "max_working": 2 * GIB}
    skew = {
        "load": Skew(3, 1.0, 1.0, 1.0, "k", **working, working_alone=True),
        "small": Skew(3, 1.0, 1.0, 1.0, "k"),
        "join": Skew(3, 1.0, 1.0, 1.0, "k", **working | {"working_count": 1}),
    }
    report = report_of(seconds(thread_cpu=10), metered=REPORT.metered, skew=skew)
    assert memory(report).rows == (
        ("load", "2.5 GiB s", "1.5 GiB s", "1.0 GiB, at most 2.0 GiB", "3 tasks, alone"),
        ("sum", "3.0 GiB s", "", "", ""),
        ("join", "", "", "1.0 GiB, at most 2.0 GiB", "1 task, shared equally"),
    )
    assert moved(report).lines == ("most memory at a time: 5.0 GiB by worker b, 0 B of it for results",)
    assert not memory(report_of(seconds(thread_cpu=1))).rows
