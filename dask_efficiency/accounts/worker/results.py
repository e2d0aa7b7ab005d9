"""WorkerResults: bytes of a worker's results in memory and on disk, and their exact integrals over time.

Theory of operation
===================

Three entries of the log say all: a result is :class:`~dask_efficiency.accounts.worker.log.Stored` (it was computed here
or sent here), :class:`~dask_efficiency.accounts.worker.log.Swapped` (written to disk, or read back), and
:class:`~dask_efficiency.accounts.worker.log.Released`. At each instant a result that is stored is in one of two states,
``held`` or ``spilled``, and counts there with its size as Dask estimates it. So both states add up to Dask's own sum of
managed bytes, and the second is what its buffer counts as spilled.

**Byte-seconds** are whole numbers of byte-nanoseconds. A result of n bytes that is held from s to t adds n (t - s),
which is n t - n s: so a row keeps its level and one more number, from which n s was taken when the result came and to
which n t was added when it went. Its integral until now is the level times now, plus that number. Entries need not
come in the order of their instants, and nothing is done for a result that merely stays.

**Rows** are by span and prefix. Of results that were sent here Dask does not tell the span: it is empty. Rows are
bounded: those that hold nothing go when a window opens and no other is open, and of too many the rest share one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.log import Entry, Peaked, Released, Stored, Swapped
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS

#: Pairs of span and prefix that are kept apart. A guess that bounds an answer.
MAX_ROWS = 1_000
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
        self._on_disk: set[Any] = set()
        #: Results that were too large for the memory, and were written to disk as they were stored.
        self._early: dict[Any, None] = {}
        #: Bytes by prefix at the peaks of the process, by instant; whoever wants none of them any more deletes it.
        self.at_peaks: dict[int, dict[str, tuple[int, int]]] = {}
        #: By window, oldest first: integrals at its opening.
        self._windows: dict[str, dict[Name, tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def read(self, entries: Iterable[Entry]) -> None:
        """Follow what was stored, swapped and released."""
        for entry in entries:
            if type(entry) is Stored:
                at, key, prefix, span, nbytes = entry
                if key in self._results:
                    self._release(key, at)
                row = self._rows.get((span, prefix))
                if row is None:
                    row = self._new_row((span, prefix))
                self._results[key] = row, nbytes
                row[0] += nbytes
                row[2] -= nbytes * at
                self.held = held = self.held + nbytes
                if held + self.spilled > self._most_managed:
                    self._most_managed = held + self.spilled
                if self._early and key in self._early:
                    del self._early[key]
                    self._swap(key, at, spilled=True)
                elif held > self._most_held:
                    self._most_held = held
            elif type(entry) is Released:
                self._release(entry[1], entry[0])
            elif type(entry) is Swapped:
                self._swap(entry.key, entry.at, spilled=entry.spilled)
            elif type(entry) is Peaked:
                self.at_peaks[entry.at] = self.by_prefix()

    def begin_anew(self, results: Iterable[Stored], on_disk: Container[Any], *, at: int) -> None:
        """Have these results from now on, and no others."""
        for key in list(self._results):
            self._release(key, at)
        self._early.clear()
        for stored in results:
            self.read([stored])
            if stored.key in on_disk:
                self._swap(stored.key, stored.at, spilled=True)

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
        most = self._most_held, self._most_spilled, self._most_managed
        self._most_held, self._most_spilled = self.held, self.spilled
        self._most_managed = self.held + self.spilled
        return most

    def integrals(self, at: int) -> dict[Name, tuple[int, int]]:
        """Byte-nanoseconds held and spilled until an instant, by span and prefix."""
        return {name: (row[0] * at + row[2], row[1] * at + row[3]) for name, row in self._rows.items()}

    def open_window(self, window: str, *, at: int) -> None:
        """Begin a window, or begin it anew; of too many, the oldest goes."""
        self._windows.pop(window, None)
        if not self._windows:
            self._rows = {name: row for name, row in self._rows.items() if row[0] or row[1]}
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

    def _swap(self, key: Any, at: int, *, spilled: bool) -> None:
        found = self._results.get(key)
        if found is None:
            if spilled:
                if len(self._early) >= MAX_EARLY:
                    self._early.clear()
                self._early[key] = None
            return
        if (key in self._on_disk) is spilled:
            return
        row, nbytes = found
        if spilled:
            self._on_disk.add(key)
        else:
            self._on_disk.remove(key)
            nbytes = -nbytes
        row[0] -= nbytes
        row[1] += nbytes
        row[2] += nbytes * at
        row[3] -= nbytes * at
        self.held -= nbytes
        self.spilled += nbytes
        self._most_held = max(self._most_held, self.held)
        self._most_spilled = max(self._most_spilled, self.spilled)

    def _release(self, key: Any, at: int) -> None:
        found = self._results.pop(key, None)
        if found is None:
            return
        row, nbytes = found
        if self._on_disk and key in self._on_disk:
            self._on_disk.remove(key)
            row[1] -= nbytes
            row[3] += nbytes * at
            self.spilled -= nbytes
        else:
            row[0] -= nbytes
            row[2] += nbytes * at
            self.held -= nbytes

    def _new_row(self, name: Name) -> _Row:
        """A new row; the one that all others share once there are too many."""
        if len(self._rows) >= MAX_ROWS:
            name = _OTHERS
        return self._rows.setdefault(name, [0, 0, 0, 0])
