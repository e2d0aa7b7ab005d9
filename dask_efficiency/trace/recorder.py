"""Recorder: what the scheduler sees of a run, appended to columns, in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from dask_efficiency.trace.batch import Batch
from dask_efficiency.trace.chapter import Chapter
from dask_efficiency.trace.names import Names
from dask_efficiency.trace.recording import Frozen
from dask_efficiency.trace.schema import STATES, Series
from dask_efficiency.trace.tables import MISSING

#: A transition is one number in a column: ``start * len(STATES) + finish``.
_CODES = {start: {finish: i * len(STATES) + j for j, finish in enumerate(STATES)} for i, start in enumerate(STATES)}

#: Stimuli whose time was read from the clock of the worker that sent the message.
_OF_WORKERS = frozenset({"task-finished", "task-erred", "execute-unknown-error", "reschedule"})

#: Transitions for each task that a chapter has room for.
TRANSITIONS_A_TASK = 8

#: Columns of a worker's heartbeat, after its instant and worker.
SERIES = tuple(name for name in Series.dtypes() if name not in ("at", "worker"))


#: What the scheduler knows of a task when it is first met: its prefix, the name of its span, its priority (the
#: user's, the graph's, the order in the graph), the keys of its dependencies, and its constraints, as in
#: :attr:`~dask_efficiency.trace.run_trace.TraceTables.constraints`; None where it has none.
TaskFacts = tuple[str, str, tuple[int, int, int], Sequence[Any], Mapping[str, Any] | None]


class Recorder:
    """The scheduler's recorder, without a scheduler.

    It keeps two chapters. When the newer one is full, the older one is dropped and counted.

    Parameters
    ----------
    read
        Gives what the scheduler knows of a task, by key; None where it knows none.
    max_tasks
        Tasks kept at most; at least half of them are the latest.
    """

    def __init__(self, read: Callable[[Any], TaskFacts | None], *, max_tasks: int) -> None:
        self._read = read
        self.limit(max_tasks)
        self._older: Chapter | None = None
        self._begin(Chapter())
        self._stimulus = MISSING
        #: The graph that is being taken in, and by which stimulus.
        self._taking_in: tuple[str, int] = "", MISSING
        self.prefixes, self.spans, self.clients, self.kinds = Names(), Names(), Names(), Names()
        self._known_prefix, self._known_span, self._known_kind = self.prefixes.known, self.spans.known, self.kinds.known
        self.dropped: Counter[str] = Counter()

    def limit(self, max_tasks: int) -> None:
        """Keep so many tasks from now on."""
        self._half = max(1, max_tasks // 2)
        self._full_log = TRANSITIONS_A_TASK * self._half

    def _begin(self, chapter: Chapter) -> None:
        self._newer = chapter
        self._stimulus_id = ""
        #: What a transition needs of the chapter, looked up once: there is one for every step of every task.
        self._log: tuple[Any, ...] = chapter.ids.get, chapter.unread, *chapter.log.appends
        #: As long as the log.
        self._log_at = chapter.log.columns["at"]

    # -- tasks -------------------------------------------------------------------------------

    def _meet(self, key: Any, graph: int = MISSING) -> int:
        """Number a task that is new in this chapter, or read what was known only as a dependency; give its number."""
        chapter = self._newer
        ids = chapter.ids
        task = ids.get(key)
        facts = self._read(key)
        if facts is None:
            return self._number(key) if task is None else task
        prefix, span, priority, dependencies, constraints = facts
        prefix_number, span_number = self._known_prefix(prefix), self._known_span(span)
        if prefix_number is None:
            prefix_number = self.prefixes.number(prefix)
        if span_number is None:
            span_number = self.spans.number(span)
        if task is None:
            task = ids[key] = len(ids)
            add_prefix, add_span, add_graph = chapter.tasks.appends
            add_prefix(prefix_number)
            add_span(span_number)
            add_graph(graph)
            chapter.priority.extend(priority)
        else:
            chapter.unread.discard(task)
            prefixes, spans, graphs = chapter.tasks.columns.values()
            prefixes[task], spans[task], graphs[task] = prefix_number, span_number, graph
            chapter.priority[3 * task : 3 * task + 3] = array("q", priority)
        if constraints:
            chapter.constraints[task] = dict(constraints)
        add_task, add_dependency = chapter.edges.appends
        for dependency in dependencies:
            needed = ids.get(dependency)
            if needed is None:
                needed = self._number(dependency)
                chapter.unread.add(needed)
            add_task(task)
            add_dependency(needed)
        return task

    def _number(self, key: Any) -> int:
        """Number a task of which nothing else is known yet."""
        chapter = self._newer
        task = chapter.ids[key] = len(chapter.ids)
        chapter.tasks.append(MISSING, MISSING, MISSING)
        chapter.priority.extend((0, 0, 0))
        return task

    def graph(
        self, keys: Iterable[Any], wanted: Collection[Any], *, client: str, stimulus_id: str, received: int, at: int
    ) -> None:
        """A graph was taken in; its transitions follow, by the same stimulus.

        Parameters
        ----------
        keys, wanted
            Its tasks, and those of them whose results the client asked for.
        client, stimulus_id
            Whose it is, and what its transitions will be caused by.
        received
            When the scheduler began to take it in.
        at
            Now.
        """
        self._turn_over()
        chapter = self._newer
        graphs = chapter.tables["graphs"]
        number = chapter.first_graph + len(graphs)
        graphs.append(self.clients.number(client), received, at)
        self._taking_in = stimulus_id, number
        for key in keys:
            task = chapter.ids.get(key)
            if task is None or task in chapter.unread:
                if len(chapter.ids) >= self._half:
                    self._turn_over()
                    chapter = self._newer
                task = self._meet(key, number)
            elif chapter.tasks.columns["graph"][task] == MISSING:
                chapter.tasks.columns["graph"][task] = number
            if key in wanted:
                chapter.wanted.add(task)

    # -- what happens ------------------------------------------------------------------------

    def transition(self, at: int, key: Any, start: str, finish: str, stimulus_id: str, worker: int, extra: int) -> None:
        """A task changed state.

        Parameters
        ----------
        at, key, start, finish
            When, which, and how.
        stimulus_id
            What caused it.
        worker
            Number of the worker that it is on now, or that sent the message.
        extra
            Number of the run that begins, or size of the result that is there; else MISSING.
        """
        if stimulus_id != self._stimulus_id:
            self._stimulate(stimulus_id, worker)
        number, unread, add_at, add_task, add_worker, add_code, add_extra = self._log
        task = number(key)
        if task is None:
            if finish == "forgotten":  # it was there before the recording
                return
            task = self._meet(key)
        elif unread and task in unread and finish != "forgotten":
            self._meet(key)
        add_at(at)
        add_task(task)
        add_worker(worker)
        add_code(_CODES[start][finish])
        add_extra(extra)

    def computed(self, start: float, stop: float) -> None:
        """When Dask says that the run which the next transition ends began and stopped, in seconds since the epoch."""
        add_row, add_start, add_stop = self._newer.computed.appends
        add_row(len(self._log_at))
        add_start(start)
        add_stop(stop)

    def processing_again(self, at: int, key: Any, worker: int, run_id: int, *, stimulus_id: str | None) -> None:
        """A task was given to another worker; or, without a stimulus, was processing when the recording began."""
        cause = self._stimulus_id if stimulus_id is None else stimulus_id
        self.transition(at, key, "processing", "processing", cause, worker, run_id)

    def recomputed(self, run_id: int) -> None:
        """A run that begins computes a result again that was lost."""
        self._newer.tables["recomputed"].append(run_id)

    def _stimulate(self, stimulus_id: str, worker: int) -> None:
        """Another stimulus begins."""
        if len(self._log_at) >= self._full_log:
            self._turn_over()
        stimuli = self._newer.stimuli
        self._stimulus_id = stimulus_id
        self._stimulus = self._newer.first_stimulus + len(stimuli)
        kind, _, when = stimulus_id.rpartition("-")
        number = self._known_kind(kind)
        if number is None:
            number = self.kinds.number(kind)
        try:
            made = int(float(when) * 1e9)
        except (OverflowError, ValueError):
            made = 0
        add_kind, add_at, add_graph, add_row, add_worker = stimuli.appends
        add_kind(number)
        add_at(made if made > 10**17 else MISSING)  # steal-7 has no time in it
        add_graph(self._taking_in[1] if stimulus_id == self._taking_in[0] else MISSING)
        add_row(len(self._log_at))
        add_worker(worker if kind in _OF_WORKERS else MISSING)

    def released(self, at: int, client: str, keys: Sequence[Any]) -> None:
        """A client wants these no more."""
        releases = self._newer.tables["releases"]
        number = self.clients.number(client)
        for key in keys:
            task = self._newer.ids.get(key)
            if task is not None:
                releases.append(at, number, task)

    def worker_changed(self, at: int, worker: int, change: int, *, stimulus_id: str | None = None) -> None:
        """A worker came, went, paused or resumed; the stimulus is what removed it."""
        self._newer.tables["worker_events"].append(at, worker, change)
        if stimulus_id is not None and stimulus_id == self._stimulus_id:
            self._newer.tables["removals"].append(self._stimulus)

    def blocked(self, start: int, stop: int, moving_ns: int, cause: int = MISSING) -> None:
        """The scheduler's event loop did not turn; for so long it moved data itself."""
        self._newer.tables["blocked"].append(MISSING, start, stop, moving_ns, cause)

    def heartbeat(self, at: int, worker: int, values: Sequence[float]) -> None:
        """How a worker is: the columns :data:`SERIES`."""
        self._turn_over()
        self._newer.tables["series"].append(at, worker, *values)

    def batch(self, worker: int, senders: list[int], batch: Batch) -> None:
        """A worker's rows came."""
        self._turn_over()
        self._newer.batches.append((worker, senders, batch))
        self._newer.batch_rows += len(batch.runs) + len(batch.transfers)

    def _turn_over(self) -> None:
        """Begin a new chapter if this one is full, and drop the oldest."""
        full, half = self._newer, self._half
        if (
            len(full.ids) < half
            and len(full.log) < self._full_log
            and full.batch_rows < self._full_log
            and len(full.tables["series"]) < self._full_log
        ):
            return
        if self._older is not None:
            counts = self._older.counts()
            counts["tasks"] -= sum(key in full.ids for key in self._older.ids)  # these live on
            self.dropped.update(counts)
        self._older = full
        self._begin(
            Chapter(
                first_graph=full.first_graph + len(full.tables["graphs"]),
                first_stimulus=full.first_stimulus + len(full.stimuli),
            )
        )

    # -- what there is -----------------------------------------------------------------------

    def freeze(self) -> Frozen:
        """All that is there now; quick, as it is made on the event loop: what only grows is copied later."""
        chapters = [chapter for chapter in (self._older, self._newer) if chapter is not None]
        facts = {
            "prefixes": self.prefixes.all(),
            "spans": self.spans.all(),
            "clients": self.clients.all(),
            "kinds": self.kinds.all(),
            "dropped": dict(self.dropped),
        }
        return Frozen(chapters, facts)
