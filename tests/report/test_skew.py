import math
from dataclasses import replace

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.findings import find
from dask_efficiency.report.kinds import advice
from dask_efficiency.report.skew import (
    held_up,
    input_of,
    larger_input,
    long_tasks,
    longest,
    recorded_tasks,
    uneven_sizes,
    uneven_times,
    waited_behind,
)
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.show.finding import Basis
from tests.report.samples import causes, changed, report_of, seconds, skew


def test_the_prefixes_that_matter_most_come_first() -> None:
    found = {"mild": skew(max_seconds=3.0, max_bytes=2.0**30), "join": skew()}
    report = report_of(skew=found, cluster_seconds=40.0)
    assert list(uneven_times(report)) == ["join", "mild"]
    assert list(uneven_sizes(report)) == ["mild", "join"]
    assert list(long_tasks(report)) == list(held_up(report)) == ["join", "mild"]
    assert list(uneven_sizes(report_of(skew={"join": skew(count=8, median_bytes=10.0, max_bytes=2.0**20)}))) == ["join"]
    # tasks of the long tail are not repeated
    report = replace(report, long_tail=(KNOWN,))
    assert (list(long_tasks(report)), list(uneven_times(report))) == (["mild"], ["join", "mild"])


@pytest.mark.parametrize(
    ("prefix", "fields"),
    [
        ("join", {"count": 7}),
        ("join", {"max_seconds": 1.04, "max_bytes": 1.9 * 2**20}),
        ("join", {"median_seconds": 0.01, "max_seconds": 0.3, "median_bytes": 10.0, "max_bytes": 2.0**20 - 1}),
        ("join", {"median_seconds": 0.0, "median_bytes": 0.0}),
        ("join", dict.fromkeys(("median_seconds", "max_seconds", "median_bytes", "max_bytes"), math.nan)),
        (OTHER, {}),
    ],
)
def test_few_even_small_or_joined_tasks_are_not_mentioned(prefix: str, fields: dict) -> None:
    report = report_of(skew={prefix: skew(**fields)}, cluster_seconds=40.0)
    assert uneven_times(report) == uneven_sizes(report) == long_tasks(report) == {}


@pytest.mark.parametrize(("alone", "cluster", "holds"), [(1.9, 40.0, False), (2.1, 40.0, True), (0.0, 0.0, False)])
def test_a_task_holds_all_else_up_only_for_a_good_part_of_the_run(alone: float, cluster: float, holds: bool) -> None:
    assert bool(held_up(report_of(skew={"join": skew(alone_seconds=alone)}, cluster_seconds=cluster))) == holds
    assert long_tasks(report_of(skew={"join": skew()}, cluster_seconds=500.0)) == {}


def test_tasks_that_may_not_run_elsewhere_wait_behind_the_longest_of_them() -> None:
    """As after a shuffle: tasks tied to the worker of the large partition queue there, while others are idle."""
    one = skew(
        max_seconds=21.0,
        median_seconds=1.0,
        alone_seconds=0.0,
        longest_key="('score-1', 3)",
        largest_key="('score-1', 3)",
    )
    idle = causes(**{"idle/restricted": 17.0, "idle/parallelism": 2.0})
    report = report_of(
        seconds(thread_cpu=25, idle=19),
        skew={"score": one},
        cluster_seconds=22.0,
        window_seconds=22.0,
        nthreads={"w0": 1, "w1": 1},
        causes_by_worker={"w0": idle},
        waited_for={"load": 1},
    )
    assert list(waited_behind(report)) == list(held_up(report)) == ["score"]
    first = find(report)[0]
    assert (first.kind, first.lost_seconds) == ("idle/parallelism", pytest.approx(19.0))
    assert first.where.startswith("The largest of 200 score took 21.0 s")
    # others were idle for too little of that time, or mostly without tasks to wait for
    for other in ({"idle/restricted": 9.0}, {"idle/restricted": 4.0, "idle/parallelism": 15.0}):
        assert not waited_behind(changed(report, causes_by_worker={"w0": causes(**other)}))


KNOWN = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)


