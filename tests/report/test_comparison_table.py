from decimal import Decimal

from hypothesis import given

from dask_efficiency import compare
from dask_efficiency.report.comparison_table import NOT_BY_CAUSE, ComparisonRow, ComparisonTable, comparison_table
from tests.report.comparison_samples import Side, explained_sides, sides, waited
from tests.report.samples import by_hand, report_of, seconds


def figure(row: ComparisonRow, column: str) -> Decimal:
    return Decimal(getattr(row, column) or "0")


def parts_of(table: ComparisonTable, bucket: str) -> list[ComparisonRow]:
    return [row for row in table.rows if row.bucket == bucket]


COLUMNS = ("before", "after", "change", "wall_change", "percent_before", "percent_after")
MONEY = ("money_before", "money_after", "money_change")


@given(sides | explained_sides, sides | explained_sides)
def test_every_column_adds_up_and_every_row(before: Side, after: Side) -> None:
    table = comparison_table(compare(before, after))
    *rows, total = [row for row in table.rows if not row.bucket]
    causes, others = rows[: rows.index(table.lost)], rows[rows.index(table.lost) :]
    for column in COLUMNS:
        assert sum(figure(row, column) for row in causes) == figure(table.lost, column)
        assert sum(figure(row, column) for row in others) == figure(total, column)
        for cause in causes:
            if parts := parts_of(table, cause.label):
                assert sum(figure(part, column) for part in parts) == figure(cause, column), column
    for row in table.rows:
        assert figure(row, "before") + figure(row, "change") == figure(row, "after")


def test_causes_stand_below_their_bucket_the_largest_change_first() -> None:
    table = comparison_table(compare(waited(gil=4, core=1, file=0.05, sleep=0.05), waited(gil=5, core=4, file=0.1)))
    shown = [(row.name, row.before, row.after, row.change) for row in table.rows]
    assert shown == [
        ("thread-noncpu", "5.1", "9.1", "+4.0"),
        ("thread-noncpu/core", "1.0", "4.0", "+3.0"),
        ("thread-noncpu/gil", "4.0", "5.0", "+1.0"),
        ("thread-noncpu/2 more", "0.1", "0.1", "0.0"),
        ("lost", "5.1", "9.1", "+4.0"),
        ("useful", "10.0", "10.0", "0.0"),
        ("total", "15.1", "19.1", "+4.0"),
    ]
    assert table.sums == (4, 6)
    # none are shown that one run does not know
    known, unknown = waited(gil=4), report_of(seconds(thread_cpu=10, thread_noncpu=4))
    assert parts_of(comparison_table(compare(known, unknown)), "thread-noncpu") == []
    assert len(parts_of(comparison_table(compare(known, report_of(seconds(thread_cpu=10)))), "thread-noncpu")) == 1


def test_the_table_worked_out_by_hand() -> None:
    # 3 of 12 and 9 of 20 thread-seconds spill; 4 and 5 s of wall for them
    before = report_of(seconds(thread_cpu=9, spill=3), cluster_seconds=4.0)
    after = report_of(seconds(thread_cpu=10, spill=9, running=1), cluster_seconds=5.0)
    table = comparison_table(compare(before, after))
    assert table.rows == (
        ComparisonRow("spill", "3.0", "9.0", "+6.0", "", "+1.25", "25.0", "47.4", "", "", ""),
        ComparisonRow("lost", "3.0", "9.0", "+6.0", "", "+1.25", "25.0", "47.4", "", "", ""),
        ComparisonRow("useful", "9.0", "10.0", "+1.0", "", "-0.50", "75.0", "52.6", "", "", ""),
        ComparisonRow("running", "0.0", "1.0", "+1.0", "", "+0.25", "", "", "", "", ""),
        ComparisonRow("total", "12.0", "20.0", "+8.0", "", "+1.00", "100.0", "100.0", "", "", ""),
    )
    assert table.sums == (1, 4)
    # 3600 thread-seconds of a worker with two threads: 1 at 2 an hour, 1.5 at 3 an hour
    priced = (report_of(seconds(spill=3600), price_per_worker_hour=price, nthreads={"w0": 2}) for price in (2.0, 3.0))
    lost = comparison_table(compare(*priced)).lost
    assert tuple(getattr(lost, name) for name in MONEY) == ("1.00", "1.50", "+0.50")
    # a sum of minutes is in seconds, so that changes can be seen
    minutes = comparison_table(compare(report_of(seconds(spill=150)), report_of(seconds(spill=150.4))))
    assert (minutes.thread_scale.unit, minutes.lost.change) == ("s", "+0.4")


def test_several_runs_have_a_spread_and_the_rest_of_their_medians_a_row() -> None:
    runs = [report_of(seconds(thread_cpu=1, **{cause: 10})) for cause in ("spill", "idle", "failed")]
    table = comparison_table(compare(runs, runs[0]))
    rows = {row.label: row for row in table.rows}
    rest, lost = rows[NOT_BY_CAUSE], rows["lost"]
    assert (rest.before, rest.after, rest.change, rest.spread) == ("10.0", "0.0", "-10.0", "")
    assert (lost.before, lost.after, lost.spread) == ("10.0", "10.0", "0.0")
    assert rows["spill"].spread == "12.1"
    runs = [waited(**{cause: 10.0}) for cause in ("gil", "core", "lock")]
    parts = parts_of(comparison_table(compare(runs, runs[0])), "thread-noncpu")
    assert [(part.label, part.before, part.after) for part in parts][-1] == (NOT_BY_CAUSE, "10.0", "0.0")


def test_without_runtimes_or_prices_there_is_nothing_to_show_of_them() -> None:
    table = comparison_table(compare(by_hand(cluster_seconds=0.0), by_hand()))
    assert (table.wall_scale, table.money_scale) == (None, None)
    assert {row.wall_change + "".join(getattr(row, name) for name in MONEY) for row in table.rows} == {""}
