"""Section on the client: its figures add up as shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.sections.client import MAX_LINES, client
from dask_efficiency.report.values import DASK_ACTIVITIES, ClientRow
from dask_efficiency.show.document import SCREEN, Table
from tests.report.samples import SECOND, report_of, seconds


def table_of(*rows: ClientRow) -> Table:
    report = report_of(seconds(thread_cpu=4), client=rows)
    return next(block for block in client(report, SCREEN).blocks if isinstance(block, Table))


def row(line: int, ns: int, idle_ns: int = 0) -> ClientRow:
    activity = [*DASK_ACTIVITIES][line % len(DASK_ACTIVITIES)]
    return ClientRow(activity, (Frame("load", "/home/me/etl.py", line),), ns, idle_ns, 0)


def test_thirds_add_up_to_the_whole() -> None:
    found = table_of(*(row(line, 10 * SECOND // 3, 5 * SECOND // 3) for line in range(3)))
    times = [(cells[1], cells[2]) for cells in found.rows]
    assert times == [("3.34", "1.67"), ("3.33", "1.67"), ("3.33", "1.66"), ("10.00", "5.00")]


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=2 * MAX_LINES))
def test_rows_as_shown_add_up_to_their_sum(times: list[int]) -> None:
    found = table_of(*(row(line, ns, ns // 3) for line, ns in enumerate(times, 1)))
    for column in (1, 2):
        *parts, whole = [round(float(str(cells[column])) * 1e6) for cells in found.rows]
        assert sum(parts) == whole
