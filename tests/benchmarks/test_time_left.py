from pathlib import Path

import numpy as np
import pytest

from benchmarks.time_left import Judged, Run, judged, of_trace
from dask_efficiency import load_trace

RECORDED = Path(__file__).parents[1] / "data"


def test_in_nine_of_ten_looks_at_recorded_runs_the_rest_is_in_the_interval() -> None:
    found = Judged()
    for path in sorted([*RECORDED.glob("diagnoses/*.trace"), *RECORDED.glob("simulation/*.trace")]):
        for run in of_trace(load_trace(path)):
            found.add(judged(run))
    assert found.shown >= 0.3 * found.looks
    assert found.right >= 0.9 * found.shown, str(found)


def even(tasks: int, nthreads: int, *, known: float = 0.0) -> Run:
    """Tasks of a second on so many threads."""
    start = np.arange(tasks) // nthreads + known
    prefix = np.zeros(tasks, dtype=np.int64)
    return Run("even", np.full(tasks, known), start, start + 1.0, prefix, nthreads)


def test_even_tasks_are_always_right_and_nearly_exact() -> None:
    found = judged(even(400, 4))
    assert (found.looks, found.shown, found.right) == (50, 50, 50)
    assert max(found.errors[:-2]) < 0.1


@pytest.mark.parametrize(("every", "nthreads"), [(6.0, 8), (50.0, 1)])
def test_nothing_is_shown_of_a_graph_that_grows_again_and_again(every: float, nthreads: int) -> None:
    parts = [even(60, nthreads, known=every * number) for number in range(8)]
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in ("known", "start", "stop", "prefix")]
    assert judged(Run("grows", *columns, 8)).shown == 0
