from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import CAUSE_NAMES, Bucket
from dask_efficiency.report.lost_time import CauseLoss, LostTimeRow, largest_loss, loss_cells, lost_time, why_not_known
from tests.report.samples import SECOND, breakdowns, by_hand, causes, report_of, seconds, waiting_for_the_gil


def test_the_table_of_the_report_worked_out_by_hand() -> None:
    table = lost_time(by_hand(price_per_worker_hour=3600.0))
    # per cent of 17 s: 58.82 17.65 11.76 5.88 5.88, which make 99.7 when cut; a thread-second costs 0.5
    assert table.rows == (
        LostTimeRow("useful", "10.0", "2.50", "58.8", "5.00"),
        LostTimeRow("spill", "3.0", "0.75", "17.6", "1.50"),
        LostTimeRow("thread-noncpu", "2.0", "0.50", "11.8", "1.00"),
        LostTimeRow("failed", "1.0", "0.25", "5.9", "0.50"),
        LostTimeRow("idle", "1.0", "0.25", "5.9", "0.50"),
        LostTimeRow("running", "1.0", "0.25", "", "0.50"),
        LostTimeRow("total", "18.0", "4.50", "100.0", "9.00"),
    )
    assert table.finalized == "17.0"


def test_causes_stand_below_their_bucket_and_add_up_to_it_in_every_column() -> None:
    table = lost_time(waiting_for_the_gil(price_per_worker_hour=3600.0))
    # thread-noncpu: 17.2 + 3.1 + 2.0 + 0.2 + 0.1 + 0.4 of 88, with 8 threads; the last three are below 0.88 each.
    # Wall: 2.875 is shown as 2.9, and 2.15, 0.3875, 0.25, 0.0875 as figures that make it.
    assert table.rows[5:10] == (
        LostTimeRow("thread-noncpu", "23.0", "2.9", "26.1", "5.75"),
        LostTimeRow("gil", "17.2", "2.2", "19.5", "4.30", "thread-noncpu"),
        LostTimeRow("file", "3.1", "0.4", "3.5", "0.78", "thread-noncpu"),
        LostTimeRow("core", "2.0", "0.2", "2.3", "0.50", "thread-noncpu"),
        LostTimeRow("3 more", "0.7", "0.1", "0.8", "0.17", "thread-noncpu"),
    )
    assert [row.label for row in table.rows if row.bucket == "idle"] == ["parallelism", "imbalance", "scheduler"]
    times = {row.name: row.thread_time for row in table.rows}
    assert (times["overhead/event-loop"], times["overhead"]) == ("2.4", "3.0")
    # a single small cause keeps its name, and a bucket of small ones has no rows
    small = {"thread-noncpu/gil": 5.0, "thread-noncpu/file": 0.5, "overhead/event-loop": 0.5, "overhead/unknown": 0.4}
    whole = seconds(thread_cpu=93.6, thread_noncpu=5.5, overhead=0.9)
    table = lost_time(report_of(whole, causes_by_worker={"w0": causes(**small)}))
    assert [row.label for row in table.rows if row.bucket] == ["gil", "file"]


def test_the_time_of_workers_that_did_not_look_is_unknown() -> None:
    one = {"w0": causes(**{"thread-noncpu/gil": 2.0})}
    report = report_of(seconds(thread_noncpu=2), seconds(thread_noncpu=3), causes_by_worker=one)
    assert report.waiting == {"unknown": 3.0, "gil": 2.0}
    assert [row.label for row in lost_time(report).rows] == ["useful", "thread-noncpu", "unknown", "gil", "total"]


@given(
    st.lists(st.tuples(breakdowns, st.dictionaries(st.sampled_from(CAUSE_NAMES), st.integers(0, 10**15))), max_size=3),
    st.floats(0, 1e8),
    st.none() | st.floats(0, 1e4),
)
def test_every_column_adds_up_to_its_total_and_causes_to_their_bucket(workers, wall, price):
    report = report_of(
        *(worker for worker, _ in workers),
        causes_by_worker={f"w{i}": row for i, (_, row) in enumerate(workers)},
        cluster_seconds=wall,
        price_per_worker_hour=price,
        nthreads={"w0": 3, "w1": 1},
    )
    table = lost_time(report)
    for column in ("thread_time", "wall", "percent", "money"):
        figures = {row.name: Decimal(getattr(row, column) or "0") for row in table.rows}
        for loss in table.rows:
            if parts := [row for row in table.rows if row.bucket == loss.label]:
                assert sum(figures[part.name] for part in parts) == figures[loss.label], column
        *rows, total = [figures[row.name] for row in table.rows if not row.bucket]
        if any(worker.total_ns - worker.ns("no-work") for worker, _ in workers):
            assert sum(rows) == total, column


