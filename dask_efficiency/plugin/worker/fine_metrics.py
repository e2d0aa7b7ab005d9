"""Upstream's fine performance metrics: spilling, user labels and work outside the slots.

Reads ``worker.digests_total``, whose keys are ``("execute", span, prefix, label, unit)`` for tasks and ``(context, ...,
label, unit)`` elsewhere. Labels are private to upstream: where they change, spill time counts as overhead, the details
are missing, and nothing breaks. What upstream does not meter of P2P shuffles, :class:`ShuffleWatch` times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial, wraps
from time import monotonic_ns
from typing import Any, Generic, TypeVar

from distributed import Worker

from dask_efficiency.accounts.checks import MAX_NANOSECONDS
from dask_efficiency.accounts.intake import fitting, number, whole_number
from dask_efficiency.accounts.metered import (
    DASK_LABELS,
    EXECUTE,
    FLUSH,
    OF_SHUFFLES,
    P2P,
    RECEIVE,
    SECONDS,
    SPILL_LABELS,
    UNSPILL_LABELS,
    Metered,
)
from dask_efficiency.accounts.rows import MAX_APART, MAX_NAMED, add
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH, span_of
from dask_efficiency.plugin.patches import SHUFFLE_INPUTS_DONE, SHUFFLE_RECEIVE, Replacements

_Name = TypeVar("_Name")
#: Spilling by the memory manager that kept no slot waiting.
BY_MEMORY_MANAGER = "spill by the memory manager"
#: Name for display of each context that holds no slot.
OUTSIDE_CONTEXTS = {"gather-dep": "gather-dep", "get-data": "get-data", "memory-monitor": BY_MEMORY_MANAGER}
#: Contexts of transfers, whose parts are told: waiting for the network, and work on either side of it.
_TRANSFERS = frozenset({"gather-dep", "get-data"})
#: Characters of a label; longer ones are cut.
MAX_LABEL_LENGTH = 200
#: Seconds of a label, either way: 146 years, as many as nanoseconds travel.
MAX_SECONDS = MAX_NANOSECONDS / 1e9


class Digests(ABC, Generic[_Name]):
    """Values of a worker's digests, by the name that a subclass gives to their keys.

    Tasks may count anything. Once a digest is no number, or one that is too large to travel, it stays as it was read
    last: what is added to NaN is lost, and so are small numbers that are added to a huge one.
    """

    def __init__(self, digests_total: Mapping[Any, Any]) -> None:
        self._total = digests_total
        self._seen = 0
        self._keys: dict[_Name, list[Any]] = {}
        #: Values as read last; those at the beginning; and the keys whose values stay as they are.
        self._last: dict[Any, float] = {}
        self.stuck: dict[Any, None] = {}
        self._before = {key: self._value(key) for keys in self.keys().values() for key in keys}

    @abstractmethod
    def _name_of(self, key: tuple[Any, ...]) -> _Name | None:
        """Name of a key of fine metrics, of three parts or more; None if it is of no interest."""

    def keys(self) -> dict[_Name, list[Any]]:
        """Keys by name; a dictionary has new ones at its end, so each is looked at once."""
        if len(self._total) != self._seen:
            new = list(self._total)[self._seen :]
            self._seen += len(new)
            for key in new:
                if isinstance(key, tuple) and len(key) >= 3 and (name := self._name_of(key)) is not None:
                    self._keys.setdefault(name, []).append(key)
        return self._keys

    def total(self, name: _Name) -> float:
        """Sum so far of the digests of a name."""
        return sum(map(self._value, self.keys().get(name, ())), 0.0)

    def gained(self) -> dict[_Name, int]:
        """Growth of each name's digests since the beginning, in integer nanoseconds, bytes and counts."""
        value, before, found = self._value, self._before, {}
        for name, keys in self.keys().items():
            gained = sum(value(key) - before.get(key, 0.0) for key in keys)
            found[name] = whole_number(round(1e9 * gained if keys[0][-1] == SECONDS else gained))
        return found

    def _value(self, key: Any) -> float:
        value = self._total.get(key, 0.0)
        if self.stuck or not (type(value) is float and -MAX_SECONDS <= value <= MAX_SECONDS):
            most = MAX_SECONDS if key[-1] == SECONDS else MAX_NANOSECONDS
            value = None if key in self.stuck else number(value, most)
            if value is None:
                self.stuck[key] = None
                return self._last.get(key, 0.0)
        self._last[key] = value
        return value


