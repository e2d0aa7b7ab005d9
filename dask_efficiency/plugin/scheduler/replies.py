"""Replies of the scheduler to clients; :mod:`~dask_efficiency.report.replies` reads them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from distributed.protocol import dumps

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.closed_window import ClosedWindow, by_path, of_spans, share_free_time
from dask_efficiency.accounts.cluster.failures import FailedAs
from dask_efficiency.accounts.cluster.history import HistoryPoint, gpus_between, others_between, window_between
from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.cluster.losses import costs, in_window, recent_killers
from dask_efficiency.accounts.cluster.presence import own_gpus
from dask_efficiency.accounts.cluster.span_shares import NOBODY
from dask_efficiency.accounts.cluster.time_left import encode_left
from dask_efficiency.accounts.cluster.timeline import Timeline, timeline_between
from dask_efficiency.accounts.cluster.windows import mean_cores
from dask_efficiency.accounts.details import MergedProfiles, StackNumbers
from dask_efficiency.accounts.facts import NO_LABEL, Facts, FactsBuilder, add_extras, encode_facts
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.lines import Holdup
from dask_efficiency.accounts.metered import TRANSFERS
from dask_efficiency.accounts.rows import growth
from dask_efficiency.accounts.skew import key_name, skew_by_prefix
from dask_efficiency.accounts.stalls import encode_stalls
from dask_efficiency.accounts.wire.gpu import encode_gpu
from dask_efficiency.accounts.wire.snapshots import EXTRAS
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin import environment, source
from dask_efficiency.plugin.guard import Decoration, decorate
from dask_efficiency.plugin.processors import own_processors
from dask_efficiency.plugin.scheduler import spans
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.plugin.scheduler.endings import held_up, unfinished
from dask_efficiency.plugin.scheduler.outstanding import MAX_KEYS, span_name, spans_of
from dask_efficiency.plugin.scheduler.registration import OpenWindow
from dask_efficiency.show.figures import NAMES_IN_A_LINE, format_number

#: Workers that a live view shows one by one, to bound a reply.
MAX_LIVE_WORKERS = 1_000
#: Note of a report that no window was opened for.
IN_RETROSPECT = (
    "made in retrospect, of heartbeats: tasks that ran before the window began count pro rata; lines, spans, names of "
    "kernels and how tasks of a prefix differ are known only while a report is open"
)
#: Names in notes.
LOOP, MEMORY = "account of the scheduler's event loop", "memory over time"


class Reply(NamedTuple):
    """Content of a reply; the table of facts and what follows is made on another thread, as nothing changes it."""

    known: dict[str, Any]
    facts: Callable[[], Facts]
    later: Sequence[Decoration] = ()
    #: Makes notes on the facts.
    notes: Callable[[], Sequence[str]] = tuple


async def packed(reply: Reply) -> dict[str, Any]:
    """Pack a reply for its journey, on a thread: the reply of a thousand workers has megabytes."""

    def pack() -> list[bytes]:
        facts = encode_facts(reply.facts())
        made, missing = decorate([Decoration("of_facts", "list of notes on other work", reply.notes), *reply.later])
        notes = [*reply.known["notes"], *made.pop("of_facts", ()), *missing]
        return list(dumps({**reply.known, **made, "facts": facts, "notes": notes}))

    return {"packed": await asyncio.to_thread(pack)}


class WindowFacts:
    """Facts of a closed window: of all, and of one client if ``own`` has the ids of its spans."""

    def __init__(self, closed: ClosedWindow, paths: Mapping[str, str], own: Collection[str] | None) -> None:
        self._closed, self._paths, self._own = closed, paths, own

    @cached_property
    def whole(self) -> Facts:
        """Thread time by path of span."""
        return by_path(self._by_id, self._paths)

    @cached_property
    def shown(self) -> Facts:
        """Thread time that the client gets to see."""
        if self._own is None:
            return self.whole
        return by_path(of_spans(self._by_id, self._own), {**self._paths, NOBODY: ""})

    @cached_property
    def _by_id(self) -> Facts:
        return self._closed.facts.build()

    def own_prefixes(self) -> set[str] | None:
        """Prefixes all of whose time the client has; None if it has all."""
        if self._own is None:
            return None
        return {prefix for prefix, row in self.shown.by_prefix.items() if row == self.whole.by_prefix.get(prefix)}

    def table(self, metered: Callable[[], Iterable[Sequence[Any]]]) -> Facts:
        """All that the client gets, with what was metered and the sums of the cluster."""
        builder = FactsBuilder()
        builder.append(self.shown)
        if self._own is None:
            add_extras(builder, self._closed.extras)
        for worker, context, span, prefix, label, unit, value in metered():
            builder.add(
                value, worker=worker, span=span, prefix=prefix, bucket=context, label=label or NO_LABEL, unit=unit
            )
        return builder.build()


def of_window(accounts: ClusterAccounts, opened: OpenWindow, closed: ClosedWindow, at: int) -> Reply:
    """Reply for a window that was closed at an instant, with its spans by name."""
    found, missing = decorate(_parts_of_window(accounts, opened, closed, at))
    alone, known_spans = found.pop("alone", {}), spans_of(accounts.scheduler)
    paths = found.pop("paths", {})
    known = {
        **_common_fields(accounts),
        **found,
        **_of_closed(closed),
        "waited_for": dict(Counter(accounts.cluster.idle.parallelism) - Counter(opened.waited_for)),
        "repeats": opened.repeats.by_prefix(),
        "failures": _failures(opened.failures),
        "unfinished": opened.unfinished,
        "stalls": opened.stalls,
        "sent": opened.sent.to_dict(),
        "sent_before": opened.sent_before,
        "notes": [
            *(*closed.notes, *_notes(accounts), *_computed_before(opened), *missing),
            *spans.shared_note(accounts.scheduler, opened),
        ],
        "opened": opened.window.opened,
    }
    own = {span for span in paths if spans.is_own(accounts.scheduler, opened.spans, span)} if opened.only else None
    facts = WindowFacts(closed, paths or defaultdict(str), own)
    names = {address: presence.name for address, presence in accounts.cluster.present.items()}
    if own is not None:
        known_spans = {span_id: span for span_id, span in known_spans.items() if span_id in own}
    of_spans = {span_id: span_name(span) for span_id, span in known_spans.items() if span_id in closed.profiles.spans}

    def metered() -> list[list[Any]]:
        return _metered(closed.profiles, of_spans, names, only=opened.only)

    profiles = Decoration("profiles", "profile", lambda: _profiles(closed.profiles, facts.own_prefixes()))

    def skew() -> dict[str, dict[str, Any]]:
        tasks, squares = Counter[str](), Counter[str]()
        for group, n in opened.tasks.items():
            if group.prefix is not None:
                tasks[prefix_of(group.prefix.name)] += n
                squares[prefix_of(group.prefix.name)] += n * n
        in_a_group = {prefix: squares[prefix] / n for prefix, n in tasks.items()}
        return {prefix: asdict(one) for prefix, one in skew_by_prefix(closed.profiles.skew, alone, in_a_group).items()}

    def of_other_work() -> list[str]:
        return spans.other_work_note(facts.whole, only=opened.only)

    def table() -> Facts:
        return facts.table(metered)

    if own is None:
        later = (profiles, Decoration("skew", "comparison of tasks", skew), _gpus(closed.gpu))
        return Reply(known, table, later, of_other_work)
    if not paths:
        raise RuntimeError("the time of this client alone is not known: " + "; ".join(missing))
    own_time = None if accounts.idle.guard.off else opened.window.shares.own_ns

    def of_own_work() -> list[str]:
        return [*of_other_work(), spans.only_own_note(facts.shown, facts.whole)]

    return Reply(spans.only_own(known, own_time), table, (profiles,), of_own_work)


def _of_closed(closed: ClosedWindow) -> dict[str, Any]:
    """Fields of a closed window beside its facts."""
    return {
        "window": closed.elapsed,
        "outstanding": closed.outstanding,
        "no_workers": closed.no_workers,
        "others_share": closed.others_share,
        "nthreads": closed.nthreads,
        "tasks": closed.tasks,
        "not_measured": closed.not_measured,
        "attendance": closed.attendance,
        "lost_workers": closed.losses,
    }


def _parts_of_window(accounts: ClusterAccounts, opened: OpenWindow, closed: ClosedWindow, at: int) -> list[Decoration]:
    """Parts of a window's reply that may fail alone."""
    window, idle, known = opened.window, accounts.cluster.idle, spans_of(accounts.scheduler)
    coded = opened.spans if accounts.options.source else ()
    return [
        *_parts_of_any(accounts, window.opened, at),
        Decoration("paths", "list of spans", lambda: _paths(accounts, opened, closed)),
        Decoration("timeline", "timeline", lambda: _binned(accounts.timelines.timeline(opened.timeline, at=at))),
        Decoration("memory_timeline", MEMORY, lambda: asdict(accounts.timelines.memory(opened.memory, at=at))),
        Decoration("alone", "list of tasks that ran alone", lambda: _alone(idle.alone, opened.alone)),
        Decoration("scheduler_loop", LOOP, lambda: asdict(accounts.loop.between(opened.loop, opened.loop_at_stop))),
        Decoration("cores", "count of cores", lambda: window.cores(accounts.cluster.work, at=at)),
        Decoration("arrivals", "list of workers that came", lambda: window.arrivals(at=at)),
        Decoration("kept", "list of why results were kept", lambda: _kept(accounts, opened, at)),
        Decoration("code", "source listing", lambda: source.recorded(known, coded)),
        Decoration("graphs", "record of when graphs were taken in", lambda: window.graphs.until(at)),
        Decoration("running", "record of when tasks ran", lambda: window.running.until(at)),
        Decoration("seceded", "record of when only tasks that had seceded ran", lambda: opened.seceded.until(at)),
    ]


