"""What travels from the scheduler to a client, and the report that the client makes of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from distributed.scheduler import heartbeat_interval

from dask_efficiency.buckets import Breakdown
from dask_efficiency.gpu.plain import decode_gpu, encode_gpu
from dask_efficiency.plugins import environment
from dask_efficiency.plugins.client import source
from dask_efficiency.plugins.decorations import Decoration, decorate
from dask_efficiency.plugins.scheduler.outstanding import MAX_KEYS
from dask_efficiency.report.arrivals import Arrival
from dask_efficiency.report.model import ALL_WORKERS, OTHER_WORK, Repeat, ReportValues
from dask_efficiency.report.recent_gpus import own_gpus
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.timeline import Timeline
from dask_efficiency.totals import Totals, between
from dask_efficiency.windows import mean_cores

if TYPE_CHECKING:
    from dask_efficiency.plugins.scheduler.meter import ClusterMeter
    from dask_efficiency.timeline import TimelineRecorder
    from dask_efficiency.windows import ClusterWindow, WindowAccounts

#: Workers that a live view tells apart.
MAX_LIVE_WORKERS = 1_000


def of_window(
    meter: ClusterMeter,
    window: ClusterWindow,
    closed: WindowAccounts,
    own: set[str],
    recorder: TimelineRecorder,
    repeats: Mapping[str, tuple[int, int]],
    at: int,
) -> dict[str, Any]:
    """A closed window, with its spans by name and whose they are."""
    found, missing = decorate(
        [
            *_of_any(meter, at - closed.elapsed, at),
            Decoration("spans", "list of spans", lambda: _by_name(meter, closed.spans, own)),
            Decoration("timeline", "timeline", lambda: _binned(meter.timeline(recorder, at=at))),
            Decoration("gpu", "account of GPUs", lambda: {n: encode_gpu(gpu) for n, gpu in closed.gpu.items()}),
            Decoration("cores", "count of cores", lambda: window.cores(meter.cluster.work, at=at)),
            Decoration("arrivals", "list of workers that came", lambda: window.arrivals(at=at)),
            Decoration("code", "source listing", lambda: source.recorded(_spans(meter), own)),
            Decoration("graphs", "record of when graphs were taken in", lambda: window.graphs.until(at)),
            Decoration("running", "record of when tasks ran", lambda: window.running.until(at)),
        ]
    )
    notes = [*closed.notes, *_repeats_notes(meter), *missing]
    spans, others = found.pop("spans", ({}, set()))
    if others:
        seconds = sum(sum(spans[name].values()) for name in others) / 1e9
        notes.append(f"other work ran on the cluster in this window, for {seconds:.3g} thread-seconds: see the spans")
    return {
        **_common(meter),
        **found,
        "window": closed.elapsed,
        "outstanding": closed.outstanding,
        "no_workers": closed.no_workers,
        "workers": closed.workers,
        "nthreads": closed.nthreads,
        "prefixes": closed.prefixes,
        "spans": spans,
        "tasks": closed.tasks,
        "outside": closed.outside,
        "details": closed.details,
        "not_measured": closed.not_measured,
        "attendance": closed.attendance,
        "repeats": repeats,
        "notes": notes,
        "opened": window.opened,
    }


def of_life(meter: ClusterMeter) -> dict[str, Any]:
    """Everything since the accounts began."""
    cluster = meter.cluster
    at = time.monotonic_ns()
    found, missing = decorate(
        [
            *_of_any(meter, cluster.started, at),
            Decoration("cores", "count of cores", lambda: _cores(meter, cluster.started, at)),
            Decoration("timeline", "timeline", lambda: _binned(meter.timeline(at=at))),
            Decoration(
                "gpu", "account of GPUs", lambda: {n: encode_gpu(gpu) for n, gpu in cluster.gpu_by_worker().items()}
            ),
        ]
    )
    return {
        **_common(meter),
        **found,
        "window": at - cluster.started,
        "outstanding": at - cluster.started - cluster.work.without_work(at=at),
        "no_workers": cluster.work.without_workers(at=at),
        "workers": {name: row.to_nanoseconds() for name, row in cluster.by_worker().items()},
        "nthreads": _nthreads(meter),
        "attendance": cluster.attendance(start=cluster.started, stop=at),
        "prefixes": {prefix: row.to_nanoseconds() for prefix, row in cluster.by_prefix().items()},
        "tasks": dict(cluster.tasks),
        "outside": dict(cluster.outside),
        "details": dict(cluster.details),
        "not_measured": dict(cluster.reasons),
        "repeats": meter.repeats(),
        "notes": [*_repeats_notes(meter), *missing],
    }


def of_history(meter: ClusterMeter, last: float | None) -> dict[str, Any]:
    """The cluster from ``last`` seconds ago (None: from the beginning of its history) until now."""
    cluster = meter.cluster
    at = time.monotonic_ns()
    now = cluster.standing(at=at)
    since = cluster.started if last is None else at - round(last * 1e9)
    then = Totals(cluster.started, {}, 0)
    if since > cluster.started and cluster.history:
        then = next((standing for standing in reversed(cluster.history) if standing.at <= since), cluster.history[0])
    notes = ["made in retrospect: tasks that ran before the window began count pro rata"]
    if then.at > since:
        notes.append(f"the scheduler remembers {(at - then.at) / 1e9:.3g} s, less than was asked for")
    elif since > then.at:
        points = meter.options.history_interval
        notes.append(
            f"a window of {(at - then.at) / 1e9:.3g} s for the last {(at - since) / 1e9:.3g} s: the scheduler "
            f"remembers a point every {points:g} s, and the window begins at the one before"
        )
    cores = Decoration("cores", "count of cores", lambda: _cores(meter, then.at, at))
    found, missing = decorate([*_of_any(meter, then.at, at), cores])
    return {
        **_common(meter),
        **found,
        "window": at - then.at,
        "outstanding": at - then.at - (now.without_work - then.without_work),
        "no_workers": now.without_workers - then.without_workers,
        "workers": {ALL_WORKERS: between(then, now)},
        "nthreads": _nthreads(meter),
        "attendance": cluster.attendance(start=then.at, stop=at),
        "not_measured": dict(cluster.reasons),
        "notes": [*notes, *missing],
    }


def of_live(meter: ClusterMeter) -> dict[str, Any]:
    """What a live view asks for each second or so: no worker is asked, and its size is bounded.

    As :class:`~dask_efficiency.report.live.Reading` has it.
    """
    cluster = meter.cluster
    at = time.monotonic_ns()
    servers = meter.scheduler.workers
    activity = cluster.activity_by_worker()
    shown = dict(islice(cluster.present.items(), MAX_LIVE_WORKERS))
    return {
        "session": meter.session,
        "at": at,
        "started": cluster.started,
        "outstanding": at - cluster.started - cluster.work.without_work(at=at),
        "no_workers": cluster.work.without_workers(at=at),
        "heartbeat_seconds": float(heartbeat_interval(len(servers))),
        "nthreads": cluster.nthreads,
        "workers": {
            presence.name: {
                "nthreads": presence.nthreads,
                "activity": activity.get(presence.name, {}),
                "running": presence.running,
                "tasks": len(servers[address].processing) if address in servers else 0,
                "status": str(servers[address].status.name) if address in servers else "",
            }
            for address, presence in shown.items()
        },
        "more_workers": len(cluster.present) - len(shown),
        "activity": cluster.activity(),
        "buckets": cluster.breakdown().to_nanoseconds(),
        "tasks": dict(cluster.tasks),
        "gpus": own_gpus(shown.values()),
    }


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


def _common(meter: ClusterMeter) -> dict[str, Any]:
    return {"since": meter.since, "price": meter.options.price_per_worker_hour}


def _of_any(meter: ClusterMeter, start: int, stop: int) -> list[Decoration]:
    """What decorates every report between two instants of the accounts' clock."""
    workers, clients = meter.scheduler.workers, meter.scheduler.clients
    return [
        Decoration("environment", "environment", lambda: environment.of_cluster(workers.values(), clients.values())),
        Decoration("stragglers", "list of stragglers", lambda: _stragglers(meter, start, stop)),
    ]


