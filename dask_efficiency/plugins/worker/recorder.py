"""WorkerRecorder: a row for each run and each transfer of a worker, from Dask's hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from dask_efficiency.activity import SlotReservation
from dask_efficiency.plugins.loop_watch import LoopWatch
from dask_efficiency.plugins.names import BATCHES
from dask_efficiency.plugins.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugins.worker.task_meter import Run
from dask_efficiency.slots import AT_WORK, MAX_PREFIX_LENGTH
from dask_efficiency.trace.batch import NEW_RUN, RUN, TRANSFER, encode
from dask_efficiency.trace.schema import BLOCKED_BY
from dask_efficiency.trace.tables import MISSING

if TYPE_CHECKING:
    from distributed import Worker
    from distributed.worker_state_machine import TaskState

#: Rows after which a batch is sent between two heartbeats.
MAX_ROWS = 500

#: Less time at the disk than this blocks an event loop no more than anything else does.
MIN_AT_DISK_NS = 1_000_000

_SPILLS, _READS_BACK = BLOCKED_BY.index("spill"), BLOCKED_BY.index("unspill")

#: Positions in a run's row.
_RUN_ID, _RECEIVED, _READY, _EXECUTING, _SUBMITTED, _START, _STOP, _ENDED, _SECEDED = map(
    RUN.index, ("run_id", "received", "ready", "executing", "submitted", "start", "stop", "ended", "seceded")
)
_THREAD, _SLOT, _AFTER = map(RUN.index, ("thread", "slot", "after"))
_CPU, _UNSPILL, _SPILL = map(RUN.index, ("cpu_ns", "unspill_ns", "spill_ns"))
_NEW_RUN = list(NEW_RUN)

#: Positions in a transfer's row.
_SENDER, _NBYTES, _QUEUED, _ASKED, _STOPPED, _ARRIVED = map(
    TRANSFER.index, ("sender", "nbytes", "queued", "start", "stop", "arrived")
)


class WorkerRecorder:
    """Records one worker while its recording goes on; all its methods are called on the event loop.

    Instants are nanoseconds of the monotonic clock, which processes of one machine share.

    Parameters
    ----------
    worker
        The worker.
    recording
        Which recording its batches are of.
    runs
        What tasks used in their threads, by key, when they end.
    failed
        Called where something of this fails.
    """

    def __init__(
        self, worker: Worker, recording: str, runs: Mapping[Any, Run], failed: Callable[[Exception], object]
    ) -> None:
        self.recording = recording
        self._runs = runs
        self._failed = failed
        self._worker = worker
        self._state = worker.state
        self._stimuli = worker.state.stimulus_log
        self._seq = 0
        #: Tasks that were received and have not ended.
        self._rows: dict[Any, list[int]] = {}
        self._done: list[list[int]] = []
        #: Rows that ended in one stimulus, whose fine metrics have not arrived yet: row, span, prefix, and the
        #: nanoseconds that storing the result took.
        self._ended: list[tuple[list[int], str, str, int]] = []
        self._ended_by: Any = None
        #: The stimulus that freed a slot last, the run that had it, and when.
        self._freed: tuple[Any, int, int] = (None, MISSING, MISSING)
        self._free_slots: list[int] = []
        self._slots = 0
        self._moves: dict[Any, list[int]] = {}
        self._moved: list[list[int]] = []
        self._moved_keys: list[Any] = []
        self._senders: dict[str, int] = {}
        self._blocked: list[tuple[int, int, int, int]] = []
        self._spill = SpillMetrics(worker.digests_total)
        for ts in worker.state.executing:
            self._take_slot(self._row(ts))
        self._watch = LoopWatch(worker, lambda *row: self._blocked.append(row))

    def stop(self) -> None:
        """Record no more."""
        self._watch.stop()

    def at_disk(self, start: int, stop: int, reading: bool) -> None:
        """The event loop wrote results to disk, or read them back."""
        if stop - start >= MIN_AT_DISK_NS:
            self._blocked.append((start, stop, 0, _READS_BACK if reading else _SPILLS))

    # -- runs --------------------------------------------------------------------------------

    def transition(self, key: Any, start: str, finish: str) -> None:
        """Dask's hook: a task changed state. What that means for its slot, a tracker tells afterwards."""
        at = monotonic_ns()
        if self._ended and (self._ended_by is None or self._ended_by is not self._stimulus()):
            self._finalize()
        if finish == "ready":
            row = self._rows.get(key)
            if row is not None:
                row[_READY] = at
        elif finish == "executing":
            pass
        elif finish == "waiting":
            ts = self._state.tasks[key]
            if ts.state == "waiting":  # else its thread is at work, or its result on the way
                self._row(ts)[_RECEIVED] = at
                self._moves.pop(key, None)
        elif key in self._rows:
            if finish == "released" and self._rows[key][_SLOT] == MISSING:  # it never ran here
                self._done.append(self._rows.pop(key))
        elif start == "flight" or (start in AT_WORK and key in self._moves):
            self._landed(key, at)
        elif finish == "flight":
            self._asked(key, at)
        elif finish == "fetch":
            self._moves.setdefault(key, [MISSING, 0, at, MISSING, MISSING, 0])
        elif start == "fetch" and finish == "released":
            self._moves.pop(key, None)

    def _row(self, ts: TaskState) -> list[int]:
        row = _NEW_RUN.copy()
        row[_RUN_ID] = ts.run_id
        self._rows[ts.key] = row
        return row

    def taken(self, ts: TaskState, reservation: SlotReservation) -> None:
        """A task took a slot."""
        self._guard(self._taken, ts, reservation)

    def seceded(self, key: Any, reservation: SlotReservation) -> None:
        """A task left its slot and goes on in its thread."""
        self._guard(self._left_slot, key, reservation)

    def ended(self, key: Any, ts: TaskState | None, reservation: SlotReservation | None, at: int) -> None:
        """A task's thread is done; it had left its slot before where the reservation is None."""
        self._guard(self._end, key, ts, reservation, at)

    def _stimulus(self) -> Any:
        """The stimulus that is handled now; None where the user has upstream log none."""
        return self._stimuli[-1] if self._stimuli else None

    def _guard(self, function: Callable[..., object], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            self._failed(error)

    def _taken(self, ts: TaskState, reservation: SlotReservation) -> None:
        row = self._rows.get(ts.key)
        if row is None:  # it was received before the recording began
            row = self._row(ts)
        row[_EXECUTING] = reservation.start
        self._take_slot(row)
        stimulus, run_id, freed_at = self._freed
        if stimulus is not None and stimulus is self._stimulus() and MISSING < row[_READY] < freed_at:
            row[_AFTER] = run_id

    def _take_slot(self, row: list[int]) -> None:
        if self._free_slots:
            row[_SLOT] = heappop(self._free_slots)
        else:
            row[_SLOT] = self._slots
            self._slots += 1

    def _free_slot(self, row: list[int], reservation: SlotReservation) -> None:
        if row[_EXECUTING] != MISSING:  # else it began before the recording
            row[_EXECUTING] = reservation.start  # later than it was taken, if no slot was free then
        heappush(self._free_slots, row[_SLOT])
        self._freed = self._stimulus(), row[_RUN_ID], reservation.stop

    def _left_slot(self, key: Any, reservation: SlotReservation) -> None:
        row = self._rows.get(key)
        if row is not None:
            row[_SECEDED] = reservation.stop
            self._free_slot(row, reservation)

    def _end(self, key: Any, ts: TaskState | None, reservation: SlotReservation | None, at: int) -> None:
        row = self._rows.pop(key, None)
        if row is None:
            return
        row[_ENDED] = at
        if reservation is not None:
            self._free_slot(row, reservation)
        self._in_thread(row, key, ts, at)
        span, prefix = (ts.span_id or "", ts.prefix) if ts is not None else ("", "")
        prefix = prefix if len(prefix) <= MAX_PREFIX_LENGTH else prefix[:MAX_PREFIX_LENGTH]
        self._ended.append((row, span, prefix, _stored(ts) if ts is not None else 0))
        self._ended_by = self._stimulus()

    def _in_thread(self, row: list[int], key: Any, ts: TaskState | None, at: int) -> None:
        wall = time_ns() - monotonic_ns()
        submitted = row[_EXECUTING]
        if ts is not None and ts.start_time is not None:
            submitted = max(submitted, round(ts.start_time * 1e9) - wall)
        run = self._runs.get(key)
        if run is not None:
            row[_START], row[_STOP], row[_CPU], _, row[_THREAD] = run
            row[_SUBMITTED] = min(submitted, row[_START])
            return
        # A coroutine or a process pool: upstream's times, by the clock of the day put on the scheduler's.
        event = self._stimulus()
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        if start is None or stop is None or getattr(event, "key", None) != key:
            return
        submitted = min(submitted, at)
        # Upstream's guess at the scheduler's clock may have changed meanwhile: the run keeps its length, and its place.
        took = min(max(0, round((stop - start) * 1e9)), at - submitted)
        began = round((start - self._worker.scheduler_delay) * 1e9) - wall
        row[_SUBMITTED] = submitted
        row[_START] = min(max(submitted, began), at - took)
        row[_STOP] = row[_START] + took

    def _finalize(self) -> None:
        """Complete what ended in a former stimulus: upstream adds a task's fine metrics right after its own."""
        for row, span, prefix, stored in self._ended:
            read, written = self._spill.since(span, prefix)
            # What is read back may push others out: all that was not written to store the result.
            row[_SPILL] = min(written, stored) if read else written
            row[_UNSPILL] = read + written - row[_SPILL]
            self._done.append(row)
        self._ended.clear()
        if len(self._done) >= MAX_ROWS:
            self.flush()

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
        if (closing or running) and self._ended:
            self._finalize()
        rows = list(self._done)
        if closing:
            at = monotonic_ns()
            for row in self._rows.values():
                row[_ENDED] = at if row[_EXECUTING] != MISSING else MISSING
        if closing or running:
            rows += self._rows.values()
        if not (rows or self._moved or self._blocked):
            return self._seq
        self._seq += 1
        message = encode(
            recording=self.recording,
            worker=self._worker.address,
            seq=self._seq,
            wall=time_ns() - monotonic_ns(),
            runs=rows,
            transfers=self._moved,
            blocked=self._blocked,
            keys=self._moved_keys,
            senders=list(self._senders),
        )
        self._done, self._moved, self._moved_keys, self._blocked = [], [], [], []
        if not self._moves:  # those that are on the way have numbers of senders
            self._senders = {}
        self._worker.log_event(BATCHES, message)
        return self._seq


def _stored(ts: TaskState) -> int:
    """Nanoseconds that storing a task's result took, as upstream notes it above 5 ms."""
    last = ts.startstops[-1] if ts.startstops else None
    if last is None or last["action"] != "disk-write":
        return 0
    return round((last["stop"] - last["start"]) * 1e9)
