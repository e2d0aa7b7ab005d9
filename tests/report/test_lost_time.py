from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.buckets import Breakdown
from dask_efficiency.report.lost_time import Row, finalized_parts, loss_cells, lost_time, percent_of
from tests.report.samples import breakdowns, by_hand, report_of, seconds


def test_the_table_of_the_report_worked_out_by_hand() -> None:
    table = lost_time(by_hand(price_per_worker_hour=3600.0))
    # per cent of 17 s: 58.82 17.65 11.76 5.88 5.88, which make 99.7 when cut; a thread-second costs 0.5
    assert table.rows == (
        Row("useful", "10.0", "2.50", "58.8", "5.00"),
        Row("spill", "3.0", "0.75", "17.6", "1.50"),
        Row("thread-noncpu", "2.0", "0.50", "11.8", "1.00"),
        Row("failed", "1.0", "0.25", "5.9", "0.50"),
        Row("idle", "1.0", "0.25", "5.9", "0.50"),
        Row("running", "1.0", "0.25", "", "0.50"),
        Row("total", "18.0", "4.50", "100.0", "9.00"),
    )
    assert table.finalized == "17.0"


@given(
    st.lists(breakdowns, max_size=4),
    st.floats(0, 1e8),
    st.none() | st.floats(0, 1e4),
)
def test_every_column_adds_up_to_its_total(workers: list[Breakdown], wall: float, price: float | None) -> None:
    report = report_of(*workers, cluster_seconds=wall, price_per_worker_hour=price, nthreads={"w0": 3, "w1": 1})
    table = lost_time(report)
    for figure in ("thread_time", "wall", "percent", "money"):
        *parts, total = [Decimal(getattr(row, figure) or "0") for row in table.rows]
        if any(worker.total_ns - worker.ns("no-work") for worker in workers):
            assert sum(parts) == total, figure


def test_no_column_without_figures() -> None:
    heads, rows = loss_cells(lost_time(report_of(seconds(spill=1), cluster_seconds=0.0)))
    assert heads == ("lost time by cause", "thread-s", "%")
    assert rows == [("useful", "0.00", "0.0"), ("spill", "1.00", "100.0"), ("total", "1.00", "100.0")]


@given(breakdowns)
def test_the_parts_make_100_percent(breakdown: Breakdown) -> None:
    parts = finalized_parts(breakdown)
    assert sum(part.tenths_of_percent for part in parts) == (1000 if parts else 0)


def test_a_part_that_rounds_to_nothing_is_not_shown_as_nothing() -> None:
    parts = finalized_parts(seconds(thread_cpu=100_000, idle=1))
    assert [percent_of(part) for part in parts] == ["100.0", "<0.1"]


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_senseless_price_is_left_out(price: float) -> None:
    assert lost_time(by_hand(price_per_worker_hour=price)).money_scale is None