def _kept(accounts: ClusterAccounts, opened: OpenWindow, at: int) -> dict[str, Any]:
    """Reasons why results were kept, over time and at the peaks of memory."""
    if accounts.kept.guard.off is not None:
        raise RuntimeError(accounts.kept.guard.off)
    return accounts.kept.reply(opened.kept, at)


def _paths(accounts: ClusterAccounts, opened: OpenWindow, closed: ClosedWindow) -> dict[str, str]:
    """Paths of all spans of a window by id, once its free time is shared among them."""
    share_free_time(closed, opened.window.shares)
    return spans.paths(accounts.scheduler, opened, closed.spans)


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
        Decoration("memory_timeline", MEMORY, lambda: asdict(accounts.timelines.memory(at=at))),
    )
    known = {
        **fields,
        "outstanding": at - cluster.started - cluster.work.without_work(at=at),
        "no_workers": cluster.work.without_workers(at=at),
        "lost_workers": costs(
            [(loss, in_window(loss, loss.ns)) for loss in cluster.losses],
            cluster.recomputed,
            cluster.part("finalized")[Bucket.RECOMPUTED],
            cluster.tasks.get(Outcome.RECOMPUTED, 0),
        ),
        "tasks": dict(cluster.tasks),
        "waited_for": dict(cluster.idle.parallelism),
        "repeats": accounts.work.repeats.by_prefix(),
        "failures": _failures(cluster.failures),
        "notes": [*_notes(accounts), *missing],
    }
    by_worker, by_prefix = (
        {name: row.to_nanoseconds() for name, row in rows.items()}
        for rows in (cluster.by_worker(), cluster.by_prefix())
    )
    causes, extras = cluster.part_by_worker("causes"), dict(zip(EXTRAS, cluster.extras(), strict=True))

    def table() -> Facts:
        builder = FactsBuilder()
        builder.append(Facts.of_views(by_worker, by_prefix, causes))
        add_extras(builder, extras)
        return builder.build()

    return Reply(known, table, (_gpus(cluster.gpu_by_worker()),))


