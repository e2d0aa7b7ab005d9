"""WorkTracker: whether the scheduler has work outstanding, and which tasks are computed again, and why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import chain, islice
from typing import Any

from dask.utils import key_split
from distributed import Scheduler
from distributed.scheduler import TaskGroup, TaskPrefix, TaskState

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.span_shares import MAX_DEPTH, NOBODY, Path
from dask_efficiency.accounts.facts import SEPARATOR
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.guard import DataGuard
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.patches import LONG_RUNNING, UPDATE_GRAPH, Replacements
from dask_efficiency.plugin.scheduler.inner_results import InnerResult, InnerResults
from dask_efficiency.plugin.scheduler.registration import OpenWindow, RepeatCounter

#: Keys whose 64-bit hashes are kept to find repeats: about 35 MB when full.
MAX_KEYS = 500_000
#: Long-running tasks that are recognised; beyond, they count as outstanding.
MAX_LONG_RUNNING = 1_000
#: Removals of workers that are kept: tasks wait again by the same stimulus, or soon after.
MAX_REMOVALS = 100
#: Newest spans, and groups of them, that are looked at for their prefixes: some milliseconds. A guess.
MAX_GROUPS = 5_000
#: Stands for the worker of a lost result if it is unknown.
SOME_WORKER = "(unknown)"
#: States of a task that is to be done and that no worker has.
_UNASSIGNED = frozenset({"waiting", "queued", "no-worker"})


def spans_of(scheduler: Scheduler) -> Mapping[str, Any]:
    """Dask's spans by id; none if upstream keeps them elsewhere."""
    spans: Mapping[str, Any] = getattr(scheduler.extensions.get("spans"), "spans", {})
    return spans


def span_name(span: Any) -> str:
    """Name of a span of Dask's and of those that it is in; of what else a client may have sent, the beginning."""
    parts = span.name if isinstance(span.name, list | tuple) else (span.name,)
    return fitting(SEPARATOR.join(map(fitting, parts[:MAX_NAME_LENGTH])))


def prefixes_in(scheduler: Scheduler, span: str) -> set[str]:
    """Prefixes of tasks in the newest spans that have this in their names, upper and lower case alike."""
    newest = islice(reversed([*spans_of(scheduler).values()]), MAX_GROUPS)
    groups = chain.from_iterable(one.groups for one in newest if span.casefold() in span_name(one).casefold())
    return {prefix_of(group.prefix.name) for group in islice(groups, MAX_GROUPS)}


