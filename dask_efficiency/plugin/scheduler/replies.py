"""Replies: what travels from the scheduler to a client; :mod:`~dask_efficiency.report.replies` reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from distributed.protocol import dumps

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.cluster.by_span import SEPARATOR, BySpan, add, divide, rolled_up
from dask_efficiency.accounts.cluster.gpus import own_gpus
from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.cluster.span_shares import SpanShares
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.cluster.totals import Totals, between
from dask_efficiency.accounts.cluster.windows import OwnPart, WindowAccounts, mean_cores
from dask_efficiency.accounts.details import MergedProfiles, StackNumbers
from dask_efficiency.accounts.gpu.plain import encode_gpu
from dask_efficiency.accounts.gpu.totals import GpuTotals
from dask_efficiency.accounts.skew import key_name, skew_by_prefix
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.plugin import environment, source
from dask_efficiency.plugin.decorations import Decoration, decorate
from dask_efficiency.plugin.names import ALL_WORKERS, NO_SPAN, OTHER_WORK
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts, OpenWindow
from dask_efficiency.plugin.scheduler.outstanding import MAX_KEYS, WorkTracker
from dask_efficiency.plugin.scheduler.outstanding_spans import spans_of

#: What is known of the clients of a window together only.
_OF_ALL = frozenset({"timeline", "tasks", "outside", "details", "waited_for", "repeats"})

#: Workers that a live view shows one by one.
MAX_LIVE_WORKERS = 1_000


class Reply(NamedTuple):
    """What a report is made of."""

    known: dict[str, Any]
    #: What is made of that on another thread, as nothing changes it any more.
    later: Sequence[Decoration] = ()


async def packed(reply: Reply) -> dict[str, Any]:
    """A reply as it travels; put together on a thread, as that of a thousand workers is megabytes."""

    def pack() -> list[bytes]:
        made, missing = decorate(reply.later)
        return list(dumps({**reply.known, **made, "notes": [*reply.known["notes"], *missing]}))

    return {"packed": await asyncio.to_thread(pack)}


def of_window(accounts: ClusterAccounts, opened: OpenWindow, closed: WindowAccounts, at: int) -> Reply:
    """A window that was closed at an instant, with its spans by name and whose they are."""
    window, own = opened.window, opened.spans
    found, missing = decorate(
        [
            *_of_any(accounts, window.opened, at),
            Decoration(
                "spans",
                "list of spans",
                lambda: _by_span(accounts, divide(closed, window.shares, partial(is_own, accounts, own=own)), own),
            ),
            Decoration("timeline", "timeline", lambda: _binned(accounts.timelines.timeline(opened.timeline, at=at))),
            Decoration("alone", "list of tasks that ran alone", lambda: _alone(accounts.idle.alone, opened.alone)),
            Decoration("cores", "count of cores", lambda: window.cores(accounts.cluster.work, at=at)),
            Decoration("arrivals", "list of workers that came", lambda: window.arrivals(at=at)),
            Decoration("code", "source listing", lambda: source.recorded(spans_of(accounts.scheduler), own)),
            Decoration("graphs", "record of when graphs were taken in", lambda: window.graphs.until(at)),
            Decoration("running", "record of when tasks ran", lambda: window.running.until(at)),
        ]
    )
    notes = [*closed.notes, *_repeats_notes(accounts.work), *missing]
    spans, span_causes, part = found.pop("spans", ({}, {}, None))
    alone = found.pop("alone", {})
    notes += _others_notes(accounts, opened, spans)
    known = {
        **_common(accounts),
        **found,
        "window": closed.elapsed,
        "outstanding": closed.outstanding,
        "no_workers": closed.no_workers,
        "others_share": closed.others_share,
        "workers": closed.workers,
        "nthreads": closed.nthreads,
        "prefixes": closed.prefixes,
        "spans": spans,
        "span_causes": span_causes,
        "tasks": closed.tasks,
        "outside": closed.outside,
        "details": closed.details,
        "not_measured": closed.not_measured,
        "attendance": closed.attendance,
        "waited_for": _gained(accounts.idle.parallelism, opened.waited_for),
        "worker_causes": closed.worker_causes,
        "prefix_causes": closed.prefix_causes,
        "repeats": opened.repeats.by_prefix(),
        "sent": opened.sent.to_dict(),
        "notes": notes,
        "opened": window.opened,
    }
    if not opened.only:
        return Reply(
            known,
            (
                Decoration("profiles", "profile", lambda: _profiles(closed.profiles)),
                Decoration("skew", "comparison of tasks", lambda: _skew(closed.profiles, alone)),
                _gpus(closed.gpu),
            ),
        )
    if part is None:
        raise RuntimeError("the time of this client alone is not known: " + "; ".join(missing))
    notes.append(_only_note(closed, part))
    for name in _OF_ALL & known.keys():
        del known[name]
    alone_here = {prefix for prefix, row in part.prefixes.items() if row == closed.prefixes.get(prefix)}
    return Reply(
        {**known, **_only(accounts, closed, window.shares, part, spans)},
        (Decoration("profiles", "profile", lambda: _profiles(closed.profiles, alone_here)),),
    )


def of_life(accounts: ClusterAccounts) -> Reply:
    """Everything since the accounts began."""
    cluster = accounts.cluster
    at = time.monotonic_ns()
    found, missing = decorate(
        [
            *_of_any(accounts, cluster.started, at),
            Decoration("cores", "count of cores", lambda: _cores(accounts, cluster.started, at)),
            Decoration("timeline", "timeline", lambda: _binned(accounts.timelines.timeline(at=at))),
        ]
    )
    known = {
        **_common(accounts),
        **found,
        "window": at - cluster.started,
        "outstanding": at - cluster.started - cluster.work.without_work(at=at),
        "no_workers": cluster.work.without_workers(at=at),
        "workers": {name: row.to_nanoseconds() for name, row in cluster.by_worker().items()},
        "nthreads": _nthreads(accounts),
        "attendance": cluster.attendance(start=cluster.started, stop=at),
        "prefixes": {prefix: row.to_nanoseconds() for prefix, row in cluster.by_prefix().items()},
        "tasks": dict(cluster.tasks),
        "outside": dict(cluster.outside),
        "details": dict(cluster.details),
        "not_measured": dict(cluster.reasons),
        "waited_for": dict(accounts.idle.parallelism),
        "worker_causes": cluster.causes_by_worker(),
        "repeats": accounts.work.repeats[None].by_prefix(),
        "notes": [*_repeats_notes(accounts.work), *missing],
    }
    return Reply(known, (_gpus(cluster.gpu_by_worker()),))


def of_history(accounts: ClusterAccounts, last: float | None) -> Reply:
    """The cluster from ``last`` seconds ago (None: from the beginning of its history) until now."""
    cluster = accounts.cluster
    at = time.monotonic_ns()
    now = cluster.totals(at=at)
    since = cluster.started if last is None else at - round(last * 1e9)
    then = Totals(cluster.started, {}, 0)
    if since > cluster.started and cluster.history:
        then = next((totals for totals in reversed(cluster.history) if totals.at <= since), cluster.history[0])
    notes = ["made in retrospect: tasks that ran before the window began count pro rata"]
    if then.at > since:
        notes.append(f"the scheduler remembers {(at - then.at) / 1e9:.3g} s, less than was asked for")
    elif since > then.at:
        points = accounts.options.history_interval
        notes.append(
            f"a window of {(at - then.at) / 1e9:.3g} s for the last {(at - since) / 1e9:.3g} s: the scheduler "
            f"remembers a point every {points:g} s, and the window begins at the one before"
        )
    cores = Decoration("cores", "count of cores", lambda: _cores(accounts, then.at, at))
    found, missing = decorate([*_of_any(accounts, then.at, at), cores])
    known = {
        **_common(accounts),
        **found,
        "window": at - then.at,
        "outstanding": at - then.at - (now.without_work - then.without_work),
        "no_workers": now.without_workers - then.without_workers,
        "workers": {ALL_WORKERS: between(then, now)},
        "nthreads": _nthreads(accounts),
        "attendance": cluster.attendance(start=then.at, stop=at),
        "not_measured": dict(cluster.reasons),
        "worker_causes": {
            ALL_WORKERS: {name: ns - then.causes.get(name, 0) for name, ns in now.causes.items()},
        },
        "notes": [*notes, *missing],
    }
    return Reply(known)


def of_live(accounts: ClusterAccounts) -> dict[str, Any]:
    """What a live view asks for each second or so: no worker is asked, and its size is bounded.

    As :class:`~dask_efficiency.live.observation.Observation` has it.
    """
    cluster = accounts.cluster
    at = time.monotonic_ns()
    servers = accounts.scheduler.workers
    shown = dict(islice(cluster.present.items(), MAX_LIVE_WORKERS))
    activity = cluster.activity_by_worker(presence.name for presence in shown.values())
    return {
        "session": accounts.session,
        "at": at,
        "started": cluster.started,
        "outstanding": at - cluster.started - cluster.work.without_work(at=at),
        "no_workers": cluster.work.without_workers(at=at),
        "heartbeat_seconds": accounts.read_interval_seconds,
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
        "causes": cluster.cause_activity(),
        "bucket_causes": dict(cluster.totals(at=at).causes),
        "not_sampled": dict(islice(cluster.not_sampled.items(), MAX_LIVE_WORKERS)),
        "buckets": cluster.breakdown().to_nanoseconds(),
        "tasks": dict(cluster.tasks),
        "gpus": own_gpus(shown.values()),
    }


def of_stragglers(accounts: ClusterAccounts, findings: Iterable[SlowWorker]) -> dict[str, Any]:
    """Who is slow now."""
    return {
        "stragglers": [finding.to_dict() for finding in findings],
        "workers": len(accounts.scheduler.workers),
    }


def _common(accounts: ClusterAccounts) -> dict[str, Any]:
    return {
        "since": accounts.since,
        "price": accounts.options.price_per_worker_hour,
        "not_sampled": accounts.cluster.not_sampled,
    }


def _of_any(accounts: ClusterAccounts, start: int, stop: int) -> list[Decoration]:
    """What decorates every report between two instants of the accounts' clock."""
    workers, clients = accounts.scheduler.workers, accounts.scheduler.clients
    return [
        Decoration("environment", "environment", lambda: environment.of_cluster(workers.values(), clients.values())),
        Decoration("stragglers", "list of stragglers", lambda: _stragglers(accounts, start, stop)),
    ]