def _cores(meter: ClusterMeter, start: int, stop: int) -> float | None:
    """What the workers shared, where those that are there now are all that were."""
    cluster = meter.cluster
    if cluster.settled_by_worker().keys() - {presence.name for presence in cluster.present.values()}:
        return None
    return mean_cores(cluster.present.values(), cluster.work, start=start, stop=stop)


def _nthreads(meter: ClusterMeter) -> dict[str, int]:
    return {str(ws.name): ws.nthreads for ws in meter.scheduler.workers.values()}


def _repeats_notes(meter: ClusterMeter) -> list[str]:
    if not meter.repeats_missed:
        return []
    return [f"tasks computed again are counted among the first {MAX_KEYS:,} tasks only: more keys are not remembered"]


def _stragglers(meter: ClusterMeter, start: int, stop: int) -> list[dict[str, Any]]:
    """Who was slow between two instants of the accounts' clock."""
    ahead = time.time() - time.monotonic_ns() / 1e9
    return meter.stragglers.between(start / 1e9 + ahead, stop / 1e9 + ahead)


def _spans(meter: ClusterMeter) -> Mapping[str, Any]:
    """Dask's spans by id; none where upstream keeps them elsewhere."""
    spans: Mapping[str, Any] = getattr(meter.scheduler.extensions.get("spans"), "spans", {})
    return spans


def _by_name(
    meter: ClusterMeter, rows: Mapping[str, dict[str, int]], own: set[str]
) -> tuple[dict[str, dict[str, int]], set[str]]:
    """Rows by the name of their span, and the names of those that are another client's."""
    known = _spans(meter)
    named: dict[str, dict[str, int]] = {}
    others = set()
    for span_id, row in rows.items():
        span = known.get(span_id)
        name = "/".join(span.name) if span is not None else "(no span)"
        mine = False
        while span is not None and not mine:
            mine = span.id in own
            span = span.parent
        if not mine:
            name += OTHER_WORK
            others.add(name)
        total = named.setdefault(name, {})
        for bucket, ns in row.items():
            total[bucket] = total.get(bucket, 0) + ns
    return named, others


def _breakdowns(rows: Mapping[str, Mapping[str, int]]) -> dict[str, Breakdown]:
    return {name: Breakdown(row) for name, row in rows.items()}


def _binned(timeline: Timeline) -> dict[str, Any]:
    return {"bin": timeline.bin_ns, "elapsed": timeline.elapsed_ns, "activity": dict(timeline.activity)}


def _findings(payload: Mapping[str, Any]) -> tuple[Finding, ...]:
    return tuple(map(Finding.from_dict, payload.get("stragglers", ())))


def _timeline(payload: Mapping[str, Any] | None) -> Timeline | None:
    if payload is None:
        return None
    activity = {name: tuple(row) for name, row in payload["activity"].items()}
    return Timeline(payload["bin"], payload["elapsed"], activity)


def _seconds(rows: Mapping[str, int]) -> dict[str, float]:
    return {name: ns / 1e9 for name, ns in rows.items()}
