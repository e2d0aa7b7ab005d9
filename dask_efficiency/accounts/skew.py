"""Skew: how unlike one another the tasks of a prefix are, in seconds and in bytes, and which are the extremes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, RefusedPayload, listed, short, text, whole
from dask_efficiency.accounts.sketch import Sketch, decode_sketch, encode_sketch

#: Prefixes that a window keeps apart; the tasks of later ones count under :data:`OTHER`.
MAX_PREFIXES = 200

#: In place of a prefix, as in the accounts.
OTHER = "(other)"


class Longest(NamedTuple):
    """The task of a prefix that took the longest in its thread."""

    ns: int
    key: str


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
        For how long the longest was the only task to run on any worker while threads were free for lack of others, as
        the scheduler saw it; 0 where it was never seen.
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


def key_name(key: object) -> str:
    """A task's key as it travels."""
    return str(key)[:MAX_NAME_LENGTH]


def merge_sizes(total: dict[str, TaskSizes], more: Mapping[str, TaskSizes]) -> None:
    """Count what another worker says of a window, too; ``more`` stays as it is."""
    for name, sizes in more.items():
        prefix = name if name in total or len(total) < MAX_PREFIXES else OTHER
        total.setdefault(prefix, TaskSizes()).merge(sizes)


def skew_by_prefix(sizes: Mapping[str, TaskSizes], alone: Mapping[str, int]) -> dict[str, Skew]:
    """How the tasks of each prefix compare.

    Parameters
    ----------
    sizes
        What all workers say of a window, by prefix; see :func:`merge_sizes`.
    alone
        By :func:`key_name`, nanoseconds for which a task was the only one to run in the window. Of a key that ran more
        than once they may be more than its longest run took, and count as that.
    """
    return {
        prefix: _skew(one, one.longest, alone.get(one.longest.key, 0))
        for prefix, one in sizes.items()
        if one.longest is not None
    }


def _skew(sizes: TaskSizes, longest: Longest, alone: int) -> Skew:
    found = Skew(
        count=sizes.ns.count,
        # The estimate of a quantile may be beyond what is known to be the most.
        median_seconds=min(sizes.ns.quantile(0.5), longest.ns) / 1e9,
        p95_seconds=min(sizes.ns.quantile(0.95), longest.ns) / 1e9,
        max_seconds=longest.ns / 1e9,
        longest_key=longest.key,
        alone_seconds=min(alone, longest.ns) / 1e9,
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


def encode_sizes(sizes: Mapping[str, TaskSizes]) -> list[list[Any]]:
    """What a worker says of a window, by prefix, as plain data for msgpack."""
    return [
        [
            prefix,
            encode_sketch(one.ns),
            encode_sketch(one.nbytes),
            None if one.longest is None else list(one.longest),
            None if one.largest is None else list(one.largest),
        ]
        for prefix, one in sizes.items()
    ]


def decode_sizes(payload: object) -> dict[str, TaskSizes]:
    """Check what a worker says of a window and read it.

    Raises
    ------
    RefusedPayload
        On a missing or mistyped value, a negative, fractional or absurdly large number, a sketch out of order, more
        sizes than tasks, tasks without a longest, too many prefixes, or a name that is too long.
    """
    found: dict[str, TaskSizes] = {}
    for entry in listed("skew", payload):
        prefix, ns, nbytes, longest, largest = _parts("skew", entry, 5)
        sizes = TaskSizes(
            ns=decode_sketch("skew.ns", ns),
            nbytes=decode_sketch("skew.nbytes", nbytes),
            longest=None if longest is None else Longest(*_most("skew.longest", longest)),
            largest=None if largest is None else Largest(*_most("skew.largest", largest)),
        )
        tasks, known = sizes.ns.count, sizes.nbytes.count
        if known > tasks or (longest is None) != (not tasks) or (largest is None) != (not known):
            raise RefusedPayload(
                f"skew of {short(prefix)} has {tasks} tasks, {known} sizes, {short(longest)} and {short(largest)}; "
                "expected no more sizes than tasks, and the most of what there is"
            )
        found[text("skew", prefix)] = sizes
    if len(found) > MAX_PREFIXES + 1:
        raise RefusedPayload(f"skew has {len(found)} prefixes; expected at most {MAX_PREFIXES} and {OTHER!r}")
    return found


def _most(name: str, value: object) -> tuple[int, str]:
    amount, key = _parts(name, value, 2)
    return whole(name, amount), text(name, key)


def _parts(name: str, value: object, length: int) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != length:
        raise RefusedPayload(f"{name} has {short(value)}; expected {length} values")
    return value
