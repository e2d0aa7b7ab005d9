"""Walk from the end of a run back to its start, from each event to its last-arriving cause: the critical path.

Theory of operation
===================

**The question.** Why did a run take as long as it did? Of all that happened in a recorded run, the walk finds the chain
of events in which each one waited for the one before, and gives every nanosecond of the makespan to one *kind*
(:class:`~dask_efficiency.runs.path.kinds.Kind`), one task and one worker. The shares of the kinds are then shares of
the wall clock.

**The idea** is the *last-arriving cause*. An event could not happen before any of its causes; the one that came last
let it happen. So the walk starts at the end of the scope and goes backwards: everything after the cursor ``at`` is
explained, everything before it is not yet. A step names the time from a cause to ``at``, and moves ``at`` to the cause.

**States.** The walk is at a *stage* of a run (one try of a task on one worker), at a client, or lost::

    assigned <- received <- ready <- executing <- submitted <- start <- stop <- ended <- reported
        |
        +-- the end of another run  -> that run, reported
        +-- an earlier try          -> that run, reported
        +-- a graph                 -> the task that sent it, stop; or its client -> a result that it waited for
        +-- room in the queue       -> where the task was queued, and what queued it
        +-- nothing recorded        -> its last input, or its graph; else lost

==================  ==================================================================================================
step back           time in between, and where it goes on
==================  ==================================================================================================
reported to ended   ``report``
ended to stop       ``spill``, as long as it was measured; the rest is ``worker-loop``
stop to start       ``compute-noncpu``, ``gpu-compute``, ``compute-cpu``, pro rata; back to the last result of a task
                    that this one submitted itself, if it waited for one (``Nested``); messages of a P2P shuffle
                    that were on their way to its barrier are ``transfer``
start to submitted  ``executor-handoff``
submitted to        ``unspill``, as long as it was measured; the rest is ``worker-loop``
executing
executing to ready  ``ready-wait``; if another task held the slot, only since that one left it, and on to that one
ready to received   the transfers of its inputs, the last one to arrive first: ``transfer``, ``transfer-queue``, and
                    ``worker-loop`` between them
received to         ``scheduler-to-worker``
assigned
assigned            ``scheduler-transition``, ``scheduler-queue`` or ``graph-update``, back to what assigned it
at a client         ``result-gather``, ``client-submit``, back to a result that it waited for
at an instant that  ``unattributed``, back to the instant before it
was not recorded
lost                ``unattributed``, back to the last run that was reported before and was not visited
==================  ==================================================================================================

A run that was lost with its worker, or stolen or cancelled before it ran, is entered at its last recorded instant; the
time after it is ``lost-worker`` or ``ready-wait``.

Three passes follow, each of which keeps the tiling: a task that torch profiled is replaced by what happened in it,
:mod:`~dask_efficiency.runs.path.relabel` renames the parts of segments in which an event loop was busy, and those in
which there was no worker.

**Invariants**, in ``tests/runs/path/test_walk.py`` unless another file is named:

1. The segments tile the scope: the first begins where it does, each other where the one before stops, the last stops
   where it does, and none is empty
   (``test_segments_tile_the_makespan_to_the_nanosecond_and_leave_nothing_unexplained``). It is so by construction:
   ``_to`` is the only place that appends a segment, from the cursor backwards, and moves the cursor. A cause that lies
   after the cursor, as clocks that disagree make it, adds nothing.
2. That holds for damaged traces, too, with instants that are missing or contradict each other
   (``test_segments_tile_whatever_was_not_recorded_or_contradicts_itself``); after the passes
   ``test_whatever_was_blocked_the_segments_tile`` and
   ``test_whatever_workers_come_and_go_the_segments_tile_the_makespan`` (``test_relabel.py``).
3. Of a complete trace nothing is ``unattributed`` (the first test, on simulated runs).
4. A run is entered once (``test_no_run_on_the_path_is_walked_through_twice``), except one that waits for tasks that it
   submitted: the walk returns to it from each of them, and follows each of these once. So the walk ends.

**Why so.** The transition of a task to ``processing`` carries the stimulus that caused it, ``task-finished`` or
``update-graph``: the scheduler's causes are recorded, not guessed (:mod:`~dask_efficiency.runs.trace.run_causes`). What
happens between the scheduler's events comes from the worker's half of the recorder.

**What was tried and rejected.**

- *The scheduler's events alone.* Up to 34 % of the makespan of small tasks was one lump. So workers note when each task
  was received, ready and executing, and when its inputs were fetched.
- *The longest path through the graph as the answer.* It has no transfers, no queue and no scheduler. It is kept as the
  floor of any cluster (``longest_chain`` in :mod:`~dask_efficiency.runs.path.bounds`).
- *Dask's corrected clocks.* They moved by up to 0.25 s where raw clocks of one host contradicted no cause.
- *Subtracting a task's time on the path to say what it could save.* Another chain may be nearly as long. What-ifs
  replay the run (:mod:`~dask_efficiency.runs.replay.replay`); of the repair of a straggler, subtraction was off by 34
  %.

**Limits.** The path is one chain; where two causes came nearly at once it follows one and says nothing of the other:
that is what :meth:`~dask_efficiency.runs.path.path.CriticalPath.slack` is for. How computing divides into CPU and the
rest is known per run, not when within it. Which result a client waited for is inferred where it did not gather
(:mod:`~dask_efficiency.runs.trace.clients`), and so is which task of a worker sent a graph.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64
from dask_efficiency.runs.path.kinds import CODES, Kind, SegmentRow, Segments
from dask_efficiency.runs.path.scope import Scope
from dask_efficiency.runs.trace.clients import ClientLog, Nested
from dask_efficiency.runs.trace.run_causes import RunCauses, rows_by_value
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RUN_INSTANTS, STATES, RunOutcome

#: A stage of a run is a position in its instants.
_ASSIGNED, _RECEIVED, _READY, _EXECUTING, _SUBMITTED, _START, _STOP, _ENDED, _REPORTED = range(len(RUN_INSTANTS))
_WAITS = (STATES.index("queued"), STATES.index("no-worker"))


#: By stage: the kind of the time since the one before, where nothing else can have happened.
_BETWEEN = {_RECEIVED: Kind.SCHEDULER_TO_WORKER, _START: Kind.EXECUTOR_HANDOFF, _REPORTED: Kind.REPORT}


def walk(trace: RunTrace, scope: Scope, causes: RunCauses) -> Segments:
    """Find the critical path of a scope, as segments that tile it exactly."""
    return _Walk(trace, scope, causes).segments()


class _Walk:
    """State of a walk: everything after :attr:`at` is explained, nothing before it."""

    def __init__(self, trace: RunTrace, scope: Scope, causes: RunCauses) -> None:
        self._trace, self._scope, self._causes = trace, scope, causes
        self._clients = ClientLog(trace)
        self._nested = Nested(trace)
        self._instants = np.stack([getattr(trace.runs, name) for name in RUN_INSTANTS], axis=1)
        self._seen: set[int] = set()
        #: Runs to which the walk went from the run that had submitted them: to none twice, or it might not end.
        self._submitted: set[int] = set()
        self._rows: list[SegmentRow] = []
        self.at = scope.stop

    @cached_property
    def _reports(self) -> list[int]:
        """Runs in the order of their reports, when a cause is unknown for the first time; the walk takes them away."""
        reported = self._trace.runs.reported
        rows = np.flatnonzero((reported > self._scope.start) & (reported < self.at))
        reports: list[int] = rows[np.argsort(reported[rows], kind="stable")].tolist()
        return reports

    @cached_property
    def _queued(self) -> Int64:
        """By task: the transition by which it was queued."""
        transitions, queued = self._trace.transitions, np.full(len(self._trace.tasks), MISSING, np.int64)
        entered = np.flatnonzero(np.isin(transitions.finish, _WAITS) & (transitions.task != MISSING))
        queued[transitions.task[entered]] = entered
        return queued

    @cached_property
    def _shuffled(self) -> dict[int, list[int]]:
        """By barrier: the messages of its P2P shuffle in the order in which they arrived."""
        return rows_by_value(self._trace.shuffled.task)

    @cached_property
    def _arrivals(self) -> tuple[Int64, Int64]:
        """Transfers, and the receiver and task by which they are sorted, as one number."""
        moved = self._trace.transfers
        place = moved.receiver.astype(np.int64) * len(self._trace.tasks) + moved.task
        order = np.argsort(place, kind="stable")
        return order, place[order]

    def segments(self) -> Segments:
        following: tuple[int, int] | None = (self._scope.run, _REPORTED) if self._scope.run != MISSING else None
        if self._scope.gather != MISSING:
            following = self._client(int(self._trace.phases.client[self._scope.gather]))
        while self.at > self._scope.start:
            if following is None:
                following = self._without_cause()
                if following is None:
                    self._to(self._scope.start, Kind.UNATTRIBUTED)
                    break
            run, stage = following
            if run in self._seen:
                following = None
                continue
            self._seen.add(run)
            following = self._through(run, stage)
        return Segments.from_rows(reversed(self._rows))

    def _to(self, since: int, kind: Kind, run: int = MISSING, *, sender: int = MISSING, task: int = MISSING) -> None:
        """Explain the time from ``since`` to :attr:`at` by one kind, and go on from ``since``."""
        since = max(since, self._scope.start)
        if since >= self.at:
            return
        worker = MISSING
        if run != MISSING:
            worker = int(self._trace.runs.worker[run])
            if task == MISSING:
                task = int(self._trace.runs.task[run])
        self._rows.append((CODES[kind], since, self.at, task, run, worker, sender))
        self.at = since

    def _without_cause(self) -> tuple[int, int] | None:
        """Go on with the last run that was reported before and was not visited, as no cause is known."""
        while self._reports:
            run = self._reports.pop()
            reported = int(self._trace.runs.reported[run])
            if run not in self._seen and reported < self.at:
                self._to(reported, Kind.UNATTRIBUTED)
                return run, _REPORTED
        return None

    def _through(self, run: int, stage: int) -> tuple[int, int] | None:
        """Walk from an instant of a run back to what caused the run to be assigned."""
        runs = self._trace.runs
        row = self._instants[run].tolist()
        if runs.outcome[run] == RunOutcome.LOST:
            stage = self._cut_off(run, min(stage, _ENDED), row, Kind.LOST_WORKER)
        elif runs.outcome[run] == RunOutcome.CANCELLED and row[_START] == MISSING:
            # It did not run here: it was stolen or cancelled while it waited.
            stage = self._cut_off(run, min(stage, _EXECUTING), row, Kind.READY_WAIT)
        while stage > _ASSIGNED:
            before = stage - 1
            while before > _ASSIGNED and row[before] == MISSING:
                before -= 1
            if row[before] == MISSING:
                return None
            if before < stage - 1:
                # An instant was not recorded, so nobody knows what the time between its neighbours was spent on.
                self._to(row[before], Kind.UNATTRIBUTED, run)
            elif (holder := self._step(run, stage, row)) is not None:
                return holder
            stage = before
        return self._cause(run)

    def _cut_off(self, run: int, stage: int, row: list[int], kind: Kind) -> int:
        """Find the last instant of a run that was cut off, and explain the time after it by this kind."""
        while stage > _ASSIGNED and (row[stage] == MISSING or row[stage] > self.at):
            stage -= 1
        if row[stage] != MISSING:
            self._to(row[stage], kind, run)
        return stage

    def _step(self, run: int, stage: int, row: list[int]) -> tuple[int, int] | None:
        """Walk from one instant of a run to the one before it; return the run to go on with, if it is another one."""
        since = row[stage - 1]
        if stage in _BETWEEN:
            self._to(since, _BETWEEN[stage], run)
        elif stage == _STOP:
            return self._compute(run, since, row[_STOP])
        elif stage == _EXECUTING:
            return self._slot(run, since)
        elif stage == _READY:
            self._inputs(run, since)
        else:
            runs = self._trace.runs
            kind, took = (Kind.SPILL, runs.spill_ns) if stage == _ENDED else (Kind.UNSPILL, runs.unspill_ns)
            self._to(max(row[stage] - max(int(took[run]), 0), since), kind, run)
            self._to(since, Kind.WORKER_LOOP, run)
        return None

    def _compute(self, run: int, start: int, stop: int) -> tuple[int, int] | None:
        """Split computing into CPU, GPU and the rest; go on with a task that this one submitted and waited for."""
        if stop <= start:
            return None
        runs = self._trace.runs
        self._messages(run, start)
        child = self._nested.last_result(run, self.at)
        if child in self._seen or child in self._submitted or runs.reported[child] <= start:
            child = MISSING
        since = start if child == MISSING else int(runs.reported[child])
        visible = max(min(self.at, stop) - since, 0)
        cpu = min(max(int(runs.cpu_ns[run]), 0), stop - start)
        gpu = min(max(int(runs.gpu_ns[run]), 0), stop - start - cpu)
        cpu, gpu = cpu * visible // (stop - start), gpu * visible // (stop - start)
        self._to(since + cpu + gpu, Kind.COMPUTE_NONCPU, run)
        self._to(since + cpu, Kind.GPU_COMPUTE, run)
        self._to(since, Kind.COMPUTE_CPU, run)
        if child == MISSING:
            return None
        self._submitted.add(child)
        self._seen.discard(run)  # the walk comes back to this run from its child
        return child, _REPORTED

    def _slot(self, run: int, ready: int) -> tuple[int, int] | None:
        """Explain the wait for a slot; return the run that held it, to go on with."""
        runs = self._trace.runs
        worker = runs.worker[run]
        holder, freed = MISSING, MISSING
        for other in self._causes.by_task.of(int(runs.after[run])):
            left = int(runs.seceded[other]) if runs.seceded[other] != MISSING else int(runs.ended[other])
            if runs.worker[other] == worker and freed < left <= self.at:
                holder, freed = other, left
        if holder == MISSING or freed <= ready or holder in self._seen:
            self._to(ready, Kind.READY_WAIT, run)
            return None
        self._to(freed, Kind.READY_WAIT, run)
        return holder, (_STOP if runs.seceded[holder] != MISSING else _ENDED)

    def _inputs(self, run: int, received: int) -> None:
        transfers, worker = self._trace.transfers, int(self._trace.runs.worker[run])
        order, places = self._arrivals
        wanted = worker * len(self._trace.tasks) + self._needed(int(self._trace.runs.task[run])).astype(np.int64)
        ends = (np.searchsorted(places, wanted, side=side).tolist() for side in ("left", "right"))
        arrivals = [row for first, last in zip(*ends, strict=True) for row in order[first:last].tolist()]
        for i in sorted(arrivals, key=transfers.stop.__getitem__, reverse=True):
            start, stop = int(transfers.start[i]), int(transfers.stop[i])
            if self.at <= received:
                return
            if stop > self.at or stop <= received or start == MISSING:
                continue
            sender, task = int(transfers.sender[i]), int(transfers.task[i])
            self._to(stop, Kind.WORKER_LOOP, run)
            self._to(max(start, received), Kind.TRANSFER, run, sender=sender, task=task)
            queued = int(transfers.queued[i])
            if queued != MISSING:
                self._to(max(queued, received), Kind.TRANSFER_QUEUE, run, sender=sender, task=task)
        self._to(received, Kind.WORKER_LOOP, run)

    def _needed(self, task: int) -> Int32:
        trace = self._trace
        if task == MISSING:
            return np.empty(0, np.int32)
        return trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]]

    def _messages(self, run: int, start: int) -> None:
        """Explain the time of a P2P shuffle's barrier in which messages were on their way."""
        messages = self._trace.shuffled
        for i in reversed(self._shuffled.get(int(self._trace.runs.task[run]), ())):
            stop = int(messages.stop[i])
            if start < stop <= self.at:
                self._to(stop, Kind.COMPUTE_NONCPU, run)
                self._to(max(int(messages.start[i]), start), Kind.TRANSFER, run, sender=int(messages.sender[i]))

    def _cause(self, run: int) -> tuple[int, int] | None:
        causes, outcome = self._causes, self._trace.runs.outcome
        task = int(self._trace.runs.task[run])
        earlier = causes.by_task.before(run)
        row = int(causes.transition[run])
        if row == MISSING:
            # A task that is stolen makes no transition.
            return (earlier, _REPORTED) if earlier != MISSING else self._inferred(task)
        if causes.graph[run] != MISSING:
            return self._graph(int(causes.graph[run]), run)
        cause = int(causes.run[run])
        if cause == MISSING and causes.queued[run]:
            return self._queue(task, row, run)
        if cause != MISSING and outcome[cause] == RunOutcome.LOST and earlier != MISSING:
            # Of all runs that were lost with the worker, go on with the one of the same task.
            cause = earlier if outcome[earlier] == RunOutcome.LOST else cause
        if cause != MISSING:
            return self._after(cause, row, run)
        if earlier != MISSING:
            # Its earlier result was lost with a worker, and so was the time since then.
            self._to(int(self._trace.runs.reported[earlier]), Kind.LOST_WORKER, run)
            return earlier, _REPORTED
        return self._inferred(task)

    def _after(self, cause: int, row: int, run: int) -> tuple[int, int]:
        """Go on with the run whose end assigned this one, in the same stimulus."""
        reported = int(self._trace.runs.reported[cause])
        if reported == MISSING:
            reported = int(self._trace.transitions.at[row])
        self._to(reported, Kind.SCHEDULER_TRANSITION, run)
        return cause, _REPORTED

    def _queue(self, task: int, row: int, run: int) -> tuple[int, int] | None:
        """Go on where the task was queued, as room came in another way than by a task's end, such as a new worker."""
        transitions, stimuli = self._trace.transitions, self._trace.stimuli
        entry = int(self._queued[task])
        if entry == MISSING or entry >= row:
            return self._inferred(task)
        self._to(int(transitions.at[entry]), Kind.SCHEDULER_QUEUE, run)
        stimulus = int(transitions.stimulus[entry])
        if stimulus == MISSING:
            return self._inferred(task)
        if stimuli.graph[stimulus] != MISSING:
            return self._graph(int(stimuli.graph[stimulus]), run)
        first = int(self._causes.first[stimulus])
        if transitions.start[first] != STATES.index("processing"):
            return self._inferred(task)
        at = transitions.at[first : first + 1]
        cause = int(self._causes.by_task.latest(transitions.task[first : first + 1], self._trace.runs.assigned, at)[0])
        return self._after(cause, entry, run) if cause != MISSING else self._inferred(task)

    def _inferred(self, task: int) -> tuple[int, int] | None:
        """Go on with the last input that was there, or with the graph, as no transition shows the cause."""
        trace = self._trace
        if task == MISSING:
            return None
        needed = self._needed(task)
        making = self._causes.by_task.latest(needed, trace.runs.reported, np.full(len(needed), self.at))
        making = making[making != MISSING]
        making = making[trace.runs.reported[making] <= self.at]
        if len(making):
            last = int(making[np.argmax(trace.runs.reported[making])])
            if last not in self._seen:
                self._to(int(trace.runs.reported[last]), Kind.SCHEDULER_TRANSITION)
                return last, _REPORTED
        graph = int(trace.tasks.graph[task])
        return self._graph(graph, MISSING) if not len(needed) and graph != MISSING else None

    def _graph(self, graph: int, run: int) -> tuple[int, int] | None:
        self._to(int(self._trace.graphs.received[graph]), Kind.GRAPH_UPDATE, run)
        parent = self._nested.parent(graph)
        if parent != MISSING and parent not in self._seen:
            return parent, _STOP
        return self._client(int(self._trace.graphs.client[graph]))

    def _client(self, client: int) -> tuple[int, int] | None:
        steps, run = self._clients.back(client, self.at, self._scope.start)
        for since, gathering in steps:
            self._to(since, Kind.RESULT_GATHER if gathering else Kind.CLIENT_SUBMIT)
        return (run, _REPORTED) if run != MISSING else None
