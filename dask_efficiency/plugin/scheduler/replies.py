"""Replies of the scheduler to clients; :mod:`~dask_efficiency.report.replies` reads them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

from distributed.protocol import dumps

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import Totals, between
from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.cluster.losses import costs, in_window
from dask_efficiency.accounts.cluster.presence import own_gpus
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.cluster.window_accounts import OwnPart, WindowAccounts
from dask_efficiency.accounts.cluster.windows import mean_cores
from dask_efficiency.accounts.details import MergedProfiles, StackNumbers
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.metered import TRANSFERS
from dask_efficiency.accounts.skew import key_name, skew_by_prefix
from dask_efficiency.accounts.wire.gpu import encode_gpu
from dask_efficiency.accounts.wire.snapshots import EXTRAS
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.plugin import environment, source
from dask_efficiency.plugin.guard import Decoration, decorate
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.plugin.scheduler import spans
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.plugin.scheduler.outstanding import MAX_KEYS, spans_of
from dask_efficiency.plugin.scheduler.registration import OpenWindow

#: Workers that a live view shows one by one, to bound a reply.
MAX_LIVE_WORKERS = 1_000
#: Name in notes.
LOOP = "account of the scheduler's event loop"


class Reply(NamedTuple):
    """Content of a reply."""

    known: dict[str, Any]
    #: Parts made of it on another thread, as nothing changes their input any more.
    later: Sequence[Decoration] = ()


async def packed(reply: Reply) -> dict[str, Any]:
    """Pack a reply for its journey, on a thread: the reply of a thousand workers has megabytes."""

    def pack() -> list[bytes]:
        made, missing = decorate(reply.later)
        return list(dumps({**reply.known, **made, "notes": [*reply.known["notes"], *missing]}))

    return {"packed": await asyncio.to_thread(pack)}


#: Fields of a closed window that travel under their own names.
_OF_WINDOW = (
    *("outstanding", "no_workers", "others_share", "workers", "nthreads", "prefixes", "tasks", "outside", "details"),
    *("amounts", "not_measured", "attendance", "worker_causes", "prefix_causes"),
)


def of_window(accounts: ClusterAccounts, opened: OpenWindow, closed: WindowAccounts, at: int) -> Reply:
    """Reply for a window that was closed at an instant, with its spans by name."""
    found, missing = decorate(_parts_of_window(accounts, opened, closed, at))
    by_span, span_causes, part = found.pop("spans", ({}, {}, None))
    alone = found.pop("alone", {})
    known = {
        **_common_fields(accounts),
        **found,
        **{name: getattr(closed, name) for name in _OF_WINDOW},
        "window": closed.elapsed,
        "worker_saturation": getattr(accounts.scheduler, "WORKER_SATURATION", None),
        "spans": by_span,
        "span_causes": span_causes,
        "lost_workers": closed.losses,
        "waited_for": dict(Counter(accounts.cluster.idle.parallelism) - Counter(opened.waited_for)),
        "repeats": opened.repeats.by_prefix(),
        "sent": opened.sent.to_dict(),
        "notes": [*(*closed.notes, *_notes(accounts), *missing), *spans.notes(accounts.scheduler, opened, by_span)],
        "opened": opened.window.opened,
    }
    if not opened.only:

        def skew() -> dict[str, dict[str, Any]]:
            return {prefix: asdict(one) for prefix, one in skew_by_prefix(closed.profiles.skew, alone).items()}

        return Reply(
            known,
            (*_profile_parts(accounts, closed), Decoration("skew", "comparison of tasks", skew), _gpus(closed.gpu)),
        )
    if part is None:
        raise RuntimeError("the time of this client alone is not known: " + "; ".join(missing))
    own_time = None if accounts.idle.guard.off else opened.window.shares.own_ns
    return Reply(spans.only_own(known, part, own_time), _profile_parts(accounts, closed, part, opened.spans))


def _parts_of_window(
    accounts: ClusterAccounts, opened: OpenWindow, closed: WindowAccounts, at: int
) -> list[Decoration]:
    """Parts of a window's reply that may fail alone."""
    window, idle, known = opened.window, accounts.cluster.idle, spans_of(accounts.scheduler)
    coded = opened.spans if accounts.options.source else ()
    return [
        *_parts_of_any(accounts, window.opened, at),
        Decoration("spans", "list of spans", lambda: spans.by_path(accounts.scheduler, opened, closed)),
        Decoration("timeline", "timeline", lambda: _binned(accounts.timelines.timeline(opened.timeline, at=at))),
        Decoration("alone", "list of tasks that ran alone", lambda: _alone(idle.alone, opened.alone)),
        Decoration("scheduler_loop", LOOP, lambda: asdict(accounts.loop.between(opened.loop, opened.loop_at_stop))),
        Decoration("cores", "count of cores", lambda: window.cores(accounts.cluster.work, at=at)),
        Decoration("arrivals", "list of workers that came", lambda: window.arrivals(at=at)),
        Decoration("code", "source listing", lambda: source.recorded(known, coded)),
        Decoration("graphs", "record of when graphs were taken in", lambda: window.graphs.until(at)),
        Decoration("running", "record of when tasks ran", lambda: window.running.until(at)),
    ]


