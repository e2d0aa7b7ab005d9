"""WorkerRecorder: a row for each run and each transfer of a worker, from the log of its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from heapq import heappop, heappush
from itertools import repeat
from threading import Lock
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Final

from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._core import ShuffleRun, barrier_key

from dask_efficiency.accounts.intake import whole_number
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.log import (
    Done,
    Entry,
    Moved,
    Noted,
    Run,
    Taken,
    TaskSet,
    prefix_of,
    span_of,
)
from dask_efficiency.plugin.names import BATCHES
from dask_efficiency.plugin.patches import SHUFFLE_MESSAGE, Replacements
from dask_efficiency.plugin.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugin.worker.hooks import MAYBE_IN_FLIGHT, WITHOUT_SLOT
from dask_efficiency.runs.recording.loop_watch import LoopWatch
from dask_efficiency.runs.trace.batch import TRANSFER, encode
from dask_efficiency.runs.trace.schema import BLOCKED_BY, SHUFFLED

if TYPE_CHECKING:
    from distributed import Worker


#: Called with the barrier's key, the receiver's address, bytes, and the instants of sending and arrival.
Sent = Callable[[str, str, int, int, int], object]
#: By address of the sending worker.
_recorded: dict[str, Sent] = {}
_lock = Lock()
_replacements = Replacements()


def watch_shuffles(address: str, sent: Sent) -> None:
    """Call ``sent`` for each message of a worker until :func:`unwatch_shuffles`; never where upstream differs."""
    with _lock:
        if not _recorded:
            _replacements.put(SHUFFLE_MESSAGE, ShardsBuffer, _noting)
        _recorded[address] = sent


def unwatch_shuffles(address: str) -> None:
    """Stop calling it; safe to call twice."""
    with _lock:
        if _recorded.pop(address, None) is not None and not _recorded:
            _replacements.put_back()


def _noting(process: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(process)
    async def noted(buffer: Any, to: Any, shards: Any, size: int) -> Any:
        start = monotonic_ns()
        try:
            return await process(buffer, to, shards, size)
        finally:
            run = getattr(getattr(buffer, "send", None), "__self__", None)
            if isinstance(run, ShuffleRun):  # else parts are written to disk
                sent = _recorded.get(run.local_address)
                if sent is not None:
                    sent(barrier_key(run.id), to, size, start, monotonic_ns())

    return noted


#: Rows after which a batch is sent between two heartbeats: encoding them takes about a millisecond.
MAX_ROWS = 500
#: Nanoseconds at the disk below which the event loop does not count as blocked by it.
MIN_AT_DISK_NS = 1_000_000
_SPILLS, _READS_BACK = BLOCKED_BY.index("spill"), BLOCKED_BY.index("unspill")

#: Positions in a transfer's row.
_SENDER, _NBYTES, _QUEUED, _ASKED, _STOPPED, _ARRIVED = map(
    TRANSFER.index, ("sender", "nbytes", "queued", "start", "stop", "arrived")
)

#: Slot that became free last: the stimulus that freed it, the run that had it, and the instant.
_Freed = tuple[int, int, int]

#: Run that has a slot: its number; the instants at which it was received, was ready, took the slot (None if before the
#: recording), and left it before its end; the slot's number; the slot that the same stimulus freed before; its span and
#: prefix. A plain tuple, as every task has one.
_Taken = tuple[int, int, int, int | None, int, int, _Freed | None, str, str]
#: Positions in it.
_SECEDED: Final = 4
_SLOT: Final = 5
_SPAN: Final = 7
#: Run that ended: with the instant, its time in its thread, and when it was handed to that, by upstream's wall clock.
_Ended = tuple[_Taken, int, Run, float]
#: Time in the thread of a run that was not seen there.
_NOT_IN_THREAD: Run = (MISSING, MISSING, 0, 0, MISSING)
#: By requester and prefix: number of tasks to profile.
Requests = Mapping[str, Mapping[str, int]]


class WorkerRecorder:
    """Records one worker while its recording goes on; all its methods are called on the event loop.

    Instants are nanoseconds of the monotonic clock, which processes of one machine share. Rows are made when they are
    sent, a whole batch together, to keep the cost on the path of each task small.
    """

    def __init__(self, worker: Worker, recording: str, profiles: Any = None) -> None:
        self.recording = recording
        #: Profiler of some tasks, from the wing that offers one; or None.
        self.profiles = profiles
        #: Error in reading the log; nothing is read after it.
        self.failure: Exception | None = None
        self._worker, self._state, self._digests = worker, worker.state, worker.digests_total
        self._seq = 0
        #: Instants at which tasks without a slot were received, and were ready.
        self._received: dict[Any, int] = {}
        self._ready: dict[Any, int] = {}
        #: Tasks that took a slot and have not ended.
        self._running: dict[Any, _Taken] = {}
        self._ended: list[_Ended] = []
        #: Runs of tasks that were received and never ran here.
        self._never_ran: list[_Ended] = []
        self._freed: _Freed = (MISSING, MISSING, MISSING)
        self._free_slots: list[int] = []
        self._slots = 0
        self._moves: dict[Any, list[int]] = {}
        self._moved: list[list[int]] = []
        self._moved_keys: list[Any] = []
        self._senders: dict[str, int] = {}
        self._blocked: list[tuple[int, int, int, int]] = []
        self._spill = SpillMetrics(worker.digests_total)
        #: Number of digests while no task has spilled; -1 once one has.
        self._unspilled = 0
        #: By position among those that ended: nanoseconds of reading inputs back, and of writing.
        self._spilled: dict[int, tuple[int, int]] = {}
        #: Runs of the last stimulus, whose fine metrics are not read yet: position, span, prefix, and time of storing.
        self._unread: list[tuple[int, str, str, int]] = []
        self._unread_of = MISSING
        self._read_spills()
        for ts in worker.state.executing:
            of = span_of(ts.span_id), prefix_of(ts.prefix)
            self._running[ts.key] = (ts.run_id, MISSING, MISSING, None, MISSING, self._take_slot(), None, *of)
        watch_shuffles(worker.address, self._sent_in_shuffle)
        blocked = self._blocked
        self._watch = LoopWatch(worker, lambda *row: blocked.append(row))

    def stop(self) -> None:
        """Stop recording."""
        self._watch.stop()
        unwatch_shuffles(self._worker.address)
        if self.profiles is not None:
            self.profiles.close()

    def at_disk(self, start: int, stop: int, reading: bool) -> None:
        """Note that the event loop wrote results to disk, or read them back."""
        if stop - start >= MIN_AT_DISK_NS:
            self._blocked.append((start, stop, 0, _READS_BACK if reading else _SPILLS))

    @property
    def spills(self) -> bool:
        """True if tasks spill, which only upstream's metrics between two stimuli tell apart."""
        return len(self._digests) != self._unspilled

    def read(self, entries: Iterable[Entry], *, whole: bool) -> None:
        """Read entries of the log in order; ``whole`` if the last stimulus in them is complete."""
        if self.failure is not None:
            return
        try:
            for entry in entries:
                if type(entry) is Noted:
                    self._note(entry)
                elif type(entry) is Taken:
                    self._take(entry)
                elif type(entry) is Moved:
                    self._move(entry)
            if whole:
                self._read_spills()
            if len(self._ended) >= MAX_ROWS:
                self.flush()
        except Exception as error:
            self.failure = error

    def _note(self, entry: Noted) -> None:
        at, key, start, finish = entry[:4]
        if finish == "ready":
            self._ready[key] = at
        elif start == "released" and finish == "waiting":
            self._received[key] = at
            self._moves.pop(key, None)
        elif finish == "waiting":
            if entry.state == "waiting":  # else its thread is running, or its result on the way
                self._received[key] = at
                self._ready.pop(key, None)
                self._moves.pop(key, None)
        elif start in WITHOUT_SLOT:
            if key in self._received:
                self._never_ran.append(self._without_slot(key, entry.run_id))
                del self._received[key]
            self._ready.pop(key, None)
        elif key in self._running:
            pass
        elif start == "flight" or (start in MAYBE_IN_FLIGHT and key in self._moves):
            self._landed(entry)
        elif finish == "flight":
            move = self._wanted(entry)
            move[_ASKED] = entry.at
            if entry.sender:
                move[_SENDER] = self._senders.setdefault(entry.sender, len(self._senders))
        elif finish == "fetch":
            self._wanted(entry)
        elif finish == "released":
            self._moves.pop(key, None)

    def _without_slot(self, key: Any, run_id: int) -> _Ended:
        """Run of a task that was received and has no slot."""
        instants = self._received[key], self._ready.get(key, MISSING)
        return (run_id, *instants, None, MISSING, MISSING, None, "", ""), MISSING, _NOT_IN_THREAD, 0.0

    def _take(self, entry: Taken) -> None:
        key = entry.key
        if key in self._running or entry.begun is None:
            return
        stimulus, run_id = entry.begun
        freed = self._freed
        self._running[key] = (
            run_id,
            self._received.pop(key, MISSING),
            self._ready.pop(key, MISSING),
            entry.at,
            MISSING,
            heappop(self._free_slots) if self._free_slots else self._take_slot(),
            freed if freed[0] == stimulus else None,
            entry.span,
            entry.prefix,
        )

    def _take_slot(self) -> int:
        self._slots += 1
        return self._slots - 1

    def _move(self, entry: Moved) -> None:
        """Note a task that left its slot or ended, by the rules of the slots."""
        taken, done = self._running.get(entry.key), entry.done
        if taken is None or done is None:
            return
        left = taken[_SECEDED] != MISSING
        if entry.place is TaskSet.LONG_RUNNING:
            if not left:
                self._running[entry.key] = (*taken[:_SECEDED], entry.at, *taken[_SECEDED + 1 :])  # type: ignore[assignment]  # as long
                self._free(taken, done, entry.at)
        elif left or entry.place is TaskSet.NEITHER:
            del self._running[entry.key]
            if not left:
                self._free(taken, done, entry.at)
            run = _outside_threads(taken, done, entry.at) if entry.run is None else entry.run
            if done.stimulus != self._unread_of:  # runs of another stimulus have not spilled, or are read
                self._unread.clear()
                self._unread_of = done.stimulus
            self._unread.append((len(self._ended), *taken[_SPAN:], done.stored))
            self._ended.append((taken, entry.at, run, done.handed))

    def _free(self, taken: _Taken, done: Done, at: int) -> None:
        heappush(self._free_slots, taken[_SLOT])
        self._freed = done.stimulus, taken[0], at

    def _read_spills(self) -> None:
        """Read how long the ended tasks spilled; called when their fine metrics have arrived."""
        self._unspilled = -1 if self._spill.keys() else len(self._digests)
        if self._unspilled < 0:
            for position, span, prefix, stored in self._unread:
                read, written = self._spill.since(span, prefix)
                # Reading back may push others out: all writing but that of the result.
                stored = min(written, stored) if read else written
                self._spilled[position] = whole_number(read + written - stored), stored
        self._unread.clear()

    def _wanted(self, entry: Noted) -> list[int]:
        """The transfer of a result that is wanted, and that may not be asked for yet."""
        return self._moves.setdefault(entry.key, [MISSING, 0, entry.at, MISSING, MISSING, 0])

    def _landed(self, entry: Noted) -> None:
        """Note a transfer that may be over; the task's state tells if it arrived."""
        if entry.in_flight:
            return
        move = self._moves.pop(entry.key, None)
        if move is not None and move[_ASKED] != MISSING:
            move[_STOPPED], move[_NBYTES], move[_ARRIVED] = entry.at, entry.nbytes, int(entry.state == "memory")
            self._moved.append(move)
            self._moved_keys.append(entry.key)
        if entry.state == "fetch":
            self._wanted(entry)

    def _sent_in_shuffle(self, barrier: str, receiver: str, nbytes: int, start: int, stop: int) -> None:
        """Note a message of a P2P shuffle; if it failed, the receiver is gone or the shuffle restarts."""
        move = [MISSING] * len(TRANSFER)
        move[_SENDER] = self._senders.setdefault(receiver, len(self._senders))
        move[_NBYTES], move[_ASKED], move[_STOPPED], move[_ARRIVED] = nbytes, start, stop, SHUFFLED
        self._moved.append(move)
        self._moved_keys.append(barrier)

    def flush(self, *, closing: bool = False, running: bool = False) -> int:
        """Send the rows, and return the number of the last batch.

        With ``running`` they include the runs that go on; ``closing`` is the last batch, and cuts these off now.
        """
        self._read_spills()
        ended = self._ended + self._never_ran
        if closing or running:
            at = monotonic_ns() if closing else MISSING
            going_on = self._running.values()
            ended += [(run, at if run[3] is not None else MISSING, _NOT_IN_THREAD, 0.0) for run in going_on]
            tasks = self._state.tasks
            ended += [self._without_slot(k, tasks[k].run_id if k in tasks else MISSING) for k in self._received]
        profiles, not_profiled = ([], {}) if self.profiles is None else self.profiles.take(closing=closing)
        if ended or self._moved or self._blocked or profiles or not_profiled:
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
            for sent in (self._ended, self._never_ran, self._spilled, self._moved, self._moved_keys, self._blocked):
                sent.clear()
            if not self._moves:  # transfers under way hold numbers of senders
                self._senders = {}
            self._worker.log_event(BATCHES, message)
        return self._seq