@pytest.mark.parametrize(
    ("longest", "largest", "times"),
    [
        ("('heavy-1', 14)", "('p2pshuffle-2', 14)", 40.0),
        ("('heavy-1', 4, 0)", "('rechunk-2', 4, 0)", 40.0),
        ("('heavy-1', 14)", "('p2pshuffle-2', 4)", math.nan),
        ("('heavy-1', 4, 0)", "('rechunk-2', 5, 0)", math.nan),
        ("heavy-1", "p2pshuffle-2", math.nan),
    ],
)
def test_the_largest_result_of_the_same_partition_is_the_input_of_the_longest_task(longest, largest, times):
    heavy = skew(longest_key=longest, largest_key="", median_bytes=0.0, max_bytes=0.0)
    shuffle = skew(longest_key="", median_seconds=0.0, max_seconds=0.0, largest_key=largest, max_bytes=40.0 * 2**20)
    report = report_of(skew={"heavy": heavy, "p2pshuffle": shuffle}, cluster_seconds=40.0)
    assert input_of(report, heavy) == pytest.approx(times, nan_ok=True)
    for waited_for in ("", "heavy"):
        assert larger_input(report, waited_for) == pytest.approx(times, nan_ok=True)
    assert math.isnan(larger_input(report, "svd"))


def test_a_trace_knows_the_input_of_the_longest_task() -> None:
    assert larger_input(report_of(long_tail=(KNOWN,))) == larger_input(report_of(long_tail=(KNOWN,)), "join") == 20.0
    assert math.isnan(larger_input(report_of(long_tail=(replace(KNOWN, median_bytes=0.0),))))
    assert math.isnan(larger_input(report_of()))
    # it is no advice where all waited for another prefix
    known = LongTask("qr", "('qr', 1)", "w1", 200, 0.01, 0.5, 1e6, 8e6)
    report = report_of(long_tail=(known,), waited_for={"svd": 9, "qr": 1})
    assert math.isnan(larger_input(report, "svd"))
    assert "salt" not in advice("idle/parallelism", conditions_of(report))


@pytest.mark.parametrize(
    ("fields", "which"),
    [({}, "largest"), ({"largest_key": "another"}, "longest"), ({"max_bytes": 1.5 * 2**20}, "longest")],
)
def test_the_longest_task_of_a_prefix_is_a_finding_with_the_time_in_which_nothing_else_ran(fields, which) -> None:
    found = longest(report_of(skew={"join": skew(**fields)}, cluster_seconds=40.0), "join")
    assert found.where == f"The {which} of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    assert (found.kind, found.saves_seconds, found.basis) == ("long-task", 21.0, Basis.BOUNDED)


def test_the_longest_task_has_its_input_size_if_known_and_its_time_alone_unless_it_is_short() -> None:
    larger = skew(count=50, max_bytes=30 * 2.0**20, largest_key="('load', 13)", alone_seconds=0.0)
    report = report_of(skew={"join": skew(largest_key="another"), "load": larger}, cluster_seconds=40.0)
    assert longest(report, "join").where == (
        "The longest of 200 join took 21.0 s, 40 times the median, its input is 30 times as large; "
        "for 19.0 s nothing else ran"
    )
    for alone in (0.0, 1.0):
        report = report_of(skew={"join": skew(alone_seconds=alone)}, cluster_seconds=40.0)
        assert longest(report, "join").where.endswith("40 times the median")
    assert longest(report_of(skew={(name := "\x1b[31m" + "x" * 1000): skew()}), name).where.isprintable()


def test_with_a_trace_time_and_input_size_are_given_once() -> None:
    text = "Task ('join', 13) took 21.0 s, 40 times the median, its input is 20 times as large"
    assert KNOWN.finding().where == text
    for key, alone in (("('join', 13)", "; for 19.0 s nothing else ran"), ("another", "")):
        report = report_of(skew={"join": skew(longest_key=key)}, long_tail=(KNOWN,))
        assert [one.where for one in recorded_tasks(report)] == [f"{text}{alone}"]


def test_where_the_longest_task_slept_its_sleep_comes_before_the_threads_that_were_idle_behind_it() -> None:
    def of(sleep: float, network: float, alone: float = 8.0) -> EfficiencyReport:
        at = {"thread-noncpu/sleep": sleep, "thread-noncpu/network": network}
        held, idle = seconds(thread_noncpu=sleep + network), {"idle/parallelism": 20.0}
        return report_of(
            seconds(thread_noncpu=sleep + network, idle=20.0),
            by_prefix={"fetch": held},
            causes_by_prefix={"fetch": causes(**at)},
            causes_by_worker={"w0": causes(**at, **idle)},
            cluster_seconds=10.0,
            window_seconds=10.0,
            skew={"fetch": skew(max_seconds=9.0, alone_seconds=alone)},
        )

    slept, *others = find(of(11.0, 4.0))
    assert (slept.kind, "Semaphore" in slept.advice) == ("thread-noncpu/sleep", True)
    assert "idle/parallelism" in [one.kind for one in others]
    for other in (of(4.0, 11.0), of(11.0, 4.0, alone=0.0), of(11.0, 4.0, alone=0.001)):
        assert find(other)[0].kind == "idle/parallelism"
        assert not any("Semaphore" in one.advice for one in find(other))
