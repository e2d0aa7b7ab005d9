from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.simulation.model.sweeps import Sweep, parse_sizes
from dask_efficiency.simulation.sections.sweep import headline

GIB = 2**30


def sweep(seconds: dict[int, float], price: float | None = None, full: Collection[int] = (), **fields: Any) -> Sweep:
    """One whose predictions have a size and a makespan only; with those in ``full``, a nanny would end workers."""
    of_memory = fields.get("of_memory", False)
    found: Any = tuple(
        SimpleNamespace(
            cluster=(cluster := SimpleNamespace(workers=workers_of(size, of_memory), nthreads=size, config={})),
            runs=SimpleNamespace(overfull=float(size in full), memory_needed=3 * GIB),
            notes=("a caveat",),
            job=SimpleNamespace(cluster=cluster, without=(), prefixes=None),
            makespan_seconds=makespan,
            makespans={0: makespan},
            others_share=0.0,
            interval=(0.9 * makespan, 1.1 * makespan),
            speedup=10 / makespan,
            efficiency=0.5,
            busy=0.6,
        )
        for size, makespan in seconds.items()
    )
    return Sweep(found, price, **fields)


def workers_of(size: int, of_memory: bool) -> tuple[Any, ...]:
    return (SimpleNamespace(memory_limit=size if of_memory else 0),) * (4 if of_memory else size)


def size(prediction: Any) -> int:
    return len(prediction.cluster.workers)


def by_memory(seconds: dict[int, float], full: Collection[int] = (), **fields: Any) -> Sweep:
    """A sweep of memory limits, in GiB."""
    sizes = {gib * GIB: makespan for gib, makespan in seconds.items()}
    return sweep(sizes, full=[gib * GIB for gib in full], of_memory=True, **fields)


def test_of_memory_the_smallest_limit_near_the_fastest_is_the_best_unless_workers_would_be_ended() -> None:
    found = by_memory({1: 9.0, 2: 5.0, 4: 2.6, 8: 2.5})
    assert [found.size(one) / GIB for one in (found.best, found.fastest, found.knee)] == [4, 8, 4]
    ended = by_memory({1: 2.4, 2: 2.5, 4: 2.6}, full=[1])
    assert [ended.size(one) / GIB for one in (ended.best, ended.fastest)] == [2, 2]
    none_lasts = by_memory({1: 2.4, 2: 2.2}, full=[1, 2])
    assert none_lasts.best is None
    assert (
        headline(none_lasts)
        == "None of these sizes lasts: workers would be killed; with 3.0 GiB each, none would spill"
    )


def test_the_notes_name_sizes_with_which_a_run_does_not_end_or_workers_would_be_ended() -> None:
    found = by_memory({1: 2.4, 2: 2.5}, full=[1], impossible={GIB // 2: "all workers are paused"})
    assert found.notes == (
        "With 512 MiB, the run does not end: all workers are paused",
        "Memory gets so full that a nanny would end workers, with 1.0 GiB: here, they go on.",
        "a caveat",
    )
    assert sweep({2: 1.0}, not_simulated=(4,)).notes[0].endswith("not simulated: numbers of workers 4")


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
