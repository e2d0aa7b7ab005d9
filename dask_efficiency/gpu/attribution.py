"""Attribution: finds the task that asked for an operation, by the call with the same correlation and its thread."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.intervals import Int64, ranked
from dask_efficiency.gpu.meter import BEGINS_GRAPH, BLOCKS, CALL, ENDS_GRAPH, OPERATION, SPINS, Calls, GpuBatch
from dask_efficiency.gpu.tasks import FOREVER, NOBODY, TaskTable

#: Longest wait for the operation of a call, nanoseconds. A guess: kernels that run for a minute are rare.
MAX_AGE = 60_000_000_000
#: Calls kept until their operations arrive, 50 bytes each: 12 MB. Beyond, old calls with an operation are forgotten.
MAX_CALLS = 250_000
#: Calls under way between two batches that are linked; a process has fewer threads in CUDA at once.
_MAX_LINKS = 64
#: An operation and the number of the task that launched it; ``asked`` is the instant of the call.
WORK = np.dtype([*OPERATION.descr, ("owner", np.int64), ("asked", np.int64)])
#: A call of a task's own thread that waits for the device.
WAIT = np.dtype([("start", np.int64), ("end", np.int64), ("owner", np.int64), ("spins", np.bool_)])


class Joined(NamedTuple):
    """Operations and waits of a batch, with the tasks that they belong to."""

    #: Of dtype :data:`WORK`.
    work: NDArray[np.void]
    #: Of dtype :data:`WAIT`.
    waits: NDArray[np.void]
    #: Numbers of the tasks whose own threads made calls, and the end of the last call of each.
    callers: Int64
    last_calls: Int64
    #: All operations that began before this instant have arrived, except some that will count as late.
    complete_until: int


class _Asked(NamedTuple):
    """Calls of one batch that launched operations, by correlation."""

    correlation: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    start: Int64
    end: Int64
    owner: Int64
    #: Index of the outermost call around each call: nested calls launch one operation.
    group: NDArray[np.intp]
    #: By group: no operation of it has arrived yet.
    awaited: NDArray[np.bool_]

    def give_up(self, rows: NDArray[np.bool_]) -> None:
        self.awaited[self.group[rows]] = False

    def take(self, rows: NDArray[Any], group: NDArray[np.intp], awaited: NDArray[np.bool_]) -> _Asked:
        """Some of the calls, or all in another order, with groups of their own."""
        columns = self.correlation[rows], self.thread[rows], self.start[rows], self.end[rows], self.owner[rows]
        return _Asked(*columns, group, awaited)

    def awaited_only(self) -> _Asked:
        rows = self.awaited[self.group]
        _, group = np.unique(self.group[rows], return_inverse=True)
        return self.take(rows, group, np.ones(len(group), np.bool_))


class Attribution:
    """Matches operations with calls, and calls with tasks, in any order of arrival.

    The tasks of a batch must be in the table before the batch is joined. Tasks that call the driver are marked in it.
    """

    def __init__(self, tasks: TaskTable) -> None:
        self._tasks = tasks
        self._asked: list[_Asked] = []
        #: Operations whose call has not arrived: it may have been under way when the batch was made.
        self._orphans: NDArray[np.void] = np.empty(0, OPERATION)
        #: Calls of task threads whose task is not known yet.
        self._undecided: Calls = np.empty(0, CALL)
        #: Start of the graph that each thread records.
        self._recording: dict[int, int] = {}

    def join(
        self, batch: GpuBatch, *, not_tasks: Collection[int] = (), lost: bool = False, final: bool = False
    ) -> Joined:
        """Match a batch, the last one if ``final``, and the rest of the batches before it.

        Calls of threads in ``not_tasks`` never belong to a task. If operations were ``lost``, none is waited for.
        """
        calls, owners, own = self._owners(batch.calls, not_tasks, final=final)
        waits = _waits(calls[own], owners[own])
        callers, which = ranked(owners[own])
        last_calls = np.zeros(len(callers), np.int64)
        np.maximum.at(last_calls, which, calls["end"][own])
        self._remember(calls, owners)
        self._give_up_recorded(calls)
        work = self._match(batch.operations, final=final)
        if lost:
            for asked in self._asked:
                asked.awaited[:] = False
        self._forget(batch.known_until)
        return Joined(work, waits, callers, last_calls, self._complete_until(batch.known_until))

    def _owners(
        self, calls: Calls, not_tasks: Collection[int], *, final: bool
    ) -> tuple[Calls, Int64, NDArray[np.bool_]]:
        """Split off the calls whose task is known: calls, the task of each, and True where its own thread made it."""
        old = len(self._undecided)
        if old:
            calls = np.concatenate([self._undecided, calls])
        threads, at = calls["thread"], calls["start"]
        owners, of_tasks = self._tasks.at_work(threads, at)
        never = np.isin(threads, np.array([ident & 0xFFFFFFFF for ident in not_tasks], np.uint32))
        owners[never] = NOBODY
        own = owners != NOBODY
        for number in ranked(owners[own])[0]:
            if task := self._tasks.numbered(int(number)):
                task.calls = True
        foreign = ~own & ~of_tasks & ~never
        if foreign.any():
            owners[foreign] = self._tasks.only_one(at[foreign])
        wait = ~own & of_tasks & ~never
        wait[: len(wait) if final else old] = False
        self._undecided = calls[wait]
        if wait.any():
            calls, owners, own = calls[~wait], owners[~wait], own[~wait]
        return calls, owners, own

    def _remember(self, calls: Calls, owners: Int64) -> None:
        asks = np.flatnonzero(calls["correlation"] != 0)
        if not len(asks):
            return
        calls, group = calls[asks], _outermost(calls[asks])
        columns = calls["correlation"], calls["thread"], calls["start"], calls["end"], owners[asks]
        # A call within another one is not awaited by itself.
        new = _Asked(*columns, group, group == np.arange(len(group)))
        if self._asked:
            _link(self._asked[-1], new)
        order = np.argsort(new.correlation, kind="stable")
        self._asked.append(new.take(order, group[order], new.awaited))

    def _match(self, operations: NDArray[np.void], *, final: bool) -> NDArray[np.void]:
        old = len(self._orphans)
        if old:
            operations = np.concatenate([self._orphans, operations])
        work = np.empty(len(operations), WORK)
        for name in OPERATION.names or ():
            work[name] = operations[name]
        work["owner"] = NOBODY
        work["asked"] = operations["start"]
        unmatched = np.flatnonzero(operations["correlation"] != 0)
        for asked in reversed(self._asked):
            if not len(unmatched):
                break
            wanted = operations["correlation"][unmatched]
            rows = np.minimum(np.searchsorted(asked.correlation, wanted), len(asked.correlation) - 1)
            hit = asked.correlation[rows] == wanted
            rows, matched = rows[hit], unmatched[hit]
            work["owner"][matched] = asked.owner[rows]
            work["asked"][matched] = np.minimum(asked.start[rows], work["start"][matched])
            asked.awaited[asked.group[rows]] = False
            unmatched = unmatched[~hit]
        orphans = unmatched[:0] if final else unmatched[unmatched >= old]
        self._orphans = operations[orphans]
        return np.delete(work, orphans) if len(orphans) else work

    def _give_up_recorded(self, calls: Calls) -> None:
        """Stop waiting for operations of calls that were only recorded into a graph."""
        marks = calls[(calls["waits"] == BEGINS_GRAPH) | (calls["waits"] == ENDS_GRAPH)]
        recorded = []
        for mark in np.sort(marks, order="start"):
            thread = int(mark["thread"])
            if mark["waits"] == BEGINS_GRAPH:
                self._recording[thread] = int(mark["start"])
            elif thread in self._recording:
                recorded.append((self._recording.pop(thread), int(mark["end"])))
        for start, stop in (*recorded, *((start, FOREVER) for start in self._recording.values())):
            for asked in self._asked:
                asked.give_up((asked.start >= start) & (asked.start <= stop))

    def _forget(self, known_until: int) -> None:
        old = known_until - MAX_AGE
        self._recording = {thread: start for thread, start in self._recording.items() if start >= old}
        kept: list[_Asked] = []
        room = MAX_CALLS
        for asked in reversed(self._asked):
            left = asked if len(asked.start) <= room else asked.awaited_only()
            if len(left.start) and len(left.start) <= room and left.start.max() >= old:
                kept.append(left)
                room -= len(left.start)
        self._asked = kept[::-1]

    def _complete_until(self, known_until: int) -> int:
        until = known_until
        for asked in self._asked:
            if asked.awaited.any():
                until = min(until, int(asked.start[asked.awaited[asked.group]].min()))
        until = max(until, known_until - MAX_AGE)
        for open_question in (self._orphans, self._undecided):
            if len(open_question):
                until = min(until, int(open_question["start"].min()))
        return until


def _waits(calls: Calls, owners: Int64) -> NDArray[np.void]:
    """Calls that wait for the device, of tasks' own threads."""
    rows = np.flatnonzero((calls["waits"] == BLOCKS) | (calls["waits"] == SPINS))
    waits = np.empty(len(rows), WAIT)
    waits["start"], waits["end"], waits["owner"] = calls["start"][rows], calls["end"][rows], owners[rows]
    waits["spins"] = calls["waits"][rows] == SPINS
    return waits


