from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.metered import BYTES, HOST, LIMIT, MEMORY, PROCESS
from dask_efficiency.report.bounds import largest_saving
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.findings import find
from dask_efficiency.report.kinds import advice
from dask_efficiency.report.sizes import PROCESS as OF_A_PROCESS
from dask_efficiency.report.sizes import sizes_of
from dask_efficiency.report.values import MeteredRow, ProfileRow, Saved
from dask_efficiency.show.finding import Basis
from tests.report.samples import causes, report_of, seconds, skew

MIB, GIB = 2**20, 2**30
#: 1,600 chunks of 4 MiB, whose tasks take 3.3 ms.
CHUNK = skew(
    count=1600,
    median_seconds=0.0033,
    max_seconds=0.004,
    median_bytes=4.0 * MIB,
    longest_key="('random_sample-1f', 3, 7)",
)


def small(memory: int = 8 * GIB, nthreads: int = 4, **fields: Any) -> EfficiencyReport:
    """One worker that spent most of ten seconds on handing out small tasks."""
    lost = causes(**{"idle/scheduler": 10, "overhead/hand-over": 9})
    given: dict[str, Any] = {
        "window_seconds": 10.0,
        "cluster_seconds": 10.0,
        "causes_by_worker": {"w0": lost},
        "tasks": {"succeeded": 1600},
        "nthreads": {"w0": nthreads},
        "skew": {"random_sample": CHUNK},
        "metered": [
            MeteredRow("w0", MEMORY, "", "", label, BYTES, float(n)) for label, n in ((LIMIT, memory), (PROCESS, GIB))
        ],
    }
    return report_of(seconds(thread_cpu=5.28, idle=10, overhead=9, no_work=15.72), **(given | fields))


def test_chunks_are_as_large_as_tasks_of_a_tenth_of_a_second_need() -> None:
    (found, *_) = find(small())
    assert found.advice == (
        "Make partitions 30 times as large, from 1600 tasks of 3.3 ms and 4.0 MiB to 54 tasks: "
        'chunks="120MiB" where the array begins, or else x.rechunk.'
    )
    assert found.evidence["times_as_large"] == 30
    assert found.basis is Basis.BOUNDED
    replayed = find(small(savings={"small-tasks": Saved(4.0, 3.0, 4.5)}))[0]
    assert (replayed.basis, replayed.saves_seconds, replayed.saves_interval) == (Basis.REPLAYED, 4.0, (3.0, 4.5))


def test_fewer_tasks_also_save_the_clients_work_for_each_and_the_time_to_call_tiny_ones() -> None:
    saved = {"small-tasks": Saved(4.0, 3.0, 4.5)}
    # The client worked for 3 s beside the 10 s of the cluster, on tasks of which 1 in 30 is left.
    (found, *_) = find(small(savings=saved, window_seconds=13.0))
    assert (found.saves_seconds, found.saves_interval) == (4.0, (3.0, pytest.approx(4.5 + 3.0 * 29 / 30)))
    tiny = {"random_sample": replace(CHUNK, median_seconds=0.0005)}
    (found, *_) = find(small(savings=saved, window_seconds=13.0, skew=tiny))
    left = 10.0 - largest_saving(small())
    assert left > 1.0
    assert found.saves_interval == (3.0, pytest.approx(4.5 + (3.0 + left) * 29 / 30))


@pytest.mark.parametrize(
    ("fields", "times", "by_memory"),
    [
        ({}, 30, False),
        # Half of the memory is for four threads of four chunks each: 10 times 4 MiB of 1.28 GiB.
        ({"memory": 1300 * MIB}, 10, True),
        # A task takes 100 MiB while it runs.
        (
            {"skew": {"a": skew(count=1600, median_seconds=0.0033, max_seconds=0.004, p95_working=100.0 * MIB)}},
            10,
            True,
        ),
        # Four tasks for each thread.
        ({"nthreads": 40, "memory": 80 * GIB}, 10, False),
        # One task takes longer than a thread's share of the run.
        ({"skew": {"a": skew(count=1600, median_seconds=0.0033, max_seconds=3.0)}}, 30, False),
    ],
    ids=["tasks of 100 ms", "memory", "working memory", "threads", "the longest"],
)
def test_memory_threads_and_the_longest_task_bound_them(fields: dict[str, Any], times: int, by_memory: bool) -> None:
    found = sizes_of(small(**fields))
    assert (found.times, found.wanted) == (times, 30)
    if times < 30:
        assert found.by_memory is by_memory


def test_without_a_memory_limit_partitions_are_within_that_of_the_host() -> None:
    for host, times in ((1300 * MIB, 10), (0, 30)):
        rows = [MeteredRow("w0", MEMORY, "", "", label, BYTES, float(n)) for label, n in ((HOST, host), (PROCESS, GIB))]
        assert sizes_of(small(metered=rows)).times == times


