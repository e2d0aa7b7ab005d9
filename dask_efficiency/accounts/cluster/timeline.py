"""Timeline: activities of the thread slots over time, in a bounded number of bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSE_NAMES, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES, WHERE
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.rows import in_proportion

#: Width of the first bins, nanoseconds: a quarter of the shortest time between two new heartbeats; finer bins would
#: show no more.
FIRST_WIDTH_NS = 250_000_000
#: Bins of a timeline; beyond, neighbours are merged. A guess: some 5 pixels each on a page.
MAX_BINS = 240
#: A worker whose last snapshot is this close to the end counts as unchanged until then. A guess: no message is more
#: exact.
CLOCK_SLACK_NS = 50_000_000
#: Columns of a bin: the activities, which add up to the time of the slots, and then their causes.
COLUMNS = (*ACTIVITIES, *CAUSE_NAMES)
_N = len(ACTIVITIES)
#: Slice of an account that holds them.
_WHERE = slice(WHERE["activity"].start, WHERE["cause_activity"].stop)

Row = NDArray[np.int64]
#: Start, stop, and the time by column.
_Piece = tuple[int, int, Row]
_NOTHING: Row = np.zeros(len(COLUMNS), np.int64)
_ALL_UNMEASURED: Row = np.array([name == Bucket.UNMEASURED for name in COLUMNS], np.int64)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Activities of the slots, bin by bin, a task's while it runs; within a heartbeat they are spread evenly."""

    bin_ns: int
    elapsed_ns: int
    #: Thread-nanoseconds in each bin, by :data:`~dask_efficiency.accounts.cluster.account.ACTIVITIES`; those without
    #: time are left out.
    activity: Mapping[str, tuple[int, ...]]
    #: By :data:`~dask_efficiency.accounts.buckets.CAUSE_NAMES`: in each bin they add up to their activity, nearly.
    causes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return -(-self.elapsed_ns // self.bin_ns)

    @property
    def widths(self) -> tuple[int, ...]:
        """Nanoseconds of each bin."""
        whole, rest = divmod(self.elapsed_ns, self.bin_ns)
        return (self.bin_ns,) * whole + ((rest,) if rest else ())


@dataclass(frozen=True, slots=True)
class ActivityStretches:
    """Activities of some workers' slots, each over its own stretch of time."""

    #: Monotonic nanoseconds, shape (n,); each stops later than it starts.
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    #: Thread-nanoseconds by :data:`COLUMNS`, shape (n, columns).
    ns: NDArray[np.int64]


class ActivityFeed:
    """Reads the growth of the workers' accounts since the last call."""

    def __init__(self) -> None:
        #: Last reading of each worker: its snapshot (None if the rest of it is still to be read), the row, and its
        #: growth.
        self._read: dict[Presence, tuple[object, Row, Row]] = {}

    def read(self, present: Iterable[Presence], *, at: int) -> ActivityStretches:
        """Read the accounts' growth until ``at`` since the last call; some workers' time seems later than it was."""
        read = self._read
        there, found = 0, []
        for presence in present:
            there += 1
            known = read.get(presence)
            if known is not None and known[0] is presence.received:
                continue  # by far the most
            found.append(self._since_last(presence, at))
        if there < len(read):
            for presence, left in [(presence, presence.left) for presence in read if presence.left is not None]:
                found.append(self._since_last(presence, at))
                recorded = _covered(presence.account[_WHERE])
                lived = presence.nthreads * (left - presence.joined)
                if recorded == _covered(read[presence][1]) and recorded >= lived:
                    del read[presence]
        return _stretches([piece for piece in found if piece is not None]) if found else _NO_STRETCHES

    def _since_last(self, presence: Presence, at: int) -> _Piece | None:
        _, before, grown = self._read.get(presence, (None, _NOTHING, _NOTHING))
        snapshot: object = presence.received
        row = presence.account[_WHERE].copy()
        gained = row - before
        covered, some = _covered(row), _covered(gained)
        n = presence.nthreads
        start, stop = presence.joined + (covered - some) // n, presence.joined - (-covered // n)
        if some and stop > at:
            past = max(0, at - start)
            gained = np.array([ns * past // (stop - start) for ns in gained.tolist()], np.int64)
            some = _covered(gained)
            row = before + gained if some else before
            snapshot, stop = None, at
        self._read[presence] = (snapshot, row, gained if some else grown)
        return (start, stop, gained) if some else None

    def uncovered(self, *, at: int) -> ActivityStretches:
        """Stretches for the time until ``at`` that is not reported: ``unmeasured``, except for the last instants."""
        found = []
        for presence, (_, row, grown) in self._read.items():
            stop = at if presence.left is None else min(at, presence.left)
            start = presence.joined + _covered(row) // presence.nthreads
            if start < stop:
                like = grown if stop - start <= CLOCK_SLACK_NS and grown[:_N].any() else _ALL_UNMEASURED
                found.append((start, stop, _as_much(like, presence.nthreads * (stop - start))))
        return _stretches(found)


class TimelineRecorder:
    """Sorts stretches into bins, from ``at`` on; earlier time is left out."""

    def __init__(self, *, at: int, width: int = FIRST_WIDTH_NS) -> None:
        self._start = at
        self._stop: int | None = None
        self._width = width
        self._bins = np.zeros((MAX_BINS, len(COLUMNS)), dtype=np.int64)

    def stop(self, *, at: int) -> None:
        """End the timeline at ``at``; later time is left out."""
        self._stop = at

    def add(self, stretches: ActivityStretches) -> None:
        """Sort the part of the stretches that lies within the timeline into bins, to the nanosecond."""
        if not len(stretches.start):
            return
        last = int(np.maximum.reduce(stretches.stop))
        last = last if self._stop is None else min(last, self._stop)
        earliest = max(self._start, int(np.minimum.reduce(stretches.start)))
        if last <= earliest:
            return
        while last - self._start > MAX_BINS * self._width:
            self._merge()
        width = self._width
        first = (earliest - self._start) // width
        bins = -(-(last - self._start) // width) - first
        edges = [*range(self._start + first * width, self._start + (first + bins) * width, width), last]
        length = stretches.stop - stretches.start
        share = (np.array(edges)[:, None] - stretches.start) / length
        np.minimum(np.maximum(share, 0.0, out=share), 1.0, out=share)
        # Differences of rounded running totals, so that rounding moves time to the next bin and loses none. Doubles
        # hold the nanoseconds of a hundred days, of all stretches together.
        done = np.rint(share @ stretches.ns.astype(np.float64)).astype(np.int64)
        self._bins[first : first + bins] += done[1:] - done[:-1]

    def timeline(self, *, at: int, uncovered: ActivityStretches | None = None) -> Timeline:
        """The timeline until ``at``, with stretches added as from :meth:`ActivityFeed.uncovered`."""
        whole = TimelineRecorder(at=self._start)
        whole._stop, whole._width, whole._bins = at, self._width, self._bins.copy()
        if uncovered is not None:
            whole.add(uncovered)
        elapsed = max(0, at - self._start)
        while elapsed > MAX_BINS * whole._width:
            whole._merge()
        empty = Timeline(whole._width, elapsed, {})
        rows = whole._bins[: empty.bins].T.tolist()
        found = {name: tuple(row) for name, row in zip(COLUMNS, rows, strict=True) if any(row)}
        causes = {name: found.pop(name) for name in CAUSE_NAMES if name in found}
        return replace(empty, activity=found, causes=causes)

    def _merge(self) -> None:
        pairs = self._bins.reshape(MAX_BINS // 2, 2, -1).sum(axis=1)
        self._bins = np.concatenate([pairs, np.zeros_like(pairs)])
        self._width *= 2


def totals_of(account: Sequence[int]) -> NDArray[np.uint64]:
    """The activities of an account, modulo 2**64."""
    return np.array([ns % 2**64 for ns in account[_WHERE]], np.uint64)


def timeline_between(points: Sequence[tuple[int, NDArray[np.uint64]]]) -> Timeline:
    """Timeline from totals at several instants, evenly spread between two of them."""
    at = np.array([instant for instant, _ in points], np.int64)
    grown = np.diff(np.array([totals for _, totals in points], np.uint64), axis=0).astype(np.int64)
    start, stop = int(at[0]), int(at[-1])
    recorder = TimelineRecorder(at=start, width=max(FIRST_WIDTH_NS, int(np.median(np.diff(at)))))
    recorder.add(ActivityStretches(at[:-1], at[1:], grown))
    return recorder.timeline(at=stop)


def _covered(row: Row) -> int:
    """The time of the slots."""
    return int(np.add.reduce(row[:_N]))


def _as_much(like: Row, whole: int) -> Row:
    """Scale a row to a total of nanoseconds."""
    numbers = like.tolist()
    known = sum(numbers[:_N])
    return np.array([*in_proportion(numbers[:_N], whole), *(whole * ns // known for ns in numbers[_N:])], np.int64)


def _stretches(found: list[_Piece]) -> ActivityStretches:
    start = np.array([piece[0] for piece in found], dtype=np.int64)
    stop = np.array([piece[1] for piece in found], dtype=np.int64)
    ns = np.array([piece[2] for piece in found], dtype=np.int64).reshape(-1, len(COLUMNS))
    return ActivityStretches(start, stop, ns)


_NO_STRETCHES = _stretches([])
