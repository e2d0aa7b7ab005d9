"""Graphs that tasks compute themselves."""

from __future__ import annotations

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.inner_graphs import of_inner_graphs
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.finding import Finding
from tests.report.samples import report_of, skew


def test_many_tasks_that_no_line_of_the_client_s_sent_are_of_those_that_call_dask() -> None:
    reading = ("me.py", "weights_of"), ("/lib/python3.12/site-packages/dask/dataframe/io/csv.py", "read_pandas")
    stack = tuple(Frame(function, file if "/" in file else f"/home/me/{file}", 7) for file, function in reading)
    small = Finding("small-tasks", "Too many small tasks", "most for `gather` in me.py:9", advice="Make larger ones.")
    fields = {
        "profile": (ProfileRow("thread-cpu", "", "weights_of", stack, 5),),
        "computed_by": {"weights_of": "`client.map(weights_of)` in me.py:8"},
        "skew": {"weights_of": skew(count=20), "read-csv": skew(count=800)},
    }
    found = of_inner_graphs(report_of(**fields), small, ())
    assert (found.title, found.where) == ("Tasks that compute a graph of their own", "`weights_of`, me.py:7")
    for other in (
        {"profile": (ProfileRow("thread-cpu", "", "weights_of", stack[:1], 5),)},
        {"profile": (ProfileRow("thread-cpu", "", "read-csv", stack, 5),)},
        {"skew": {"weights_of": skew(count=900), "read-csv": skew(count=800)}},
        {"computed_by": {}},
    ):
        assert of_inner_graphs(report_of(**(fields | other)), small, ()) is small