def _profile_parts(
    accounts: ClusterAccounts, closed: WindowAccounts, part: OwnPart | None = None, own: Collection[str] = ()
) -> tuple[Decoration, ...]:
    """Samples and what was metered; for a client's part of the window those of its spans, and of its own prefixes."""
    known, scheduler, present = spans_of(accounts.scheduler), accounts.scheduler, accounts.cluster.present
    names = {address: presence.name for address, presence in present.items()}
    prefixes = None
    if part is not None:
        prefixes = {prefix for prefix, row in part.prefixes.items() if row == closed.prefixes.get(prefix)}
        known = {span_id: span for span_id, span in known.items() if spans.is_own(scheduler, own, span_id)}
    only, words = part is not None, "table of what was metered"
    return (
        Decoration("profiles", "profile", lambda: _profiles(closed.profiles, prefixes)),
        Decoration("metered", words, lambda: _metered(closed.profiles, known, names, only=only)),
    )


def of_life(accounts: ClusterAccounts) -> Reply:
    """Reply for all time since the accounts began."""
    cluster = accounts.cluster
    at = time.monotonic_ns()
    fields, missing = _in_retrospect(
        accounts,
        cluster.started,
        at,
        Decoration("scheduler_loop", LOOP, lambda: asdict(accounts.loop.between())),
        Decoration("timeline", "timeline", lambda: _binned(accounts.timelines.timeline(at=at))),
    )
    known = {
        **fields,
        "outstanding": at - cluster.started - cluster.work.without_work(at=at),
        "no_workers": cluster.work.without_workers(at=at),
        "workers": {name: row.to_nanoseconds() for name, row in cluster.by_worker().items()},
        "lost_workers": costs(
            [(loss, in_window(loss, loss.ns)) for loss in cluster.losses],
            cluster.recomputed,
            cluster.part("finalized")[Bucket.RECOMPUTED],
            cluster.tasks.get(Outcome.RECOMPUTED, 0),
        ),
        "prefixes": {prefix: row.to_nanoseconds() for prefix, row in cluster.by_prefix().items()},
        "tasks": dict(cluster.tasks),
        **dict(zip(EXTRAS, cluster.extras(), strict=True)),
        "waited_for": dict(cluster.idle.parallelism),
        "worker_causes": cluster.part_by_worker("causes"),
        "repeats": accounts.work.repeats.by_prefix(),
        "notes": [*_notes(accounts), *missing],
    }
    return Reply(known, (_gpus(cluster.gpu_by_worker()),))


def of_history(accounts: ClusterAccounts, last: float | None) -> Reply:
    """Reply for the last ``last`` seconds; None for the whole history."""
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
    fields, missing = _in_retrospect(accounts, then.at, at)
    known = {
        **fields,
        "outstanding": at - then.at - (now.without_work - then.without_work),
        "no_workers": now.without_workers - then.without_workers,
        "workers": {ALL_WORKERS: between(then, now)},
        "worker_causes": {ALL_WORKERS: {name: ns - then.causes.get(name, 0) for name, ns in now.causes.items()}},
        "notes": [*notes, *accounts.stays_off(), *missing],
    }
    return Reply(known)


def of_live(accounts: ClusterAccounts) -> dict[str, Any]:
    """Fields of :class:`~dask_efficiency.live.top_view.Observation`: no worker is asked, and the size is bounded."""
    cluster, servers, at = accounts.cluster, accounts.scheduler.workers, time.monotonic_ns()
    shown = dict(islice(cluster.present.items(), MAX_LIVE_WORKERS))
    activity = cluster.part_by_worker("activity", (presence.name for presence in shown.values()))
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
        "activity": cluster.part("activity"),
        "causes": cluster.part("cause_activity"),
        "bucket_causes": dict(cluster.totals(at=at).causes),
        "not_sampled": dict(islice(cluster.not_sampled.items(), MAX_LIVE_WORKERS)),
        "buckets": cluster.breakdown().to_nanoseconds(),
        "tasks": dict(cluster.tasks),
        "gpus": own_gpus(shown.values()),
        "amounts": cluster.extra("amounts"),
    }


