"""ClusterRecorder: feeds a recorder from the scheduler's hooks and the workers' batches."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import chain
from operator import attrgetter
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast

import dask
import distributed

from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload, keys, seconds, whole
from dask_efficiency.accounts.intake import as_float, fitting
from dask_efficiency.accounts.processors import Processors, cores, taken_by_others
from dask_efficiency.accounts.sensors import SENSORS, gpu_sensors
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.wire.heartbeats import is_repeated
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.guard import DataGuard, Guard
from dask_efficiency.plugin.names import METRIC, RECOMPUTED
from dask_efficiency.plugin.processors import own_processors
from dask_efficiency.plugin.scheduler.heartbeats import DASK_METRICS, dask_metric, host_sensors
from dask_efficiency.plugin.scheduler.joining import check_registration
from dask_efficiency.plugin.scheduler.outstanding import WorkTracker, span_name
from dask_efficiency.plugin.version import __version__
from dask_efficiency.runs.recording import recordings
from dask_efficiency.runs.recording.loop_watch import LoopWatch
from dask_efficiency.runs.trace.batch import decode
from dask_efficiency.runs.trace.recorder import MAX_KEPT, MAX_NAMES, SERIES, VALUES_KEPT, TaskFacts, TraceRecorder
from dask_efficiency.runs.trace.schema import WorkerChange
from dask_efficiency.runs.trace.settings import SETTINGS
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState, WorkerState


_KEY, _PREFIX, _SPAN = attrgetter("key"), attrgetter("prefix.name"), attrgetter("group.span_id")
_PRIORITY, _DEPENDENCIES = attrgetter("priority"), attrgetter("dependencies")
_CONSTRAINED = attrgetter("host_restrictions", "worker_restrictions", "resource_restrictions", "retries", "actor")


class TaskReader:
    """Reads facts of a scheduler's tasks, for all tasks of a graph at once."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks = scheduler.tasks
        self._span_names: dict[str | None, str] = {}

    def read(self, keys: Sequence[Any]) -> TaskFacts | None:
        """Read the facts of tasks; None if the scheduler does not know all of them."""
        states = [*map(self._tasks.get, keys)]
        if not all(states):
            return None
        span_ids = [*map(_SPAN, states)]
        names = [*map(self._span_names.get, span_ids)]
        spans = cast("list[str]", names) if None not in names else [*map(self._name_of_span, span_ids)]
        priorities = [*map(_PRIORITY, states)]
        # The second part is a float for tasks that a task submits.
        usual = {*map(type, priorities)} == {tuple} and {*map(len, priorities)} == {3}
        if not usual or {*map(type, chain.from_iterable(priorities))} != {int}:
            # Zeros for scattered data, or where upstream changed them.
            known = [given if given is not None and len(given) == 3 else (0, 0, 0) for given in priorities]
            priorities = [tuple(map(int, parts)) for parts in known]
        needs = [*map(_DEPENDENCIES, states)]
        dependencies = [[*map(_KEY, needed or ())] for needed in needs] if any(needs) else ()
        constraints = {}
        if any(map(any, map(_CONSTRAINED, states))):
            constraints = {i: _constraints(ts) for i, ts in enumerate(states) if any(_CONSTRAINED(ts))}
        return TaskFacts([*map(_PREFIX, states)], spans, priorities, dependencies, constraints)

    def _name_of_span(self, span_id: str | None) -> str:
        if span_id not in self._span_names:
            span = getattr(self._scheduler.extensions.get("spans"), "spans", {}).get(span_id)
            if len(self._span_names) > MAX_NAMES:
                self._span_names.clear()
            self._span_names[span_id] = span_name(span) if span is not None else ""
        return self._span_names[span_id]


def _reading(answer: Mapping[str, Any]) -> tuple[int, int]:
    """A worker's monotonic clock, and what to add for its wall clock."""
    return whole("at", answer.get("at")), whole("wall", answer.get("wall"))


def _constraints(ts: Any) -> dict[str, Any]:
    constraints: dict[str, Any] = {}
    restrictions = [*(ts.host_restrictions or ()), *(ts.worker_restrictions or ())]
    if restrictions:
        constraints["restrictions"] = sorted(map(str, restrictions))
        constraints["loose_restrictions"] = bool(ts.loose_restrictions)
    if ts.resource_restrictions:
        constraints["resources"] = {str(name): float(amount) for name, amount in ts.resource_restrictions.items()}
    if ts.retries:
        constraints["retries"] = int(ts.retries)
    if ts.actor:
        constraints["actor"] = True
    return constraints