def test_no_column_without_figures_or_with_a_senseless_price() -> None:
    heads, rows = loss_cells(lost_time(report_of(seconds(spill=1), cluster_seconds=0.0)))
    assert heads == ("lost time by cause", "thread-s", "%")
    assert rows == [("useful", "0.00", "0.0"), ("spill", "1.00", "100.0"), ("total", "1.00", "100.0")]
    for price in (-1.0, float("nan"), float("inf")):
        assert lost_time(by_hand(price_per_worker_hour=price)).money_scale is None


def test_the_reason_for_unknown_causes_is_a_line() -> None:
    waited = seconds(thread_cpu=1, thread_noncpu=1)
    known = {"w0": causes(**{"thread-noncpu/gil": 1})}
    assert why_not_known(report_of(waited)) == "why threads waited is not known: they were not sampled"
    absent = report_of(waited, not_sampled={"w0": "no /proc"})
    assert why_not_known(absent) == "why threads waited is not known: no /proc"
    assert why_not_known(report_of(waited, waited, causes_by_worker=known, not_sampled={"w1": "no /proc"})) == (
        "why threads of worker w1 waited is not known: no /proc"
    )
    reasons = {"w0": "no /proc", "w1": "switched off", "w2": "no /proc"}
    assert why_not_known(report_of(waited, waited, waited, not_sampled=reasons)) == (
        "why threads of workers w0, w2 waited is not known: no /proc, and 1 more reason on other workers"
    )
    # known, or waiting is small
    known = {"w0": causes(**{"thread-noncpu/unknown": 1})}
    assert why_not_known(report_of(seconds(thread_noncpu=1), causes_by_worker=known)) == ""
    assert why_not_known(report_of(seconds(thread_cpu=1))) == ""
    assert why_not_known(report_of(seconds(thread_cpu=200, thread_noncpu=1), not_sampled={"w0": "no /proc"})) == ""


IDLE = {"thread_cpu": 70, "idle": 30}
#: Kind of the largest loss, and seconds by cause of ``thread-noncpu`` or with the bucket, and by bucket.
LARGEST = {
    "however small its part": (
        "thread-noncpu/gil",
        {"gil": 15, "sleep": 10, "file": 10, "core": 7},
        {"thread_noncpu": 42},
    ),
    "of a smaller bucket": (
        *("idle/parallelism", {"gil": 20, "sleep": 20, "idle/parallelism": 30}, {"thread_noncpu": 40, "idle": 30}),
    ),
    "a bucket without causes": ("spill", {"gil": 14, "file": 13, "core": 13}, {"thread_noncpu": 40, "spill": 25}),
    "unknown is no cause": ("idle", {"idle/unknown": 30}, IDLE),
    "unknown is most": ("idle", {"idle/unknown": 18, "idle/graph": 12}, IDLE),
    "unknown is less": ("idle/graph", {"idle/unknown": 12, "idle/graph": 18}, IDLE),
    "too small for a row": ("idle", {"idle/graph": 0.6, "idle/parallelism": 0.4}, {"thread_cpu": 99, "idle": 1}),
    "nothing lost": ("", {}, {"thread_cpu": 1}),
    "nothing at all": ("", {}, {}),
}


@pytest.mark.parametrize(("kind", "by_cause", "by_bucket"), LARGEST.values(), ids=LARGEST)
def test_the_largest_loss_is_a_cause_or_a_bucket(kind, by_cause, by_bucket):
    row = causes(**{name if "/" in name else f"thread-noncpu/{name}": value for name, value in by_cause.items()})
    found = largest_loss(report_of(seconds(**by_bucket), causes_by_worker={"w0": row}))
    assert (found.kind if found else "") == kind
    if kind == "idle/parallelism":
        assert found == CauseLoss(Bucket.IDLE, "parallelism", 30 * SECOND)
