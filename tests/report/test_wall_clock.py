import pytest
from hypothesis import given

from dask_efficiency.report.findings import find
from dask_efficiency.report.wall_clock import ideal_time_lines, wall_clock_parts
from dask_efficiency.runs.path.parts import PathSummary
from tests.report.samples import causes, report_of, reports, seconds

CHAIN = PathSummary("A chain", 8.0, {}, 7.9, 1.0, 3.1)


def test_the_parts_of_the_wall_clock_add_up_to_it_and_those_below_5_percent_are_left_out() -> None:
    times = {"window_seconds": 8.0, "cluster_seconds": 2.0, "no_workers_seconds": 5.0}
    report = report_of(seconds(thread_cpu=2), phases={"run": 2.0}, **times)
    assert wall_clock_parts(report) == {"without any worker": 5.0, "of work on the cluster": 2.0, "on the client": 1.0}
    # a client that is busy with Dask is distinguished from the user's code
    busy = report_of(window_seconds=5.0, cluster_seconds=1.0, phases={"optimize": 3.0, "gather": 0.5})
    assert next(iter(wall_clock_parts(busy))) == "on the client, mostly its optimize"
    for client, parts in ((4.9, 1), (5.1, 2)):
        assert len(wall_clock_parts(report_of(window_seconds=100.0, cluster_seconds=100.0 - client))) == parts


@given(reports)
def test_the_parts_of_any_wall_clock_are_positive_and_nearly_all_and_no_ideal_is_longer(report):
    whole = report.cluster_seconds + report.no_workers_seconds + report.client_seconds
    assert all(seconds >= 0 for seconds in wall_clock_parts(report).values())
    assert sum(wall_clock_parts(report).values()) >= 0.89 * whole
    assert 0.0 <= report.ideal_seconds <= report.cluster_seconds


@pytest.mark.parametrize(
    ("given", "binding"),
    [
        # 16 threads on 2 cores: 5.6 s of CPU are 0.35 s by threads, and 2.8 s by cores.
        ({"cores": 2.0}, 2.8),
        ({"cores": 16.0}, 0.35),
        ({"path": CHAIN}, 3.1),
        # More than the run took itself: clocks, or a processor that nobody counted.
        ({"cores": 0.5}, 3.2),
    ],
)
def test_the_ideal_is_the_largest_bound_and_unknown_ones_are_named(given: dict, binding: float) -> None:
    whole, waiting = seconds(thread_cpu=5.6, thread_noncpu=45.6), {"w0": causes(**{"thread-noncpu/core": 45.0})}
    report = report_of(whole, window_seconds=3.2, cluster_seconds=3.2, causes_by_worker=waiting, **given)
    assert report.ideal_seconds == pytest.approx(binding)
    (unknown,) = ideal_time_lines(report_of(seconds(thread_cpu=4, idle=5), window_seconds=4.5))
    assert unknown == (
        "useful work takes at least 2.0 s by 2 threads; not known: how many cores the workers share "
        "and the longest chain of tasks (trace=True tells)"
    )


def test_computing_of_libraries_counts_against_the_cores() -> None:
    # pd.read_parquet: Arrow's threads compute for 1.8 s of the 2 s in which tasks wait for them
    whole = seconds(thread_cpu=0.1, library_threads=1.8, thread_noncpu=0.2)
    report = report_of(whole, window_seconds=1.0, cluster_seconds=1.0, cores=2.0)
    assert report.ideal_bounds == {"slots": pytest.approx(1.9 / 2.1), "cores": pytest.approx(0.95)}
    # a product of matrices: the task's thread computes for 0.9 s, and those of BLAS for as long
    whole = seconds(thread_cpu=0.9, library_threads=0.1)
    report = report_of(whole, cluster_seconds=1.0, cores=2.0, outside={"CPU of other threads": 0.9})
    assert report.ideal_bounds["cores"] == pytest.approx(0.9)


def test_without_samples_nothing_is_attributed_to_libraries() -> None:
    whole = seconds(thread_cpu=0.1, thread_noncpu=2)
    report = report_of(whole, window_seconds=1.0, cluster_seconds=1.0, cores=2.0, outside={"CPU of other threads": 1.8})
    (found,) = find(report)
    assert found.saves_seconds is None
    assert found.lines[0].startswith("Tasks off the CPU, for no known reason: 2.0 s of thread time.")
