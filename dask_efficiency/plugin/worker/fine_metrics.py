"""FineMetrics: spilling, user labels and work outside the slots, from upstream's fine performance metrics.

Reads ``worker.digests_total``, whose keys are ``("execute", span, prefix, label, unit)`` for tasks and ``(context, ...,
label, unit)`` elsewhere. Labels are private to upstream: where they change, spill time counts as overhead, the details
are missing, and nothing breaks. What upstream does not meter of P2P shuffles, :class:`ShuffleWatch` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from time import monotonic_ns
from typing import Any, TypeVar

from distributed import Worker

from dask_efficiency.accounts.metered import (
    DASK_LABELS,
    EXECUTE,
    FLUSH,
    MAX_METERED,
    OF_SHUFFLES,
    P2P,
    RECEIVE,
    SECONDS,
    SPILL_LABELS,
    UNSPILL_LABELS,
    Metered,
)
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.plugin.patches import SHUFFLE_INPUTS_DONE, SHUFFLE_RECEIVE, Replacements

_Name = TypeVar("_Name", str, Metered)
#: Spilling by the memory manager that kept no slot waiting.
BY_MEMORY_MANAGER = "spill by the memory manager"
#: Name for display of each context that holds no slot.
OUTSIDE_CONTEXTS = {"gather-dep": "gather-dep", "get-data": "get-data", "memory-monitor": BY_MEMORY_MANAGER}
#: Characters of a label; longer ones are cut.
MAX_LABEL_LENGTH = 200


class NewDigests:
    """Keys that a worker's digests have gained since the last call; a dictionary keeps them in order of insertion."""

    def __init__(self, digests_total: Mapping[Any, float]) -> None:
        self._total = digests_total
        self._seen = 0

    def __call__(self) -> Iterable[tuple[Any, ...]]:
        """New keys of fine metrics."""
        if len(self._total) == self._seen:
            return ()
        new = list(self._total)[self._seen :]
        self._seen += len(new)
        return [key for key in new if isinstance(key, tuple) and len(key) >= 3]


class FineMetrics:
    """Reads a worker's cumulative fine metrics as differences, in integer nanoseconds, bytes and counts."""

    def __init__(self, digests_total: Mapping[Any, float]) -> None:
        self._total = digests_total
        self._new = NewDigests(digests_total)
        self._spill = SpillMetrics(digests_total)
        self._outside: dict[str, list[Any]] = {}
        self._metered: dict[Metered, list[Any]] = {}
        self._before: dict[Any, float] = dict(digests_total)

    def spill(self, span: str, prefix: str) -> int:
        """Nanoseconds of spilling for tasks of this span and prefix since the last call."""
        return sum(self._spill.since(span, prefix))

    def outside(self) -> dict[str, int]:
        """Nanoseconds outside the slots so far, by activity."""
        return self._sums(self._outside)

    def details(self) -> dict[str, int]:
        """Nanoseconds by the user's own ``context_meter`` labels so far."""
        found: dict[str, int] = {}
        for metered, ns in self.metered().items():
            if metered.context == EXECUTE and metered.unit == SECONDS and not metered.label.startswith(OF_SHUFFLES):
                name = f"in task: {metered.label}"
                found[name] = found.get(name, 0) + ns
        return found

    def metered(self) -> dict[Metered, int]:
        """Values of ``context_meter`` so far, except the seconds that are in the buckets."""
        return self._sums(self._metered)

    def _sums(self, groups: dict[_Name, list[Any]]) -> dict[_Name, int]:
        self._discover()
        total, before = self._total, self._before
        found = {}
        for name, keys in groups.items():
            gained = sum(total.get(key, 0.0) - before.get(key, 0.0) for key in keys)
            found[name] = max(0, round(1e9 * gained if keys[0][-1] == SECONDS else gained))
        return found

    def _discover(self) -> None:
        for key in self._new():
            context, label, unit = key[0], key[-2], key[-1]
            if not isinstance(unit, str):
                continue
            if len(key) == 5 and (
                (context == EXECUTE and not (unit == SECONDS and label in DASK_LABELS))
                or (context == P2P and key[2] != "foreground")  # the tasks have that too
            ):
                self._meter(key, Metered(context, key[1] or "", *(str(name)[:MAX_LABEL_LENGTH] for name in key[2:])))
            elif context in OUTSIDE_CONTEXTS and unit == SECONDS:
                self._outside.setdefault(OUTSIDE_CONTEXTS[context], []).append(key)
            elif context in OUTSIDE_CONTEXTS:
                self._meter(key, Metered(context, "", "", str(label)[:MAX_LABEL_LENGTH], unit[:MAX_LABEL_LENGTH]))

    def _meter(self, key: Any, metered: Metered) -> None:
        if metered not in self._metered and len(self._metered) >= MAX_METERED:
            metered = metered.rest
        self._metered.setdefault(metered, []).append(key)


class SpillMetrics:
    """Reads the time that tasks of one span and prefix spent reading back from disk, and writing to it."""

    def __init__(self, digests_total: Mapping[Any, float]) -> None:
        self._total = digests_total
        self._new = NewDigests(digests_total)
        #: Digests of reading and of writing, by span and prefix.
        self._keys: dict[tuple[str, str], tuple[list[Any], list[Any]]] = {}
        self._before = {group: self._sums(group) for group in self._keys} if self.any() else {}

    def any(self) -> bool:
        """True if any task has read or written so far."""
        for key in self._new():
            if len(key) == 5 and key[0] == EXECUTE and key[-1] == SECONDS and key[-2] in SPILL_LABELS:
                group = key[1] or "", key[2][:MAX_PREFIX_LENGTH]
                self._keys.setdefault(group, ([], []))[key[-2] not in UNSPILL_LABELS].append(key)
        return bool(self._keys)

    def since(self, span: str, prefix: str) -> tuple[int, int]:
        """Nanoseconds of (reading, writing) for tasks of this span and prefix since the last call."""
        group = span, prefix
        if not self.any() or group not in self._keys:
            return 0, 0
        read, written = self._sums(group)
        read_before, written_before = self._before.get(group, (0, 0))
        self._before[group] = read, written
        return max(0, read - read_before), max(0, written - written_before)

    def _sums(self, group: tuple[str, str]) -> tuple[int, int]:
        read, written = (round(1e9 * sum(self._total.get(k, 0.0) for k in keys)) for keys in self._keys[group])
        return read, written


class ShuffleWatch:
    """Adds up how long a worker takes to receive from P2P shuffles, and how long it still sends at their barriers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ns: dict[Metered, int] = {}
        self._replacements = Replacements()
        self._watching = False

    def start(self) -> None:
        """Watch, as soon as the worker takes part in shuffles; no-op where it is watched."""
        if not self._watching:
            self._watching = all(
                self._replacements.put(patch, self._worker, partial(self._timed, label))
                for patch, label in ((SHUFFLE_RECEIVE, RECEIVE), (SHUFFLE_INPUTS_DONE, FLUSH))
            )

    def stop(self) -> None:
        """Watch no more."""
        self._replacements.put_back()
        self._watching = False

    def metered(self) -> dict[Metered, int]:
        """Nanoseconds so far; several messages may be taken in at once."""
        return dict(self._ns)

    def _timed(self, label: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        metered = Metered(P2P, "", "background-comms", label, SECONDS)

        @wraps(handler)
        async def handle(*args: Any, **kwargs: Any) -> Any:
            began = monotonic_ns()
            try:
                return await handler(*args, **kwargs)
            finally:
                self._ns[metered] = self._ns.get(metered, 0) + monotonic_ns() - began

        return handle