def _outermost(calls: Calls) -> NDArray[np.intp]:
    """Index of the outermost call around each call in its thread; its own index where there is none."""
    order = np.lexsort((-calls["end"], calls["start"], calls["thread"]))
    thread, start, end = calls["thread"][order], calls["start"][order], calls["end"][order]
    rank = np.concatenate([[0], np.cumsum(thread[1:] != thread[:-1])])
    first = int(start.min())
    # Threads are laid end to end on one axis.
    shift = rank * (int(end.max()) - first + 1) - first
    reached = np.maximum.accumulate(end + shift)[:-1]
    opens = np.concatenate([[True], ((end + shift)[1:] > reached) | ((start + shift)[1:] >= reached)])
    outermost = np.maximum.accumulate(np.where(opens, np.arange(len(order)), 0))
    group = np.empty(len(order), np.intp)
    group[order] = order[outermost]
    return group


def _link(old: _Asked, new: _Asked) -> None:
    """Stop waiting for calls that span two batches and for the calls in them: either may have the operation."""
    under_way = np.flatnonzero(new.awaited & (new.start <= int(old.start.max())))
    for row in under_way[:_MAX_LINKS]:
        within = (old.thread == new.thread[row]) & (old.start >= new.start[row]) & (old.end <= new.end[row])
        if within.any():
            new.awaited[row] = False
            old.give_up(within)
