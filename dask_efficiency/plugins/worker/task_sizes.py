"""SizesByWindow: how long a worker's tasks took and how large their results are, while anybody wants to know."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from dask_efficiency.activity import SlotReservation
from dask_efficiency.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS
from dask_efficiency.ledger import OTHER, Ledger, Outcome
from dask_efficiency.skew import (
    GAP_NS,
    MAX_PREFIXES,
    MAX_STRETCHES,
    Largest,
    Longest,
    TaskSizes,
    WorkerSizes,
    encode_sizes,
)

logger = logging.getLogger("dask_efficiency")

#: Windows kept at once, as many as of the ledger; the oldest goes when one more is opened.
MAX_WINDOWS = 64

#: Tasks of a prefix that are sketched together: one costs a third of what it costs among a hundred.
MAX_BUFFERED = 1_000

#: For how long a shorter task ran alone is not looked at.
MIN_ALONE_NS = 500_000_000

_SUCCEEDED = Outcome.SUCCEEDED

#: What is read of a task that ended: its key, reservation and outcome, and when its thread began and stopped.
_Ended = tuple[Any, SlotReservation, Outcome, tuple[int, int, int], *tuple[Any, ...]]


class _Row:
    """The tasks of one prefix, by the worker's own clock."""

    __slots__ = ("alone_since", "largest", "largest_key", "longest", "longest_key", "nbytes", "ns", "sizes", "stop")

    def __init__(self) -> None:
        self.sizes = TaskSizes()
        #: Of those that are not sketched yet.
        self.ns: list[int] = []
        self.nbytes: list[int] = []
        #: The longest, when it stopped, and from when on nothing else had run here.
        self.longest = -1
        self.longest_key: Any = None
        self.stop = 0
        self.alone_since = 0
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
            self.stop, self.alone_since = other.stop, other.alone_since
        if other.largest > self.largest:
            self.largest, self.largest_key = other.largest, other.largest_key

    def plain(self, epoch: int) -> TaskSizes:
        """All of them; ``epoch`` is when the worker's clock began."""
        self.sketch()
        found = TaskSizes(self.sizes.ns, self.sizes.nbytes)
        if self.longest >= 0:
            key = str(self.longest_key)[:MAX_NAME_LENGTH]
            found.longest = Longest(
                min(self.longest, MAX_NANOSECONDS), key, self.stop + epoch, self.alone_since + epoch
            )
        if self.largest >= 0:
            found.largest = Largest(int(min(self.largest, MAX_NANOSECONDS)), str(self.largest_key)[:MAX_NAME_LENGTH])
        return found


_Rows = dict[str, _Row]


class SizesByWindow:
    """Keeps what the tasks of each prefix took and made, for each window from its opening on.

    Parameters
    ----------
    ledger
        Knows which tasks run.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: By window, oldest first, what ended from its opening until that of the next: so a task is counted once, and
        #: a window has what is its own and all that is later.
        self._windows: dict[str, _Rows] = {}
        #: Whether any window is open; else nothing is kept. To be read only.
        self.open = False
        #: Why it keeps nothing any more; None while it works.
        self.off: str | None = None
        #: When any task ran, in order; no two are less than :data:`GAP_NS` apart.
        self._busy: list[list[int]] = []
        #: When the last of those tasks stopped that may have run alone.
        self._alone_until = 0

    def open_window(self, window: str, *, at: int) -> None:
        """Begin a window at ``at`` monotonic nanoseconds; one that is open under this id begins anew."""
        if self.off is not None:
            return
        self._take(window)
        if not self._windows:
            # Of what ran before, nothing is known: nothing was alone then.
            self._busy = [[at, at]]
            self._alone_until = 0
        while len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[window] = {}
        self.open = True

    def close_window(self, window: str, *, at: int) -> dict[str, Any] | None:
        """End a window and give what its tasks took and made, as plain data.

        Parameters
        ----------
        window
            What it was opened as.
        at
            Now, in monotonic nanoseconds.

        Returns
        -------
        dict or None
            As :func:`~dask_efficiency.skew.decode_sizes` reads it; None if no such window is open.
        """
        try:
            if window not in self._windows:
                return None
            for task in self._ledger.held.values():
                self._not_alone(task.start)
                self._ran(task.start, max(at, task.start))
            total: _Rows = {}
            for rows in self._take(window):
                _merge(total, rows)
            epoch = time.time_ns() - time.monotonic_ns()
            sizes = {prefix: row.plain(epoch) for prefix, row in total.items()}
            return encode_sizes(WorkerSizes(sizes, [(start + epoch, stop + epoch) for start, stop in self._busy]))
        except Exception as error:
            self._fail(error)
            return None

    def add(self, tasks: Sequence[_Ended]) -> None:
        """Count tasks that have ended, in about the order of their ends; only while a window is open."""
        try:
            self._add(tasks)
        except Exception as error:
            self._fail(error)

    def _add(self, tasks: Sequence[_Ended]) -> None:
        rows = next(reversed(self._windows.values()))
        busy = self._busy[-1]
        start, until = busy
        alone_until = self._alone_until
        for task in tasks:
            reservation = task[1]
            began, stopped, _ = task[3]
            if began < alone_until:
                self._not_alone(began)
                alone_until = self._alone_until
            if task[2] is _SUCCEEDED:
                row = rows.get(reservation.prefix) or _new_row(rows, reservation.prefix)
                ns = stopped - began
                nbytes = reservation.nbytes
                row.ns.append(ns)
                row.nbytes.append(nbytes)
                if nbytes > row.largest:
                    row.largest = nbytes
                    row.largest_key = task[0]
                if ns > row.longest:
                    row.longest = ns
                    row.longest_key = task[0]
                    row.stop = row.alone_since = stopped
                    if ns >= MIN_ALONE_NS:
                        row.alone_since = max(began, until)
                        alone_until = self._alone_until = max(alone_until, stopped)
                if len(row.ns) >= MAX_BUFFERED:
                    row.sketch()
            if began < start or began - until > GAP_NS:
                self._ran(began, stopped)
                busy = self._busy[-1]
                start, until = busy
            elif stopped > until:
                busy[1] = until = stopped

    def _ran(self, start: int, stop: int) -> None:
        """Some task ran from when to when."""
        busy = self._busy
        while busy and start - busy[-1][1] <= GAP_NS:
            former = busy.pop()
            start, stop = min(start, former[0]), max(stop, former[1])
        busy.append([start, stop])
        if len(busy) > MAX_STRETCHES:
            busy[:2] = [[busy[0][0], busy[1][1]]]

    def _not_alone(self, began: int) -> None:
        """A task began before the end of some that were taken for the last to run."""
        self._alone_until = 0
        for rows in self._windows.values():
            for row in rows.values():
                if began < row.stop:
                    row.alone_since = row.stop
                elif row.alone_since < row.stop:
                    self._alone_until = max(self._alone_until, row.stop)

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