class OutstandingSpans:
    """Follows the spans that have work outstanding, from :meth:`follow` to :meth:`stop`.

    A group is added when work may begin in it: a client's graph, a retry, a lost result. A look checks the groups of a
    span until one has a task outstanding, and drops those without: each group is checked once for each time it was
    added, and of a span with work, one more.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.followed = False
        self._scheduler = scheduler
        #: By span: groups that may have tasks outstanding, in order of arrival.
        self._groups: dict[Path, dict[TaskGroup, None]] = {}
        self._newest: dict[Path, None] = {}

    def follow(self, groups: Iterable[TaskGroup]) -> None:
        """Begin with these groups."""
        self.followed = True
        self.add(groups)

    def stop(self) -> None:
        """Stop following."""
        self.followed = False
        self.forget()

    def forget(self) -> None:
        """Drop all groups."""
        self._groups.clear()
        self._newest.clear()

    def add(self, groups: Iterable[TaskGroup]) -> tuple[Path, ...]:
        """Add groups whose tasks may be outstanding from now on; returns their spans."""
        paths: dict[str | None, Path] = {}
        for group in groups if self.followed else ():
            path = paths.get(group.span_id) or paths.setdefault(group.span_id, self._path(group.span_id))
            self._groups.setdefault(path, {})[group] = None
        return tuple(paths.values())

    def taken_in(self, groups: Iterable[TaskGroup]) -> None:
        """Note that a graph with tasks of these groups was taken in."""
        self._newest.update(dict.fromkeys(self.add(groups)))

    def take_newest(self) -> tuple[Path, ...]:
        """Spans of the graphs that were taken in since the last call."""
        newest = tuple(self._newest)
        self._newest.clear()
        return newest

    def outstanding(self, long_running: Iterable[Iterable[TaskState]] = ()) -> tuple[Path, ...]:
        """Spans that have work outstanding; ``long_running`` tasks, by worker, do not count."""
        away = Counter(ts.group for ts in islice(chain.from_iterable(long_running), MAX_LONG_RUNNING))
        found = []
        for span, groups in list(self._groups.items()):
            while groups:
                group = next(reversed(groups))
                states: Mapping[str, int] = group.states  # type: ignore[assignment]  # of more than these keys
                if states["processing"] > away[group] or any(states[state] for state in _UNASSIGNED):
                    found.append(span)
                    break
                groups.popitem()
            else:
                del self._groups[span]
        return tuple(found)

    def _path(self, span_id: str | None) -> Path:
        """Ids of the enclosing spans, if upstream keeps spans, and of the span itself."""
        span = spans_of(self._scheduler).get(span_id or NOBODY)
        ids = [span_id or NOBODY]
        while span is not None and span.parent is not None:
            span = span.parent
            ids.append(span.id)
        return (*reversed(ids[-MAX_DEPTH + 1 :]), ids[0]) if len(ids) > MAX_DEPTH else tuple(reversed(ids))


class WorkTracker:
    """Keeps the cluster's work clock and the intervals of open windows, from the scheduler's hooks.

    Work is outstanding while a graph is being taken in, or any task is waiting, queued, without a worker, or processing
    and not long-running. No hook fires when a graph begins to be taken in, and when a task becomes long-running: these
    two stream handlers are replaced until :meth:`close`.

    Nothing is counted for that: upstream counts the tasks on workers, and the tasks of each prefix by state. These
    counts are read when a transition may have changed the answer. Results are counted in batches, by :meth:`catch_up`.
    """

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger, windows: Mapping[str, OpenWindow]) -> None:
        self._scheduler, self._cluster, self._windows = scheduler, cluster, windows
        self._repeats = RepeatCounter()
        #: By hash of a computed key: number of windows that had opened before it was computed last. The scheduler may
        #: forget the tasks in between.
        self._computed: dict[int, int] = {}
        self._inner, self._odd = InnerResults(), DataGuard()
        self._opened = 0
        #: Keys of the results since :meth:`catch_up`, each with the address of the worker.
        self._results: list[tuple[Any, str]] = []
        self._tasks = scheduler.tasks
        self._graphs = 0
        #: Mark of each removed worker, by the stimulus of its removal.
        self._removals: dict[str, str] = {}
        #: Last stimulus by which a client asked for results.
        self._asked = ""
        #: Tasks whose run was cut short and that begin again by the same stimulus: their cause stays.
        self._cut_short: set[Any] = set()
        #: Tasks in ``_cut_short``, marked as computed again, or aliases that run again; the set object stays, as the
        #: hook holds it.
        self.watched: set[Any] = set()
        self._new: dict[str, Presence] = {}
        counts = getattr(scheduler, "_task_prefix_count_global", None)
        self._processing: Any = _Processing(scheduler) if counts is None else counts
        #: Prefix with an unassigned task at the last look.
        self._unassigned: TaskPrefix | None = None
        self._working = False
        #: True while a task that holds a slot is on a worker.
        self.running = False
        #: True while a task given to a worker changes nothing: others run, and no worker waits for its first.
        self.steady = False
        #: Spans with work outstanding, while windows are open.
        self.spans = OutstandingSpans(scheduler)
        #: Called with each task that failed, and what was reported of it.
        self.erred: Callable[[TaskState, Mapping[str, Any]], object] = lambda ts, reported: None
        #: Called when work, or taking in a graph, has begun or ended.
        self.changed: Callable[[], object] = lambda: None
        self.reset()
        self._replacements = Replacements()
        #: True if graphs that were taken in are counted in their clients' windows.
        self.counts_graphs = self._replacements.put(UPDATE_GRAPH, scheduler, self._taking_in) > 0
        self._replacements.put(LONG_RUNNING, scheduler, self._noting_long_running)

    @property
    def graphs(self) -> bool:
        """True while a graph is being taken in."""
        return self._graphs > 0

    @property
    def repeats(self) -> RepeatCounter:
        """Repeats since the accounts began."""
        self.catch_up()
        return self._repeats

    @property
    def full(self) -> bool:
        """True if no more keys can be kept: repeats of new keys are not counted."""
        self.catch_up()
        return len(self._computed) >= MAX_KEYS

    def window_opens(self) -> int:
        """Count the results until now as earlier ones for a window that opens; returns its number."""
        self.catch_up()
        self._opened += 1
        return self._opened

    def reset(self) -> None:
        """Begin anew: at the start, and after the scheduler forgot all its tasks."""
        self.catch_up()
        self._cut_short.clear()
        self.watched.clear()
        self._unassigned = None
        self.spans.forget()
        self._look()

    def worker_joined(self, presence: Presence) -> None:
        """Note the first task of this worker when it comes."""
        self.catch_up()
        self._new[presence.address] = presence
        self.steady = False

    def worker_left(self, address: str) -> None:
        """Count the results of a worker that left."""
        self.catch_up()
        self._new.pop(address, None)

    def results_lost(self, mark: str, stimulus_id: str) -> None:
        """Mark tasks whose results are lost with a worker that is removed by this stimulus."""
        self._removals[stimulus_id] = mark
        if len(self._removals) > MAX_REMOVALS:
            del self._removals[next(iter(self._removals))]

    def close(self) -> None:
        """Put the stream handlers back."""
        self._replacements.put_back()

    def asked(self, stimulus_id: str, keys: Iterable[Any] = ()) -> None:
        """Note the stimulus of a client's graph: its tasks begin to wait by it, some of them known to be no repeats."""
        self._asked = stimulus_id
        self.catch_up()
        computed, tasks = self._computed, self._tasks
        # Until they are forgotten, which may be before their results are counted.
        self.watched.update(
            key for key in keys if hash(key) in computed and (ts := tasks.get(key)) is not None and _is_alias(ts)
        )
        self._odd("steps of tasks", self._count_inner, keys)

    def _count_inner(self, keys: Iterable[Any]) -> None:
        """Count what the tasks of a graph compute again within them."""
        computed, tasks = self._computed, self._tasks
        specs = {key: getattr(ts, "run_spec", None) for key in keys if (ts := tasks.get(key)) is not None}
        for key, alike, again in self._inner.asked(specs, computed):
            for one in again:
                self._count_within(one, key_split(key), alike)

    def _count_within(self, one: InnerResult, prefix: str, tasks: int) -> None:
        """Count a result that so many tasks compute again within them."""
        counters = [opened.repeats for opened in self._windows.values() if one.opened >= opened.number]
        for counter in (self._repeats, *counters):
            counter.add_within(one.number, one.name, prefix, tasks)

    def hook(self, failed: Callable[[Exception], object]) -> Callable[..., None]:
        """Make the hook for every transition of every task, which calls others only if something is to be noted."""
        tasks, watched, processing, unassigned = self._tasks, self.watched, self._processing, _UNASSIGNED
        keep_result = self._results.append

        # Named arguments would be searched among all that a worker reports: 5,000 instructions a result.
        def transition(key: Any, start: str, finish: str, /, **reported: Any) -> None:
            """Note a transition; ``reported`` has the stimulus's id and the fields of the worker's report."""
            try:
                if start == "waiting" and finish in unassigned:  # it waits for something else
                    return
                if finish == "processing":
                    if not self.steady:
                        self._given(key)
                elif start == "memory" or finish == "forgotten":  # it was not outstanding, and is not now
                    if watched and key in watched:
                        self._gone(key, finish)
                elif start == "processing" and finish == "memory":
                    keep_result((key, reported.get("worker", "")))
                    if not processing:
                        self._look()
                elif start == "released" and finish == "waiting":
                    if tasks[key].nbytes >= 0:  # it had been in memory
                        self._waits_again(tasks[key], reported.get("stimulus_id", ""))
                    if not self._working:
                        self._look()
                else:
                    if finish == "released":
                        self._released(tasks[key], start, reported.get("stimulus_id", ""))
                    elif finish == "erred":
                        self.erred(tasks[key], reported)
                    if not processing:
                        self._look()
            except Exception as error:
                failed(error)

        return transition

    def catch_up(self) -> None:
        """Count the results since the last call."""
        results = self._results
        if not results:
            return
        keys, workers = zip(*results, strict=True)
        results.clear()  # the hook appends to this list
        present = self._cluster.present
        for worker, finished in Counter(workers).items():
            if worker in present:
                present[worker].finished += finished
        computed, numbers = self._computed, set(map(hash, keys))
        room = MAX_KEYS - len(computed)
        new = len(numbers) == len(keys) and computed.keys().isdisjoint(numbers)
        if new and (len(numbers) <= room or room <= 0):
            if room > 0:
                computed.update(dict.fromkeys(numbers, self._opened))
            return
        for key in keys:
            number = hash(key)
            if number not in computed:
                if len(computed) < MAX_KEYS:
                    computed[number] = self._opened
            elif (ts := self._tasks.get(key)) is None or not _is_no_repeat(ts):
                self._count_repeat(number, key_split(key))

    def _count_repeat(self, number: int, prefix: str) -> None:
        """Count one more run of a key; in a window, what was computed before it opened is no repeat."""
        self._repeats.add(number, prefix)
        for opened in self._windows.values():
            if self._computed[number] >= opened.number:
                opened.repeats.add(number, prefix)
            else:
                opened.computed_before += 1
        self._computed[number] = self._opened

    def _given(self, key: Any) -> None:
        """Note that a task was given to a new worker, or the first task to any."""
        if self._new:
            worker = self._tasks[key].processing_on
            presence = None if worker is None else self._new.pop(worker.address, None)
            if presence is not None:
                presence.first_task = time.monotonic_ns()
        if not self.running or not self._new:
            self._look()

    def _gone(self, key: Any, finish: str) -> None:
        """Note that a watched task lost its result, or is forgotten."""
        self._cut_short.discard(key)
        if finish == "forgotten":
            self.catch_up()  # while it is known whether the task is marked
            self.watched.discard(key)

    def _released(self, ts: TaskState, start: str, stimulus_id: str) -> None:
        """Note that a task without a result is not to be run, or begins again at once."""
        if start == "erred":  # only a client's retry takes a task from this state to running
            self._asked = stimulus_id
            self.spans.add((ts.group,))
            self._cut_short.discard(ts.key)
        elif ts.nbytes >= 0 and (ts.waiters or ts.who_wants):
            self._cut_short.add(ts.key)
            self.watched.add(ts.key)

    def _waits_again(self, ts: TaskState, stimulus_id: str) -> None:
        """Mark a task that had been in memory and is to be run once more with its cause."""
        self.catch_up()
        self.spans.add((ts.group,))
        if ts.key in self._cut_short:
            self._cut_short.discard(ts.key)
            return
        self.watched.discard(ts.key)
        if len(self._computed) < MAX_KEYS:  # it may have been computed before the accounts began
            self._computed.setdefault(hash(ts.key), 0)
        annotations = {name: value for name, value in (ts.annotations or {}).items() if name != RECOMPUTED}
        if stimulus_id != self._asked:
            annotations[RECOMPUTED] = self._lost_with(ts, stimulus_id)
            self.watched.add(ts.key)
        elif _is_alias(ts):
            self.watched.add(ts.key)
        # Not changed in place: other tasks may share it.
        ts.annotations = annotations or None

    def _lost_with(self, ts: TaskState, stimulus_id: str) -> str:
        """Mark of the worker of a lost result, or of the tasks that wait for it."""
        if stimulus_id in self._removals:
            return self._removals[stimulus_id]
        near = (each.annotations or {} for each in (*(ts.waiters or ()), *(ts.waiting_on or ())))
        return next((annotations[RECOMPUTED] for annotations in near if RECOMPUTED in annotations), SOME_WORKER)

    def _look(self) -> None:
        """Set the clocks of the cluster and of the windows."""
        self.running = running = bool(self._processing)
        self.steady = running and not self._new
        working = running or self._graphs > 0 or self._any_unassigned()
        if working is not self._working:
            self._working = working
            self._cluster.work.set(working, at=time.monotonic_ns())
            self.changed()
        if self._windows:
            at = time.monotonic_ns()
            seceded = not working and any(ws.long_running for ws in self._scheduler.workers.values())
            for opened in self._windows.values():
                opened.seceded.set(seceded, at=at)
                opened.window.running.set(running, at=at)
                opened.window.graphs.set(self._graphs > 0, at=at)

    def _any_unassigned(self) -> bool:
        """True if a task is waiting, queued or without a worker."""
        if self._unassigned is not None and _has_unassigned(self._unassigned):
            return True
        # The newest prefix is the likeliest.
        self._unassigned = next(filter(_has_unassigned, reversed(self._scheduler.task_prefixes.values())), None)
        return self._unassigned is not None

    def _taking_in(self, update_graph: Any) -> Any:
        @wraps(update_graph)
        async def taking_in(*args: Any, **kwargs: Any) -> Any:
            self._graphs += 1
            self._look()
            self.changed()
            try:
                return await update_graph(*args, **kwargs)
            finally:
                self._graphs -= 1
                for opened in self._windows.values():
                    if opened.client == kwargs.get("client"):
                        opened.graphs += 1
                        opened.arrived.set()
                self._look()
                self.changed()

        return taking_in

    def _noting_long_running(self, handle_long_running: Any) -> Any:
        @wraps(handle_long_running)
        def noting(*args: Any, **kwargs: Any) -> Any:
            result = handle_long_running(*args, **kwargs)
            self._look()
            return result

        return noting


def _has_unassigned(prefix: TaskPrefix) -> bool:
    states = prefix.states
    return states["waiting"] > 0 or states["queued"] > 0 or states["no-worker"] > 0


class _Processing:
    """True while a task that holds a slot is on a worker; for versions of upstream that do not count them by prefix."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._workers = scheduler.workers

    def __bool__(self) -> bool:
        return any(len(ws.processing) > len(ws.long_running) for ws in self._workers.values())


def _is_no_repeat(ts: TaskState) -> bool:
    """True if a task runs again as its result was lost, or is an alias."""
    return RECOMPUTED in (ts.annotations or ()) or _is_alias(ts)


def _is_alias(ts: TaskState) -> bool:
    """True if a task gives a result that is there, such as a persisted one."""
    return type(getattr(ts, "run_spec", None)).__name__ == "Alias"
