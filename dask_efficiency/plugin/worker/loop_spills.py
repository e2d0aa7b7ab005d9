"""LoopSpills: what a worker's slots wait for while its event loop spills."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distributed.worker_state_machine import ComputeTaskEvent

from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.slots import Run
from dask_efficiency.plugin.worker.spill_watch import SpillWatch
from dask_efficiency.plugin.worker.threads import TaskThreads

if TYPE_CHECKING:
    from distributed import Worker

#: How often in a row a heartbeat may repeat the last one, for tasks in messages that are not read yet.
MAX_KEPT_BACK = 3


class LoopSpills:
    """Tells a worker's ledger when the event loop spilled, and what of it each task waited for.

    Parameters
    ----------
    worker
        The worker.
    ledger
        Its accounts.
    threads
        Its tasks' threads.
    catch_up
        Tells the ledger of all tasks that have taken slots, or left them.
    look_back
        Brings the ledger's knowledge of pauses up to an instant.
    failed
        Called where something of this fails.
    """

    def __init__(
        self,
        worker: Worker,
        ledger: Ledger,
        threads: TaskThreads,
        catch_up: Callable[[], object],
        look_back: Callable[[int], object],
        failed: Callable[[Exception], object],
    ) -> None:
        self._state = worker.state
        self._ledger = ledger
        self._threads = threads
        self._catch_up = catch_up
        self._look_back = look_back
        self._failed = failed
        self.watch = SpillWatch(worker.data, self._spilled)
        #: Nanoseconds in which the memory manager spilled and no slot waited; None where that is not known.
        self.unnoticed: int | None = None
        #: When the spilling ended for which a heartbeat was last kept back, and how many were in a row.
        self._kept_back_for = 0
        self._kept_back = 0

    def start(self) -> None:
        """Watch the worker's data; called on the event loop."""
        self.watch.start()
        if self.watch.watching and self.unnoticed is None:
            self.unnoticed = 0

    def stop(self) -> None:
        """Stop watching."""
        self.watch.stop()

    def _spilled(self, start: int, stop: int, asked: bool) -> None:
        try:
            self._catch_up()
            free = self._ledger.slots_free
            ready = len(self._state.ready)
            if free:
                self._look_back(start)
                self._ledger.spilled(ready, start=start, stop=stop)
            if asked and not (free and (ready or self._state.waiting)) and self._threads.waiting() <= 0:
                self.unnoticed = (self.unnoticed or 0) + stop - start
        except Exception as error:
            self._failed(error)

    def keep_back(self) -> bool:
        """Whether this heartbeat should repeat the last one, because what is reported can never be taken back.

        The first heartbeat after spilling is sent before the loop reads the messages that came meanwhile, and these
        may hold tasks for the slots that were free.
        """
        last = self.watch.last
        if not self._ledger.undecided or last == self._kept_back_for or self._kept_back >= MAX_KEPT_BACK:
            self._kept_back = 0
            return False
        self._kept_back_for = last
        self._kept_back += 1
        return True

    def delayed(self, at: int) -> None:
        """A task takes a slot now; where a message brought it, it may have lain there while the loop spilled."""
        log = self._state.stimulus_log
        event = log[-1] if log else None
        if isinstance(event, ComputeTaskEvent):
            sent = sent_at(event)
            if sent is not None:
                self._ledger.delayed(at - round((time.time() - sent) * 1e9))

    def beside(self, reservation: SlotReservation, run: Run) -> int | None:
        """Nanoseconds in which the loop spilled while an ended task held its slot and was not in its thread.

        None where that is not known.
        """
        watch = self.watch
        if watch.last <= reservation.start:
            return 0 if watch.watching else None
        released = reservation.stop
        spilled = watch.between(reservation.start, released)
        start, stop, _, ident, _ = run
        if ident:
            spilled -= watch.between(max(start, reservation.start), min(stop, released))
        return spilled


def sent_at(event: ComputeTaskEvent) -> float | None:
    """When the scheduler sent a task, by its clock of the day; upstream's private matter, in the stimulus's name."""
    try:
        return float(event.stimulus_id.rpartition("-")[2])
    except ValueError:
        return None
