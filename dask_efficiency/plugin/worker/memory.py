"""MemoryMeter: the memory of a worker and what it is for, in each window and at each heartbeat."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import monotonic_ns
from typing import Any

from distributed import Worker
from distributed.system import MEMORY_LIMIT

from dask_efficiency.accounts.intake import whole_number
from dask_efficiency.accounts.memory import (
    NOT_MEASURED,
    LowerEnvelope,
    MemoryLevels,
    byte_milliseconds,
    encode_levels,
    largest,
)
from dask_efficiency.accounts.metered import (
    ACTORS,
    AT_PEAK,
    BYTE_SECONDS,
    BYTES,
    BYTES_AN_HOUR,
    CONTAINER,
    GROWTH,
    HOST,
    IN_MEMORY,
    LIMIT,
    MANAGED,
    MEMORY,
    ON_DISK,
    OVERCOUNTED,
    PROCESS,
    THRESHOLDS,
    UNSPILLED,
    Metered,
)
from dask_efficiency.accounts.rows import growth
from dask_efficiency.accounts.wire.heartbeats import REPEATS
from dask_efficiency.accounts.worker.results import WorkerResults
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.patches import MEMORY_LOOK, Replacements
from dask_efficiency.plugin.processors import most_of_group
from dask_efficiency.plugin.worker.actor_state import state_by_class
from dask_efficiency.plugin.worker.process_memory import PROCESS_MEMORY, MemoryReading
from dask_efficiency.plugin.worker.spill_watch import SpillWatch
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.plugin.worker.window_details import begin_window

#: Growth of a peak from which it is asked again what was in it. By judgement.
MIN_GROWTH = 1.01


class _Window:
    """The memory since a window opened at an instant, with so much before: byte-nanoseconds of the process, actors."""

    def __init__(self, at: int, area: int, actors: Mapping[str, int]) -> None:
        self.area, self.actors = area, actors
        self.peak = NOT_MEASURED
        self.most_held = self.most_spilled = self.most_managed = self.overcounted = 0
        #: The most that the process would have had by Dask's looks, had nothing been written to disk.
        self.unspilled = 0
        #: Peak at which the log asks for the results of then, and its instant.
        self.asked = self.asked_at = 0
        self.low = LowerEnvelope(at=at)
        self.group = most_of_group()


class MemoryMeter:
    """Measures the memory of one worker, until a failure; called on the event loop, but for what hears of readings."""

    def __init__(self, worker: Worker, threads: TaskThreads) -> None:
        self.results = WorkerResults()
        what = f"dask_efficiency no longer measures the memory of {worker.address}"
        self._joined, self._replacements = object(), Replacements()
        self.guard = Guard("its memory", what, partial(_stop, threads, self._joined, self._replacements))
        self._worker, self._threads = worker, threads
        self._windows: dict[str, _Window] = {}
        #: Highest peak since the last heartbeat, those up to the last ones, and their number; byte-nanoseconds of the
        #: process so far, and the last reading.
        self._peak = NOT_MEASURED
        self._peaks: deque[int] = deque(maxlen=REPEATS)
        self._heartbeats = 0
        self._area = 0
        self._last: MemoryReading | None = None
        #: Bytes of the process as this turn of the event loop wrote to disk, -1 if it did not, and what it wrote.
        self._before_writing = NOT_MEASURED
        self._written: list[Any] = []
        #: Thread of the event loop, once it is known.
        self._loop = 0

    def start(self, spills: SpillWatch) -> None:
        """Begin to measure, with the results that are there."""
        if self.guard.off is None:
            self.guard(self._start, spills)

    def _start(self, spills: SpillWatch) -> None:
        at, self._loop = monotonic_ns(), get_ident()
        results, on_disk = self.results, spills.on_disk
        results.release_all(at)
        for ts in self._worker.state.tasks.values():
            if ts.state == "memory":
                results.store(at, ts.key, ts.prefix, ts.span_id, whole_number(ts.nbytes))
                if ts.key in on_disk:
                    results.swap(at, ts.key, spilled=True)
        self._replacements.put_back()
        self._replacements.put(MEMORY_LOOK, self._worker.monitor, self._telling)
        PROCESS_MEMORY.join(self._joined, lambda: self.guard(self._held) or 0, partial(self.guard, self._heard))
        self._threads.measures_memory = True

    def stop(self) -> None:
        """Measure no more."""
        _stop(self._threads, self._joined, self._replacements)

    def swapped(self, key: Any, on_disk: bool) -> None:
        """Note that a result is on disk now, or is no more; called in any thread, as a task may read any result."""
        self.guard(self._swapped, key, on_disk=on_disk)

    def _swapped(self, key: Any, *, on_disk: bool) -> None:
        if get_ident() != self._loop:
            self.results.unread.append((monotonic_ns(), key, on_disk))
            return
        nbytes = self.results.swap(monotonic_ns(), key, spilled=on_disk)
        if on_disk and nbytes:
            if self._before_writing < 0:  # whoever spills a result lets go of it later in this turn
                with suppress(RuntimeError):  # it does not run
                    asyncio.get_running_loop().call_soon(self.guard, self._wrote)
                    self._before_writing = 0  # our own look is none of Dask's
                    self._before_writing = self._resident()
            if self._before_writing >= 0:
                self._written.append(key)

    def _wrote(self) -> None:
        """Note how much smaller the process is once results were written to disk.

        What a task still uses goes when that ends, and counts with its size.
        """
        in_use = getattr(getattr(self._worker.data, "slow", None), "cache", ())
        let_go = [key for key in self._written if key not in in_use]
        self.results.spilling_freed(let_go, self._before_writing - self._resident())
        self._before_writing = NOT_MEASURED
        self._written.clear()

    def _resident(self) -> int:
        return whole_number(self._worker.monitor.get_process_memory())

    def _telling(self, look: Callable[[], Any]) -> Callable[[], Any]:
        """Dask's look at the memory of the process, of which it is told here, too."""

        def told() -> Any:
            resident = look()
            self.guard(self._looked, whole_number(resident))
            return resident

        return told

    def _looked(self, resident: int) -> None:
        """Note memory of the process that Dask decides by: whether to spill, and to pause.

        Peaks between two of its looks make it do neither. What is on disk counts by how much the process is smaller for
        it: that is less than its size where others share its memory, such as slices of one table. While Dask writes,
        what is on disk is in memory as well.
        """
        if self._before_writing < 0:
            freed = min(max(self.results.freed, 0), self.results.spilled)
            for window in self._windows.values():
                window.unspilled = max(window.unspilled, resident + freed)

    def _held(self) -> int:
        """Bytes of results in memory now, by Dask; called in any thread."""
        return whole_number(self._worker.state.nbytes) - self._on_disk()[0]

    def _on_disk(self) -> tuple[int, int]:
        """Bytes of results on disk by Dask: their size in memory, and there."""
        in_memory, there = getattr(self._worker.data, "spilled_total", None) or (0, 0)
        return whole_number(in_memory), whole_number(there)

    def _heard(self, reading: MemoryReading) -> None:
        """Take a reading, one at a time, in any thread."""
        last, self._last = self._last, reading
        if last is not None:
            self._area += (last.resident + reading.resident) * (reading.at - last.at) // 2
        self._peak = max(self._peak, reading.peak)
        for window in list(self._windows.values()):
            window.low.add(reading.at, reading.resident - reading.held)
            window.peak = max(window.peak, reading.peak)
            window.overcounted = max(window.overcounted, reading.held - reading.resident)
            if window.peak > MIN_GROWTH * window.asked:
                window.asked, window.asked_at = window.peak, reading.at
                self.results.unread.append(reading.at)

    def sample(self) -> None:
        """Read the memory of the process, and how much was held since the last call."""
        if PROCESS_MEMORY.read() is None:
            resident = self._resident()
            self._heard(MemoryReading(monotonic_ns(), resident, resident, self._held()))
        self.results.read()
        held, spilled, managed = self.results.take_most()
        for window in self._windows.values():
            window.most_held, window.most_spilled = max(window.most_held, held), max(window.most_spilled, spilled)
            window.most_managed = max(window.most_managed, managed)
        at_peaks = self.results.at_peaks
        for at in at_peaks.keys() - {window.asked_at for window in self._windows.values()}:
            del at_peaks[at]

    def levels(self) -> list[Any]:
        """Memory of a heartbeat."""
        self.sample()
        self.results.drop_empty_rows()
        with PROCESS_MEMORY.lock:  # under which it is heard of readings
            last, results = self._last, self.results
            self._peaks.append(self._peak)
            self._peak = NOT_MEASURED
        self._heartbeats += 1
        return encode_levels(
            MemoryLevels(
                number=self._heartbeats,
                process=NOT_MEASURED if last is None else last.resident,
                peak=self._peaks[-1],
                held=results.held,
                spilled=results.spilled,
                disk=self._on_disk()[1],
                prefixes=largest(results.by_prefix()),
            ),
            self._peaks,
        )

    def open_window(self, window: str, at: int) -> None:
        """Begin a window, to whose time the next heartbeat's peak belongs."""
        self.sample()
        with PROCESS_MEMORY.lock:
            self._peaks.clear()
            self._peak = NOT_MEASURED
        self.results.open_window(window, at=at)
        begin_window(self._windows, window, _Window(at, self._area, self._actors()))
        self.sample()

    def close_window(self, window: str, at: int) -> dict[Metered, int]:
        """Rows of the memory since the opening; empty if no such window is open."""
        self.sample()
        integrals, mark = self.results.close_window(window, at=at), self._windows.pop(window, None)
        if mark is None:
            return {}
        exact = {
            Metered(MEMORY, span, prefix, label, BYTE_SECONDS): value
            for (span, prefix), row in integrals.items()
            for label, value in zip((IN_MEMORY, ON_DISK), row, strict=True)
            if value
        }
        found = byte_milliseconds(exact)
        found |= byte_milliseconds({_of_worker(PROCESS, BYTE_SECONDS): self._area - mark.area})
        for prefix, row in self.results.at_peaks.get(mark.asked_at, {}).items():
            for label, nbytes in zip((IN_MEMORY, ON_DISK), row, strict=True):
                found[Metered(MEMORY, "", prefix, label + AT_PEAK, BYTES)] = nbytes
        group = most_of_group()
        levels = {PROCESS: mark.peak, IN_MEMORY: mark.most_held, ON_DISK: mark.most_spilled, **self._limits()}
        levels |= {MANAGED: mark.most_managed, UNSPILLED: mark.unspilled, OVERCOUNTED: mark.overcounted}
        for prefix, nbytes in growth(self._actors(), mark.actors).items():
            found[Metered(MEMORY, "", prefix, ACTORS, BYTES)] = nbytes
        levels[CONTAINER] = group if group is not None and group != mark.group else 0
        found |= {_of_worker(label, BYTES): level for label, level in levels.items()}
        found = {metered: value for metered, value in found.items() if value > 0}
        if (slope := mark.low.slope()) is not None:
            found[_of_worker(GROWTH, BYTES_AN_HOUR)] = round(slope * 3600)
        return found

    def _actors(self) -> dict[str, int]:
        return state_by_class(self._worker.state.actors)

    def _limits(self) -> dict[str, int]:
        """Memory limit, thresholds at which Dask spills and pauses, and the host's memory; 0 where there is none."""
        manager = self._worker.memory_manager
        limit = whole_number(manager.memory_limit)
        shares = {name: getattr(manager, f"memory_{name}_fraction", False) or 0 for name in THRESHOLDS}
        return {
            LIMIT: limit,
            HOST: MEMORY_LIMIT,
            **{name: whole_number(limit * share) for name, share in shares.items()},
        }


def _stop(threads: TaskThreads, joined: object, replacements: Replacements) -> None:
    threads.measures_memory = False
    replacements.put_back()
    PROCESS_MEMORY.leave(joined)


def _of_worker(label: str, unit: str) -> Metered:
    return Metered(MEMORY, "", "", label, unit)