def _common_fields(accounts: ClusterAccounts) -> dict[str, Any]:
    return {
        "since": accounts.since,
        "price": accounts.options.price_per_worker_hour,
        "not_sampled": accounts.cluster.not_sampled,
    }


def _parts_of_any(accounts: ClusterAccounts, start: int, stop: int) -> list[Decoration]:
    """Parts of every report between two instants of the accounts' clock."""
    workers, clients = accounts.scheduler.workers, accounts.scheduler.clients
    return [
        Decoration("environment", "environment", lambda: environment.of_cluster(workers.values(), clients.values())),
        Decoration("stragglers", "list of stragglers", lambda: _stragglers(accounts, start, stop)),
    ]


def _in_retrospect(
    accounts: ClusterAccounts, start: int, stop: int, *more: Decoration
) -> tuple[dict[str, Any], list[str]]:
    """Fields of a report that no window was opened for, and notes on those that are missing."""
    cores = Decoration("cores", "count of cores", lambda: _cores(accounts, start, stop))
    made, missing = decorate([*_parts_of_any(accounts, start, stop), cores, *more])
    fields = {
        **_common_fields(accounts),
        "window": stop - start,
        "nthreads": {str(ws.name): ws.nthreads for ws in accounts.scheduler.workers.values()},
        "attendance": accounts.cluster.attendance(start=start, stop=stop),
        "not_measured": dict(accounts.cluster.reasons),
    }
    return fields | made, missing


def _cores(accounts: ClusterAccounts, start: int, stop: int) -> float | None:
    """Mean number of cores of the workers; None if some worker has left."""
    cluster = accounts.cluster
    if cluster.part_by_worker("finalized").keys() - {presence.name for presence in cluster.present.values()}:
        return None
    return mean_cores(cluster.present.values(), cluster.work, start=start, stop=stop)


def _notes(accounts: ClusterAccounts) -> list[str]:
    notes = accounts.stays_off()
    if accounts.work.full:
        notes.append(
            f"tasks computed again are counted among the first {MAX_KEYS:,} tasks only: more keys are not remembered"
        )
    return notes


def _stragglers(accounts: ClusterAccounts, start: int, stop: int) -> list[dict[str, Any]]:
    """Stragglers between two instants of the accounts' clock."""
    ahead = time.time() - time.monotonic_ns() / 1e9
    return accounts.stragglers.between(start / 1e9 + ahead, stop / 1e9 + ahead)


def _profiles(merged: MergedProfiles, prefixes: Collection[str] | None = None) -> dict[str, list[Any]]:
    """Samples of these prefixes, or of all."""

    def rows(samples: Mapping[Any, int]) -> list[Any]:
        wanted = ((at, ns) for at, ns in samples.items() if prefixes is None or at.prefix in prefixes)
        return [[*at[:-1], number(at.stack), ns] for at, ns in wanted]

    stacks = StackNumbers()
    number = stacks.number
    return {
        "profile": rows(merged.profile),
        "gil_holders": rows(merged.holders),
        "gil_holds": [[worker, *hold[:-1], number(hold.stack)] for worker, hold in merged.gil_holds],
        "loop_blocks": [[worker, *hold[:-1], number(hold.stack)] for worker, hold in merged.loop_blocks],
        "stacks": stacks.rows,
        "frames": [*stacks.frames],
    }


def _metered(
    merged: MergedProfiles, spans: Mapping[str, Any], names: Mapping[str, str], *, only: bool = False
) -> list[list[Any]]:
    """Rows of worker, context, span's name, prefix or sender's name, label, unit and value; ``only`` of these spans."""
    return [
        [
            *(worker, context, "/".join(spans[span].name) if span in spans else ""),
            *(names.get(prefix, prefix) if context == TRANSFERS else prefix, label, unit, value),
        ]
        for (worker, (context, span, prefix, label, unit)), value in merged.metered.items()
        if span in spans or not only
    ]


def _alone(now: Mapping[Hashable, Alone], then: Mapping[Hashable, Alone]) -> dict[str, int]:
    """Nanoseconds for which tasks ran alone between two instants, by name of their keys; of one name the most."""
    found: dict[str, int] = {}
    for key, one in now.items():
        if (ns := one.ns - (then[key].ns if key in then else 0)) > 0:
            found[key_name(key)] = max(ns, found.get(key_name(key), 0))
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
