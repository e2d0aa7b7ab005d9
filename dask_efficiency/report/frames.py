"""A report as pandas tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.buckets import Breakdown, Bucket
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
    groups = {"worker": report.by_worker, "prefix": report.by_prefix, "span": report.by_span}
    if by in groups:
        return _by_group(groups[by], by)
    if by not in _TABLES:
        raise ValueError(
            f"by={by!r}; expected 'worker', 'prefix', 'span', 'bucket', 'cause', 'line', 'skew', 'metered', "
            "'scheduler', 'finding' or 'lost-worker'"
        )
    return _TABLES[by](report)


def _table(columns: Mapping[str, tuple[Iterable[Any], Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: pd.Series([*values], dtype=kind) for name, (values, kind) in columns.items()})


def _rows(kind: type, values: Iterable[Any], names: Any = None) -> pd.DataFrame:
    """Table of values of a dataclass, with a column for each field; and the type of the names of columns."""
    import pandas as pd

    columns = [each.name for each in fields(kind)]
    rows = [[getattr(value, name) for name in columns] for value in values]
    return pd.DataFrame(rows, columns=pd.Index(columns, dtype=names))


def _skew(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    return _rows(Skew, report.skew.values()).set_index(pd.Index([*report.skew], name="prefix", dtype=object))


def _by_bucket(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    whole = report.breakdown
    shares = {bucket: whole.share(bucket) for bucket in whole}
    return pd.DataFrame({"thread_seconds": dict(whole), "share": shares}, index=pd.Index([*whole], name="bucket"))


def _by_cause(report: EfficiencyReport) -> pd.DataFrame:
    whole, rows = report.breakdown, cause_rows(report)
    return _table(
        {
            "bucket": ((bucket for bucket, _ in rows), object),
            "cause": ((cause for _, cause in rows), object),
            "thread_seconds": ((ns / 1e9 for ns in rows.values()), float),
            "share": ((ns / whole.total_ns for ns in rows.values()), float),
            "share_of_bucket": ((ns / whole.ns(bucket) for (bucket, _), ns in rows.items()), float),
        }
    )


def _by_line(report: EfficiencyReport) -> pd.DataFrame:
    rows = line_times(report)
    return _table(
        {
            **{name: ([getattr(row, name) for row in rows], object) for name in ("bucket", "cause", "prefix")},
            "function": ((row.place.function for row in rows), object),
            "file": ((row.place.file for row in rows), object),
            "line": ((row.place.line or None for row in rows), "Int64"),
            "thread_seconds": ((row.ns / 1e9 for row in rows), float),
        }
    )


def _scheduler(report: EfficiencyReport) -> pd.DataFrame:
    loop = report.scheduler_loop
    parts = (*loop.handlers, *loop.hooks) if loop is not None else ()
    return _rows(LoopPart, sorted(parts, key=lambda part: -part.seconds), object)


def findings_frame(found: Sequence[Finding]) -> pd.DataFrame:
    """One row per finding."""
    import pandas as pd

    rows = [one.to_dict() for one in found]
    columns = [each.name for each in fields(Finding) if each.name != "evidence"]
    return pd.DataFrame(rows, columns=pd.Index(columns, dtype=object)).astype({"saves_seconds": float})


def _by_lost_worker(report: EfficiencyReport) -> pd.DataFrame:
    import pandas as pd

    lost = report.lost_workers
    columns = {
        "reason": ((one.reason for one in lost), object),
        "in_order": ((one.in_order for one in lost), bool),
        "lost_seconds": ((one.ns / 1e9 for one in lost), float),
        "running_seconds": ((sum(one.prefixes.values()) / 1e9 for one in lost), float),
        "recomputed_seconds": ((one.recomputed_ns / 1e9 for one in lost), float),
        "recomputed_tasks": ((one.recomputed_tasks for one in lost), int),
    }
    return _table(columns).set_index(pd.Index([one.worker for one in lost], name="worker", dtype=object))


def _by_group(rows: Mapping[str, Breakdown], by: str) -> pd.DataFrame:
    import pandas as pd

    columns = [str(b) for b in Bucket if any(b in row for row in rows.values())]
    frame = pd.DataFrame(
        [[row[column] for column in columns] for row in rows.values()],
        index=pd.Index([*rows], name=by, dtype=object),
        columns=pd.Index(columns, dtype=object),
    )
    frame["total"] = [row.total for row in rows.values()]
    return frame


_TABLES: dict[str, Callable[[EfficiencyReport], pd.DataFrame]] = {
    "bucket": _by_bucket,
    "cause": _by_cause,
    "line": _by_line,
    "skew": _skew,
    "metered": lambda report: _rows(MeteredRow, report.metered),
    "scheduler": _scheduler,
    "finding": lambda report: findings_frame(find(report)),
    "lost-worker": _by_lost_worker,
}