def _cores(accounts: ClusterAccounts, start: int, stop: int) -> float | None:
    """What the workers shared, where those that are there now are all that were."""
    cluster = accounts.cluster
    if cluster.finalized_by_worker().keys() - {presence.name for presence in cluster.present.values()}:
        return None
    return mean_cores(cluster.present.values(), cluster.work, start=start, stop=stop)


def _nthreads(accounts: ClusterAccounts) -> dict[str, int]:
    return {str(ws.name): ws.nthreads for ws in accounts.scheduler.workers.values()}


def _repeats_notes(work: WorkTracker) -> list[str]:
    if not work.full:
        return []
    return [f"tasks computed again are counted among the first {MAX_KEYS:,} tasks only: more keys are not remembered"]


def _stragglers(accounts: ClusterAccounts, start: int, stop: int) -> list[dict[str, Any]]:
    """Who was slow between two instants of the accounts' clock."""
    ahead = time.time() - time.monotonic_ns() / 1e9
    return accounts.stragglers.between(start / 1e9 + ahead, stop / 1e9 + ahead)


def is_own(accounts: ClusterAccounts, span_id: str, own: Collection[str]) -> bool:
    """Whether a span is one of these, or in one of them."""
    if span_id in own:
        return True
    span = spans_of(accounts.scheduler).get(span_id)
    while span is not None:
        if span.id in own:
            return True
        span = span.parent
    return False