#: By status of a worker: the change that leads to it.
_CHANGES = {"running": WorkerChange.RESUMED, "paused": WorkerChange.PAUSED, "closing_gracefully": WorkerChange.RETIRING}
#: Activities that have a column of the series, which begins with Dask's metrics and ends with the sensors.
_ACTIVITIES = tuple(name.replace("_", "-") for name in SERIES[len(DASK_METRICS) : -len(SENSORS)])
assert SERIES[: len(DASK_METRICS)] == tuple(DASK_METRICS)
assert SERIES[-len(SENSORS) :] == SENSORS

#: Values of sensors, by GPU and name.
Readings = Mapping[str, Mapping[str, float]]
MethodT = TypeVar("MethodT", bound=Callable[..., None])


def _guarded(method: MethodT) -> MethodT:
    @wraps(method)
    def called(recorder: ClusterRecorder, /, *args: Any, **kwargs: Any) -> None:
        recorder._guard(method, recorder, *args, **kwargs)

    return cast(MethodT, called)


class ClusterRecorder:
    """Records a cluster until :meth:`stop`; ``failed`` is called when it has failed and records nothing any more.

    ``processors`` gives those of the workers as they are now, by address.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        failed: Callable[[], object],
        *,
        max_tasks: int,
        processors: Callable[[], Mapping[str, Processors]] = dict,
    ) -> None:
        self.scheduler = scheduler
        self._on_failure = failed
        self.id = uuid.uuid4().hex
        self._guard = Guard(
            "the recorder on the scheduler", "dask_efficiency switched its recorder on the scheduler off", self._failed
        )
        self._odd = DataGuard()
        self.started = monotonic_ns()
        self._epoch = time_ns() - self.started
        self._tasks = scheduler.tasks
        self._recorder = TraceRecorder(TaskReader(scheduler).read, max_tasks=max_tasks)
        self._workers: list[dict[str, Any]] = []
        #: By address: number of the last worker there.
        self._numbers: dict[str, int] = {}
        self._present: set[str] = set()
        #: By address: number of the last batch that came.
        self.heard: dict[str, int] = {}
        self._refused = 0
        self._metrics: dict[str, Any] = {}
        self._activity: dict[str, Mapping[str, int]] = {}
        self._bandwidth = float(scheduler.bandwidth)
        self._processors = processors
        #: Processors of the workers, and the scheduler's, when they were first known.
        self._then, self._own_then = dict(processors()), own_processors()
        for address in scheduler.workers:
            self.worker_joined(address, at=MISSING)
        for ts in chain.from_iterable(ws.processing for ws in scheduler.workers.values()):
            self._sent(ts, self.started, "")
        self._watch = LoopWatch(scheduler, self._recorder.blocked)
        self._replacements = patches.Replacements()
        self._replacements.put(patches.CLIENT_RELEASES_KEYS, scheduler, self._noting_releases)
        self._replacements.put(patches.STEAL_RESPONSE, scheduler, self._noting_steals)

    @property
    def off(self) -> str | None:
        """Reason why it records nothing any more; None while it works."""
        return self._guard.off

    def limit(self, max_tasks: int) -> None:
        """Keep at most this many tasks from now on."""
        self._recorder.limit(max_tasks)

    def stop(self) -> None:
        """Stop recording."""
        self._watch.stop()
        self._replacements.put_back()

    def _failed(self) -> None:
        self.stop()
        self._on_failure()

    def hook(self, metered: Callable[..., object], work: WorkTracker) -> Callable[..., None]:
        """Make the hook that the scheduler calls for every transition of every task; it calls the meter's hook, too.

        The meter's hook feeds ``work``, gets the stimulus's id and a result's worker, of a failed task all that was
        reported, and is called only where it acts.
        Transitions of tasks whose facts were read are kept, to be written together.
        """
        recorder, tasks, workers, now = self._recorder, self._tasks, self._numbers, monotonic_ns
        ids, kept, keep, watched = recorder.ids, recorder.kept, recorder.kept.extend, work.watched
        note, missing, most, max_kept = recorder.transition, MISSING, MAX_NANOSECONDS, MAX_KEPT * VALUES_KEPT

        # Named arguments would be looked for among all that a worker reports: 5,000 instructions a result.
        def transition(key: Any, start: str, finish: str, /, **reported: Any) -> None:
            """Note a transition; ``reported`` is the stimulus's id, and the fields of the worker's message."""
            stimulus_id, worker = reported.get("stimulus_id", ""), ""
            number, extra, startstops = missing, missing, ()
            try:
                if finish == "processing":
                    ts = tasks[key]
                    if ts.annotations:
                        self._note_recomputed(ts)
                    number, extra = workers[ts.processing_on.address], ts.run_id or 0  # type: ignore[union-attr]
                elif start == "processing":
                    worker = reported.get("worker", "")
                    number = workers.get(worker, missing)
                    if finish == "memory":
                        extra, startstops = reported.get("nbytes", missing), reported.get("startstops") or ()
                elif finish == "memory":
                    extra = tasks[key].nbytes
                elif len(kept) >= max_kept:
                    self._guard(recorder.make_room)
                if type(extra) is not int or not missing <= extra <= most:
                    extra = missing  # whoever made the result may report any size
                task = ids.get(key)
                if task is not None:
                    keep((now(), task, start, finish, stimulus_id, number, extra, startstops))
                else:  # its facts were not read yet
                    self._guard(note, now(), key, start, finish, stimulus_id, number, extra, startstops)
            except Exception as error:
                self._guard.fail(error)
            if finish == "processing":
                needed = not work.steady
            else:
                needed = bool(watched) or not (start == "memory" or finish == "forgotten")
            if needed and finish == "erred":
                metered(key, start, finish, **reported)
            elif needed:  # else it does nothing, and calling it takes as long as all of the above
                metered(key, start, finish, stimulus_id=stimulus_id, worker=worker)

        return transition

    def _note_recomputed(self, ts: TaskState) -> None:
        """Note if the run that was just sent to a worker computes a lost result again."""
        if ts.annotations and RECOMPUTED in ts.annotations:
            self._recorder.recomputed(ts.run_id or 0)

    @_guarded
    def graph_taken_in(self, client: str, tasks: Sequence[Any], wanted: Any, stimulus_id: str) -> None:
        """Note a graph that was taken in."""
        at = received = monotonic_ns()
        # Upstream makes the stimulus from the time at which it began.
        kind, _, when = stimulus_id.rpartition("-")
        if kind == "update-graph":
            with suppress(ValueError):  # a client may give any
                received = min(at, round(seconds("stimulus", float(when)) * 1e9) - self._epoch)
        self._recorder.graph(tasks, wanted, client=client, stimulus_id=stimulus_id, received=received, at=at)

    def worker_joined(self, address: str, *, at: int | None = None) -> None:
        """Note a worker that joined, or was there first (:data:`~dask_efficiency.accounts.tables.MISSING`)."""
        ws = self.scheduler.workers.get(address)
        if ws is None or address in self._present:
            return
        with suppress(RefusedPayload):  # it is not measured either, which says why
            check_registration(ws)
            self._guard(self._meet, ws, monotonic_ns() if at is None else at)

    @_guarded
    def worker_left(self, address: str, stimulus_id: str | None) -> None:
        """Note a worker that was removed."""
        if address in self._present:
            self._present.discard(address)
            self._metrics.pop(address, None)
            self._activity.pop(address, None)
            self._then.pop(address, None)
            number = self._numbers[address]
            self._recorder.worker_changed(monotonic_ns(), number, WorkerChange.LEFT, stimulus_id=stimulus_id)

    def _meet(self, ws: WorkerState, at: int) -> None:
        self._numbers[ws.address] = number = len(self._workers)
        self._present.add(ws.address)
        self.heard.pop(ws.address, None)
        known = {name: getattr(ws, name) for name in ("address", "host", "nthreads", "memory_limit")}
        resources = {fitting(name): as_float(amount) for name, amount in ws.resources.items()}
        clock = {"offset": 0, "error": MISSING, "wall": self._epoch}
        self._workers.append({"name": fitting(ws.name), **known, "resources": resources, **clock})
        if at != MISSING:
            self._recorder.worker_changed(at, number, WorkerChange.JOINED)

    def _noting_releases(self, original: Any) -> Any:
        released = self._recorder.released

        def noting(*args: Any, **kwargs: Any) -> Any:
            try:
                gone = self._odd("a client's release of results", keys, "keys", kwargs.get("keys") or ())
                released(monotonic_ns(), str(kwargs.get("client")), [*(gone or ())])
            except Exception as error:
                self._guard.fail(error)
            return original(*args, **kwargs)

        return noting

    def _noting_steals(self, original: Any) -> Any:
        def noting(*args: Any, **kwargs: Any) -> Any:
            try:
                ts = self._tasks.get(kwargs["key"])
            except (KeyError, TypeError):  # upstream says what is wrong
                ts = None
            before = ts.run_id if ts is not None else None
            result = original(*args, **kwargs)
            if ts is not None and ts.run_id != before and ts.state == "processing":
                self._guard(self._sent, ts, monotonic_ns(), str(kwargs.get("stimulus_id")))
            return result

        return noting

    def _sent(self, ts: Any, at: int, stimulus_id: str) -> None:
        """Note a task that was in ``processing`` and was sent to the worker that it is on now."""
        worker = self._numbers.get(ts.processing_on.address, MISSING)
        self._note_recomputed(ts)
        self._recorder.transition(at, ts.key, "processing", "processing", stimulus_id, worker, ts.run_id or 0)

    def status_changed(self, worker: str, status: object) -> None:
        """Note a worker that pauses, resumes or retires."""
        change = _CHANGES.get(status) if isinstance(status, str) else None
        if change is not None and worker in self._numbers:
            self._recorder.worker_changed(monotonic_ns(), self._numbers[worker], change)

    @_guarded
    def take_batch(self, message: Any) -> None:
        """Keep a worker's batch."""
        try:
            batch = decode(message)
        except RefusedPayload as refusal:
            self._refused += 1
            logger.warning("dask_efficiency refused a batch: %s", refusal)
            return
        worker = self._numbers.get(batch.worker)
        if batch.recording != self.id or worker is None:
            return
        lost = batch.seq - self.heard.get(batch.worker, 0) - 1
        if lost > 0:
            self._recorder.dropped["batches"] += lost
        self.heard[batch.worker] = batch.seq
        self._workers[worker]["wall"] = batch.wall
        self._recorder.batch(worker, [self._numbers.get(sender, MISSING) for sender in batch.senders], batch)

    @_guarded
    def read_clock(self, address: str, sent: int, answer: Mapping[str, Any], came: int) -> None:
        """Note a worker's reading of its clock; of all readings, the one with the quickest answer counts."""
        if address not in self._numbers:
            return
        reading = self._odd("a worker's reading of its clock", _reading, answer)
        if reading is None:
            return
        read, wall = reading
        worker, error = self._workers[self._numbers[address]], (came - sent) // 2
        if worker["error"] == MISSING or error < worker["error"]:
            offset = sent + error - read
            # An offset within the error is none, as on one machine.
            worker.update(offset=0 if abs(offset) <= error else offset, error=error, wall=wall)

    @_guarded
    def take_heartbeats(
        self,
        activity: Mapping[str, Mapping[str, int]],
        gpu_readings: Callable[[str], Readings | None],
        unread: Container[str] = (),
    ) -> None:
        """Note the workers' metrics, activity (nanoseconds by name) and sensors as of their last heartbeats.

        The activity of the addresses in ``unread`` is not known yet.
        """
        self._recorder.catch_up()
        if not self._present <= self._then.keys():
            self._then = {**self._processors(), **self._then}
        at = monotonic_ns()
        for address, ws in self.scheduler.workers.items():
            number = self._numbers.get(address)
            last = self._metrics.get(address)
            if number is None or ws.metrics is last or address in unread:
                continue
            if last is not None and is_repeated(ws.metrics.get(METRIC), last.get(METRIC)):
                continue  # it does not tell what the worker did since
            self._metrics[address] = ws.metrics
            before, now = self._activity.get(address, {}), dict(activity.get(fitting(ws.name), {}))
            self._activity[address] = now
            if last is None:
                continue
            age = min(max(0, time_ns() - round(ws.last_seen * 1e9)), at - self.started)
            values = [
                *(dask_metric(ws.metrics, name) for name in DASK_METRICS),
                *((now.get(name, 0) - before.get(name, 0)) / 1e9 for name in _ACTIVITIES),
                *host_sensors(ws.metrics).tolist(),
                *gpu_sensors(gpu_readings(address)),
            ]
            self._recorder.heartbeat(at - age, number, values)

    def freeze(self, notes: Sequence[str] = ()) -> Callable[[], dict[str, Any]]:
        """Freeze the recording as of now; the function that is returned packs it, on any thread."""
        stopped = monotonic_ns()
        shared = self._cores()
        frozen = self._recorder.freeze()
        own = [self.off] if self.off is not None else []
        if self._refused:
            own.append(f"{self._refused} batches of rows were refused: the scheduler's log names why")
        config = {name: dask.config.get(name) for name in SETTINGS if dask.config.get(name, None) is not None}
        versions = {"dask": dask.__version__, "distributed": distributed.__version__}
        frozen.facts.update(
            epoch=self._epoch,
            started=self.started,
            stopped=stopped,
            workers=[{**worker, **shared.get(worker["host"], {})} for worker in self._workers],
            config={**config, "bandwidth": self._bandwidth},
            versions={"dask-efficiency": __version__, **versions, "python": platform.python_version()},
            notes=[*own, *notes],
        )
        return lambda: recordings.pack(frozen.pack())

    def _cores(self) -> dict[str, dict[str, float]]:
        """By host: cores that its workers share, and the share of these that others took."""
        processors, own = self._processors(), (self._own_then, own_processors())
        hosts: dict[str, list[tuple[Processors, Processors]]] = {}
        for address, number in self._numbers.items():
            if (now := processors.get(address)) is not None:
                both = (self._then.get(address, now), now)
                hosts.setdefault(self._workers[number]["host"], []).append(both)
        return {
            host: {"cores": cores(now for _, now in members), "others": taken_by_others(members, own)}
            for host, members in hosts.items()
        }
