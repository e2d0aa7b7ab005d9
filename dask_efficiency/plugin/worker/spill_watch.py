"""SpillWatch: when a worker's event loop moves data between memory and disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container
from functools import partial
from threading import get_ident
from time import monotonic_ns
from typing import Any

from distributed import Worker
from zict import Buffer

from dask_efficiency.accounts.intake import whole_number
from dask_efficiency.accounts.metered import (
    BYTES,
    COUNT,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    READ_UNCOMPRESSED,
    RESULTS,
    SPILLED_UNCOMPRESSED,
    Metered,
)
from dask_efficiency.accounts.rows import add
from dask_efficiency.accounts.worker.log import Entry, Spilled, in_order
from dask_efficiency.plugin.patches import EVICT, READ_BACK, WRITE_OUT, Replacements
from dask_efficiency.plugin.worker.threads import TaskThreads

#: Name of dask-cuda's buffer between the device and the host.
DEVICE_BUFFER = "device_buffer"
#: Times that are kept; some spilling of a task that began before the first of them may be missed.
MAX_TIMES = 20_000
#: Heartbeats in a row that may repeat the last one, because of tasks in unread messages. A guess.
MAX_KEPT_BACK = 3


class SpillWatch:
    """Notes when a worker's event loop spills, reads back, or evicts.

    The data of a worker is a zict buffer, or holds such buffers, as with dask-cuda. The calls that move an item to the
    slower memory and back are timed, on this worker only, and so is the eviction by the memory manager; what they move
    is counted by its size in the faster memory; ``swapped`` is called with the key of each, and True if it is on disk
    now. If the data is something else, nothing is noted and nothing breaks.
    """

    def __init__(
        self,
        data: Any,
        spilled: Callable[[int, int, bool], object],
        swapped: Callable[[Any, bool], object] = lambda key, on_disk: None,
    ) -> None:
        self._data, self._spilled, self._swapped = data, spilled, swapped
        self._loop = 0
        #: Sorted and disjoint: starts, stops, and nanoseconds of all times before each.
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._before: list[int] = []
        self.watching = False
        #: End of the last time; 0 if there was none.
        self.last = 0
        #: Called with each interval at the disk: start, stop, and True if it read.
        self.on_stretch: Callable[[int, int, bool], object] | None = None
        self._since = 0
        #: Calls under way, outermost first: True if it reads.
        self._reading: list[bool] = []
        self._moved: dict[Metered, int] = {}
        self._on_disk: Container[Any] = ()
        self._replacements = Replacements()

    @property
    def on_disk(self) -> Container[Any]:
        """Keys of the results on disk; none if that is not watched."""
        return self._on_disk if self.watching else ()

    def start(self) -> None:
        """Begin; called in the event loop's thread, which is the only one noted."""
        self._loop = get_ident()
        put = self._replacements.put
        for name, buffer in (("", self._data), *getattr(self._data, "__dict__", {}).items()):
            if not isinstance(buffer, Buffer):
                continue
            of_device = name == DEVICE_BUFFER
            out, back = (DEVICE_TO_HOST, HOST_TO_DEVICE) if of_device else (SPILLED_UNCOMPRESSED, READ_UNCOMPRESSED)
            reads = put(READ_BACK, buffer, partial(self._moves, buffer=buffer, way=back, reading=True))
            writes = put(WRITE_OUT, buffer, partial(self._moves, buffer=buffer, way=out, reading=False))
            if not of_device:
                self._on_disk = buffer.slow
            self.watching = self.watching or bool(reads or writes)
        if self.watching:
            put(EVICT, self._data, partial(self._timed, reading=False, asked=True))

    def stop(self) -> None:
        """Put everything back."""
        self.watching = False
        self._replacements.put_back()

    def between(self, start: int, stop: int) -> int:
        """Nanoseconds of spilling and reading back from one instant to another, up to now."""
        return max(0, self._until(stop) - self._until(start))

    def _until(self, at: int) -> int:
        i = bisect_right(self._starts, at) - 1
        if i < 0:
            return self._before[0] if self._before else 0
        return self._before[i] + min(at, self._stops[i]) - self._starts[i]

    def moved(self) -> dict[Metered, int]:
        """Bytes and number of the items moved so far, by their size in the faster memory."""
        return {metered: whole_number(n) for metered, n in self._moved.items()}

    def _moves(self, call: Callable[..., Any], *, buffer: Any, way: str, reading: bool) -> Callable[..., Any]:
        """A call that moves an item, timed and counted."""

        def counted(key: Any, *value: Any) -> Any:
            # A result that is still in use somewhere comes back without being read.
            in_use = reading and key in getattr(buffer.slow, "cache", ())
            result = call(key, *value)
            if way == SPILLED_UNCOMPRESSED or (way == READ_UNCOMPRESSED and key in buffer.fast):
                self._swapped(key, not reading)
            if not in_use:
                weight = buffer.fast.weights.get(key)  # None of one too large for that memory
                nbytes = whole_number(buffer.weight(key, result) if weight is None else weight)
                add(self._moved, {Metered(RESULTS, "", "", way, unit): n for unit, n in ((BYTES, nbytes), (COUNT, 1))})
            return result

        return self._timed(counted, reading=reading)

    def _timed(self, call: Callable[..., Any], *, reading: bool, asked: bool = False) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != self._loop:
                return call(*args, **kwargs)
            start = monotonic_ns()
            self._switch(start)
            self._reading.append(reading)
            try:
                return call(*args, **kwargs)
            finally:
                stop = monotonic_ns()
                self._switch(stop)
                self._reading.pop()
                if not self._reading:
                    self._note(start, stop)
                    self._spilled(start, stop, asked)

        return timed

    def _switch(self, at: int) -> None:
        """Report the stretch that ends as a call begins or ends; after a call the enclosing one goes on."""
        if self._reading and self.on_stretch is not None and at > self._since:
            self.on_stretch(self._since, at, self._reading[-1])
        self._since = at

    def _note(self, start: int, stop: int) -> None:
        before = self._before[-1] + self._stops[-1] - self._starts[-1] if self._starts else 0
        self._starts.append(start)
        self._stops.append(stop)
        self._before.append(before)
        self.last = stop
        if len(self._starts) > MAX_TIMES:
            for times in (self._starts, self._stops, self._before):
                del times[: MAX_TIMES // 2]


class KeptBack:
    """Decides when a heartbeat repeats the last one, because a report can never be taken back.

    The first heartbeat after spilling is sent before the loop reads the messages that came meanwhile, which may have
    tasks for the free slots.
    """

    def __init__(self) -> None:
        #: End of the spilling for which a heartbeat was last kept back, and their number in a row.
        self._for = self._in_a_row = 0

    def is_due(self, last: int, *, undecided: bool) -> bool:
        """True if the next heartbeat repeats: the loop spilled until ``last``, and slots are ``undecided``."""
        if not undecided or last == self._for or self._in_a_row >= MAX_KEPT_BACK:
            self._in_a_row = 0
            return False
        self._for = last
        self._in_a_row += 1
        return True


def spill_noter(
    log: list[Entry], worker: Worker, threads: TaskThreads, failed: Callable[[Exception], object]
) -> Callable[[int, int, bool], object]:
    """Make the callback of a SpillWatch: it logs spilling or reading back by the event loop, with who waited for it."""

    def note(start: int, stop: int, asked: bool) -> None:
        try:
            state = worker.state
            waits = len(state.ready), len(state.waiting), threads.waiting()
            log.append(Spilled(start, stop, asked, *waits))
            if len(log) > 1 and log[-2][0] > log[-1][0]:  # hardly ever: spilling may fill the log with thousands
                log[:] = in_order(log)
        except Exception as error:
            failed(error)

    return note
