"""WorkerRecorder: a row for each run and each transfer of a worker, from Dask's hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import repeat
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH, Run
from dask_efficiency.plugin.names import BATCHES
from dask_efficiency.plugin.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugin.worker.transitions import MAYBE_IN_FLIGHT, WITHOUT_SLOT, noted
from dask_efficiency.runs.recording.loop_watch import LoopWatch
from dask_efficiency.runs.trace.batch import RUN, TRANSFER, encode
from dask_efficiency.runs.trace.profiles import Profile
from dask_efficiency.runs.trace.schema import BLOCKED_BY

if TYPE_CHECKING:
    from distributed import Worker
    from distributed.worker_state_machine import TaskState

#: Rows after which a batch is sent between two heartbeats.
MAX_ROWS = 500

#: Less time at the disk than this blocks an event loop no more than anything else does.
MIN_AT_DISK_NS = 1_000_000

_SPILLS, _READS_BACK = BLOCKED_BY.index("spill"), BLOCKED_BY.index("unspill")

#: Positions in a transfer's row.
_SENDER, _NBYTES, _QUEUED, _ASKED, _STOPPED, _ARRIVED = map(
    TRANSFER.index, ("sender", "nbytes", "queued", "start", "stop", "arrived")
)

#: Which slot became free last: the stimulus that did it, the run that had the slot, and when.
_Freed = tuple[Any, int, int]

#: A run that was given a slot: its number, when it was received and when it was ready, when it took the slot (None
#: where it began before the recording), when it left its slot before its end, the slot's number, and
#: which slot became free in the same stimulus before. A plain tuple, for there is one for every task.
_Taken = tuple[int, int, int, int | None, int, int, _Freed | None]
_SECEDED: Final = 4
_SLOT: Final = 5

#: And when it ended, what it was in its thread, and when it was handed to the thread, by upstream's clock of the day.
_Ended = tuple[_Taken, int, Run, float]

#: Of a run that nobody saw in its thread.
_NOT_IN_THREAD: Run = (MISSING, MISSING, 0, 0, MISSING)


#: By who asked, how many tasks of each prefix are to be profiled.
Requests = Mapping[str, Mapping[str, int]]


class Profiles(Protocol):
    """Profiles chosen tasks of a worker while it is recorded."""

    #: Profiles that had begun, and were not written, when :meth:`take` was called last.
    unwritten: int

    def ask(self, requests: Requests) -> None:
        """Profile so many tasks of each prefix; what was done already for who asks counts."""

    def take(self, *, closing: bool = False) -> tuple[list[Profile], dict[str, int]]:
        """Profiles since the last call, by the monotonic clock; and how many were not made, by why."""

    async def catch_up(self) -> None:
        """Wait for a moment until what ended is written."""

    def close(self) -> None:
        """Profile no more; safe to call twice."""


class _NoLog(Sequence[Any]):
    """Stands in for the log of stimuli where the user has upstream keep none: no two looks see the same stimulus."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, i: Any) -> Any:
        return object()


