"""The report that is made of what a scheduler replied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_efficiency.buckets import Breakdown
from dask_efficiency.gpu.plain import decode_gpu
from dask_efficiency.plugins.decorations import Decoration, decorate
from dask_efficiency.report.arrivals import Arrival
from dask_efficiency.report.model import Repeat, ReportValues
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.timeline import Timeline


def life_report(payload: Mapping[str, Any]) -> ReportValues:
    """The report of a cluster's whole life."""
    return report_of(payload, name="cluster life", started=float(payload["since"]))


def report_of(
    payload: Mapping[str, Any],
    *,
    name: str,
    started: float,
    phases: Mapping[str, float] | None = None,
    notes: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    code: tuple[str, ...] = (),
    arrivals: tuple[Arrival, ...] = (),
) -> ReportValues:
    """The report that a scheduler's answer makes.

    ``settings`` are the client's own; ``code`` is what ran, where Dask has not recorded that.
    """
    found, missing = decorate(
        [
            Decoration("environment", "environment", lambda: {**payload.get("environment", {}), **(settings or {})}),
            Decoration("timeline", "timeline", lambda: _timeline(payload.get("timeline"))),
            Decoration("code", "source listing", lambda: tuple(payload.get("code") or code)),
            Decoration("stragglers", "list of stragglers", lambda: _findings(payload)),
            Decoration(
                "gpu", "account of GPUs", lambda: {n: decode_gpu(gpu) for n, gpu in payload.get("gpu", {}).items()}
            ),
        ]
    )
    return ReportValues(
        name=name,
        started=started,
        window_seconds=payload["window"] / 1e9,
        cluster_seconds=max(0, payload["outstanding"] - payload["no_workers"]) / 1e9,
        no_workers_seconds=payload["no_workers"] / 1e9,
        cores=payload.get("cores"),
        arrivals=arrivals,
        by_worker=_breakdowns(payload["workers"]),
        by_prefix=_breakdowns(payload.get("prefixes", {})),
        by_span=_breakdowns(payload.get("spans", {})),
        phases=dict(phases or {}),
        tasks=dict(payload.get("tasks", {})),
        nthreads=dict(payload["nthreads"]),
        outside=_seconds(payload.get("outside", {})),
        details=_seconds(payload.get("details", {})),
        not_measured=dict(payload.get("not_measured", {})),
        repeats={prefix: Repeat(*counts) for prefix, counts in payload.get("repeats", {}).items()},
        notes=(*notes, *payload.get("notes", ()), *missing),
        price_per_worker_hour=payload["price"],
        attendance=dict(payload.get("attendance", {})),
        **found,
    )


def _breakdowns(rows: Mapping[str, Mapping[str, int]]) -> dict[str, Breakdown]:
    return {name: Breakdown(row) for name, row in rows.items()}


def _findings(payload: Mapping[str, Any]) -> tuple[Finding, ...]:
    return tuple(map(Finding.from_dict, payload.get("stragglers", ())))


def _timeline(payload: Mapping[str, Any] | None) -> Timeline | None:
    if payload is None:
        return None
    activity, causes = ({name: tuple(row) for name, row in payload[key].items()} for key in ("activity", "causes"))
    return Timeline(payload["bin"], payload["elapsed"], activity, causes)


def _seconds(rows: Mapping[str, int]) -> dict[str, float]:
    return {name: ns / 1e9 for name, ns in rows.items()}
