"""Skew: how unlike one another the tasks of a prefix are, in seconds and in bytes, and which are the extremes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dask_efficiency.checks import RefusedPayload, listed, mapping, short, text, whole
from dask_efficiency.ledger import OTHER
from dask_efficiency.sketch import Sketch, decode_sketch, encode_sketch

#: Prefixes that a window keeps apart; the tasks of later ones count under :data:`~dask_efficiency.ledger.OTHER`.
MAX_PREFIXES = 200

#: Stretches of time in which a worker was at work that a window remembers.
MAX_STRETCHES = 1_000

#: Two stretches less than this apart are one, and clocks of hosts may differ by as much.
GAP_NS = 100_000_000

#: (start, stop) in nanoseconds since the epoch.
Stretch = tuple[int, int]


class Longest(NamedTuple):
    """The longest task of a prefix on a worker; instants are nanoseconds since the epoch."""

    ns: int
    key: str
    stop: int
    #: From when on no other task of this worker ran, until this one stopped.
    alone_since: int


class Largest(NamedTuple):
    """The task of a prefix with the largest result."""

    nbytes: int
    key: str


@dataclass(slots=True)
class TaskSizes:
    """What a worker's tasks of one prefix took and made, of those that succeeded in a window.

    Parameters
    ----------
    ns
        Nanoseconds in the thread, a number for each task.
    nbytes
        Bytes of the results, a number for each that is known.
    longest
        None where there is no task.
    largest
        None where no size is known.
    """

    ns: Sketch = field(default_factory=Sketch)
    nbytes: Sketch = field(default_factory=Sketch)
    longest: Longest | None = None
    largest: Largest | None = None

    def merge(self, other: TaskSizes) -> None:
        """Count the tasks of another, too."""
        self.ns.merge(other.ns)
        self.nbytes.merge(other.nbytes)
        self.longest = max((one for one in (self.longest, other.longest) if one is not None), default=None)
        self.largest = max((one for one in (self.largest, other.largest) if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class WorkerSizes:
    """What one worker says of a window.

    Parameters
    ----------
    prefixes
        By prefix, what its tasks took and made.
    busy
        When any task ran, in order and apart from one another.
    """

    prefixes: Mapping[str, TaskSizes]
    busy: Sequence[Stretch] = ()


@dataclass(frozen=True, slots=True)
class Skew:
    """The tasks of one prefix that succeeded, compared with one another.

    Medians and 95 % quantiles are off by 1 % at most; the rest is exact.

    Parameters
    ----------
    count
        How many there are.
    median_seconds, p95_seconds, max_seconds
        Wall time in the thread.
    longest_key
        The task that took the most of it.
    median_bytes, p95_bytes, max_bytes
        Size of the results; 0 where it is not known.
    largest_key
        The task with the largest; empty where no size is known.
    alone_seconds
        For how long no other task ran on any worker at the end of the longest; 0 where that is not known.
    """

    count: int
    median_seconds: float
    p95_seconds: float
    max_seconds: float
    longest_key: str
    median_bytes: float = 0.0
    p95_bytes: float = 0.0
    max_bytes: float = 0.0
    largest_key: str = ""
    alone_seconds: float = 0.0

    @property
    def times_longer(self) -> float:
        """How many times as long as the median the longest took; 1 where the median is 0."""
        return self.max_seconds / self.median_seconds if self.median_seconds > 0 else 1.0

    @property
    def times_larger(self) -> float:
        """How many times as large as the median the largest is; 1 where the median is 0."""
        return self.max_bytes / self.median_bytes if self.median_bytes > 0 else 1.0


def skew_by_prefix(workers: Iterable[WorkerSizes], *, complete: bool = True) -> dict[str, Skew]:
    """What all workers say of a window, put together.

    Parameters
    ----------
    workers
        Each of them once.
    complete
        Whether these are all that did any work in the window; else nobody can tell whether a task ran alone.
    """
    said = list(workers)
    merged: dict[str, TaskSizes] = {}
    #: By prefix, which worker's is the longest.
    owner: dict[str, int] = {}
    for position, worker in enumerate(said):
        for name, sizes in worker.prefixes.items():
            prefix = name if name in merged or len(merged) < MAX_PREFIXES else OTHER
            total = merged.setdefault(prefix, TaskSizes())
            before = total.longest
            total.merge(sizes)
            if total.longest != before:
                owner[prefix] = position
    skews = {}
    for prefix, total in merged.items():
        if total.longest is not None:
            others = (worker.busy for position, worker in enumerate(said) if position != owner[prefix])
            skews[prefix] = _skew(total, total.longest, _alone(total.longest, others) if complete else 0)
    return skews


def _skew(sizes: TaskSizes, longest: Longest, alone: int) -> Skew:
    found = Skew(
        count=sizes.ns.count,
        # The estimate of a quantile may be beyond what is known to be the most.
        median_seconds=min(sizes.ns.quantile(0.5), longest.ns) / 1e9,
        p95_seconds=min(sizes.ns.quantile(0.95), longest.ns) / 1e9,
        max_seconds=longest.ns / 1e9,
        longest_key=longest.key,
        alone_seconds=alone / 1e9,
    )
    if sizes.largest is None:
        return found
    most = sizes.largest.nbytes
    return replace(
        found,
        median_bytes=float(min(sizes.nbytes.quantile(0.5), most)),
        p95_bytes=float(min(sizes.nbytes.quantile(0.95), most)),
        max_bytes=float(most),
        largest_key=sizes.largest.key,
    )


def _alone(longest: Longest, others: Iterable[Sequence[Stretch]]) -> int:
    """Nanoseconds at the end of a task in which no other ran."""
    since = max(longest.alone_since, longest.stop - longest.ns)
    # What follows from the task may have begun elsewhere right after it, and before it by that host's clock.
    at = longest.stop - GAP_NS
    for busy in others:
        i = bisect_right(busy, at, key=lambda stretch: stretch[0]) - 1
        if i >= 0:
            since = max(since, busy[i][1])
    return max(0, longest.stop - since) if since <= at else 0


def encode_sizes(sizes: WorkerSizes) -> dict[str, Any]:
    """What a worker says of a window as plain data for msgpack."""
    return {
        "prefixes": [
            [
                prefix,
                encode_sketch(one.ns),
                encode_sketch(one.nbytes),
                None if one.longest is None else list(one.longest),
                None if one.largest is None else list(one.largest),
            ]
            for prefix, one in sizes.prefixes.items()
        ],
        "busy": [list(stretch) for stretch in sizes.busy],
    }


def decode_sizes(payload: object) -> WorkerSizes:
    """Check what a worker says of a window and read it.

    Raises
    ------
    RefusedPayload
        On a missing or mistyped field, a negative, fractional or absurdly large number, a sketch out of order, more
        sizes than tasks, tasks without a longest, too many prefixes or stretches, stretches out of order, or a name
        that is too long.
    """
    fields = mapping("skew", payload)
    prefixes: dict[str, TaskSizes] = {}
    for entry in listed("skew.prefixes", fields.get("prefixes")):
        prefix, ns, nbytes, longest, largest = _parts("skew.prefixes", entry, 5)
        sizes = TaskSizes(
            ns=decode_sketch("skew.ns", ns),
            nbytes=decode_sketch("skew.nbytes", nbytes),
            longest=None if longest is None else _longest(longest),
            largest=None if largest is None else _largest(largest),
        )
        tasks, known = sizes.ns.count, sizes.nbytes.count
        if known > tasks or (longest is None) != (not tasks) or (largest is None) != (not known):
            raise RefusedPayload(
                f"skew of {short(prefix)} has {tasks} tasks, {known} sizes, {short(longest)} and {short(largest)}; "
                "expected no more sizes than tasks, and the most of what there is"
            )
        prefixes[text("skew.prefixes", prefix)] = sizes
    if len(prefixes) > MAX_PREFIXES + 1:
        raise RefusedPayload(f"skew has {len(prefixes)} prefixes; expected at most {MAX_PREFIXES} and {OTHER!r}")
    return WorkerSizes(prefixes, _busy(fields.get("busy")))


def _longest(value: object) -> Longest:
    ns, key, *instants = _parts("skew.longest", value, 4)
    stop, since = (whole("skew.longest", at) for at in instants)
    return Longest(whole("skew.longest", ns), text("skew.longest", key), stop, since)


def _largest(value: object) -> Largest:
    nbytes, key = _parts("skew.largest", value, 2)
    return Largest(whole("skew.largest", nbytes), text("skew.largest", key))


def _busy(value: object) -> tuple[Stretch, ...]:
    busy = listed("skew.busy", value)
    if len(busy) > MAX_STRETCHES:
        raise RefusedPayload(f"skew.busy has {len(busy)} stretches; expected at most {MAX_STRETCHES}")
    stretches = []
    last = -1
    for entry in busy:
        start, stop = (whole("skew.busy", at) for at in _parts("skew.busy", entry, 2))
        if not last < start <= stop:
            raise RefusedPayload(f"skew.busy has {short(entry)} after {last}; expected stretches in order")
        stretches.append((start, stop))
        last = stop
    return tuple(stretches)


def _parts(name: str, value: object, length: int) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != length:
        raise RefusedPayload(f"{name} has {short(value)}; expected {length} values")
    return value