class WorkerRecorder:
    """Records one worker while its recording goes on; all its methods are called on the event loop.

    Instants are nanoseconds of the monotonic clock, which processes of one machine share. Rows are made when they are
    sent, all of a batch together: what each task adds to its own time is to be short.

    Parameters
    ----------
    worker
        The worker.
    recording
        Which recording its batches are of.
    failed
        Called where something of this fails.
    profiles
        Of some of the tasks; sent with the rows, and closed when the recording stops.
    """

    def __init__(
        self,
        worker: Worker,
        recording: str,
        failed: Callable[[Exception], object],
        profiles: Profiles | None = None,
    ) -> None:
        self.recording = recording
        self._failed = failed
        self.profiles = profiles
        self._worker = worker
        self._state = worker.state
        log = worker.state.stimulus_log
        self._stimuli: Sequence[Any] = _NoLog() if getattr(log, "maxlen", None) == 0 else log
        self._seq = 0
        #: When tasks were received, and ready, that have no slot yet.
        self._received: dict[Any, int] = {}
        self._ready: dict[Any, int] = {}
        #: Tasks that were given a slot and have not ended.
        self._running: dict[Any, _Taken] = {}
        self._ended: list[_Ended] = []
        #: Runs of tasks that were received and never ran here.
        self._never_ran: list[_Ended] = []
        self._freed: _Freed = (None, MISSING, MISSING)
        self._free_slots: list[int] = []
        self._slots = 0
        self._moves: dict[Any, list[int]] = {}
        self._moved: list[list[int]] = []
        self._moved_keys: list[Any] = []
        self._senders: dict[str, int] = {}
        self._blocked: list[tuple[int, int, int, int]] = []
        self._spill = SpillMetrics(worker.digests_total)
        self._digests = worker.digests_total
        #: How many digests there are while no task has spilled; -1 once one has.
        self._unspilled = 0
        #: Reading inputs back and writing, in nanoseconds, by position among those that ended.
        self._spilled: dict[int, tuple[int, int]] = {}
        #: The task that ended last and the stimulus that ended it, until its fine metrics are read.
        self._last: tuple[Any, TaskState | None] = (None, None)
        #: Those that ended before it in the same stimulus, by position, since tasks spill.
        self._together: list[tuple[int, TaskState | None]] = []
        self._read_spills()
        for ts in worker.state.executing:
            self._running[ts.key] = (ts.run_id, MISSING, MISSING, None, MISSING, self._take_slot(), None)
        self._watch = LoopWatch(worker, lambda *row: self._blocked.append(row))

    def stop(self) -> None:
        """Record no more."""
        self._watch.stop()
        if self.profiles is not None:
            self.profiles.close()

    def at_disk(self, start: int, stop: int, reading: bool) -> None:
        """The event loop wrote results to disk, or read them back."""
        if stop - start >= MIN_AT_DISK_NS:
            self._blocked.append((start, stop, 0, _READS_BACK if reading else _SPILLS))

    # -- runs --------------------------------------------------------------------------------

    def transition(self, key: Any, start: str, finish: str) -> None:
        """A task changed state; only what is :func:`~.transitions.noted` needs to come here.

        What that means for its slot, a tracker tells.
        """
        try:
            if finish == "ready":
                self._ready[key] = monotonic_ns()
            elif start == "released" and finish == "waiting":
                self._received[key] = monotonic_ns()
                if self._moves:
                    self._moves.pop(key, None)
            elif noted(start, finish):
                self._note(key, start, finish, monotonic_ns())
        except Exception as error:
            self._failed(error)

    def _note(self, key: Any, start: str, finish: str, at: int) -> None:
        if finish == "waiting":
            if self._state.tasks[key].state == "waiting":  # else its thread is at work, or its result on the way
                self._received[key] = at
                self._ready.pop(key, None)
                self._moves.pop(key, None)
        elif start in WITHOUT_SLOT:
            self._give_up(key)
        elif key in self._running:
            pass
        elif start == "flight" or (start in MAYBE_IN_FLIGHT and key in self._moves):
            self._landed(key, at)
        elif finish == "flight":
            self._asked(key, at)
        elif finish == "fetch":
            self._moves.setdefault(key, [MISSING, 0, at, MISSING, MISSING, 0])
        elif finish == "released":
            self._moves.pop(key, None)

    def _give_up(self, key: Any) -> None:
        """A task that was received will not run here."""
        if key in self._received:
            self._never_ran.append((self._without_slot(key), MISSING, _NOT_IN_THREAD, 0.0))
            del self._received[key]
        self._ready.pop(key, None)

    def _without_slot(self, key: Any) -> _Taken:
        ts = self._state.tasks.get(key)
        run_id = MISSING if ts is None else ts.run_id
        return run_id, self._received[key], self._ready.get(key, MISSING), None, MISSING, MISSING, None

    def taken(self, ts: TaskState, at: int) -> None:
        """A task took a slot."""
        try:
            key = ts.key
            if key in self._running:
                return
            freed = self._freed
            self._running[key] = (
                ts.run_id,
                self._received.pop(key, MISSING),
                self._ready.pop(key, MISSING),
                at,
                MISSING,
                heappop(self._free_slots) if self._free_slots else self._take_slot(),
                freed if freed[0] is self._stimuli[-1] else None,
            )
        except Exception as error:
            self._failed(error)

    def _take_slot(self) -> int:
        """A slot that no run had so far."""
        self._slots += 1
        return self._slots - 1

    def seceded(self, key: Any, at: int) -> None:
        """A task left its slot and goes on in its thread."""
        try:
            taken = self._running.get(key)
            if taken is not None:
                self._running[key] = (*taken[:_SECEDED], at, *taken[_SECEDED + 1 :])  # type: ignore[assignment]  # as long
                heappush(self._free_slots, taken[_SLOT])
                self._freed = self._stimuli[-1], taken[0], at
        except Exception as error:
            self._failed(error)

    def ended(self, key: Any, ts: TaskState | None, at: int, run: Run | None, *, left: bool) -> None:
        """A task's thread is done: its run there if it was one of ours, and whether it had left its slot before."""
        try:
            taken = self._running.pop(key, None)
            if taken is None:
                return
            stimulus = self._stimuli[-1]
            if len(self._digests) != self._unspilled or len(self._ended) >= MAX_ROWS:
                self._complete_former(stimulus)
            if not left:
                heappush(self._free_slots, taken[_SLOT])
                self._freed = stimulus, taken[0], at
            if run is None:
                run = self._outside_threads(key, taken, ts, at)
            self._ended.append((taken, at, run, 0.0 if ts is None else ts.start_time or 0.0))
            self._last = stimulus, ts
        except Exception as error:
            self._failed(error)

    def _outside_threads(self, key: Any, taken: _Taken, ts: TaskState | None, at: int) -> Run:
        """Of a coroutine or a process pool: upstream's times, by the clock of the day put on the scheduler's."""
        event = self._stimuli[-1]
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        if start is None or stop is None or getattr(event, "key", None) != key:
            return _NOT_IN_THREAD
        wall = time_ns() - monotonic_ns()
        handed = round(ts.start_time * 1e9) - wall if ts is not None and ts.start_time is not None else MISSING
        submitted = min(max(MISSING if taken[3] is None else taken[3], handed), at)
        # Upstream's guess at the scheduler's clock may have changed meanwhile: the run keeps its length, and its place.
        took = min(max(0, round((stop - start) * 1e9)), at - submitted)
        began = min(max(submitted, round((start - self._worker.scheduler_delay) * 1e9) - wall), at - took)
        return began, began + took, 0, 0, MISSING

    def _complete_former(self, stimulus: Any) -> None:
        """Complete what ended in a former stimulus: upstream adds a task's fine metrics right after its own."""
        if self._last[0] is stimulus:
            self._together.append((len(self._ended) - 1, self._last[1]))
            return
        self._read_spills()
        if len(self._ended) >= MAX_ROWS:
            self.flush()

    def _read_spills(self) -> None:
        """Of all tasks that have ended; called when their fine metrics have arrived."""
        self._unspilled = -1 if self._spill.any() else len(self._digests)
        stimulus, last = self._last
        if stimulus is None:
            return
        self._last = None, None
        if self._unspilled < 0:
            for position, ts in (*self._together, (len(self._ended) - 1, last)):
                if ts is not None:
                    self._read_spill(position, ts)
        self._together.clear()

    def _read_spill(self, position: int, ts: TaskState) -> None:
        read, written = self._spill.since(ts.span_id or "", ts.prefix[:MAX_PREFIX_LENGTH])
        # What is read back may push others out: all that was not written to store the result.
        stored = min(written, _stored(ts)) if read else written
        self._spilled[position] = read + written - stored, stored

    # -- transfers ---------------------------------------------------------------------------

    def _asked(self, key: Any, at: int) -> None:
        move = self._moves.setdefault(key, [MISSING, 0, at, MISSING, MISSING, 0])
        sender = self._state.tasks[key].coming_from
        move[_ASKED] = at
        if sender is not None:
            move[_SENDER] = self._senders.setdefault(sender, len(self._senders))

    def _landed(self, key: Any, at: int) -> None:
        """A transfer may be over; whether it arrived, the task's state tells."""
        ts = self._state.tasks.get(key)
        if ts is not None and ts in self._state.in_flight_tasks:
            return
        move = self._moves.pop(key, None)
        if move is not None and move[_ASKED] != MISSING:
            move[_STOPPED] = at
            if ts is not None:
                move[_NBYTES] = int(ts.nbytes or 0)
                move[_ARRIVED] = int(ts.state == "memory")
            self._moved.append(move)
            self._moved_keys.append(key)
        if ts is not None and ts.state == "fetch":
            self._moves[key] = [MISSING, 0, at, MISSING, MISSING, 0]

    # -- batches -----------------------------------------------------------------------------

    def flush(self, *, closing: bool = False, running: bool = False) -> int:
        """Send what there is, and give the number of the last batch.

        Parameters
        ----------
        closing
            Nothing comes after: what runs is cut off now.
        running
            Send what is known of the runs that go on, too.
        """
        self._read_spills()
        ended = self._ended + self._never_ran
        if closing or running:
            at = monotonic_ns() if closing else MISSING
            ended += [
                (run, at if run[3] is not None else MISSING, _NOT_IN_THREAD, 0.0) for run in self._running.values()
            ]
            ended += [(self._without_slot(key), MISSING, _NOT_IN_THREAD, 0.0) for key in self._received]
        profiles, not_profiled = ([], {}) if self.profiles is None else self.profiles.take(closing=closing)
        if not (ended or self._moved or self._blocked or profiles or not_profiled):
            return self._seq
        self._seq += 1
        wall = time_ns() - monotonic_ns()
        message = encode(
            recording=self.recording,
            worker=self._worker.address,
            seq=self._seq,
            wall=wall,
            runs=list(_rows(ended, self._spilled, wall)),
            transfers=self._moved,
            blocked=self._blocked,
            keys=self._moved_keys,
            senders=list(self._senders),
            profiles=profiles,
            not_profiled=not_profiled,
        )
        self._ended, self._never_ran, self._spilled = [], [], {}
        self._moved, self._moved_keys, self._blocked = [], [], []
        if not self._moves:  # those that are on the way have numbers of senders
            self._senders = {}
        self._worker.log_event(BATCHES, message)
        return self._seq


