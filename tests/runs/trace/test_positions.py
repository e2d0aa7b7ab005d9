from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import SAMPLES, lost_worker, tree
from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.positions import POINTS_INTO, check_positions
from dask_efficiency.runs.trace.schema import Blocked, Releases, Series, Shuffled

COLUMNS = [(table, column) for table, columns in POINTS_INTO.items() for column in columns]


def full() -> RunTrace:
    """A trace that has a row in every table."""
    return replace(
        lost_worker(),
        releases=Releases.from_columns({"at": [1], "client": [0], "task": [0]}),
        blocked=Blocked.from_columns({"worker": [0], "start": [1], "stop": [2]}),
        series=Series.from_columns({"at": [1], "worker": [0]}),
        shuffled=Shuffled.from_columns({"task": [0], "sender": [0], "receiver": [1]}),
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_fit(name: str) -> None:
    check_positions(SAMPLES[name]())


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_position_out_of_range_is_named(table: str, column: str) -> None:
    trace = full()
    for wrong in (-2, 127):
        values = getattr(getattr(trace, table), column).copy()
        values[0] = wrong if values.dtype == np.int8 or wrong < 0 else 1 << 14
        broken = replace(trace, **{table: replace(getattr(trace, table), **{column: values})})
        with pytest.raises(ValueError, match=rf"{table}\.{column} is {values[0]} in row 0; expected -1 to"):
            check_positions(broken)


def test_a_position_may_be_missing() -> None:
    trace = full()
    for table, column in COLUMNS:
        values = getattr(getattr(trace, table), column).copy()
        values[0] = MISSING
        check_positions(replace(trace, **{table: replace(getattr(trace, table), **{column: values})}))


@pytest.mark.parametrize(
    ("starts", "edges", "found"),
    [
        ([0, 0], [], "dependency_starts has 2 rows; expected 4"),
        ([0, 1, 1, 1], [3], "dependencies is 3 in row 0; expected 0 to 2"),
        ([0, 1, 1, 1], [-1], "dependencies is -1 in row 0; expected 0 to 2"),
        ([0, 1, 0, 1], [0], "does not rise from 0 to the 1 dependencies"),
        ([0, 0, 0, 0], [0], "does not rise"),
        ([1, 1, 1, 1], [0], "does not rise"),
    ],
)
def test_dependencies_that_do_not_fit_are_named(starts: list[int], edges: list[int], found: str) -> None:
    trace = replace(
        tree(2), dependency_starts=np.array(starts, np.int64), dependencies=np.array(edges, np.int32).reshape(-1)
    )
    with pytest.raises(ValueError, match=found):
        check_positions(trace)


def test_keys_and_constraints_belong_to_tasks() -> None:
    trace = tree(2)
    with pytest.raises(ValueError, match="there are 2 keys; expected one for each of 3 tasks"):
        check_positions(replace(trace, keys=trace.keys[:2]))
    with pytest.raises(ValueError, match="constraints"):
        check_positions(replace(trace, constraints={3: {"retries": 1}}))