def test_larger_chunks_are_not_advised_where_memory_is_short_or_threads_would_have_none() -> None:
    (found, *_) = find(small(memory=100 * MIB))
    assert found.advice.startswith("Give workers more memory first: 30 of 1600 tasks of 3.3 ms and 4.0 MiB joined")
    few = small(nthreads=300, memory=800 * GIB)
    assert find(few)[0].advice.startswith(
        "Use fewer threads: 1600 tasks of 3.3 ms and 4.0 MiB are too few to be joined"
    )
    assert "times_as_large" not in find(few)[0].evidence


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"computed_by": {"random_sample": "`client.map(f, items)` in a.py:3"}}, ": pass client.map lists of 30 items"),
        (
            {"computed_by": {"few": "`client.map(f, items)` in a.py:3"}},
            ': chunks="120MiB" where the array begins, or else x.rechunk',
        ),
        ({"skew": {"f": skew(count=1600, median_seconds=0.0033, max_seconds=0.004, longest_key="f-1")}}, ""),
        (
            {
                "skew": {"f": skew(count=1600, median_seconds=0.0033, max_seconds=0.004, median_bytes=4.0 * MIB)},
                "profile": (
                    ProfileRow("thread-cpu", "native", "f", (Frame("mean", "/x/pandas/core/frame.py", 3),), 9),
                ),
            },
            ": npartitions=54 or blocksize= where the dataframe begins",
        ),
        ({"skew": {"f": skew(count=1600, median_seconds=0.0033, max_seconds=0.004, median_bytes=4.0 * MIB)}}, ""),
    ],
    ids=["futures", "other futures", "small results", "frames", "anything"],
)
def test_the_call_is_that_of_the_collection(fields: dict[str, Any], call: str) -> None:
    assert sizes_of(small(**fields)).words()["resized"].endswith(f"tasks{call}")


def test_tasks_of_graphs_one_after_the_other_do_not_run_together() -> None:
    frames = {
        "skew": {"f": skew(count=4000, median_seconds=0.0033, max_seconds=0.004, median_bytes=4.0 * MIB)},
        "profile": (ProfileRow("thread-cpu", "native", "f", (Frame("mean", "/x/pandas/core/frame.py", 3),), 9),),
        "tasks": {"succeeded": 4000},
    }
    assert sizes_of(small(**frames)).times > 10
    found = sizes_of(small(**frames, rounds=20))
    assert found.times == 10  # of 200 tasks, 4 for each of 4 threads are left
    assert found.words()["resized"] == (
        "Make partitions 10 times as large, from 4000 tasks of 3.3 ms and 4.0 MiB in 20 graphs to 400 tasks: "
        "npartitions= or blocksize= where the dataframe begins"
    )
    few = small(skew={"read": skew(count=200, median_seconds=3.0, max_seconds=3.0)}, tasks={"succeeded": 200})
    assert sizes_of(few).smaller == 0
    assert sizes_of(replace(few, rounds=50)).smaller == 4
    assert sizes_of(replace(few, rounds=201)).smaller == 0  # not in all of them


def test_tasks_of_many_operations_are_joined_for_each_rather_than_partitions() -> None:
    of = partial(replace, CHUNK, median_bytes=0.0)
    (found, *_) = find(small(skew={"assign": of(in_a_group=16.0)}))  # each of 16 chunks, one for each thread
    assert (
        found.advice
        == "Do more in each task, by map_partitions() or map_blocks(): 1600 tasks of 3.3 ms are of 100 operations."
    )
    assert "times_as_large" not in found.evidence
    # Of two operations, 800 of each; or of many, of which one has most.
    assert sizes_of(small(skew={"assign": of(in_a_group=800.0)})).times == 30
    # Graphs that ran one after the other had one each.
    rounds = sizes_of(small(skew={"assign": of(in_a_group=16.0)}, rounds=100))
    assert rounds.operations == 0
    assert rounds.words()["resized"] == (
        "Use larger partitions, or compute several results by one dask.compute(): "
        "1600 tasks of 3.3 ms in 100 graphs are few in each"
    )
    assert (
        replace(rounds, needs_last=True)
        .words()["resized"]
        .startswith("Use larger partitions, and persist() what stays the same: 1600 tasks")
    )


def test_one_thread_cannot_be_fewer() -> None:
    few = skew(count=6, median_seconds=0.0033, max_seconds=0.004, median_bytes=4.0 * MIB)
    alone, several = (report_of(seconds(thread_cpu=0.02), skew={"f": few}, nthreads={"w0": n}) for n in (1, 4))
    assert (sizes_of(alone).times, sizes_of(alone).wanted) == (0, 0)
    assert (sizes_of(several).times, sizes_of(several).wanted) == (0, 6)


