"""Functions that compute before a result is asked for."""

from __future__ import annotations

from typing import Any

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.computed_first import computed_first
from dask_efficiency.report.findings import find
from dask_efficiency.report.values import ClientRow, Repeat
from tests.report.recipe_stacks import stack_of
from tests.report.samples import report_of, seconds, skew

SECOND = 1_000_000_000
DIVISIONS = stack_of(
    "me/etl.py few_days",
    "dask/dataframe/dask_expr/_shuffle.py _calculate_divisions",
    "dask/base.py compute",
    "distributed/client.py Client.get",
)
LENGTH = stack_of(
    "me/etl.py few_days",
    "dask/dataframe/dask_expr/_collection.py FrameBase.__len__",
    "dask/base.py compute",
    "distributed/client.py Client.get",
)
RESULT = stack_of("me/etl.py main", "dask/base.py compute", "distributed/client.py Client.get")
LINES = "`return frame.loc[day:]` in etl.py:1 and etl.py:9"


def run(*, waited: float = 7.0, **fields: Any) -> EfficiencyReport:
    """Two threads for 10 s, of which the client waits for divisions for some, and then for its result."""
    rest = 10.0 - waited
    rows = [
        ClientRow("wait", DIVISIONS, round(waited * SECOND), 0, 0),
        ClientRow("wait", RESULT, round(rest * SECOND), 0, 0),
    ]
    given: dict[str, Any] = {
        "by_prefix": {"read": seconds(thread_cpu=15.0), "min": seconds(thread_cpu=1.0)},
        "skew": {"read": skew(count=15), "min": skew(count=12)},
        "computed_by": {"read": LINES, "min": "`return frame.loc[day:]` in etl.py:1"},
        "client": tuple(rows),
        "nthreads": {"w0": 2},
        "cluster_seconds": 10.0,
        "window_seconds": 10.0,
    }
    return report_of(seconds(thread_cpu=16.0, idle=4.0), **(given | fields))


def test_a_function_that_computes_first_is_a_finding_with_its_tasks_and_all_lines_that_sent_them() -> None:
    first = find(run())[0]
    assert first.lines == (
        f"set_index computes its column first. 70 % of the time: 15 tasks of read, computed by {LINES}",
        "Pass divisions=, or sorted=True for sorted data, or persist() before: it computes the column twice.",
    )
    assert first.evidence == {"wall_clock_seconds": 3.5}
    shorter = computed_first(run(waited=4.0))
    assert shorter is not None
    assert shorter.where == f"40 % of the time: 15 tasks of read, computed by {LINES}"
    rest = (ClientRow("wait", LENGTH, 4 * SECOND, 0, 0), ClientRow("wait", RESULT, 6 * SECOND, 0, 0))
    assert computed_first(run(client=rest)) is None
    unknown = computed_first(run(computed_by={}))
    assert unknown is not None
    assert unknown.where == "70 % of the time: `few_days`, etl.py:1"


def test_what_is_short_or_what_a_repeat_has_already_is_none() -> None:
    assert computed_first(run(waited=2.5)) is None
    assert computed_first(run(client=())) is None
    again = find(run(repeats={"read": Repeat(12, 2)}))
    assert next(one.kind for one in again if one.page.endswith("#set-index")) == "repeats"


def test_what_may_be_the_only_result_is_in_vain_only_as_far_as_as_much_follows() -> None:
    def told(length: float, rest: float) -> Any:
        rows = [ClientRow("wait", stack, round(ns * SECOND), 0, 0) for stack, ns in ((LENGTH, length), (RESULT, rest))]
        return computed_first(run(client=tuple(rows)))

    assert told(10.0, 0.0) is told(40.0, 0.0) is None
    assert told(7.0, 2.0).evidence == {"wall_clock_seconds": 1.0}
    assert told(6.0, 4.0).evidence == {"wall_clock_seconds": 2.0}


def test_of_several_clients_no_more_is_in_vain_than_the_time_of_the_run() -> None:
    found = computed_first(run(client=(ClientRow("wait", DIVISIONS, 40 * SECOND, 0, 0),)))
    assert found is not None
    assert found.evidence == {"wall_clock_seconds": 5.0}


def test_lines_that_begin_alike_are_others() -> None:
    lines = {"read": "`x.sum()` in etl.py:17", "min": "`y.min()` in etl.py:1"}
    found = computed_first(run(computed_by=lines))
    assert found is not None
    assert found.where == "70 % of the time: 12 tasks of min, computed by `y.min()` in etl.py:1"
