"""Slots: what each entry of a worker's log means for the slot that a task holds, as one table of rules.

Theory of operation
===================

**What is counted.** A worker of ``nthreads`` threads has as many slots. At any instant a slot is in one of two states:
a task holds it, or it is free. So between two instants that lie ``t`` nanoseconds apart exactly ``nthreads * t``
nanoseconds pass, and each of them is of one slot in one state. The ledger adds them up in integers. Nothing is sampled,
nothing is rounded, and nothing is measured twice; other measurements (a thread's CPU time, the time at the disk) only
divide time that is counted already, and are cut to it.

**Instants.** All are nanoseconds of the machine's monotonic clock. The event loop reads it for transitions of tasks, a
task's thread for its own work. Instants come in the order in which they were read. One before an instant that the
ledger has seen counts as that one: no time is named twice, and no bucket shrinks.

**The log.** Dask tells a plugin of each transition of each task, in the middle of a stimulus, while its own state is
half way between two. There only what is true in that moment is written down: the instant, the key, the states before
and after, among which tasks Dask counts it now, and what will be gone (the thread's run, sizes of inputs, who waits).
Entries hold no object of Dask's. They are read in batches, before each report of the accounts and whenever there are
many, in the order of their instants. It makes no difference to the accounts when that is: tests read each scene at
once, late, and both, and compare to the nanosecond.

**A task holds a slot** from the instant at which Dask counts it among ``executing`` until it counts it there no more,
whatever the name of its state. The name can mislead, Dask's sets do not: a task that is cancelled while its thread is
at work is ``cancelled`` and stays in its set, because its thread cannot be stopped. If it is wanted again, it is
``executing`` as before, and its run is discarded, because the scheduler has it run once more. So the rules look at two
things only: the slot that a task *had* before a transition, which we know, and the *set* in which Dask counts it
afterwards:

======================  ======================  ======================================================================
had                     set of tasks            so
======================  ======================  ======================================================================
no slot                 any thread              nothing: its slot was, or will be, taken by an entry of its own
no slot                 neither                 it ended before; the same stimulus adds that its result was not stored
a slot                  executing               it was cancelled and is wanted again: this run is discarded
a slot                  long-running            it seceded: the slot is free, the thread goes on
a slot                  neither                 it ended: the slot is free
a thread, slot left     executing, neither      it ended: its time in the slot counts, the rest is shown separately
a thread, slot left     long-running            nothing
======================  ======================  ======================================================================

**What a held slot's time goes to** is known when its task has ended: all of it to ``failed``, ``cancelled`` or
``recomputed``, or to ``overhead`` where a P2P shuffle stopped it, to have it run where its data is; or, for a task that
succeeded for the first time, in this order, each at most what is left: CPU time of its thread, kernels of the GPU that
it waited for, threads of libraries that computed for it, the rest of its time in the thread (``thread-noncpu``), time
outside the thread in which the event loop was at the disk (``spill``), and what remains (``overhead``: it waits for its
thread to begin, or for the event loop to hear that it is done). The parts add up to the time held because the last one
is what the others leave. Until a task has ended its time is ``running``.

**What a free slot's time goes to** is known at once, for the reasons that are in force since the last entry:
``retiring`` where the worker closes; one slot for each task that is ready or that a resource holds back is ``paused``
where it is that; else one for each task that waits for data is ``waiting-on-data``, one for each that a resource holds
back ``constrained``, and the rest is ``idle``. Of that the scheduler, which knows what it would send, says later how
much is ``no-work``, and ``paused``. There is one thing that is known later here, too. While the event loop is at the
disk it reads no messages, and a task may lie in one for a slot that is free. So such times stay undecided until the
accounts are reported next: a task that takes a slot, and was sent before the loop was free again, makes ``spill`` of
what was ``idle``.

**The conservation law** follows: free time and held time are all there is; held time is what was finalized and what is
running; so ``sum(finalized) + running == nthreads * elapsed`` at every instant, whatever the entries say. A wrong entry
can name time wrongly. It cannot make, lose or double any: a key that has a slot gets no second one, a key that has none
frees none, and a task that comes while no slot is free waits in a queue until one is.

**Windows**, which reports are made of, remember at their opening what each task had held by then, and take that out of
its parts, pro rata, when it ends. So the accounts of windows that follow one another add up to those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import BY_SHUFFLE, Entry, Moved, Observed, Spilled, Taken, TaskSet, Turned
from dask_efficiency.accounts.worker.reservations import SlotReservation

#: States of a task whose thread is, or was, at work; an unwanted transfer is ``cancelled``, too.
AT_WORK = frozenset({"executing", "cancelled", "resumed", "long-running"})
_SUCCEEDED = Outcome.SUCCEEDED
_new = tuple.__new__  # for every task: to call the class takes one more call of a Python function


class HeldBefore(StrEnum):
    """Hold of a task on a slot before a transition."""

    NO_SLOT = "no slot"
    SLOT = "a slot"
    LEFT = "a thread, having left its slot"


class SlotEvent(StrEnum):
    """Meaning of a transition for a slot."""

    NOTHING = "nothing"
    TAKEN = "taken"
    DISCARDED = "discarded"
    SECEDED = "seceded"
    ENDED = "ended"
    NOT_STORED = "not stored"


#: Event by a task's hold before and the set in which Dask counts it now. Only that set shows if its thread is still at
#: work: a task that is cancelled and wanted again changes its state and stays in its set.
RULES: Mapping[tuple[HeldBefore, TaskSet], SlotEvent] = {
    (HeldBefore.NO_SLOT, TaskSet.EXECUTING): SlotEvent.NOTHING,
    (HeldBefore.NO_SLOT, TaskSet.LONG_RUNNING): SlotEvent.NOTHING,
    # It has ended already; the same stimulus may add that its result could not be stored.
    (HeldBefore.NO_SLOT, TaskSet.NEITHER): SlotEvent.NOT_STORED,
    # The result of this run is discarded, if the task had been cancelled; else it only moved.
    (HeldBefore.SLOT, TaskSet.EXECUTING): SlotEvent.DISCARDED,
    (HeldBefore.SLOT, TaskSet.LONG_RUNNING): SlotEvent.SECEDED,
    (HeldBefore.SLOT, TaskSet.NEITHER): SlotEvent.ENDED,
    (HeldBefore.LEFT, TaskSet.EXECUTING): SlotEvent.ENDED,
    (HeldBefore.LEFT, TaskSet.LONG_RUNNING): SlotEvent.NOTHING,
    (HeldBefore.LEFT, TaskSet.NEITHER): SlotEvent.ENDED,
}

#: Outcome of a task that was not cancelled, by its final state; with any other state it was cancelled.
_OUTCOMES = {"memory": Outcome.SUCCEEDED, "error": Outcome.FAILED, BY_SHUFFLE: Outcome.RESCHEDULED}


class Ended(NamedTuple):
    """A task whose slot is free, and whose thread is done."""

    reservation: SlotReservation
    outcome: Outcome
    moved: Moved
    #: (CPU, wall) nanoseconds that it used in its slot, where it left that before.
    used: tuple[int, int] | None = None


class Seceded(NamedTuple):
    """A task that left its slot: its reservation, (CPU, wall) that it used until then, and since when it is away."""

    reservation: SlotReservation | None
    used: tuple[int, int] | None
    at: int


class Slots:
    """Applies the log of a worker to the slots of its ledger; the tasks in ``seceded`` had left theirs before."""

    def __init__(self, ledger: Ledger, seceded: Iterable[Any] = ()) -> None:
        self._ledger = ledger
        self._ended: list[Ended] = []
        #: Tasks that were cancelled and wanted again while their thread was at work: the scheduler will not
        #: take the result of that run, and has the task run once more.
        self._discarded: set[Any] = set()
        self._seceded = {key: Seceded(None, None, ledger.at) for key in seceded}
        self._seceded_ns = 0
        #: Nanoseconds in which the memory manager had the event loop spill, and no slot waited.
        self.unnoticed = 0

    def read(self, entries: Iterable[Entry]) -> None:
        """Follow what happened, in order."""
        ledger = self._ledger
        for entry in entries:
            if type(entry) is Taken:
                at, key, prefix, span, recomputed, since, _ = entry
                if since is not None:
                    ledger.delayed(since)
                ledger.reserve(key, prefix, span, recomputed=recomputed, at=at)
            elif type(entry) is Moved:
                if entry.start != "executing" or entry.finish != "memory" or self._discarded:
                    self._move(entry)
                    continue
                # As nearly all do.
                reservation = ledger.release(entry.key, entry.at)
                if reservation is not None:
                    self._ended.append(_new(Ended, (reservation, _SUCCEEDED, entry, None)))
            elif isinstance(entry, Observed):
                at, availability, waiting, constrained, ready = entry
                ledger.observe(availability, waiting, constrained, ready, at=at)
            elif isinstance(entry, Turned):
                ledger.turn(entry.availability, entry.ready, at=entry.at)
            elif isinstance(entry, Spilled):
                self._spilled(entry)

    def take(self, *, all_of_them: bool) -> list[Ended]:
        """The tasks that ended since the last call; but the last one where its stimulus may still change it."""
        kept = [] if all_of_them else self._ended[-1:]
        taken = self._ended if all_of_them else self._ended[:-1]
        self._ended = kept
        return taken

    def seceded_ns(self, at: int) -> int:
        """Nanoseconds that tasks have run in their threads after they left their slots."""
        return self._seceded_ns + sum(at - task.at for task in self._seceded.values())

    def seceded(self) -> list[Seceded]:
        """The tasks that left their slots and run."""
        return list(self._seceded.values())

    def _move(self, entry: Moved) -> None:
        at, key, start, finish, place, *_ = entry
        event = RULES[self._held_before(key), place]
        if event is SlotEvent.DISCARDED:
            if start == "cancelled":
                self._discarded.add(key)
        elif event is SlotEvent.SECEDED:
            self._discarded.discard(key)
            self._seceded[key] = Seceded(self._ledger.release(key, at=at), entry.used, at)
        elif event is SlotEvent.ENDED:
            outcome = Outcome.CANCELLED if start == "cancelled" else _OUTCOMES.get(finish, Outcome.CANCELLED)
            if key in self._discarded:
                self._discarded.remove(key)
                if (start, finish) == ("executing", "memory"):
                    outcome = Outcome.CANCELLED
            left = self._seceded.pop(key, None)
            if left is not None:
                self._seceded_ns += at - left.at
            reservation = self._ledger.release(key, at=at) if left is None else left.reservation
            if reservation is not None:
                self._ended.append(Ended(reservation, outcome, entry, left and left.used))
        elif event is SlotEvent.NOT_STORED and finish == "error" and self._ended:
            last = self._ended[-1]
            if last.moved.key == key:
                self._ended[-1] = last._replace(outcome=Outcome.FAILED)

    def _held_before(self, key: Any) -> HeldBefore:
        if key in self._seceded:
            return HeldBefore.LEFT
        return HeldBefore.SLOT if self._ledger.has(key) else HeldBefore.NO_SLOT

    def _spilled(self, entry: Spilled) -> None:
        start, stop, asked, ready, waiting, held_up = entry
        free = self._ledger.slots_free
        if free:
            self._ledger.spilled(ready, start=start, stop=stop)
        if asked and not (free and (ready or waiting)) and held_up <= 0:
            self.unnoticed += stop - start
