"""WaitingSums: splits the time that tasks waited in their threads by cause, in proportion to what was sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from dask_efficiency.accounts.buckets import UNKNOWN
from dask_efficiency.accounts.rows import MAX_APART, MAX_ROWS, OTHER, add, divide, growth

#: Stands for a cause: threads of a library computed for a waiting task.
LIBRARY = "library"
#: Stands for a cause: such threads computed for a task that computed too, while slots were free.
FREE_SLOT_LIBRARY = "library-beside"
#: Recent samples of a cause, nanoseconds, beyond which all recent ones are halved, so that old ones fade. A guess:
#: 10 minutes of one thread.
MAX_RECENT_NS = 600_000_000_000
#: (span, prefix)
Key = tuple[str, str]
Row = dict[str, int]
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class _Samples:
    """Samples that no split has used up yet, and recent samples."""

    __slots__ = ("left", "recent")

    def __init__(self) -> None:
        self.left: Row = {}
        self.recent: Row = {}

    def add(self, cause: str, ns: int) -> None:
        self.left[cause] = self.left.get(cause, 0) + ns
        self.recent[cause] = self.recent.get(cause, 0) + ns
        if self.recent[cause] > MAX_RECENT_NS:
            self.recent = {name: value // 2 for name, value in self.recent.items()}

    def split(self, ns: int) -> Row:
        """Split ``ns``: what is left of the samples, scaled down or all of it, then as of late."""
        whole = sum(self.left.values())
        if ns <= whole:
            return divide(self.left, ns) if ns else {}
        row = dict(self.left)
        add(row, divide(self.recent, ns - whole) if any(self.recent.values()) else {UNKNOWN: ns - whole})
        return row

    def take(self, ns: int) -> Row:
        """Split ``ns``, and use the samples up."""
        row = self.split(ns)
        self.left = growth(self.left, row)
        return row


class WaitingSums:
    """Splits nanoseconds of waiting exactly by cause, in proportion to samples of its prefix that are not used up.

    Time beyond them is split in proportion to all recent ones; and where there are none, it is ``unknown``.
    """

    def __init__(self) -> None:
        #: Sampled nanoseconds by key and cause, without :data:`LIBRARY`, so far.
        self._totals: dict[Key, Row] = {}
        self._prefixes: dict[str, _Samples] = {}
        self._all = _Samples()
        #: By key, from the first :data:`LIBRARY` sample on: :data:`LIBRARY`, and all else as one.
        self._computed: dict[Key, _Samples] = {}
        self.any_library = False
        self._free_slots: Counter[Key] = Counter()
        self._stopped = False
        #: Reported causes by prefix, and of the activity view.
        self._reported: dict[str, Row] = {}
        self._active: Row = {}

    def add(self, key: Key, cause: str, ns: int) -> None:
        """Add a sample of more than 0 ns; the cause may be :data:`LIBRARY` or :data:`FREE_SLOT_LIBRARY`."""
        if cause == FREE_SLOT_LIBRARY:
            if key in self._free_slots or len(self._free_slots) < MAX_ROWS:
                self._free_slots[key] += ns
            return
        if cause == LIBRARY or self.any_library:
            self.any_library = True
            samples = self._computed.get(key) or _new(self._computed, key, _Samples(), MAX_ROWS)
            samples.add(LIBRARY if cause == LIBRARY else UNKNOWN, ns)
            if cause == LIBRARY:
                return
        row = self._totals.get(key)
        if row is None:
            row = _new(self._totals, key, {}, MAX_ROWS)
        row[cause] = row.get(cause, 0) + ns
        samples = self._prefixes.get(key[1]) or _new(self._prefixes, key[1], _Samples(), MAX_APART)
        samples.add(cause, ns)
        self._all.add(cause, ns)

    def stop(self) -> None:
        """End sampling: later waiting is unknown."""
        self._stopped = True
        for samples in (self._all, *self._prefixes.values(), *self._computed.values()):
            samples.recent.clear()

    # -- threads of libraries ----------------------------------------------------------------

    def library(self, key: Key, waited: int) -> int:
        """Nanoseconds of a task's waiting, 0 to all, in which libraries' threads computed; it uses samples up."""
        samples = self._computed.get(key)
        return samples.take(waited).get(LIBRARY, 0) if samples is not None else 0

    def library_so_far(self, key: Key, waited: int) -> int:
        """Estimate :meth:`library` for a task that is not finalized, without using samples up."""
        samples = self._computed.get(key)
        return samples.split(waited).get(LIBRARY, 0) if samples is not None else 0

    # -- causes ------------------------------------------------------------------------------

    def explain(self, noncpu: Mapping[str, int]) -> dict[str, Row]:
        """Split the bucket ``thread-noncpu`` of each prefix by cause, so far; no value falls from call to call."""
        if OTHER in noncpu:  # the ledger keeps no more prefixes apart, and those it does not know are in this one
            for prefix in [prefix for prefix in self._prefixes if prefix not in noncpu]:
                samples, others = self._prefixes.pop(prefix), self._prefixes.setdefault(OTHER, _Samples())
                add(others.left, samples.left)
                add(others.recent, samples.recent)
        for prefix, ns in noncpu.items():
            _explain(self._reported.setdefault(prefix, {}), self._prefixes.get(prefix, _Samples()), ns)
        return {prefix: dict(row) for prefix, row in self._reported.items() if prefix in noncpu}

    def explain_activity(self, noncpu: int) -> Row:
        """Split ``thread-noncpu`` of the activity view, of the whole worker, so far; see :meth:`explain`."""
        _explain(self._active, self._all, noncpu)
        return dict(self._active)

    # -- windows -----------------------------------------------------------------------------

    def mark(self) -> object:
        """Mark of the samples until now, for :meth:`since`."""
        return {key: dict(row) for key, row in self._totals.items()}, self._free_slots.copy()

    def free_slot_library(self, mark: object) -> dict[Key, int]:
        """Nanoseconds of :data:`FREE_SLOT_LIBRARY` since a mark, by span and prefix."""
        assert isinstance(mark, tuple)
        return dict(self._free_slots - mark[1])

    def since(self, mark: object, noncpu: Mapping[Key, int]) -> dict[Key, Row]:
        """Split the ``thread-noncpu`` of a window's rows by what was sampled since its mark; each sums to its row."""
        assert isinstance(mark, tuple)
        before_of = mark[0]
        sampled: dict[Key, Row] = {}
        for key, row in self._totals.items():
            # A key that was forgotten and came again has less than at the mark.
            if more := growth(row, before_of.get(key, {})):
                add(sampled.setdefault(key if key in noncpu else ("", OTHER), {}), more)
        return {key: self._split_row(key, ns, sampled) for key, ns in noncpu.items()}

    def _split_row(self, key: Key, ns: int, sampled: Mapping[Key, Row]) -> Row:
        if ns <= 0:
            return {}
        weights = sampled.get(key)
        if not weights and not self._stopped:
            weights = self._totals.get(key)
            if not weights and key[1] in self._prefixes:  # of this prefix in other spans
                weights = self._prefixes[key[1]].recent
        return divide(weights, ns) if weights and any(weights.values()) else {UNKNOWN: ns}


def _explain(row: Row, samples: _Samples, ns: int) -> None:
    """Add to a row what is missing of a total."""
    more = ns - sum(row.values())
    if more > 0:
        add(row, samples.take(more))


def _new(table: dict[_K, _V], key: _K, value: _V, limit: int) -> _V:
    """Put a new entry into a table; beyond a limit, its oldest goes."""
    if len(table) >= limit:
        del table[next(iter(table))]
    table[key] = value
    return value
