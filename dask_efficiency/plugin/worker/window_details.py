"""Details of open windows beyond their accounts: totals of labels, samples, and sizes of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.metered import BYTES, COUNT, Metered
from dask_efficiency.accounts.profile import Hold, Holder, Place, StackTable
from dask_efficiency.accounts.skew import MAX_PREFIXES, OTHER, Largest, Longest, TaskSizes, key_name
from dask_efficiency.accounts.worker.slot_windows import MAX_WINDOWS
from dask_efficiency.show.log import logger


class MeteredWindows:
    """Differences of totals, from the opening to the closing of each window.

    Parameters
    ----------
    *sources
        Each gives its totals so far, under names of its own.
    levels
        Gives what goes up and down; of a window, the highest that was sampled is told.
    """

    def __init__(
        self,
        *sources: Callable[[], Mapping[Metered, int]],
        levels: Callable[[], Mapping[Metered, int]] = dict,
    ) -> None:
        self._sources, self._levels = sources, levels
        self._opened: dict[str, dict[Metered, int]] = {}
        self._peaks: dict[str, dict[Metered, int]] = {}

    def totals(self) -> dict[Metered, int]:
        """All that was counted so far."""
        found: dict[Metered, int] = {}
        for source in self._sources:
            found |= source()
        return found

    def amounts(self) -> dict[str, int]:
        """Bytes and counts so far that went each of the ways, by ``way/unit``."""
        found: dict[str, int] = {}
        for metered, value in self.totals().items():
            if metered.unit in (BYTES, COUNT) and (way := metered.way):
                name = f"{way}/{metered.unit}"
                found[name] = found.get(name, 0) + value
        return found

    def sample(self) -> None:
        """Look at the levels, where a window is open."""
        if self._peaks:
            levels = self._levels()
            for peaks in self._peaks.values():
                for metered, level in levels.items():
                    peaks[metered] = max(level, peaks.get(metered, 0))

    def open_window(self, window: str) -> None:
        """Begin a window, or begin it anew; of too many, the oldest goes."""
        self._opened.pop(window, None)
        while len(self._opened) >= MAX_WINDOWS:
            oldest = next(iter(self._opened))
            del self._opened[oldest], self._peaks[oldest]
        self._opened[window], self._peaks[window] = self.totals(), {}

    def close_window(self, window: str) -> dict[Metered, int]:
        """What was counted since it was opened, and the peaks; nothing where no such window is open."""
        self.sample()
        then, peaks = self._opened.pop(window, None), self._peaks.pop(window, {})
        if then is None:
            return {}
        gained = {metered: value - then.get(metered, 0) for metered, value in self.totals().items()}
        return {metered: value for metered, value in (gained | peaks).items() if value > 0}


#: The longest of so many are kept of each window.
MAX_HOLDS = 50


class _Window:
    def __init__(self) -> None:
        self.profile: StackTable[Place] = StackTable()
        self.holders: StackTable[Holder] = StackTable()
        self.holds: list[Hold] = []
        self.loop_blocks: list[Hold] = []


class SampleWindows:
    """What was sampled while each window was open, in bounded memory."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def __bool__(self) -> bool:
        return bool(self._windows)

    def open(self, window_id: str) -> None:
        """Begin a window; one that is open under this id begins anew."""
        self._windows.pop(window_id, None)
        while len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[window_id] = _Window()

    def close(self, window_id: str) -> WindowDetails | None:
        """End a window, and give what was sampled in it; None if no such window is open."""
        window = self._windows.pop(window_id, None)
        if window is None:
            return None
        return WindowDetails(
            profile=window.profile.rows(),
            holders=window.holders.rows(),
            gil_holds=tuple(window.holds),
            loop_blocks=tuple(window.loop_blocks),
        )

    def add(self, sampled: tuple[Place | Holder, int]) -> None:
        """Add nanoseconds to a row of each window."""
        row, ns = sampled
        for window in self._windows.values():
            if isinstance(row, Place):
                window.profile.add(row, ns)
            else:
                window.holders.add(row, ns)

    def hold(self, hold: Hold) -> None:
        """Somebody held the GIL for long."""
        for window in self._windows.values():
            _note(window.holds, hold)

    def loop_block(self, block: Hold) -> None:
        """The event loop was blocked for long."""
        for window in self._windows.values():
            _note(window.loop_blocks, block)


def _note(holds: list[Hold], hold: Hold) -> None:
    holds.append(hold)
    if len(holds) > MAX_HOLDS:
        holds.remove(min(holds))


#: Tasks of a prefix that are sketched together: one costs a third of what it costs among a hundred.
MAX_BUFFERED = 1_000

