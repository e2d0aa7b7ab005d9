"""``benchmarks/simulation.py`` judges rightly: its rivals by hand, its errors and what intervals cover."""

import pytest

from benchmarks.simulation import Row, amdahl, list_schedule
from dask_efficiency import RunTrace, critical_path
from tests.simulated_traces import MS, Graph, simulate


@pytest.fixture(scope="module")
def diamond() -> RunTrace:
    """100 ms, then 300, 200 and 100 ms side by side, then 50 ms; on two workers."""
    graph = Graph(
        prefixes=["first", "long", "middle", "short", "last"],
        inputs=[[], [0], [0], [0], [1, 2, 3]],
        compute_ns=[100 * MS, 300 * MS, 200 * MS, 100 * MS, 50 * MS],
        nbytes=[1] * 5,
        wanted={4},
    )
    return simulate(graph, workers=2, nthreads=1, spread=True)


@pytest.mark.parametrize(
    ("speeds", "seconds"),
    [
        ([1.0], 0.75),
        # the long one beside the two others
        ([1.0, 1.0], 0.45),
        ([1.0] * 9, 0.45),
        # 50, 150 beside 100 and 50, 25
        ([2.0, 2.0], 0.225),
        # the middle one takes 400 on the slow slot, the short one comes after the long one
        ([1.0, 0.5], 0.55),
    ],
)
def test_a_list_schedule_is_as_worked_out_by_hand(diamond: RunTrace, speeds: list[float], seconds: float) -> None:
    assert list_schedule(diamond, speeds) == pytest.approx(seconds, rel=1e-3)


def test_amdahls_law_gives_the_recorded_makespan_on_the_recorded_workers(diamond: RunTrace) -> None:
    recorded = critical_path(diamond).makespan_seconds
    assert amdahl(diamond, [1.0, 1.0]) == pytest.approx(recorded, rel=1e-3)
    assert amdahl(diamond, [1.0]) == pytest.approx(0.75, rel=1e-3)
    serial = 2 * (recorded - 0.75 / 2)
    assert amdahl(diamond, [1.0] * 1000) == pytest.approx(serial, rel=0.01)


def test_an_error_is_that_of_medians_and_each_real_run_counts_for_coverage() -> None:
    row = Row([1.0, 2.0, 4.0], [2.2, 1.8, 2.1], [(1.5, 2.5), (0.5, 4.5)], [], [], [])
    assert row.error(row.predicted) == pytest.approx(0.05)
    assert row.covered == [False, True, False, True, True, True]
