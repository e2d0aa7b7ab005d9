"""Lines of the client's at which graphs were built."""

from __future__ import annotations

from dask_efficiency import EfficiencyReport, Finding
from dask_efficiency.accounts.lines import Stack
from dask_efficiency.report.cures import with_builder
from dask_efficiency.report.values import ClientRow
from tests.report.recipe_stacks import stack_of
from tests.report.samples import report_of, seconds

MEAN = stack_of("me/hours.py means", "xarray/core/groupby.py GroupBy.mean", "dask/array/core.py Array.__getitem__")
SMALL = Finding("small-tasks", "Too many small tasks", "computed by `x.compute()` in etl.py:9")


def built(*rows: ClientRow, found: Finding = SMALL) -> str:
    report: EfficiencyReport = report_of(
        seconds(thread_cpu=10.0), client=rows, cluster_seconds=10.0, window_seconds=10.0, nthreads={"w0": 1}
    )
    return with_builder(report, found, "build").where


def row(activity: str, stack: Stack, spent: float) -> ClientRow:
    return ClientRow(activity, stack, round(spent * 1e9), 0, 0)


def test_small_tasks_have_the_line_at_which_most_of_their_graph_was_built() -> None:
    assert built(row("build", MEAN, 3.0)) == f"{SMALL.where}, built by `mean` in hours.py:1"
    assert built(row("build", MEAN, 3.0), found=Finding("small-tasks", "Small")) == "built by `mean` in hours.py:1"


def test_no_line_is_told_where_building_takes_little_or_is_at_several_or_at_the_line_that_is_told_already() -> None:
    assert built() == SMALL.where
    assert built(row("build", MEAN, 0.4)) == SMALL.where
    assert built(row("hash", MEAN, 3.0)) == SMALL.where
    there = Finding("small-tasks", "Small", "computed by `x.compute()` in hours.py:1")
    assert built(row("build", MEAN, 3.0), found=there) == there.where
    longer = Finding("small-tasks", "Small", "computed by `x.compute()` in hours.py:17")
    assert built(row("build", MEAN, 3.0), found=longer) == f"{longer.where}, built by `mean` in hours.py:1"