def _rows(ended: Sequence[_Ended], spilled: Mapping[int, tuple[int, int]], wall: int) -> Iterable[tuple[int, ...]]:
    """A row for each run, with the columns :data:`~dask_efficiency.runs.trace.batch.RUN`; made by columns."""
    if not ended:
        return ()
    taken, stopped, runs, handed = zip(*ended, strict=True)
    run_id, received, ready, taken_at, seceded, slot, freed = zip(*taken, strict=True)
    start, stop, cpu, _, thread = zip(*runs, strict=True)
    executing = [MISSING if at is None else at for at in taken_at]
    by_clock = [int(seconds * 1e9) - wall for seconds in handed]
    spills: Iterator[tuple[int, int]] = (
        (spilled.get(i, (0, 0)) for i in range(len(ended))) if spilled else repeat((0, 0), len(ended))
    )
    unspill_ns, spill_ns = zip(*spills, strict=True)
    columns = {
        "run_id": run_id,
        "received": received,
        "ready": ready,
        "executing": executing,
        # By two clocks: what is known by one holds.
        "submitted": map(min, map(max, executing, by_clock), start),
        "start": start,
        "stop": stop,
        "ended": stopped,
        "seceded": seceded,
        "thread": thread,
        "slot": slot,
        "after": [
            by[1] if by is not None and MISSING < at < by[2] else MISSING for at, by in zip(ready, freed, strict=True)
        ],
        "cpu_ns": cpu,
        "unspill_ns": unspill_ns,
        "spill_ns": spill_ns,
    }
    return zip(*(columns[name] for name in RUN), strict=True)


def _stored(ts: TaskState) -> int:
    """Nanoseconds that storing a task's result took, as upstream notes it above 5 ms."""
    last = ts.startstops[-1] if ts.startstops else None
    if last is None or last["action"] != "disk-write":
        return 0
    return round((last["stop"] - last["start"]) * 1e9)
