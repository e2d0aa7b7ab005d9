"""Recorder: the scheduler's view of a run, appended to columns in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress, count, filterfalse, repeat
from operator import itemgetter, methodcaller, ne
from typing import Any, NamedTuple

from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload, seconds
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.batch import WorkerBatch
from dask_efficiency.runs.trace.recording import Chapter, Frozen
from dask_efficiency.runs.trace.run_trace import MAX_ALL_PROFILES_BYTES
from dask_efficiency.runs.trace.schema import STATES, Series

#: Most different names, of spans too; in a batch, later ones share one. Bounds the memory.
MAX_NAMES = 10_000
#: Longer names are cut.
MAX_NAME_LENGTH = 200


class Names(dict[str, int]):
    """Numbers for names, given at the first look-up; all names beyond :data:`MAX_NAMES` share the last number."""

    def __missing__(self, name: str) -> int:
        short = name[:MAX_NAME_LENGTH]
        return self.setdefault(short if short in self or len(self) < MAX_NAMES else "(other)", len(self))

    def numbers(self, names: Iterable[str]) -> list[int]:
        """Get the numbers of names."""
        return [*map(self.__getitem__, names)]


#: A transition is one number in a column: ``start * len(STATES) + finish``, of positions.
_CODES = {(start, finish): i * len(STATES) + j for i, start in enumerate(STATES) for j, finish in enumerate(STATES)}
#: Stimuli whose time was read by the worker that sent the message.
_OF_WORKERS = frozenset({"task-finished", "task-erred", "execute-unknown-error", "reschedule"})
#: Nanoseconds since the epoch, in 1973, below which the number in a stimulus's id is no time, as in steal-7.
_NO_TIME = 10**17
#: Transitions for each task that a chapter has room for: a task makes five, and more if it runs again.
TRANSITIONS_A_TASK = 8
#: Columns of a heartbeat's row after its instant and worker.
SERIES = tuple(name for name in Series.dtypes() if name not in ("at", "worker"))
#: Transitions that are kept as they came, to be written into columns together: so few that the garbage collector,
#: which runs after 700 new objects, seldom visits them.
MAX_KEPT = 128
#: Of a task that its client has forgotten: generation, and two of Dask's own numbers.
_NO_PRIORITY = (0, 0, 0)
#: Tasks of a graph whose facts are read together.
_PIECE = 1_000
#: Values that are kept of a transition: the instant, the number of the task, start and finish, the stimulus, the number
#: of the worker, the run that begins or the size of the result, and Dask's ``startstops`` of a run that ended.
VALUES_KEPT = 8


class TaskFacts(NamedTuple):
    """Facts of tasks on the scheduler when they are first seen, in columns."""

    prefixes: Sequence[str]
    #: Names of their spans.
    spans: Sequence[str]
    #: The user's, the graph's, and the order in the graph.
    priorities: Sequence[Sequence[int]]
    #: Keys that each depends on; empty if none depends on anything.
    dependencies: Sequence[Sequence[Any]]
    #: As in :attr:`~dask_efficiency.runs.trace.run_trace.RunTrace.constraints`, by position, of those that have any.
    constraints: Mapping[int, Mapping[str, Any]]


_ACTION, _START, _STOP = map(itemgetter, ("action", "start", "stop"))
_KIND_AND_TIME = methodcaller("rpartition", "-")


class TraceRecorder:
    """Recorder of the scheduler's view, without a scheduler.

    It keeps two chapters. When the newer one is full, the older one is dropped and counted, so that of ``max_tasks`` at
    least half are the latest.

    Transitions of tasks whose facts were read may be appended to :attr:`kept`: they are written into columns before
    anything whose order matters. The caller calls :meth:`make_room` at :data:`MAX_KEPT`, so a chapter may grow beyond
    half by as many.
    """

    def __init__(self, read: Callable[[Sequence[Any]], TaskFacts | None], *, max_tasks: int) -> None:
        self._read = read
        #: By key: number of each task of the newer chapter whose facts were read. It stays the same dictionary.
        self.ids: dict[Any, int] = {}
        #: By key: number of each task that is so far known only as a dependency of others.
        self._unread: dict[Any, int] = {}
        #: Transitions of tasks in ``ids`` that are to be written: :data:`VALUES_KEPT` values each, not a tuple, which
        #: the garbage collector would visit. It stays the same list.
        self.kept: list[Any] = []
        #: Releases that are to be written: instant, client, keys.
        self._releases: list[tuple[int, str, Sequence[Any]]] = []
        self.limit(max_tasks)
        self._older: Chapter | None = None
        self._newer = Chapter()
        self._stimulus_id = ""
        self._stimulus = MISSING
        #: Stimulus and number of the graph that is being taken in.
        self._taking_in: tuple[str, int] = "", MISSING
        self.prefixes, self.spans, self.clients, self.kinds = Names(), Names(), Names(), Names()
        self.dropped: Counter[str] = Counter()
        #: By reason: number of runs that were to be profiled and were not.
        self.not_profiled: Counter[str] = Counter()

    def limit(self, max_tasks: int) -> None:
        """Keep at most this many tasks from now on."""
        self._half = max(1, max_tasks // 2)
        self._full_log = TRANSITIONS_A_TASK * self._half

    def _meet(self, key: Any, graph: int = MISSING) -> int:
        """Number a task that is new in this chapter, and read its facts; also of one known only as a dependency."""
        facts, task = self._read((key,)), self._unread.get(key)
        if task is None:
            task = self._number(key, self.ids)
        if facts is None:
            return task
        self._unread.pop(key, None)
        self.ids[key] = task
        prefixes, spans, graphs = self._newer.tasks.columns.values()
        (prefixes[task],) = self.prefixes.numbers(facts.prefixes)
        (spans[task],) = self.spans.numbers(facts.spans)
        graphs[task] = graph
        for dependency in chain.from_iterable(facts.dependencies):
            if dependency not in self.ids and dependency not in self._unread:
                self._number(dependency, self._unread)
        self._newer.priority[3 * task : 3 * task + 3] = array("q", facts.priorities[0])
        self._know([key], facts)
        return task

    def _number(self, key: Any, numbers: dict[Any, int]) -> int:
        task = numbers[key] = len(self._newer.keys)
        self._newer.keys.append(key)
        self._newer.tasks.append(MISSING, MISSING, MISSING)
        self._newer.priority.extend(_NO_PRIORITY)
        return task

    def _add(self, keys: list[Any], facts: TaskFacts, graph: int) -> None:
        """Number tasks that are new in this chapter, each followed by its new dependencies."""
        chapter, first = self._newer, len(self._newer.keys)
        prefixes, spans = self.prefixes.numbers(facts.prefixes), self.spans.numbers(facts.spans)
        priorities, graphs = facts.priorities, [graph] * len(keys)
        new = keys
        if facts.dependencies:
            each_and_its_own = chain.from_iterable(zip(zip(keys, strict=True), facts.dependencies, strict=True))
            unnumbered = filterfalse(self.ids.__contains__, dict.fromkeys(chain.from_iterable(each_and_its_own)))
            new = list(filterfalse(self._unread.__contains__, unnumbered))
        numbers = dict(zip(new, count(first), strict=False))
        if new != keys:
            position = dict(zip(keys, count(), strict=False))
            rows = [position.get(key, MISSING) for key in new]
            # A dependency that is not read yet gets the last row.
            known = [*zip(prefixes, spans, graphs, priorities, strict=True), (MISSING, MISSING, MISSING, _NO_PRIORITY)]
            prefixes, spans, graphs, priorities = map(list, zip(*[known[row] for row in rows], strict=True))
            unread = [key for key, row in zip(new, rows, strict=True) if row == MISSING]
            self._unread.update(zip(unread, map(numbers.pop, unread), strict=True))
        priority = array("q", chain.from_iterable(priorities))
        chapter.tasks.extend(prefixes, spans, graphs)
        chapter.priority.extend(priority)
        chapter.keys += new
        self.ids.update(numbers)
        self._know(keys, facts)

    def _know(self, keys: Sequence[Any], facts: TaskFacts) -> None:
        ids, unread = self.ids, self._unread
        for position, constraints in facts.constraints.items():
            self._newer.constraints[ids[keys[position]]] = dict(constraints)
        if facts.dependencies:
            tasks = chain.from_iterable(map(repeat, map(ids.__getitem__, keys), map(len, facts.dependencies)))
            needed = chain.from_iterable(facts.dependencies)
            if unread:
                needed_tasks: Iterable[int] = [ids[key] if key in ids else unread[key] for key in needed]
            else:
                needed_tasks = map(ids.__getitem__, needed)
            self._newer.edges.extend(tasks, needed_tasks)

    def graph(
        self, keys: Iterable[Any], wanted: Collection[Any], *, client: str, stimulus_id: str, received: int, at: int
    ) -> None:
        """Note a graph that was taken in, from ``received`` on; its transitions follow, by the same stimulus."""
        self.make_room()
        self.catch_up()
        chapter = self._newer
        graphs = chapter.tables["graphs"]
        number = chapter.first_graph + len(graphs)
        graphs.append(self.clients[client], received, at)
        self._taking_in = stimulus_id, number
        keys, wanted = list(dict.fromkeys(keys)), set(wanted)
        for first in range(0, len(keys), _PIECE):
            self._take_in(keys[first : first + _PIECE], wanted, number)

    def _take_in(self, keys: list[Any], wanted: set[Any], graph: int) -> None:
        """Number tasks of a graph: all together if they are new and there is room for them and their dependencies."""
        ids = self.ids
        if ids.keys().isdisjoint(keys) and self._unread.keys().isdisjoint(keys):
            facts = self._read(keys)
            if facts is not None:
                needed = sum(map(len, facts.dependencies))
                if len(self._newer.keys) + len(keys) + needed <= self._half:
                    self._add(keys, facts, graph)
                    self._newer.wanted.update(map(ids.__getitem__, filter(wanted.__contains__, keys)))
                    return
        for key in keys:
            task = ids.get(key)
            if task is None:
                if len(self._newer.keys) >= self._half:
                    self.make_room()
                task = self._meet(key, graph)
            elif self._newer.tasks.columns["graph"][task] == MISSING:
                self._newer.tasks.columns["graph"][task] = graph
            if key in wanted:
                self._newer.wanted.add(task)

    def transition(
        self,
        at: int,
        key: Any,
        start: str,
        finish: str,
        stimulus_id: str,
        worker: int,
        extra: int,
        startstops: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Note a task's change of state; ``extra`` is the number of the run that begins, or the size of the result."""
        self.catch_up()
        if stimulus_id != self._stimulus_id:
            if len(self._newer.log) >= self._full_log:
                self.make_room()
            self._stimulate([stimulus_id], [worker], [len(self._newer.log)])
        task = self.ids.get(key)
        if task is None:
            task = self._unread.get(key)
            if finish != "forgotten":
                task = self._meet(key)
            elif task is None:  # it was there before the recording
                return
        if startstops:
            self._write_computed([len(self._newer.log)], [startstops])
        self._newer.log.append(at, task, worker, _CODES[start, finish], extra)

    def catch_up(self) -> None:
        """Write the kept transitions and releases."""
        if self.kept:
            ats, tasks, starts, finishes, stimuli, workers, extras, computed = (
                self.kept[i::VALUES_KEPT] for i in range(VALUES_KEPT)
            )
            self.kept.clear()
            log = self._newer.log
            first = len(log)
            begins = list(map(ne, stimuli, (self._stimulus_id, *stimuli)))
            if True in begins:
                rows = list(compress(count(first), begins))
                self._stimulate(list(compress(stimuli, begins)), list(compress(workers, begins)), rows)
            codes = map(_CODES.__getitem__, zip(starts, finishes, strict=True))
            log.extend(ats, tasks, workers, codes, extras)
            rows = list(compress(count(first), computed))
            if rows:
                self._write_computed(rows, list(filter(None, computed)))
        for at, client, keys in self._releases:
            known = [task for key in keys if (task := self.ids.get(key, self._unread.get(key))) is not None]
            self._newer.tables["releases"].extend([at] * len(known), [self.clients[client]] * len(known), known)
        self._releases = []

    def _write_computed(self, rows: list[int], startstops: list[Sequence[Mapping[str, Any]]]) -> None:
        """Write Dask's start and stop of runs, with the row of the log that ends each; odd ones are left out."""
        try:
            last = [reported[-1] for reported in startstops]
            starts, stops = [*map(_START, last)], [*map(_STOP, last)]
            usual = not any(map(ne, map(_ACTION, last), repeat("compute")))
            least, most = min(min(starts), min(stops)), max(max(starts), max(stops))
            usual = usual and least >= 0 and most <= MAX_NANOSECONDS / 1e9
            usual = usual and sum(starts) + sum(stops) < math.inf  # nor is any NaN
        except (LookupError, TypeError):
            usual = False
        if not usual:
            computed = [(row, both) for row, parts in zip(rows, startstops, strict=True) if (both := _computed(parts))]
            rows, starts, stops = (
                [row for row, _ in computed],
                [both[0] for _, both in computed],
                [both[1] for _, both in computed],
            )
        self._newer.computed.extend(rows, starts, stops)

    def recomputed(self, run_id: int) -> None:
        """Note a run that computes a lost result again."""
        self._newer.tables["recomputed"].append(run_id)

    def _stimulate(self, stimulus_ids: Sequence[str], workers: Sequence[int], rows: Sequence[int]) -> None:
        """Begin stimuli, each with a row of the log and the worker of that."""
        stimuli = self._newer.stimuli
        try:
            parts = [*map(_KIND_AND_TIME, stimulus_ids)]
        except AttributeError:  # a worker's message may give any
            stimulus_ids = [
                str(stimulus_id)[:MAX_NAME_LENGTH] if isinstance(stimulus_id, str) else ""
                for stimulus_id in stimulus_ids
            ]
            parts = [*map(_KIND_AND_TIME, stimulus_ids)]
        kinds, _, times = zip(*parts, strict=True)
        graphs = [MISSING] * len(rows)
        taken_in, graph = self._taking_in
        if taken_in in stimulus_ids:
            graphs = [graph if stimulus_id == taken_in else MISSING for stimulus_id in stimulus_ids]
        stimuli.extend(
            self.kinds.numbers(kinds),
            _instants_of_stimuli(times),
            graphs,
            rows,
            [worker if kind in _OF_WORKERS else MISSING for kind, worker in zip(kinds, workers, strict=True)],
        )
        self._stimulus_id = stimulus_ids[-1]
        self._stimulus = self._newer.first_stimulus + len(stimuli) - 1

    def released(self, at: int, client: str, keys: Sequence[Any]) -> None:
        """Note that a client released keys."""
        self._releases.append((at, client, keys))
        if len(self._releases) >= MAX_KEPT or len(keys) >= MAX_KEPT:
            self.catch_up()

    def worker_changed(self, at: int, worker: int, change: int, *, stimulus_id: str | None = None) -> None:
        """Note a worker that joined, left, paused or resumed; the stimulus is the one that removed it."""
        self.catch_up()
        self._newer.tables["worker_events"].append(at, worker, change)
        if stimulus_id is not None and stimulus_id == self._stimulus_id:
            self._newer.tables["removals"].append(self._stimulus)

    def blocked(self, start: int, stop: int, moving_ns: int, cause: int = MISSING) -> None:
        """Note that the scheduler's event loop was blocked, and how long it moved data itself."""
        self._newer.tables["blocked"].append(MISSING, start, stop, moving_ns, cause)

    def heartbeat(self, at: int, worker: int, values: Sequence[float]) -> None:
        """Note a worker's heartbeat: the columns :data:`SERIES`."""
        self.make_room()
        self._newer.tables["series"].append(at, worker, *values)

    def batch(self, worker: int, senders: list[int], batch: WorkerBatch) -> None:
        """Note a worker's batch."""
        self.make_room()
        self.not_profiled.update(batch.not_profiled)
        nbytes = sum(len(profile.content) for profile in batch.profiles)
        if nbytes + sum(chapter.profile_bytes for chapter in self._chapters) > MAX_ALL_PROFILES_BYTES:
            self.dropped["profiles"] += len(batch.profiles)
            batch, nbytes = replace(batch, profiles=()), 0
        self._newer.profile_bytes += nbytes
        self._newer.batches.append((worker, senders, batch))
        self._newer.batch_rows += len(batch.runs) + len(batch.transfers)

    def make_room(self) -> None:
        """Write kept transitions if there are many; begin a new chapter if this one is full, and drop the oldest."""
        full, half = self._newer, self._half
        if len(self.kept) >= MAX_KEPT * VALUES_KEPT:
            self.catch_up()
        if (
            len(full.keys) < half
            and len(full.log) + len(self.kept) // VALUES_KEPT < self._full_log
            and full.batch_rows < self._full_log
            and len(full.tables["series"]) < self._full_log
        ):
            return
        self.catch_up()
        if self._older is not None:
            counts = self._older.counts()
            living = (self.ids.__contains__, self._unread.__contains__)
            counts["tasks"] -= sum(sum(map(lives, self._older.keys)) for lives in living)
            self.dropped.update(counts)
        self._older = full
        self.ids.clear()
        self._unread.clear()
        self._stimulus_id = ""
        self._newer = Chapter(
            first_graph=full.first_graph + len(full.tables["graphs"]),
            first_stimulus=full.first_stimulus + len(full.stimuli),
        )

    def freeze(self) -> Frozen:
        """Freeze the recording as of now. Quick, for the event loop: columns that only grow are copied later."""
        self.catch_up()
        names = {name: list(getattr(self, name)) for name in ("prefixes", "spans", "clients", "kinds")}
        counts = {name: dict(getattr(self, name)) for name in ("dropped", "not_profiled")}
        return Frozen(self._chapters, {**names, **counts})

    @property
    def _chapters(self) -> list[Chapter]:
        return [chapter for chapter in (self._older, self._newer) if chapter is not None]


def _computed(startstops: object) -> tuple[float, float] | None:
    """Start and stop of the last computation that a worker reported of a run; None if it reported none, or oddly."""
    for part in reversed(startstops) if isinstance(startstops, list | tuple) else ():
        if isinstance(part, Mapping) and part.get("action") == "compute":
            try:
                return seconds("start", part.get("start")), seconds("stop", part.get("stop"))
            except RefusedPayload:
                return None
    return None


def _instants_of_stimuli(times: Sequence[str]) -> list[int]:
    """Read the instants of stimuli, nanoseconds since the epoch, from the last parts of their ids."""
    try:
        made = [int(at * 1e9) for at in map(float, times)]
    except (OverflowError, ValueError):
        return [MISSING] if len(times) == 1 else [_instants_of_stimuli([at])[0] for at in times]
    return made if min(made) > _NO_TIME else [at if at > _NO_TIME else MISSING for at in made]