def of_history(accounts: ClusterAccounts, last: float | None, *, asked: int) -> Reply:
    """Reply for the last ``last`` seconds, None for the whole history; ``asked`` is when the workers were asked."""
    cluster = accounts.cluster
    now = cluster.point(at=time.monotonic_ns())
    since = cluster.started if last is None else now.at - round(last * 1e9)
    then = (cluster.history.before(since) if since > cluster.started else None) or HistoryPoint(cluster.started)
    notes = [IN_RETROSPECT]
    if then.at > since:
        notes.append(f"the scheduler remembers {format_number((now.at - then.at) / 1e9)} s, less than was asked for")
    elif since > then.at:
        notes.append(
            f"a window of {format_number((now.at - then.at) / 1e9)} s for the last "
            f"{format_number((now.at - since) / 1e9)} s: it begins at a point of the scheduler's history, which has "
            f"one every {accounts.options.history_interval:g} s, and fewer of long ago"
        )
    closed = window_between(then, now, cluster.losses, asked=asked)
    add_extras(closed.facts, closed.extras)
    facts = closed.facts.build()
    closed.gpu = gpus_between(then, cluster.gpu_by_worker(), closed.nthreads)
    fields, missing = _in_retrospect(accounts, then.at, now.at, *_parts_of_history(accounts, then, now.at))
    known = {
        **_of_closed(closed),
        **fields,
        "nthreads": closed.nthreads,
        "not_measured": {name: why for name, why in cluster.reasons.items() if name in facts.by_worker}
        | closed.not_measured,
        "waited_for": growth(now.waited_for, then.waited_for),
        "failures": _failures(growth(now.failures, then.failures)),
        "notes": [*notes, *_notes(accounts), *missing],
    }
    points = cluster.history.timeline(then, now)
    timeline = Decoration("timeline", "timeline", lambda: _binned(timeline_between(points)))
    return Reply(known, lambda: facts, (_gpus(closed.gpu), timeline))


