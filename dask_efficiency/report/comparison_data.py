"""Comparison as plain data and as a pandas table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.intake import finite
from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.comparison_findings import caveats, find, headline
from dask_efficiency.report.difference import Difference
from dask_efficiency.report.frames import findings_frame
from dask_efficiency.show.columns import TypedColumn, as_frame, names, seconds

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "dask-efficiency-comparison"
#: Version of the data; grows when a reader of the old one would fail.
VERSION = 1
#: Properties of a comparison that are stored under their own names.
FIGURES = (
    *("wall_clock_seconds", "cluster_seconds", "no_workers_seconds", "client_seconds", "ideal_seconds"),
    *("efficiency", "load_balance", "cost"),
)


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """Comparison as plain data, ready for JSON; numbers that are not finite are None."""
    before, after = comparison.not_by_cause
    return {
        "format": FORMAT,
        "version": VERSION,
        "headline": headline(comparison),
        "findings": [one.to_dict() for one in find(comparison)],
        "caveats": list(caveats(comparison)),
        "before": list(comparison.names_before),
        "after": list(comparison.names_after),
        **{name: _difference(getattr(comparison, name)) for name in FIGURES},
        "factors": _differences(comparison.factors),
        "gpu": _differences(comparison.gpu),
        **{name: _difference(getattr(comparison, name)) for name in ("workers", "threads")},
        "tasks": _differences(comparison.tasks),
        "moved_bytes": _differences(comparison.moved),
        "peak_bytes": _differences(comparison.peaks),
        "byte_seconds": _differences(comparison.byte_seconds),
        **{f"{name}_ns": _difference(getattr(comparison, name)) for name in ("useful", "lost", "running")},
        "lost_rise": finite(comparison.lost.rise),
        "causes_ns": {str(cause.bucket): _difference(cause.time) for cause in comparison.causes},
        "parts_ns": {part.name: _difference(part.time) for cause in comparison.causes for part in cause.parts},
        "not_by_cause_ns": {"before": before, "after": after},
        "prefixes": {
            name: {f"{kind}_ns": _difference(getattr(change, kind)) for kind in ("useful", "lost")}
            | {"is_new": change.is_new, "is_gone": change.is_gone}
            for name, change in comparison.by_prefix.items()
        },
        "environment": {
            name: {"before": list(before), "after": list(after)}
            for name, (before, after) in comparison.environment.items()
        },
    }


def _difference(difference: Difference[Any]) -> dict[str, float | None]:
    return {name: finite(getattr(difference, name)) for name in ("before", "after", "change", "spread")}


def _differences(by_name: Mapping[str, Difference[Any]]) -> dict[str, dict[str, float | None]]:
    return {name: _difference(difference) for name, difference in by_name.items()}


def to_frame(comparison: Comparison, by: str = "cause") -> pd.DataFrame:
    """Thread-seconds before and after as a table: a row for each cause, prefix or finding."""
    if by == "finding":
        return findings_frame(find(comparison))
    if by == "cause":
        times = {str(cause.bucket): cause.time for cause in comparison.causes}
        times |= {"useful": comparison.useful, "running": comparison.running}
        return as_frame({by: names(times)} | _seconds(times.values()), index=by)
    if by == "prefix":
        changes = comparison.by_prefix
        useful = _seconds([change.useful for change in changes.values()], "useful_")
        lost = _seconds([change.lost for change in changes.values()], "lost_")
        return as_frame({by: names(changes)} | useful | lost, index=by)
    raise ValueError(f"by={by!r}; expected 'cause', 'prefix' or 'finding'")


def _seconds(times: Collection[Difference[int]], prefix: str = "") -> dict[str, TypedColumn]:
    sides = ("before", "after", "change")
    return {f"{prefix}{side}": seconds(getattr(time, side) / 1e9 for time in times) for side in sides}
