from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.simulation.model.sweeps import Sweep, parse_sizes


def sweep(seconds: dict[int, float], price: float | None = None) -> Sweep:
    """One whose predictions have a size and a makespan only."""
    found: Any = tuple(
        SimpleNamespace(
            cluster=(cluster := SimpleNamespace(workers=(None,) * workers, nthreads=workers, config={})),
            job=SimpleNamespace(cluster=cluster, without=(), prefixes=None),
            makespan_seconds=makespan,
            makespans={0: makespan},
            others_share=0.0,
            interval=(0.9 * makespan, 1.1 * makespan),
            speedup=10 / makespan,
            efficiency=0.5,
            busy=0.6,
        )
        for workers, makespan in seconds.items()
    )
    return Sweep(found, price)


def size(prediction: Any) -> int:
    return len(prediction.cluster.workers)


def test_the_best_is_the_cheapest_of_those_within_10_percent_of_the_fastest() -> None:
    found = sweep({2: 10.0, 4: 5.0, 8: 2.7, 16: 2.5})
    assert (size(found.best), size(found.fastest)) == (8, 16)
    assert size(sweep({2: 10.0, 4: 5.0, 8: 2.8, 16: 2.5}).best) == 16
    assert size(sweep({20: 2.1, 21: 2.0}).best) == 20  # both cost the same


def test_the_knee_is_where_a_doubling_saves_less_than_a_fifth() -> None:
    assert size(sweep({2: 10.0, 4: 7.9, 8: 6.4, 16: 3.0}).knee) == 4
    assert size(sweep({2: 10.0, 4: 8.1, 8: 2.0}).knee) == 2
    assert size(sweep({2: 10.0, 4: 7.0}).knee) == 4
    assert size(sweep({4: 10.0, 5: 9.0}).knee) == 5, "a third of a doubling saves enough with 10 %"


def test_the_table_has_a_row_for_each_cluster_and_the_money_for_all_its_workers() -> None:
    found = sweep({2: 10.0, 4: 5.0}, price=36.0)
    assert found.money(found.best) == pytest.approx(0.2)
    assert sweep({4: 1800.0}).money(found.best) is None
    pytest.importorskip("pandas")
    frame = found.to_frame()
    assert frame.workers.tolist() == [2, 4]
    assert frame.speedup.tolist() == [1.0, 2.0]
    assert frame.worker_seconds.tolist() == [20.0, 20.0]
    assert frame.money.tolist() == pytest.approx([0.2, 0.2])
    assert frame.low.tolist() == [9.0, 4.5]
    assert sweep({2: 10.0}).to_frame().money.isna().all()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], ValueError, "empty"),
        ([0], ValueError, "holds 0"),
        ([4, -1], ValueError, "holds -1"),
        ("8..2", ValueError, "a range"),
        (4, TypeError, "workers is 4"),
        ([2.5], TypeError, "workers holds 2.5"),
        ([True], TypeError, "workers holds True"),
    ],
)
def test_wrong_sizes_are_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_sizes(given)
