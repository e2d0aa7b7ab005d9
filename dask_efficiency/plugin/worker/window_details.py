"""Details of open windows beyond their accounts: totals of labels, samples, and sizes of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dask_efficiency.accounts.checks import MAX_NANOSECONDS
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.lines import Holdup, StackTable
from dask_efficiency.accounts.memory import Worked
from dask_efficiency.accounts.metered import BYTES, COUNT, Metered
from dask_efficiency.accounts.rows import MAX_SENT, OTHER, growth
from dask_efficiency.accounts.skew import Most, Sketch, TaskSizes, key_name
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.plugin.guard import Guard

_Content = TypeVar("_Content")


def begin_window(windows: dict[str, _Content], window: str, content: _Content) -> None:
    """Begin a window, or begin it anew; of too many, the oldest goes."""
    windows.pop(window, None)
    while len(windows) >= MAX_WINDOWS:
        del windows[next(iter(windows))]
    windows[window] = content


class MeteredWindows:
    """Growth of totals in each window; those of ``beside`` have no way of data, which heartbeats carry."""

    def __init__(
        self, *sources: Callable[[], Mapping[Metered, int]], beside: Callable[[], Mapping[Metered, int]] = dict
    ) -> None:
        self._sources, self._beside = sources, beside
        #: Totals at the opening of each window.
        self._windows: dict[str, dict[Metered, int]] = {}

    def totals(self) -> dict[Metered, int]:
        """Totals so far."""
        return self._of_ways() | dict(self._beside())

    def _of_ways(self) -> dict[Metered, int]:
        found: dict[Metered, int] = {}
        for source in self._sources:
            found |= source()
        return found

    def amounts(self) -> dict[str, int]:
        """Bytes and counts so far by way of the data and unit, as ``way/unit``."""
        found: dict[str, int] = {}
        for metered, value in self._of_ways().items():
            if metered.unit in (BYTES, COUNT) and (way := metered.way):
                name = f"{way}/{metered.unit}"
                found[name] = min(found.get(name, 0) + value, MAX_NANOSECONDS)
        return found

    def open_window(self, window: str) -> None:
        """Begin a window, or begin it anew."""
        begin_window(self._windows, window, self.totals())

    def close_window(self, window: str) -> dict[Metered, int]:
        """Totals since the opening; empty if no such window is open."""
        then = self._windows.pop(window, None)
        return {} if then is None else growth(self.totals(), then)


#: Longest holds, and blocks, that are kept of each window; reports show a few.
MAX_HOLDS = 50


#: Field of :class:`WindowDetails` that a sample goes to, the sample, and nanoseconds to add to it.
Sample = tuple[str, Any, int]


class SampleWindows:
    """Samples of each open window, in bounded memory."""

    def __init__(self) -> None:
        self._windows: dict[str, dict[str, StackTable[Any] | list[Holdup]]] = {}

    def __bool__(self) -> bool:
        return bool(self._windows)

    def open(self, window: str) -> None:
        """Begin a window, or begin it anew."""
        tables: dict[str, StackTable[Any] | list[Holdup]]
        tables = {name: StackTable() for name in ("profile", "holders", "lock_looks")}
        tables |= {"gil_holds": [], "loop_blocks": []}
        begin_window(self._windows, window, tables)

    def close(self, window: str) -> WindowDetails | None:
        """End a window and return its samples; None if no such window is open."""
        closed = self._windows.pop(window, None)
        if closed is None:
            return None
        samples: Any = {name: tuple(row) if isinstance(row, list) else row.rows() for name, row in closed.items()}
        return WindowDetails(**samples)

    def add(self, sample: Sample) -> None:
        """Add a sample to each window; of holds and blocks, the longest stay."""
        name, row, ns = sample
        for window in self._windows.values():
            table = window[name]
            if isinstance(table, StackTable):
                table.add(row, ns)
            else:
                table.append(row)
                if len(table) > MAX_HOLDS:
                    table.remove(min(table))


#: Tasks of a prefix that must leave memory behind, all as much, for that to be what they leave: one or two leave a
#: library that they load, or an allocator's pool. So a mean is two standard errors above 0. By judgement.
AGAIN_AND_AGAIN = 4
#: Tasks of a prefix that are sketched together: each costs a third of its cost in batches of a hundred.
MAX_BUFFERED = 1_000
#: Prefix, key, nanoseconds in its thread, and bytes of the result (-1 if unknown) of a task that succeeded.
SizedTask = tuple[str, Any, int, int]


class _Quantity:
    """Values of one quantity of the tasks of a prefix, and the key of the task with the largest."""

    __slots__ = ("key", "most", "sketched", "values")

    def __init__(self) -> None:
        self.sketched = Sketch()
        self.values: list[int] = []
        self.most = -1
        self.key: Any = None

    def sketch(self) -> None:
        self.sketched.add([value for value in self.values if value >= 0])
        self.values.clear()

    def merge(self, other: _Quantity) -> None:
        other.sketch()
        self.sketched.merge(other.sketched)
        if other.most > self.most:
            self.most, self.key = other.most, other.key

    def largest(self) -> Most | None:
        return Most(int(min(self.most, MAX_NANOSECONDS)), key_name(self.key)) if self.most >= 0 else None


class _TaskRow:
    """Quantities of the tasks of a prefix: nanoseconds, bytes of results, and memory of those alone and of others."""

    __slots__ = ("alone", "beside", "left", "left_squared", "nbytes", "ns")

    def __init__(self) -> None:
        self.ns, self.nbytes, self.alone, self.beside = (_Quantity() for _ in range(4))
        #: Bytes that tasks left behind, and the sum of their squares.
        self.left = self.left_squared = 0

    @property
    def quantities(self) -> tuple[_Quantity, ...]:
        return self.ns, self.nbytes, self.alone, self.beside

    def merge(self, other: _TaskRow) -> None:
        for own, others in zip(self.quantities, other.quantities, strict=True):
            own.merge(others)
        self.left += other.left
        self.left_squared += other.left_squared

    def sizes(self) -> TaskSizes:
        for quantity in self.quantities:
            quantity.sketch()
        left = self.left if self.left**2 >= AGAIN_AND_AGAIN * self.left_squared else 0
        return TaskSizes(
            *(self.ns.sketched, self.nbytes.sketched, self.ns.largest(), self.nbytes.largest()),
            *(self.alone.sketched, self.beside.sketched, self.alone.largest(), self.beside.largest()),
            max(-MAX_NANOSECONDS, min(left, MAX_NANOSECONDS)),
        )


#: Rows by prefix.
_Rows = dict[str, _TaskRow]


class SizesByWindow:
    """Durations, result sizes and memory of tasks by prefix, for each window from its opening; none after a failure."""

    def __init__(self) -> None:
        #: By window, oldest first: tasks that ended between its opening and the next one's. So a task is counted once,
        #: and a window has its own rows and all later ones.
        self._windows: dict[str, _Rows] = {}
        #: The last task that ran alone: its row, the memory beyond results at its start, and what it left at its end.
        self._last: tuple[_TaskRow, int, int] | None = None
        consequence = "dask_efficiency no longer compares the tasks of this worker"
        self.guard = Guard("the sizes of tasks", consequence, self._windows.clear)

    @property
    def open(self) -> bool:
        """True while any window is open; else nothing is kept."""
        return bool(self._windows)

    def open_window(self, window: str) -> None:
        """Begin a window, or begin it anew."""
        if self.guard.off is None:
            self._take(window)
            begin_window(self._windows, window, {})

    def close_window(self, window: str) -> dict[str, TaskSizes]:
        """End a window and return the sizes of its tasks by prefix; empty if no such window is open."""
        found: dict[str, TaskSizes] | None = self.guard(self._close, window)
        return found or {}

    def _close(self, window: str) -> dict[str, TaskSizes]:
        total: _Rows = {}
        for rows in self._take(window):
            _merge(total, rows)
        return {prefix: row.sizes() for prefix, row in total.items()}

    def add(self, tasks: Sequence[SizedTask]) -> None:
        """Count tasks that have succeeded; only while a window is open."""
        self.guard(self._add, tasks)

    def _add(self, tasks: Sequence[SizedTask]) -> None:
        rows = next(reversed(self._windows.values()))
        for prefix, key, ns, nbytes in tasks:
            row = rows.get(prefix) or _new_row(rows, prefix)
            times, sizes = row.ns, row.nbytes
            times.values.append(ns)
            sizes.values.append(nbytes)
            if ns > times.most:
                times.most, times.key = ns, key
            if nbytes > sizes.most:
                sizes.most, sizes.key = nbytes, key
            if len(times.values) >= MAX_BUFFERED:
                times.sketch()
                sizes.sketch()

    def worked(self, prefix: str, key: Any, worked: Worked, nbytes: int) -> None:
        """Count the memory of a task that made a result of so many bytes, if a window is open."""
        if self._windows:
            self.guard(self._worked, prefix, key, worked, nbytes)

    def _worked(self, prefix: str, key: Any, worked: Worked, nbytes: int) -> None:
        self._settle(worked.before)
        rows = next(reversed(self._windows.values()))
        row = rows.get(prefix) or _new_row(rows, prefix)
        quantity = row.alone if worked.alone else row.beside
        quantity.values.append(worked.most)
        if worked.most > quantity.most:
            quantity.most, quantity.key = worked.most, key
        if len(quantity.values) >= MAX_BUFFERED:
            quantity.sketch()
        if worked.alone:
            self._last = row, worked.before, worked.grown - max(nbytes, 0)

    def _settle(self, now: int | None = None) -> None:
        """Count what the last task left: no more than at its end, nor than is there now, as the next one starts.

        Its input, for one, is in its thread until after its end, and what is sent or arrives meanwhile goes late.
        """
        if self._last is not None:
            row, before, left = self._last
            left = left if now is None else min(left, now - before)
            row.left += left
            row.left_squared += left * left
            self._last = None

    def _take(self, window: str) -> list[_Rows]:
        """End a window and return the rows since its opening; empty if it is not open."""
        if window not in self._windows:
            return []
        self._settle()
        windows = list(self._windows)
        position = windows.index(window)
        found = [self._windows[later] for later in windows[position:]]
        own = self._windows.pop(window)
        if position:
            _merge(self._windows[windows[position - 1]], own)
        return found


def _new_row(rows: _Rows, prefix: str) -> _TaskRow:
    """Row of a prefix; beyond the bound, the row that all others share."""
    if prefix not in rows and len(rows) >= MAX_SENT:
        prefix = OTHER
    return rows.setdefault(prefix, _TaskRow())


def _merge(total: _Rows, other: _Rows) -> None:
    for prefix, row in other.items():
        _new_row(total, prefix).merge(row)
