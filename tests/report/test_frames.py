from dataclasses import asdict, replace

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.cluster.losses import MemorySample, TaskInThread
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import ClientRow
from tests.report.profile_samples import ETL, profiled, profiled_reports
from tests.report.samples import by_hand, report_of, skew


def test_by_cause_every_bucket_has_its_causes_and_one_without_has_a_row() -> None:
    frame = profiled().to_frame(by="cause")
    assert list(frame.columns) == ["bucket", "cause", "thread_seconds", "share", "share_of_bucket"]
    assert frame.iloc[:5, :3].to_numpy().tolist() == [
        ["thread-cpu", "", 7.0],
        ["library-threads", "", 2.0],
        ["thread-noncpu", "gil", 9.0],
        ["thread-noncpu", "core", 1.0],
        ["thread-noncpu", "file", 3.0],
    ]
    gil = frame[frame.cause == "gil"].iloc[0]
    assert (gil.share, gil.share_of_bucket) == (9 / 28, 9 / 14)


@given(profiled_reports())
def test_causes_add_up_to_all_thread_time(report: EfficiencyReport) -> None:
    frame = report.to_frame("cause")
    assert frame.thread_seconds.sum() == pytest.approx(report.breakdown.total)
    assert frame.share.sum() == pytest.approx(1.0 if len(frame) else 0.0)
    assert list(frame.groupby("bucket").share_of_bucket.sum()) == pytest.approx([1.0] * len(report.breakdown))


def test_by_line_useful_time_has_its_lines_as_well() -> None:
    frame = profiled().to_frame(by="line")
    columns = ["bucket", "cause", "prefix", "function", "file", "line", "thread_seconds"]
    assert list(frame.columns) == columns
    assert frame.iloc[0].tolist() == ["thread-cpu", "", "clean", "StringMethods.upper", ETL, 88, 6.0]
    assert frame.iloc[1].tolist() == ["thread-noncpu", "gil", "clean", "StringMethods.upper", ETL, 88, 6.0]
    nowhere = frame[frame.cause == "core"].iloc[0]
    assert nowhere.file == ""
    assert frame.line.isna().sum() == (frame.file == "").sum() == 8
    assert frame.thread_seconds.sum() == pytest.approx(28.0)
    # a report without samples has frames, too
    assert list(report_of().to_frame("line").columns)[-1] == "thread_seconds"
    assert set(by_hand().to_frame("cause").cause) == {"", "unknown"}


def test_lost_workers_and_skew_are_tables_and_another_is_refused_by_name() -> None:
    frame = report_of(skew={"join": skew(), "sum": skew(count=9)}).to_frame("skew")
    assert (list(frame.index), list(frame["count"])) == (["join", "sum"], [200, 9])
    assert dict(frame.loc["join"]) == asdict(skew())
    expected = "expected 'worker', .* 'client', 'finding', 'lost-worker' or 'memory'"
    with pytest.raises(ValueError, match=f"by='file'; {expected}"):
        profiled().to_frame("file")
    lost = LostWorker("a", "killed by SIGKILL", False, 5_000_000_000, {"train": 4_000_000_000}, 2_000_000_000, 3)
    lost = replace(lost, in_threads=(TaskInThread("train-1", "train", 1.0),))
    lost = replace(lost, last_memory=(MemorySample(3, 0),), memory_limit=4)
    frame = report_of(lost_workers=(lost,)).to_frame(by="lost-worker")
    assert list(frame.index) == ["a"]
    assert frame.iloc[0].tolist() == ["killed by SIGKILL", False, 5.0, 4.0, 2.0, 3, "train-1", 3, 4]


def test_findings_are_a_table_with_gaps_for_unknown_savings() -> None:
    frame = by_hand().to_frame(by="finding")
    assert list(frame.columns[:3]) == ["kind", "title", "where"]
    assert list(frame.kind) == [one.kind for one in by_hand().findings]
    saved = [one.saves_seconds for one in by_hand().findings]
    assert [None if seconds != seconds else seconds for seconds in frame.saves_seconds] == saved


def test_by_worker_prefix_or_bucket_each_bucket_with_time_has_its_seconds() -> None:
    frame = by_hand().to_frame("worker")
    assert list(frame.index) == ["a", "b"]
    assert " ".join(frame.columns) == "thread-cpu thread-noncpu spill failed idle no-work running total"
    assert list(frame.loc["b"]) == [4.0, 2.0, 0.0, 1.0, 0.0, 2.0, 1.0, 10.0]

    report = by_hand()
    assert list(report.to_frame("prefix")["total"]) == [9.0, 8.0]
    by_bucket = report.to_frame("bucket")
    assert dict(by_bucket["thread_seconds"]) == dict(report.breakdown)
    assert by_bucket["share"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "by", ["worker", "prefix", "span", "bucket", "cause", "line", "skew", "metered", "finding", "lost-worker"]
)
def test_a_frame_of_an_empty_report_is_empty(by: str) -> None:
    assert len(report_of().to_frame(by)) == 0


def test_the_client_has_a_row_for_each_activity_and_stack() -> None:
    stack = (Frame("load", "/home/me/load.py", 12), Frame("read", "/opt/lib/python3.12/site-packages/files.py", 3))
    rows = (ClientRow("build", stack, 2_000_000_000, 500_000_000, 0), ClientRow("wait", (), 1_000_000_000, 0, 0))
    frame = report_of(client=rows).to_frame("client")
    assert frame.to_dict("records")[0] == {
        "activity": "build",
        "function": "read",
        "file": "/home/me/load.py",
        "line": 12,
        "seconds": 2.0,
        "seconds_without_work": 0.5,
    }
    assert list(frame["seconds"]) == [2.0, 1.0]
    assert list(frame["line"].isna()) == [False, True]
