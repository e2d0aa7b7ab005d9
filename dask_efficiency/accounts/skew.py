"""Skew: spread of the durations, sizes and memory of a prefix's tasks, by mergeable sketches, and the extremes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload, listed, short, text, whole
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.rows import MAX_SENT, OTHER, add, kept_apart

#: Largest relative error of a quantile. A guess: reports show two digits.
MAX_ERROR = 0.01
#: Bins of a sketch; beyond, the lowest are merged. They span a factor of 28,000 without a gap.
MAX_BINS = 512
#: A bin ends at this multiple of its start.
_GROWTH = (1 + MAX_ERROR) / (1 - MAX_ERROR)
_BINS_PER_LOG = 1 / math.log(_GROWTH)
#: The bin of the largest number that travels.
MAX_INDEX = math.ceil(math.log(MAX_NANOSECONDS) * _BINS_PER_LOG)


class Sketch:
    """Sketch of many numbers: any quantile to 1 %, from few counters (DDSketch).

    Bin ``i`` counts the numbers in (g**(i - 1), g**i], with g = 1.01 / 0.99. Merging the sketches of the parts of some
    numbers gives the sketch of all of them, whatever the parts and their order.

    Source: Masson, Rim, Lee: DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees, VLDB
    2019, algorithms 3 and 4. Of the libraries, ``ddsketch`` 3.0.1 takes 0.64 us a value, one at a time, needs ``six``
    and travels by protobuf; the t-digests (``crick`` 0.0.8, ``fastdigest``) are compiled and bound the error of the
    rank, not of the value. So the rule is written out here, for whole numbers and many at a time.
    """

    __slots__ = ("bins", "zeros")

    def __init__(self) -> None:
        self.zeros = 0
        self.bins: dict[int, int] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        return self.zeros == other.zeros and self.bins == other.bins

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"<Sketch of {self.count} numbers in {len(self.bins)} bins>"

    @property
    def count(self) -> int:
        """Count of the numbers."""
        return self.zeros + sum(self.bins.values())

    def add(self, numbers: Sequence[int]) -> None:
        """Count whole numbers; what is less than 1 counts as 0, and what is more than 2**62 as that."""
        found = np.minimum(np.array(numbers, np.float64), MAX_NANOSECONDS)
        positive = found[found >= 1]
        self.zeros += len(found) - len(positive)
        taken, counts = np.unique(np.ceil(np.log(positive) * _BINS_PER_LOG).astype(np.int64), return_counts=True)
        self._count(dict(zip(taken.tolist(), counts.tolist(), strict=True)))

    def merge(self, other: Sketch) -> None:
        """Add the numbers of another."""
        self.zeros += other.zeros
        self._count(other.bins)

    def _count(self, counts: dict[int, int]) -> None:
        bins = self.bins
        add(bins, counts)
        if len(bins) > MAX_BINS:
            *lowest, kept = sorted(bins)[: len(bins) - MAX_BINS + 1]
            bins[kept] += sum(map(bins.pop, lowest))

    def quantile(self, q: float) -> float:
        """Number at position floor(q * (n - 1)) of n in order, to :data:`MAX_ERROR`; NaN of no numbers."""
        count = self.count
        if not count:
            return math.nan
        rank = math.floor(q * (count - 1))
        seen = self.zeros
        if rank < seen:
            return 0.0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if rank < seen:
                break
        return 2 * _GROWTH**index / (_GROWTH + 1)


def encode_sketch(sketch: Sketch) -> list[int]:
    """A sketch as plain data: zeros, then index and count of each bin in order."""
    return [sketch.zeros, *(number for item in sorted(sketch.bins.items()) for number in item)]


def decode_sketch(name: str, payload: object) -> Sketch:
    """Check and read a sketch; refuses empty bins, bins out of order and too many of them."""
    numbers = listed(name, payload)
    if not numbers:
        raise RefusedPayload(f"{name} is empty; expected zeros, then index and count of each bin")
    zeros, *rest = numbers
    sketch = Sketch()
    sketch.zeros = whole(name, zeros)
    indices, counts = rest[::2], rest[1::2]
    if len(indices) != len(counts) or len(indices) > MAX_BINS:
        raise RefusedPayload(f"{name} is {short(payload)}; expected zeros, then index and count of {MAX_BINS} bins")
    last = -1
    for index, count in zip(indices, counts, strict=True):
        # Without a call for each number: answers are full of them.
        is_int = type(index) is type(count) is int
        if not is_int or not last < index <= MAX_INDEX or not 0 < count <= MAX_NANOSECONDS:
            raise RefusedPayload(f"{name} has {short(count)} in bin {short(index)}; expected more, in order of bins")
        sketch.bins[index] = count
        last = index
    return sketch


class Most(NamedTuple):
    """The largest of some numbers, and the key of its task."""

    n: int
    key: str


#: Fields of the largest of each quantity.
_MOSTS = ("longest", "largest", "most_alone", "most_beside")


@dataclass(slots=True)
class TaskSizes:
    """Durations, result sizes and memory of a worker's tasks of one prefix that succeeded in a window."""

    ns: Sketch = field(default_factory=Sketch)
    nbytes: Sketch = field(default_factory=Sketch)
    longest: Most | None = None
    largest: Most | None = None
    #: Bytes of working memory of the tasks that ran alone on their worker, and of the others, as far as measured.
    alone: Sketch = field(default_factory=Sketch)
    beside: Sketch = field(default_factory=Sketch)
    most_alone: Most | None = None
    most_beside: Most | None = None
    #: Bytes beyond results that the tasks that ran alone left behind; below 0 where they freed more, and 0 if few did.
    left: int = 0

    def merge(self, other: TaskSizes) -> None:
        """Add the tasks of another."""
        self.ns.merge(other.ns)
        self.nbytes.merge(other.nbytes)
        self.alone.merge(other.alone)
        self.beside.merge(other.beside)
        self.left += other.left
        for name in _MOSTS:
            most = max(filter(None, (getattr(self, name), getattr(other, name))), default=None)
            setattr(self, name, most)


