"""A report as pandas tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.cluster.scheduler_loop import LoopPart
from dask_efficiency.accounts.lines import blamed
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.tables import needs_pandas
from dask_efficiency.report.culprits import line_times
from dask_efficiency.report.memory_needs import ideal_limit
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import cause_rows, exact_stacks
from dask_efficiency.report.values import MeteredRow
from dask_efficiency.show.columns import TypedColumn, as_frame, counts, names, seconds, shares, sizes
from dask_efficiency.show.finding import Finding

if TYPE_CHECKING:
    import pandas as pd


def to_frame(report: EfficiencyReport, by: str | None) -> pd.DataFrame:
    """Facts, or thread time, as a table; see :meth:`~dask_efficiency.EfficiencyReport.to_frame`."""
    if by is None:
        return report.facts.to_frame()
    groups = {"worker": report.by_worker, "prefix": report.by_prefix, "span": report.by_span}
    if by in groups:
        return _by_group(groups[by], by)
    if by not in _TABLES:
        raise ValueError(
            f"by={by!r}; expected 'worker', 'prefix', 'span', 'bucket', 'cause', 'line', 'skew', 'metered', "
            "'scheduler', 'client', 'finding', 'lost-worker' or 'memory'"
        )
    return _TABLES[by](report)


def _rows(kind: type, values: Iterable[Any], names: Any = None) -> pd.DataFrame:
    """Table of values of a dataclass, with a column for each field; and the type of the names of columns."""
    with needs_pandas():
        import pandas as pd

    columns = [each.name for each in fields(kind)]
    rows = [[getattr(value, name) for name in columns] for value in values]
    return pd.DataFrame(rows, columns=pd.Index(columns, dtype=names))


def _skew(report: EfficiencyReport) -> pd.DataFrame:
    with needs_pandas():
        import pandas as pd

    return _rows(Skew, report.skew.values()).set_index(pd.Index([*report.skew], name="prefix", dtype=object))


def _by_bucket(report: EfficiencyReport) -> pd.DataFrame:
    whole = report.breakdown
    columns = {
        "bucket": names(whole),
        "thread_seconds": seconds(whole.values()),
        "share": shares(whole.share(bucket) for bucket in whole),
    }
    return as_frame(columns, index="bucket")


def _by_cause(report: EfficiencyReport) -> pd.DataFrame:
    whole, rows = report.breakdown, cause_rows(report)
    return as_frame(
        {
            "bucket": names(bucket for bucket, _ in rows),
            "cause": names(cause for _, cause in rows),
            "thread_seconds": seconds(ns / 1e9 for ns in rows.values()),
            "share": shares(ns / whole.total_ns for ns in rows.values()),
            "share_of_bucket": shares(ns / whole.ns(bucket) for (bucket, _), ns in rows.items()),
        }
    )


def _by_line(report: EfficiencyReport) -> pd.DataFrame:
    rows = line_times(exact_stacks(report))
    return as_frame(
        {
            **{name: names(getattr(row, name) for row in rows) for name in ("bucket", "cause", "prefix")},
            "function": names(row.place.function for row in rows),
            "file": names(row.place.file for row in rows),
            "line": TypedColumn((row.place.line or None for row in rows), dtype="Int64"),
            "thread_seconds": seconds(row.ns / 1e9 for row in rows),
        }
    )


def _client(report: EfficiencyReport) -> pd.DataFrame:
    rows = [(row, blamed(row.stack)) for row in report.client]
    return as_frame(
        {
            "activity": names(row.activity for row, _ in rows),
            "function": names(place.function for _, place in rows),
            "file": names(place.file for _, place in rows),
            "line": TypedColumn((place.line or None for _, place in rows), dtype="Int64"),
            "seconds": seconds(row.ns / 1e9 for row, _ in rows),
            "seconds_without_work": seconds(row.idle_ns / 1e9 for row, _ in rows),
        }
    )


def _scheduler(report: EfficiencyReport) -> pd.DataFrame:
    loop = report.scheduler_loop
    parts = (*loop.handlers, *loop.hooks) if loop is not None else ()
    return _rows(LoopPart, sorted(parts, key=lambda part: -part.seconds), object)


def findings_frame(found: Sequence[Finding]) -> pd.DataFrame:
    """One row per finding."""
    with needs_pandas():
        import pandas as pd

    rows = [one.to_dict() for one in found]
    columns = [each.name for each in fields(Finding) if each.name != "evidence"]
    return pd.DataFrame(rows, columns=pd.Index(columns, dtype=object)).astype({"saves_seconds": float})


def _by_lost_worker(report: EfficiencyReport) -> pd.DataFrame:
    lost = report.lost_workers
    columns = {
        "worker": names(one.worker for one in lost),
        "reason": names(one.reason for one in lost),
        "in_order": TypedColumn((one.in_order for one in lost), dtype=bool),
        "lost_seconds": seconds(one.ns / 1e9 for one in lost),
        "running_seconds": seconds(sum(one.prefixes.values()) / 1e9 for one in lost),
        "recomputed_seconds": seconds(one.recomputed_ns / 1e9 for one in lost),
        "recomputed_tasks": counts(one.recomputed_tasks for one in lost),
        "in_threads": names(", ".join(task.key for task in one.in_threads) for one in lost),
        "last_bytes": TypedColumn(
            (each.last_memory[-1].nbytes if each.last_memory else None for each in lost), dtype="Int64"
        ),
        "memory_limit": TypedColumn((one.memory_limit for one in lost), dtype="Int64"),
    }
    return as_frame(columns, index="worker")


def _by_memory(report: EfficiencyReport) -> pd.DataFrame:
    rows = [*report.memory.values()]
    figures = {name: [getattr(one, name) for one in rows] for name in ("limit", "peak", "managed_peak")}
    figures["ideal"] = [ideal_limit(one) for one in rows]
    # 0 is not known, or no limit.
    columns = {name: sizes((nbytes or None for nbytes in row), dtype="Int64") for name, row in figures.items()}
    return as_frame({"worker": names(report.memory), **columns}, index="worker")


def _by_group(rows: Mapping[str, Breakdown], by: str) -> pd.DataFrame:
    buckets = [str(b) for b in Bucket if any(b in row for row in rows.values())]
    columns = {bucket: seconds(row[bucket] for row in rows.values()) for bucket in buckets}
    return as_frame({by: names(rows), **columns, "total": seconds(row.total for row in rows.values())}, index=by)


_TABLES: dict[str, Callable[[EfficiencyReport], pd.DataFrame]] = {
    "bucket": _by_bucket,
    "cause": _by_cause,
    "line": _by_line,
    "skew": _skew,
    "metered": lambda report: _rows(MeteredRow, report.metered),
    "scheduler": _scheduler,
    "client": _client,
    "finding": lambda report: findings_frame(report.findings),
    "lost-worker": _by_lost_worker,
    "memory": _by_memory,
}