def _parts_of_history(accounts: ClusterAccounts, then: HistoryPoint, at: int) -> list[Decoration]:
    def scheduler_loop() -> dict[str, Any]:
        return asdict(accounts.loop.between(None if then.loop is None else then.loop.totals))

    def others_share() -> float | None:
        return others_between(then, accounts.cluster, own_processors(), at=at)

    return [
        Decoration("scheduler_loop", LOOP, scheduler_loop),
        Decoration("others_share", "share of other processes", others_share),
        Decoration("memory_timeline", MEMORY, lambda: asdict(accounts.timelines.memory(at=at, start=then.at))),
    ]


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
        "stalls": encode_stalls(accounts.stalled),
        "time_left": encode_left(accounts.left),
        "gpus": own_gpus(shown.values()),
        "amounts": cluster.extra("amounts"),
        "killers": dict(islice(recent_killers(cluster.losses, at=at).items(), NAMES_IN_A_LINE)),
        "memory": asdict(accounts.memory.now),
    }


def _common_fields(accounts: ClusterAccounts) -> dict[str, Any]:
    return {
        "since": accounts.since,
        "price": accounts.options.price_per_worker_hour,
        "not_sampled": accounts.cluster.not_sampled,
        "worker_saturation": getattr(accounts.scheduler, "WORKER_SATURATION", None),
    }


def _parts_of_any(accounts: ClusterAccounts, start: int, stop: int) -> list[Decoration]:
    """Parts of every report between two instants of the accounts' clock."""
    clients, present = accounts.scheduler.clients, accounts.cluster.present
    workers = [ws for address, ws in accounts.scheduler.workers.items() if address in present]
    return [
        Decoration("environment", "environment", lambda: environment.of_cluster(workers, clients.values())),
        Decoration("stragglers", "list of stragglers", lambda: _stragglers(accounts, start, stop)),
    ]


def _in_retrospect(
    accounts: ClusterAccounts, start: int, stop: int, *more: Decoration
) -> tuple[dict[str, Any], list[str]]:
    """Fields of a report that no window was opened for, and notes on those that are missing."""
    cores = Decoration("cores", "count of cores", lambda: _cores(accounts, start, stop))
    outstanding = unfinished if accounts.stalled else held_up
    now = Decoration("unfinished", "list of outstanding tasks", lambda: outstanding(accounts.scheduler))
    made, missing = decorate([*_parts_of_any(accounts, start, stop), cores, now, *more])
    fields = {
        **_common_fields(accounts),
        "stalls": encode_stalls(accounts.stalled),
        "window": stop - start,
        "nthreads": {presence.name: presence.nthreads for presence in accounts.cluster.present.values()},
        "attendance": accounts.cluster.attendance(start=start, stop=stop),
        "not_measured": accounts.cluster.not_measured,
    }
    return fields | made, missing


def _cores(accounts: ClusterAccounts, start: int, stop: int) -> float | None:
    """Mean number of cores of the workers; None if some worker has left."""
    cluster = accounts.cluster
    if cluster.part_by_worker("finalized").keys() - {presence.name for presence in cluster.present.values()}:
        return None
    return mean_cores(cluster.present.values(), cluster.work, start=start, stop=stop)


def _failures(failures: Mapping[FailedAs, int]) -> list[list[Any]]:
    return [[*one, tasks] for one, tasks in failures.items()]


def _computed_before(opened: OpenWindow) -> list[str]:
    if not (n := opened.computed_before):
        return []
    results, were = ("1 result", "was") if n == 1 else (f"{n:,} results", "were")
    return [f"{results} {were} computed before this window, too: persist() keeps what is used again"]


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

    def told(holds: Iterable[tuple[str, Holdup]]) -> list[Any]:
        return [[worker, ns, holder, number(stack), doing] for worker, (ns, holder, stack, doing) in holds]

    stacks = StackNumbers()
    number = stacks.number
    return {
        "profile": rows(merged.profile),
        "gil_holders": rows(merged.holders),
        "lock_looks": rows(merged.lock_looks),
        "gil_holds": told(merged.gil_holds),
        "loop_blocks": told(merged.loop_blocks),
        "stacks": stacks.rows,
        "frames": [*stacks.frames],
    }


def _metered(
    merged: MergedProfiles, spans: Mapping[str, str], names: Mapping[str, str], *, only: bool = False
) -> list[list[Any]]:
    """Rows of worker, context, span's name, prefix or sender's name, label, unit and value; ``only`` of these spans."""
    return [
        [
            *(worker, context, spans.get(span, "")),
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