@dataclass(frozen=True, slots=True)
class Skew:
    """Comparison of the tasks of one prefix that succeeded; medians and quantiles to 1 %, the rest is exact."""

    count: int
    median_seconds: float
    p95_seconds: float
    max_seconds: float
    longest_key: str
    median_bytes: float = 0.0
    p95_bytes: float = 0.0
    max_bytes: float = 0.0
    largest_key: str = ""
    #: Time in which the longest task ran alone in the cluster while threads were free for lack of others.
    alone_seconds: float = 0.0
    #: Number of tasks whose working memory was measured, and that in bytes: the most memory of the process while one
    #: ran, its result included, beyond what there was at its start and the results that were held.
    working_count: int = 0
    median_working: float = 0.0
    p95_working: float = 0.0
    max_working: float = 0.0
    hungriest_key: str = ""
    #: True if these ran alone on their workers; else all tasks that ran together count with equal shares.
    working_alone: bool = False
    #: Bytes beyond results that the tasks that ran alone left behind, all together; 0 if few did.
    left_bytes: float = 0.0
    #: Tasks in Dask's group of a task, which is of one operation of a collection, in the mean of all; 0 if unknown.
    in_a_group: float = 0.0

    @property
    def times_longer(self) -> float:
        """Ratio of the longest duration to the median; 1 where the median is 0."""
        return self.max_seconds / self.median_seconds if self.median_seconds > 0 else 1.0

    @property
    def times_larger(self) -> float:
        """Ratio of the largest size to the median; 1 where the median is 0."""
        return self.max_bytes / self.median_bytes if self.median_bytes > 0 else 1.0


def key_name(key: object) -> str:
    """A task's key as it travels."""
    return fitting(key)


def merge_sizes(total: dict[str, TaskSizes], more: Mapping[str, TaskSizes]) -> None:
    """Add another worker's sizes of a window; ``more`` is not changed."""
    for name, sizes in more.items():
        total.setdefault(kept_apart(name, total, MAX_SENT), TaskSizes()).merge(sizes)


