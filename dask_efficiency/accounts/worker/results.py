"""WorkerResults: bytes of a worker's results in memory and on disk, and their exact integrals over time.

Theory of operation
===================

Three calls say all: a result is stored (it was computed here, or sent here), swapped (written to disk, or read back),
or released. At each instant a result that is stored is in one of two states, ``held`` or ``spilled``, and counts there
with its size as Dask estimates it. So both states add up to Dask's own sum of managed bytes, and the second is what its
buffer counts as spilled.

**Byte-seconds** are whole numbers of byte-nanoseconds. A result of n bytes that is held from s to t adds n (t - s),
which is n t - n s: so a row keeps its level and one more number, from which n s was taken when the result came and to
which n t was added when it went. Its integral until now is the level times now, plus that number. Calls need not come
in the order of their instants, and nothing is done for a result that merely stays. So hooks need no log of them, which
took most of the time that a result costs.

**Rows** are by span and prefix. Of results that were sent here Dask does not tell the span: it is empty. Rows are
bounded: those that hold nothing go with each heartbeat while no window is open, and of too many the rest share one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dask_efficiency.accounts.rows import MAX_APART, OTHER, divide
from dask_efficiency.accounts.worker.log import prefix_of, span_of
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS

#: Results that were written to disk and are not stored yet, at most: there is one at a time.
MAX_EARLY = 100
#: Span and prefix.
Name = tuple[str, str]
_OTHERS: Name = ("", OTHER)
#: Bytes held and spilled; and what makes integrals of them, see above.
_Row = list[int]


class WorkerResults:
    """Results of one worker; instants are nanoseconds, of which any order gives the same integrals."""

    def __init__(self) -> None:
        #: Bytes now, and the most held, spilled, and of both together since :meth:`take_most`.
        self.held = self.spilled = 0
        self._most_held = self._most_spilled = self._most_managed = 0
        self._rows: dict[Name, _Row] = {}
        self._results: dict[Any, tuple[_Row, int]] = {}
        #: Those on disk, with the bytes by which the process is smaller for it, and their sum.
        self._on_disk: dict[Any, int] = {}
        self.freed = 0
        #: Results that were too large for the memory, and were written to disk as they were stored.
        self._early: dict[Any, None] = {}
        #: What any thread may add, until the next call: instants of peaks of the process, of which it is not known yet
        #: what was there; and results that were swapped, with the instant, and True if they are on disk now.
        self.unread: list[int | tuple[int, Any, bool]] = []
        #: Bytes by prefix at these, by instant; whoever wants none of them any more deletes it.
        self.at_peaks: dict[int, dict[str, tuple[int, int]]] = {}
        #: By window, oldest first: integrals at its opening.
        self._windows: dict[str, dict[Name, tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def store(self, at: int, key: Any, prefix: str, span: Any, nbytes: int) -> None:
        """Count a result from now on; the span of one that was sent here is empty."""
        if self.unread:
            self.read()
        if key in self._results:
            self.release(at, key)
        row = self._rows.get((span, prefix)) if type(span) is str else None
        if row is None:
            row = self._new_row(span_of(span), prefix_of(prefix))
        self._results[key] = row, nbytes
        row[0] += nbytes
        row[2] -= nbytes * at
        self.held = held = self.held + nbytes
        if self.spilled and held + self.spilled > self._most_managed:
            self._most_managed = held + self.spilled
        if self._early and key in self._early:
            del self._early[key]
            self._swap(at, key, True)
        elif held > self._most_held:
            self._most_held = held

    def release(self, at: int, key: Any) -> None:
        """Count a result no more."""
        if self.unread:
            self.read()
        found = self._results.pop(key, None)
        if found is None:
            return
        row, nbytes = found
        if self._on_disk and key in self._on_disk:
            self.freed -= self._on_disk.pop(key)
            row[1] -= nbytes
            row[3] += nbytes * at
            self.spilled -= nbytes
        else:
            row[0] -= nbytes
            row[2] += nbytes * at
            self.held -= nbytes

    def release_all(self, at: int) -> None:
        """Have no results."""
        for key in list(self._results):
            self.release(at, key)
        self._early.clear()

    def swap(self, at: int, key: Any, *, spilled: bool) -> int:
        """Count a result as one that is on disk, or that is not any more; returns its size, 0 if nothing changed."""
        if self.unread:
            self.read()
        return self._swap(at, key, spilled)

    def _swap(self, at: int, key: Any, spilled: bool) -> int:
        found = self._results.get(key)
        if found is None:
            if spilled:
                if len(self._early) >= MAX_EARLY:
                    self._early.clear()
                self._early[key] = None
            return 0
        if (key in self._on_disk) is spilled:
            return 0
        row, size = found
        nbytes = size
        if spilled:
            self._on_disk[key] = size
            self.freed += size
        else:
            self.freed -= self._on_disk.pop(key)
            nbytes = -nbytes
        row[0] -= nbytes
        row[1] += nbytes
        row[2] += nbytes * at
        row[3] -= nbytes * at
        self.held -= nbytes
        self.spilled += nbytes
        self._most_held = max(self._most_held, self.held)
        self._most_spilled = max(self._most_spilled, self.spilled)
        self._most_managed = max(self._most_managed, self.held + self.spilled)
        return size

    def spilling_freed(self, keys: Collection[Any], nbytes: int) -> None:
        """Note by how much the process is smaller since these results were written: less where others share memory."""
        sizes = {key: self._on_disk[key] for key in keys if self._on_disk.get(key)}
        if sizes:
            self._on_disk |= divide(sizes, nbytes)
            self.freed += nbytes - sum(sizes.values())

    def read(self) -> None:
        """Note what was there at peaks, as it has not changed since, and follow what other threads swapped."""
        unread = self.unread
        while unread:
            one = unread.pop(0)
            if isinstance(one, tuple):
                self._swap(*one)
            elif one not in self.at_peaks:  # which several windows asked
                self.at_peaks[one] = self.by_prefix()

    def by_prefix(self) -> dict[str, tuple[int, int]]:
        """Bytes held and spilled now, by prefix that has any."""
        found: dict[str, tuple[int, int]] = {}
        for (_, prefix), (held, spilled, *_) in self._rows.items():
            if held or spilled:
                before = found.get(prefix, (0, 0))
                found[prefix] = before[0] + held, before[1] + spilled
        return found

    def take_most(self) -> tuple[int, int, int]:
        """The most bytes held, spilled, and of both together, at a time since the last call."""
        most = self._most_held, self._most_spilled, max(self._most_managed, self._most_held)
        self._most_held, self._most_spilled = self.held, self.spilled
        self._most_managed = self.held + self.spilled
        return most

    def integrals(self, at: int) -> dict[Name, tuple[int, int]]:
        """Byte-nanoseconds held and spilled until an instant, by span and prefix."""
        return {name: (row[0] * at + row[2], row[1] * at + row[3]) for name, row in self._rows.items()}

    def open_window(self, window: str, *, at: int) -> None:
        """Begin a window, or begin it anew; of too many, the oldest goes."""
        self._windows.pop(window, None)
        self.drop_empty_rows()
        while len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[window] = self.integrals(at)

    def close_window(self, window: str, *, at: int) -> dict[Name, tuple[int, int]]:
        """End a window and return its byte-nanoseconds held and spilled by span and prefix; empty if none is open."""
        then = self._windows.pop(window, None)
        if then is None:
            return {}
        found = {}
        for name, (held, spilled) in self.integrals(at).items():
            before = then.get(name, (0, 0))
            if held > before[0] or spilled > before[1]:
                found[name] = held - before[0], spilled - before[1]
        return found

    def drop_empty_rows(self) -> None:
        """Drop rows that hold nothing, unless a window needs their integrals."""
        if not self._windows:
            self._rows = {name: row for name, row in self._rows.items() if row[0] or row[1]}

    def _new_row(self, span: str, prefix: str) -> _Row:
        """Row of a span and prefix; the one that all others share once there are too many."""
        name = (span, prefix) if (span, prefix) in self._rows or len(self._rows) < MAX_APART else _OTHERS
        return self._rows.setdefault(name, [0, 0, 0, 0])