def left_out(*digests: Digests[Any]) -> list[str]:
    """A sentence on each label whose value is not followed any more."""
    found: dict[str, None] = {}
    for key in [key for each in digests for key in each.stuck]:
        where = f"tasks of {fitting(key[2], 100)}" if key[0] == EXECUTE else fitting(key[0], 100)
        label, unit = (fitting(name, 100) for name in key[-2:])
        what = f"label {label} counted what is no number of {unit}, or one that is too large, in {where}"
        found[f"{what}: it is left out"] = None
    return [*found][:MAX_NAMED]


class OutsideMetrics(Digests[str]):
    """Reads the time outside the slots, by activity."""

    def _name_of(self, key: tuple[Any, ...]) -> str | None:
        return OUTSIDE_CONTEXTS.get(key[0]) if key[-1] == SECONDS else None


class FineMetrics(Digests[Metered]):
    """Reads the values of ``context_meter``, except the seconds that are in the buckets, or at the disk for nobody."""

    def _name_of(self, key: tuple[Any, ...]) -> Metered | None:
        context, label, unit = key[0], key[-2], key[-1]
        if not isinstance(unit, str):
            return None
        if len(key) == 5 and (
            (context == EXECUTE and not (unit == SECONDS and label in DASK_LABELS))
            or (context == P2P and key[2] != "foreground")  # the tasks have that too
        ):
            metered = Metered(context, span_of(key[1]), *(fitting(name, MAX_LABEL_LENGTH) for name in key[2:]))
        elif context in _TRANSFERS or (context in OUTSIDE_CONTEXTS and unit != SECONDS):
            metered = Metered(context, "", "", *(fitting(name, MAX_LABEL_LENGTH) for name in (label, unit)))
        else:
            return None
        return metered if metered in self._keys or len(self._keys) < MAX_APART else metered.rest

    def details(self) -> dict[str, int]:
        """Nanoseconds by the user's own ``context_meter`` labels so far."""
        found: dict[str, int] = {}
        for metered, ns in self.gained().items():
            if metered.context == EXECUTE and metered.unit == SECONDS and not metered.label.startswith(OF_SHUFFLES):
                add(found, {f"in task: {metered.label}": ns})
        return found


class SpillMetrics(Digests[tuple[str, str, bool]]):
    """Reads the time that tasks of one span and prefix spent reading back from disk, and writing to it (True)."""

    def __init__(self, digests_total: Mapping[Any, Any]) -> None:
        super().__init__(digests_total)
        self._read = {name: self._ns(name) for name in self.keys()}

    def _name_of(self, key: tuple[Any, ...]) -> tuple[str, str, bool] | None:
        if len(key) == 5 and key[0] == EXECUTE and key[-1] == SECONDS and key[-2] in SPILL_LABELS:
            return span_of(key[1]), fitting(key[2], MAX_PREFIX_LENGTH), key[-2] not in UNSPILL_LABELS
        return None

    def since(self, span: str, prefix: str) -> tuple[int, int]:
        """Nanoseconds of (reading, writing) for tasks of this span and prefix since the last call."""
        return (self._since((span, prefix, False)), self._since((span, prefix, True))) if self.keys() else (0, 0)

    def _since(self, name: tuple[str, str, bool]) -> int:
        before, self._read[name] = self._read.get(name, 0), self._ns(name)
        return max(0, self._read[name] - before)

    def _ns(self, name: tuple[str, str, bool]) -> int:
        return whole_number(round(1e9 * self.total(name)))


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
                add(self._ns, {metered: monotonic_ns() - began})

        return handle