#: Of a task that succeeded: its prefix, its key, nanoseconds in its thread, and bytes of its result (-1 where they are
#: not known).
SizedTask = tuple[str, Any, int, int]


class _Row:
    """The tasks of one prefix."""

    __slots__ = ("largest", "largest_key", "longest", "longest_key", "nbytes", "ns", "sizes")

    def __init__(self) -> None:
        self.sizes = TaskSizes()
        #: Of those that are not sketched yet.
        self.ns: list[int] = []
        self.nbytes: list[int] = []
        self.longest = -1
        self.longest_key: Any = None
        self.largest = -1
        self.largest_key: Any = None

    def sketch(self) -> None:
        """Take the tasks that are not sketched yet into the sketches."""
        self.sizes.ns.add(self.ns)
        self.sizes.nbytes.add([nbytes for nbytes in self.nbytes if nbytes >= 0])
        self.ns.clear()
        self.nbytes.clear()

    def merge(self, other: _Row) -> None:
        """Count the tasks of another, too."""
        other.sketch()
        self.sizes.merge(other.sizes)
        if other.longest > self.longest:
            self.longest, self.longest_key = other.longest, other.longest_key
        if other.largest > self.largest:
            self.largest, self.largest_key = other.largest, other.largest_key

    def plain(self) -> TaskSizes:
        """All of them, with the extremes as they travel."""
        self.sketch()
        found = TaskSizes(self.sizes.ns, self.sizes.nbytes)
        if self.longest >= 0:
            found.longest = Longest(min(self.longest, MAX_NANOSECONDS), key_name(self.longest_key))
        if self.largest >= 0:
            found.largest = Largest(int(min(self.largest, MAX_NANOSECONDS)), key_name(self.largest_key))
        return found


_Rows = dict[str, _Row]


class SizesByWindow:
    """Keeps what the tasks of each prefix took and made, for each window from its opening on."""

    def __init__(self) -> None:
        #: By window, oldest first, what ended from its opening until that of the next: so a task is counted once, and
        #: a window has what is its own and all that is later.
        self._windows: dict[str, _Rows] = {}
        #: Whether any window is open; else nothing is kept. To be read only.
        self.open = False
        #: Why it keeps nothing any more; None while it works.
        self.off: str | None = None

    def open_window(self, window: str) -> None:
        """Begin a window; one that is open under this id begins anew."""
        if self.off is not None:
            return
        self._take(window)
        while len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[window] = {}
        self.open = True

    def close_window(self, window: str) -> dict[str, TaskSizes]:
        """End a window and give what its tasks took and made, by prefix; nothing where no such window is open."""
        try:
            total: _Rows = {}
            for rows in self._take(window):
                _merge(total, rows)
            return {prefix: row.plain() for prefix, row in total.items()}
        except Exception as error:
            self._fail(error)
            return {}

    def add(self, tasks: Sequence[SizedTask]) -> None:
        """Count tasks that have succeeded; only while a window is open."""
        try:
            self._add(tasks)
        except Exception as error:
            self._fail(error)

    def _add(self, tasks: Sequence[SizedTask]) -> None:
        rows = next(reversed(self._windows.values()))
        for prefix, key, ns, nbytes in tasks:
            row = rows.get(prefix) or _new_row(rows, prefix)
            row.ns.append(ns)
            row.nbytes.append(nbytes)
            if nbytes > row.largest:
                row.largest = nbytes
                row.largest_key = key
            if ns > row.longest:
                row.longest = ns
                row.longest_key = key
            if len(row.ns) >= MAX_BUFFERED:
                row.sketch()

    def _take(self, window: str) -> list[_Rows]:
        """End a window and give what ended since it was opened; nothing where it is not open."""
        if window not in self._windows:
            return []
        windows = list(self._windows)
        position = windows.index(window)
        found = [self._windows[later] for later in windows[position:]]
        own = self._windows.pop(window)
        if position:
            _merge(self._windows[windows[position - 1]], own)
        self.open = bool(self._windows)
        return found

    def _fail(self, error: Exception) -> None:
        """Log once and keep nothing more; the accounts go on."""
        self.off = f"the sizes of tasks failed: {type(error).__name__}: {error}"[:MAX_NAME_LENGTH]
        self._windows.clear()
        self.open = False
        logger.error("dask_efficiency no longer compares the tasks of this worker", exc_info=error)


def _new_row(rows: _Rows, prefix: str) -> _Row:
    """The row of a prefix; beyond the bound, the one that all others share."""
    if prefix not in rows and len(rows) >= MAX_PREFIXES:
        prefix = OTHER
    return rows.setdefault(prefix, _Row())


def _merge(total: _Rows, other: _Rows) -> None:
    for prefix, row in other.items():
        _new_row(total, prefix).merge(row)