def test_small_tasks_are_joined_though_long_ones_take_more_time() -> None:
    fit = skew(count=2, median_seconds=4.0, max_seconds=4.0, median_bytes=400.0 * MIB)
    words = sizes_of(small(skew={"random_sample": CHUNK, "fit": fit}, tasks={"succeeded": 1602})).words()
    assert "1600 tasks of 3.3 ms and 4.0 MiB" in words["resized"]
    assert words["few"] == "2 tasks of 4.0 s and 400 MiB"


def test_few_long_tasks_are_to_be_split() -> None:
    few = skew(count=2, median_seconds=3.0, max_seconds=3.0, median_bytes=400.0 * MIB)
    report = small(skew={"read": few}, tasks={"succeeded": 2})
    assert sizes_of(report).smaller == 8
    words = advice("idle/parallelism", conditions_of(report))
    assert words.startswith(
        "Make partitions 8 times smaller, 50.0 MiB each: 2 tasks of 3.0 s and 400 MiB are too few for"
    )
    assert sizes_of(small()).smaller == 0


def test_processes_have_the_memory_and_the_cores_that_threads_had() -> None:
    assert sizes_of(small(cores=8.0)).processes == 4
    assert sizes_of(small(cores=2.0)).processes == 2
    assert sizes_of(small(cores=1.0)).processes == 0
    assert sizes_of(small(memory=GIB + 2 * OF_A_PROCESS)).processes == 0
    assert sizes_of(small(metered=())).processes == 0
    # One task of 1.9 GiB fits into a quarter of 8 GiB beside a process, one of 3 GiB does not.
    for working, fit in ((1.8 * GIB, 4), (3.0 * GIB, 0)):
        assert sizes_of(small(skew={"fit": replace(CHUNK, max_working=working)})).processes == fit


def test_twice_the_threads_have_memory_for_as_many_large_tasks() -> None:
    for working, nthreads in ((0.9 * GIB, 8), (1.1 * GIB, 0)):
        assert sizes_of(small(skew={"fit": replace(CHUNK, p95_working=working)})).nthreads == nthreads
    assert "4 workers of 1 thread each" in advice("thread-noncpu/gil", conditions_of(small(cores=8.0)))
    assert "more workers with fewer threads each" in advice("thread-noncpu/gil", conditions_of(small(metered=())))


def test_threads_are_those_that_are_replayed() -> None:
    assert "use 8 threads per worker" in advice("thread-noncpu/sleep", conditions_of(small()))


def test_a_large_aggregation_in_one_task_is_to_be_split() -> None:
    tree = skew(count=4, median_seconds=3.0, max_seconds=3.0, max_bytes=80.0 * MIB)
    report = small(skew={"valuecounts-tree": tree}, tasks={"succeeded": 4}, waited_for={"valuecounts-tree": 6.0})
    words = advice("idle/parallelism", conditions_of(report))
    assert words.startswith("Pass split_out=2 to that aggregation: all waited for valuecounts-tree, in which one task")
    for other in ({"max_bytes": 80.0}, {"count": 0}):
        few = replace(report, skew={"valuecounts-tree": replace(tree, **other), "read": CHUNK})
        assert "split_out" not in advice("idle/parallelism", conditions_of(few))
    assert "split_out" not in advice("idle/parallelism", conditions_of(replace(report, nthreads={"w0": 1})))


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        *((name, True) for name in ("unique-tree", "dropduplicates-tree", "decomposablegroupbyaggregation-tree")),
        *((name, False) for name in ("nlargest-tree", "mode-tree", "cov-tree", "sum-tree", "mean-tree")),
    ],
)
def test_split_out_is_for_functions_that_take_it(name: str, takes: bool) -> None:
    tree = skew(count=4, median_seconds=3.0, max_seconds=3.0, max_bytes=80.0 * MIB)
    report = small(skew={name: tree}, tasks={"succeeded": 4}, waited_for={name: 6.0})
    assert ("split_out" in advice("idle/parallelism", conditions_of(report))) == takes


def test_arrays_of_one_dimension_have_a_call_where_lines_tell_that_they_are_arrays() -> None:
    line = skew(count=1600, median_seconds=0.0033, max_seconds=0.004, median_bytes=4.0 * MIB, longest_key="('x-1', 3)")
    frames = (ProfileRow("thread-cpu", "native", "x", (Frame("mean", "/x/dask/array/reductions.py", 3),), 9),)
    assert (
        'chunks="120MiB" where the array begins' in sizes_of(small(skew={"x": line}, profile=frames)).words()["resized"]
    )
    assert sizes_of(small(skew={"x": line})).words()["resized"].endswith("tasks")
    few = replace(line, median_bytes=80.0)
    assert sizes_of(small(skew={"x": few}, profile=frames)).call == "larger chunks= where the array begins"
    assert sizes_of(small(skew={"x": few})).call == ""