def _by_span(
    accounts: ClusterAccounts, found: BySpan, own: Collection[str]
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]], OwnPart | None]:
    """All time and its causes by the path of its span, where a span has what those in it have; and the own part."""
    known = spans_of(accounts.scheduler)

    def path(span_id: str) -> str:
        if span_id not in known:
            return NO_SPAN
        name = SEPARATOR.join(known[span_id].name)
        return name if is_own(accounts, span_id, own) else SEPARATOR.join((OTHER_WORK, name))

    def by_path(rows: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        named: dict[str, dict[str, int]] = {}
        for span_id, row in rows.items():
            for name, ns in row.items():
                add(named, path(span_id), name, ns)
        return rolled_up(named)

    return by_path(found.spans), by_path(found.causes), found.own


def _others_notes(accounts: ClusterAccounts, opened: OpenWindow, spans: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What a reader must know of work that is not this client's."""
    notes = []
    row = spans.get(OTHER_WORK, {})
    held = sum(row.get(bucket, 0) for bucket in HELD) / 1e9
    free = sum(row.values()) / 1e9 - held
    if row:
        how = "left out here" if opened.only else "efficiency_report(only=True) leaves it out"
        notes.append(
            f"other work ran on the cluster in this window: its tasks held threads for {held:.3g} thread-seconds, and "
            f"{free:.3g} of free threads is its share; {how}"
        )
    known = spans_of(accounts.scheduler)
    shared = sorted("/".join(known[span_id].name) for span_id in opened.spans & opened.foreign if span_id in known)
    if shared:
        more = f" and {len(shared) - 1} more" if shared[1:] else ""
        notes.append(
            f"tasks of others, or from before the block, count as this report's own where they are in its spans, as in "
            f"{shared[0]!r:.80}{more}: Dask gives all tasks of one name that are there at once one span"
        )
    return notes


def _only(
    accounts: ClusterAccounts,
    closed: WindowAccounts,
    shares: SpanShares,
    own: OwnPart,
    spans: Mapping[str, dict[str, int]],
) -> dict[str, Any]:
    """What replaces the cluster's figures in a report of one client's work."""
    with_work = closed.outstanding if accounts.idle.off else min(shares.own_ns, closed.outstanding)
    return {
        "spans": {
            path: row for path, row in spans.items() if path.partition(SEPARATOR)[0] not in (OTHER_WORK, NO_SPAN)
        },
        "outstanding": with_work,
        "no_workers": min(closed.no_workers, with_work),
        "workers": {name: own.workers.get(name, {}) for name in closed.workers},
        "worker_causes": own.worker_causes,
        "prefixes": own.prefixes,
        "prefix_causes": own.prefix_causes,
    }


def _only_note(closed: WindowAccounts, own: OwnPart) -> str:
    whole, mine = (
        sum(ns for row in rows.values() for ns in row.values()) / 1e9 for rows in (closed.workers, own.workers)
    )
    return (
        f"of this client's work only: {mine:.3g} of the cluster's {whole:.3g} thread-seconds, with its share of the "
        "time of free threads; what is known of all clients together is left out: numbers of tasks, the timeline, "
        "GPUs, and what was sampled of prefixes that others ran, too"
    )


def _gained(now: Mapping[str, int], then: Mapping[str, int]) -> dict[str, int]:
    return {name: ns - then.get(name, 0) for name, ns in now.items() if ns > then.get(name, 0)}


def _profiles(merged: MergedProfiles, prefixes: Collection[str] | None = None) -> dict[str, list[Any]]:
    """What was sampled, of these prefixes or all."""

    def wanted(prefix: str) -> bool:
        return prefixes is None or prefix in prefixes

    stacks = StackNumbers()
    number = stacks.number
    return {
        "profile": [
            [*place[:-1], number(place.stack), ns] for place, ns in merged.profile.items() if wanted(place.prefix)
        ],
        "gil_holders": [
            [*holder[:-1], number(holder.stack), ns] for holder, ns in merged.holders.items() if wanted(holder.prefix)
        ],
        "gil_holds": [[worker, *hold[:-1], number(hold.stack)] for worker, hold in merged.gil_holds],
        "loop_blocks": [[worker, *hold[:-1], number(hold.stack)] for worker, hold in merged.loop_blocks],
        "stacks": stacks.rows,
        "frames": [*stacks.frames],
    }


def _skew(merged: MergedProfiles, alone: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    return {prefix: asdict(one) for prefix, one in skew_by_prefix(merged.skew, alone).items()}


def _alone(now: Mapping[Hashable, Alone], then: Mapping[Hashable, Alone]) -> dict[str, int]:
    """By key as it travels, for how long tasks ran alone between two instants, in nanoseconds.

    Of keys that look alike, such as 1 and "1", the most.
    """
    found: dict[str, int] = {}
    for key, one in now.items():
        ns = one.ns - (then[key].ns if key in then else 0)
        if ns > 0:
            name = key_name(key)
            found[name] = max(ns, found.get(name, 0))
    return found


def _gpus(gpus: Mapping[str, GpuTotals]) -> Decoration:
    return Decoration("gpu", "account of GPUs", lambda: {name: encode_gpu(gpu) for name, gpu in gpus.items()})


def _binned(timeline: Timeline) -> dict[str, Any]:
    return {
        "bin": timeline.bin_ns,
        "elapsed": timeline.elapsed_ns,
        "activity": dict(timeline.activity),
        "causes": dict(timeline.causes),
    }