def skew_by_prefix(
    sizes: Mapping[str, TaskSizes], alone: Mapping[str, int], in_a_group: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Skew]:
    """Compare the tasks of each prefix, by sizes of all workers and time alone by key, at most of the longest run."""
    return {
        prefix: _skew(one, one.longest, alone.get(one.longest.key, 0), in_a_group.get(prefix, 0.0))
        for prefix, one in sizes.items()
        if one.longest is not None
    }


def _skew(sizes: TaskSizes, longest: Most, alone: int, in_a_group: float) -> Skew:
    def figures(sketch: Sketch, most: int, unit: float) -> tuple[float, float, float]:
        """Median, 95 % quantile and maximum; an estimate may be beyond what is known to be the most."""
        return min(most, sketch.quantile(0.5)) / unit, min(most, sketch.quantile(0.95)) / unit, most / unit

    largest = sizes.largest or Most(0, "")
    seconds, nbytes = figures(sizes.ns, longest.n, 1e9), figures(sizes.nbytes, largest.n, 1.0)
    by_itself = sizes.most_alone is not None
    working, hungriest = (
        sizes.alone if by_itself else sizes.beside,
        sizes.most_alone or sizes.most_beside or Most(0, ""),
    )
    return Skew(
        *(sizes.ns.count, *seconds, longest.key, *nbytes, largest.key, min(alone, longest.n) / 1e9),
        *(working.count, *figures(working, hungriest.n, 1.0), hungriest.key, by_itself, float(sizes.left)),
        in_a_group,
    )


def encode_sizes(sizes: Mapping[str, TaskSizes]) -> list[list[Any]]:
    """Encode a worker's sizes by prefix as plain data for msgpack."""
    return [
        [
            prefix,
            *(encode_sketch(sketch) for sketch in (one.ns, one.nbytes, one.alone, one.beside)),
            *(most and [*most] for most in (getattr(one, name) for name in _MOSTS)),
            one.left,
        ]
        for prefix, one in sizes.items()
    ]


def decode_sizes(payload: object) -> dict[str, TaskSizes]:
    """Check and read what :func:`encode_sizes` made; raises :class:`RefusedPayload`."""
    found: dict[str, TaskSizes] = {}
    for entry in listed("skew", payload):
        prefix, ns, nbytes, alone, beside, *mosts, left = _parts("skew", entry, 10)
        if type(left) is not int or abs(left) > MAX_NANOSECONDS:
            raise RefusedPayload(f"skew.left is {short(left)}; expected a whole number")
        sizes = TaskSizes(
            ns=decode_sketch("skew.ns", ns),
            nbytes=decode_sketch("skew.nbytes", nbytes),
            alone=decode_sketch("skew.alone", alone),
            beside=decode_sketch("skew.beside", beside),
            **{name: _most(f"skew.{name}", most) for name, most in zip(_MOSTS, mosts, strict=True)},
            left=left,
        )
        tasks, known = sizes.ns.count, sizes.nbytes.count
        if known > tasks or (sizes.longest is None) != (not tasks) or (sizes.largest is None) != (not known):
            raise RefusedPayload(
                f"skew of {short(prefix)} has {tasks} tasks, {known} sizes, {short(mosts[0])} and {short(mosts[1])}; "
                "expected no more sizes than tasks, and the most of what there is"
            )
        for sketch, most in ((sizes.alone, sizes.most_alone), (sizes.beside, sizes.most_beside)):
            if (most is None) != (not sketch.count):
                raise RefusedPayload(
                    f"skew of {short(prefix)} has memory of {sketch.count} tasks, the most {short(most)}"
                )
        found[text("skew", prefix)] = sizes
    if len(found) > MAX_SENT + 1:
        raise RefusedPayload(f"skew has {len(found)} prefixes; expected at most {MAX_SENT} and {OTHER!r}")
    return found


def _most(name: str, value: object) -> Most | None:
    if value is None:
        return None
    n, key = _parts(name, value, 2)
    return Most(whole(name, n), text(name, key))


def _parts(name: str, value: object, length: int) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != length:
        raise RefusedPayload(f"{name} has {short(value)}; expected {length} values")
    return value
