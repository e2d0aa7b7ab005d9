"""FineMetrics: what upstream's fine performance metrics say of spilling, details, and work outside the slots.

Reads ``worker.digests_total``, whose keys are ``("execute", span, prefix, label, unit)`` for tasks
and ``(context, ..., label, unit)`` elsewhere. Labels are upstream's private matter: where they
change, spill time shows as overhead and the details are missing, and nothing breaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH

#: Disk, and the (de)serialising and (de)compressing that goes with it.
SPILL_LABELS = frozenset({"disk-read", "disk-write", "serialize", "deserialize", "compress", "decompress"})

#: Of these, what reading inputs back takes before a task starts; the others write, after it stops.
UNSPILL_LABELS = frozenset({"disk-read", "deserialize", "decompress"})

#: Time that upstream itself names inside a task; every other label is the user's own.
UPSTREAM_LABELS = SPILL_LABELS | {
    "thread-cpu",
    "thread-noncpu",
    "executor",
    "other",
    "failed",
    "cancelled",
    "memory-read",
}

#: What the memory manager spilled without keeping any slot waiting.
BY_MEMORY_MANAGER = "spill by the memory manager"

#: Contexts of work that holds no slot, by the name under which it is shown.
OUTSIDE_CONTEXTS = {"gather-dep": "gather-dep", "get-data": "get-data", "memory-monitor": BY_MEMORY_MANAGER}

#: User labels kept apart.
MAX_LABELS = 100


class FineMetrics:
    """Reads a worker's cumulative fine metrics as differences, in integer nanoseconds."""

    def __init__(self, digests_total: Mapping[Any, float]) -> None:
        self._total = digests_total
        self._seen = 0
        self._spill = SpillMetrics(digests_total)
        self._outside: dict[str, list[Any]] = {}
        self._details: dict[str, list[Any]] = {}
        self._before: dict[Any, float] = dict(digests_total)
        self._discover()

    def spill(self, span: str, prefix: str) -> int:
        """Nanoseconds of spilling for tasks of this span and prefix since the last call."""
        return sum(self._spill.since(span, prefix))

    def outside(self) -> dict[str, int]:
        """Nanoseconds outside the slots so far, by activity."""
        return self._sums(self._outside)

    def details(self) -> dict[str, int]:
        """Nanoseconds by the user's own ``context_meter`` labels so far."""
        return self._sums(self._details)

    def _sums(self, groups: dict[str, list[Any]]) -> dict[str, int]:
        if len(self._total) != self._seen:
            self._discover()
        total, before = self._total, self._before
        return {
            name: max(0, round(1e9 * sum(total.get(key, 0.0) - before.get(key, 0.0) for key in keys)))
            for name, keys in groups.items()
        }

    def _discover(self) -> None:
        """Sort the keys that are new; a dictionary keeps them in the order of their coming."""
        for key in islice(list(self._total), self._seen, None):
            if not (isinstance(key, tuple) and len(key) >= 3 and key[-1] == "seconds"):
                continue
            context, label = key[0], key[-2]
            if context == "execute" and len(key) == 5:
                if label not in UPSTREAM_LABELS:
                    name = f"in task: {label}"[:200]
                    if name in self._details or len(self._details) < MAX_LABELS:
                        self._details.setdefault(name, []).append(key)
            elif context in OUTSIDE_CONTEXTS:
                self._outside.setdefault(OUTSIDE_CONTEXTS[context], []).append(key)
        self._seen = len(self._total)


class SpillMetrics:
    """Reads what tasks of one span and prefix spent on reading back from disk, and on writing to it."""

    def __init__(self, digests_total: Mapping[Any, float]) -> None:
        self._total = digests_total
        self._seen = 0
        #: (span, prefix) to its digests that read and those that write.
        self._keys: dict[tuple[str, str], tuple[list[Any], list[Any]]] = {}
        self._discover()
        self._before = {group: self._sums(group) for group in self._keys}

    def any(self) -> bool:
        """Whether any task has read or written so far."""
        if len(self._total) != self._seen:
            self._discover()
        return bool(self._keys)

    def since(self, span: str, prefix: str) -> tuple[int, int]:
        """Nanoseconds of (reading, writing) for tasks of this span and prefix since the last call."""
        if len(self._total) != self._seen:
            self._discover()
        group = span, prefix
        if not self._keys or group not in self._keys:
            return 0, 0
        read, written = self._sums(group)
        read_before, written_before = self._before.get(group, (0, 0))
        self._before[group] = read, written
        return max(0, read - read_before), max(0, written - written_before)

    def _sums(self, group: tuple[str, str]) -> tuple[int, int]:
        read, written = (round(1e9 * sum(self._total.get(k, 0.0) for k in keys)) for keys in self._keys[group])
        return read, written

    def _discover(self) -> None:
        for key in islice(list(self._total), self._seen, None):
            if isinstance(key, tuple) and len(key) == 5 and key[0] == "execute" and key[-1] == "seconds":
                label = key[-2]
                if label in SPILL_LABELS:
                    group = key[1] or "", key[2][:MAX_PREFIX_LENGTH]
                    self._keys.setdefault(group, ([], []))[label not in UNSPILL_LABELS].append(key)
        self._seen = len(self._total)
