"""A report as pandas tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.scheduler_loop import LoopPart
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.culprits import line_times
from dask_efficiency.report.findings import find
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import cause_rows
from dask_efficiency.report.values import MeteredRow
from dask_efficiency.show.finding import Finding

if TYPE_CHECKING:
    import pandas as pd


def to_frame(report: EfficiencyReport, by: str) -> pd.DataFrame:
    """Thread time as a table; see :meth:`~dask_efficiency.EfficiencyReport.to_frame`."""
    if by == "bucket":
        return _by_bucket(report)
    if by == "cause":
        return _by_cause(report)
    if by == "line":
        return _by_line(report)
    if by == "metered":
        return _metered(report)
    if by == "skew":
        return _skew(report)
    if by == "scheduler":
        return _scheduler(report)
    if by == "finding":
        return findings_frame(find(report))
    if by == "lost-worker":
        return _by_lost_worker(report)
    return _by_group(report, by)


def _by_bucket(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    whole = report.breakdown
    return pd.DataFrame(
        {"thread_seconds": dict(whole), "share": {bucket: whole.share(bucket) for bucket in whole}},
        index=pd.Index([*whole], name="bucket"),
    )


def _by_cause(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    whole = report.breakdown
    rows = cause_rows(report)
    return pd.DataFrame(
        {
            "bucket": pd.Series([bucket for bucket, _ in rows], dtype=object),
            "cause": pd.Series([cause for _, cause in rows], dtype=object),
            "thread_seconds": pd.Series([ns / 1e9 for ns in rows.values()], dtype=float),
            "share": pd.Series([ns / whole.total_ns for ns in rows.values()], dtype=float),
            "share_of_bucket": pd.Series([ns / whole.ns(bucket) for (bucket, _), ns in rows.items()], dtype=float),
        }
    )


def _by_line(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    rows = line_times(report)
    return pd.DataFrame(
        {
            "bucket": pd.Series([row.bucket for row in rows], dtype=object),
            "cause": pd.Series([row.cause for row in rows], dtype=object),
            "prefix": pd.Series([row.prefix for row in rows], dtype=object),
            "function": pd.Series([row.place.function for row in rows], dtype=object),
            "file": pd.Series([row.place.file for row in rows], dtype=object),
            "line": pd.Series([row.place.line or None for row in rows], dtype="Int64"),
            "thread_seconds": pd.Series([row.ns / 1e9 for row in rows], dtype=float),
        }
    )


def _skew(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {each.name: [getattr(one, each.name) for one in report.skew.values()] for each in fields(Skew)},
        index=pd.Index([*report.skew], name="prefix", dtype=object),
    )


def _metered(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    columns = [each.name for each in fields(MeteredRow)]
    return pd.DataFrame([[getattr(row, name) for name in columns] for row in report.metered], columns=pd.Index(columns))


def _scheduler(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    loop = report.scheduler_loop
    parts = (*loop.handlers, *loop.hooks) if loop is not None else ()
    columns = [each.name for each in fields(LoopPart)]
    rows = [[getattr(part, name) for name in columns] for part in sorted(parts, key=lambda part: -part.seconds)]
    return pd.DataFrame(rows, columns=pd.Index(columns, dtype=object))


def findings_frame(found: Sequence[Finding]) -> pd.DataFrame:
    """One row per finding."""
    import pandas as pd

    rows = [one.to_dict() for one in found]
    columns = [each.name for each in fields(Finding) if each.name != "evidence"]
    return pd.DataFrame(rows, columns=pd.Index(columns, dtype=object)).astype({"saves_seconds": float})


def _by_lost_worker(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    lost = report.lost_workers
    return pd.DataFrame(
        {
            "reason": pd.Series([one.reason for one in lost], dtype=object),
            "in_order": pd.Series([one.in_order for one in lost], dtype=bool),
            "lost_seconds": pd.Series([one.ns / 1e9 for one in lost], dtype=float),
            "running_seconds": pd.Series([sum(one.prefixes.values()) / 1e9 for one in lost], dtype=float),
            "recomputed_seconds": pd.Series([one.recomputed_ns / 1e9 for one in lost], dtype=float),
            "recomputed_tasks": pd.Series([one.recomputed_tasks for one in lost], dtype=int),
        }
    ).set_index(pd.Index([one.worker for one in lost], name="worker", dtype=object))


def _by_group(report: EfficiencyReport, by: str) -> pd.DataFrame:
    import pandas as pd

    groups = {"worker": report.by_worker, "prefix": report.by_prefix, "span": report.by_span}
    if by not in groups:
        raise ValueError(
            f"by={by!r}; expected 'worker', 'prefix', 'span', 'bucket', 'cause', 'line', 'skew', 'metered', "
            "'scheduler', 'finding' or 'lost-worker'"
        )
    rows = groups[by]
    columns = [str(b) for b in Bucket if any(b in row for row in rows.values())]
    frame = pd.DataFrame(
        [[row[column] for column in columns] for row in rows.values()],
        index=pd.Index([*rows], name=by, dtype=object),
        columns=pd.Index(columns, dtype=object),
    )
    frame["total"] = [row.total for row in rows.values()]
    return frame