def _rows(ended: Sequence[_Ended], spilled: Mapping[int, tuple[int, int]], wall: int) -> Iterable[tuple[int, ...]]:
    """Make a row for each run, with the columns :data:`~dask_efficiency.runs.trace.batch.RUN`, column by column."""
    if not ended:
        return ()
    taken, stopped, runs, handed = zip(*ended, strict=True)
    run_id, received, ready, taken_at, seceded, slot, freed, _, _ = zip(*taken, strict=True)
    start, stop, cpu, _, thread = zip(*runs, strict=True)
    executing = [MISSING if at is None else at for at in taken_at]
    by_clock = [int(seconds * 1e9) - wall for seconds in handed]
    spills = (spilled.get(i, (0, 0)) for i in range(len(ended))) if spilled else repeat((0, 0), len(ended))
    unspill_ns, spill_ns = zip(*spills, strict=True)
    # Its instant is by another clock: keep it between the neighbours.
    submitted = map(min, map(max, executing, by_clock), start)
    # The slot that was freed is the one that it waited for, if that was after it was ready.
    after = [by[1] if by is not None and MISSING < at < by[2] else MISSING for at, by in zip(ready, freed, strict=True)]
    columns = (
        *(run_id, received, ready, executing, submitted, start, stop, stopped, seceded),
        *(thread, slot, after, cpu, unspill_ns, spill_ns),
    )
    return zip(*columns, strict=True)


def _outside_threads(taken: _Taken, done: Done, at: int) -> Run:
    """Convert upstream's times of a coroutine or process pool, by the scheduler's wall clock, to monotonic time."""
    if done.outside is None:
        return _NOT_IN_THREAD
    start, stop, delay = done.outside
    wall = time_ns() - monotonic_ns()
    handed = round(done.handed * 1e9) - wall if done.handed else MISSING
    submitted = min(max(MISSING if taken[3] is None else taken[3], handed), at)
    # Upstream's estimate of the scheduler's clock may have changed: keep the run's length, within its neighbours.
    took = min(max(0, round((stop - start) * 1e9)), at - submitted)
    began = min(max(submitted, round((start - delay) * 1e9) - wall), at - took)
    return began, began + took, 0, 0, MISSING
