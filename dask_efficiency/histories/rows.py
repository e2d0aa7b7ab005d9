"""Table of the runs of a history: typed columns, as a frame of pandas, as JSON and for sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.histories.folder import SavedRun
from dask_efficiency.report.head import VERSIONS
from dask_efficiency.show.columns import Columns, TypedColumn, as_frame, counts, names, seconds, shares, sizes

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.histories.history import RunHistory
    from dask_efficiency.report.head import RunHead

#: Characters of a commit, as Git shows it.
_SHORT = 10


def day(started: float) -> str:
    """An instant as ``"2026-11-12 03:10"``, UTC."""
    try:
        return f"{datetime.fromtimestamp(started, tz=UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # no date of the calendar
        return "unknown"


def columns(runs: Sequence[SavedRun]) -> Columns:
    """Columns of all figures of some runs."""

    def of(read: Callable[[RunHead], Any]) -> list[Any]:
        return [read(run.head) for run in runs]

    return {
        "when": TypedColumn(of(lambda head: day(head.started)), words=True),
        "started": seconds(of(lambda head: head.started)),
        "name": names(of(lambda head: head.name)),
        "wall_clock_seconds": seconds(of(lambda head: head.wall_clock_seconds)),
        "cluster_seconds": seconds(of(lambda head: head.cluster_seconds)),
        "efficiency": shares(of(lambda head: head.efficiency)),
        "thread_seconds": seconds(of(lambda head: head.thread_seconds)),
        **{str(name): seconds(_of_bucket(runs, name)) for name in Bucket if any(_of_bucket(runs, name))},
        "received_bytes": sizes(of(lambda head: head.moved_bytes.get("received", 0))),
        "spilled_bytes": sizes(of(lambda head: head.spilled_bytes)),
        "worker_peak_bytes": sizes(of(lambda head: head.worker_peak_bytes), dtype=float),
        "cluster_peak_bytes": sizes(of(lambda head: head.cluster_peak_bytes), dtype=float),
        "workers": counts(of(lambda head: head.workers)),
        "threads": counts(of(lambda head: head.threads)),
        "cost": TypedColumn(of(lambda head: head.cost), "{:.2f}".format, float),
        "first_finding": names(of(lambda head: head.first_finding)),
        "ended_by": names(of(lambda head: head.ended_by)),
        **{name: names(_of_version(runs, name)) for name in VERSIONS},
        **{f"label:{name}": names(_of_label(runs, name)) for name in _labels(runs)},
        "path": names([run.path for run in runs]),
    }


def _of_bucket(runs: Sequence[SavedRun], bucket: Bucket) -> list[float]:
    return [run.head.bucket_seconds.get(bucket, 0.0) for run in runs]


def _of_version(runs: Sequence[SavedRun], name: str) -> list[str]:
    most = _SHORT if name == "commit" else None
    return [run.head.versions.get(name, "")[:most] for run in runs]


def _labels(runs: Sequence[SavedRun]) -> list[str]:
    return sorted({name for run in runs for name in run.head.labels})


def _of_label(runs: Sequence[SavedRun], name: str) -> list[str]:
    return [run.head.labels.get(name, "") for run in runs]


def to_frame(history: RunHistory) -> pd.DataFrame:
    """A row per run."""
    return as_frame(columns(history.runs))
