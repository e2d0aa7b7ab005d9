import math

import numpy as np
import pytest

from dask_efficiency.show.columns import (
    as_frame,
    as_records,
    as_table,
    counts,
    multiples,
    names,
    nested,
    seconds,
    sizes,
)
from dask_efficiency.show.document import Share
from dask_efficiency.show.figures import time_scale

#: Two runs, of which the second failed.
RUNS = {
    "run": names(["a\x1b", "b"]),
    "makespan": seconds(np.array([150.0, math.nan]), time_scale(150.0)),
    "slept": seconds([0.5, None], unknown=""),
    "nbytes": sizes([2048, 0]),
    "speedup": multiples([math.inf, 1.5]),
    "tasks": counts(np.array([3, 0])),
    "ends": nested([[1, 2], None], text=lambda ends: f"{ends[0]} to {ends[1]}"),
}


def test_a_value_is_written_by_its_kind_and_a_unit_is_in_the_head() -> None:
    table = as_table(RUNS, strong=(0,))
    assert table.heads == ("run", "makespan, min", "slept", "nbytes", "speedup", "tasks", "ends")
    assert table.rows == (
        (r"a\x1b", "2.50", "500 ms", "2.0 kiB", "-", "3", "1 to 2"),
        ("b", "-", "", "0 B", "1.50x", "0", "-"),
    )
    assert (table.words, table.strong, table.drawings) == ((0,), (0,), ())
    assert as_table(RUNS, {"slept": "idle", "makespan": "worker-{}"}).heads == ("idle", "worker-min")


def test_a_column_is_drawn_behind_itself() -> None:
    table = as_table(RUNS, {"run": "run", "nbytes": "size", "tasks": "tasks"}, bar="nbytes")
    assert (table.drawings, table.drawn_behind) == ((Share(1.0), Share(0.0)), 1)
    assert as_table({"a": counts([0])}, bar="a").drawings == (Share(0.0),)
    assert as_table({"a": counts([])}, bar="a").rows == ()


def test_records_have_plain_values_and_none_where_nothing_was_measured() -> None:
    first, second = as_records(RUNS)
    assert first == {"run": "a\x1b", "makespan": 150.0, "slept": 0.5, "nbytes": 2048} | {
        "speedup": None,
        "tasks": 3,
        "ends": [1, 2],
    }
    assert type(first["tasks"]) is int
    assert second == dict.fromkeys(RUNS) | {"run": "b", "nbytes": 0, "speedup": 1.5, "tasks": 0}


def test_a_frame_has_a_type_for_each_column_that_is_not_nested() -> None:
    pytest.importorskip("pandas")
    frame = as_frame(RUNS, index="run")
    assert frame.index.tolist() == ["a\x1b", "b"]
    kinds = {"makespan": "float64", "slept": "float64", "nbytes": "int64", "speedup": "float64", "tasks": "int64"}
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == kinds
    assert frame.speedup.isna().tolist() == [True, False]
    assert as_frame({"tasks": counts([])}).dtypes["tasks"] == "int64"
