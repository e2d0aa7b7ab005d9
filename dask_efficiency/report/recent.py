"""The last minutes of a cluster: its threads by activity over time, and its workers by their share of useful time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.cluster import ACTIVITIES, Presence
from dask_efficiency.report.figures import format_share, harmless, shorten
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.verdict import verdict

#: A live view looks back this far.
WINDOW_NS = 300_000_000_000

#: So that there are sixty bins at most, which is what a page can be sent every other second.
NARROWEST_BIN_NS = 5_000_000_000

#: Heartbeats of each worker in one bin: over fewer, what one brings stands out from the rest.
HEARTBEATS_PER_BIN = 3

#: Workers drawn one by one; of more, the least useful.
MAX_WORKERS = 20

#: A worker's name as the label of a bar.
NAME_LENGTH = 28

# Plain strings: an enum's hash is slow, and these are looked up for every worker.
_CPU, _GPU = map(str, GOOD)
_NO_WORK = str(Bucket.NO_WORK)

#: What a reader of TeX or MathML takes for the beginning of a formula.
_FORMULA = re.compile(r"(?<=\$)(?=\$)|(?<=\\)(?=[\[(])")

_WORD_JOINER = "\u2060"


class Moment(Protocol):
    """What the cluster had done by one instant."""

    @property
    def at(self) -> int:
        """Monotonic nanoseconds."""

    @property
    def activity(self) -> Mapping[str, int]:
        """Nanoseconds by :data:`~dask_efficiency.cluster.ACTIVITIES` since the accounts began."""

    @property
    def nthreads(self) -> int:
        """Threads that were there."""


def bin_width(heartbeat_seconds: float) -> int:
    """Nanoseconds that a bin of the timeline spans, for workers that report this often."""
    return max(NARROWEST_BIN_NS, round(HEARTBEATS_PER_BIN * heartbeat_seconds * 1e9))


def window_of(moments: Iterable[Moment], *, width: int) -> list[Moment]:
    """The moments of the last minutes; the first stands on the grid of the bins if there is one that early."""
    known = list(moments)
    if not known:
        return []
    start = (known[-1].at - WINDOW_NS) // width * width
    return [moment for moment in known if moment.at >= start]


def gained(moments: Sequence[Moment]) -> dict[str, int]:
    """Nanoseconds by activity from the first moment to the last."""
    if not moments:
        return {}
    then, now = moments[0].activity, moments[-1].activity
    return {name: ns for name in ACTIVITIES if (ns := now.get(name, 0) - then.get(name, 0)) > 0}


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the threads were doing, bin by bin; in each bin the threads by activity add up to nthreads."""

    #: Monotonic nanoseconds, shape (bins,). A bin starts where the one before it stops.
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    #: Mean number of threads, shape (bins,).
    nthreads: NDArray[np.float64]
    #: Mean number of threads by :data:`~dask_efficiency.cluster.ACTIVITIES`, shape (bins, activities).
    threads: NDArray[np.float64]


def timeline(moments: Sequence[Moment], *, width: int) -> Timeline:
    """The moments' accounts in bins of at least two thirds of ``width``, on a grid that stands still.

    Workers report one after the other, each for the time since its own last report: over a poll the
    sum is anything but nthreads. So a bin spans several reports of each, and shares of what they
    brought are scaled to the threads that were there. A bin in which none came is joined to its
    neighbour.

    Parameters
    ----------
    moments
        In order of time.
    width
        Nanoseconds of a bin, positive.

    Returns
    -------
    Timeline
        No bins where no report has come yet.
    """
    at = np.maximum.accumulate(np.array([moment.at for moment in moments], dtype=np.int64))
    cuts = _cuts(at.tolist(), width)
    if not cuts:
        nowhen = np.zeros(0, dtype=np.int64)
        return Timeline(nowhen, nowhen, np.zeros(0), np.zeros((0, len(ACTIVITIES))))
    threads = np.array([moment.nthreads for moment in moments], dtype=np.float64)
    available = np.concatenate([[0.0], np.cumsum(np.diff(at) * threads[1:])])
    base = moments[0].activity
    # Less the base first: of a big cluster the nanoseconds of a year do not fit into 64 bits.
    done = np.array(
        [[moments[i].activity.get(name, 0) - base.get(name, 0) for name in ACTIVITIES] for i in cuts], dtype=np.float64
    )
    done = np.maximum.accumulate(done)
    kept = _with_reports(done.sum(axis=1).tolist(), available[cuts].tolist())
    edges = [cuts[i] for i in kept]
    return _binned(at[edges], available[edges], done[kept])


def _cuts(at: Sequence[int], width: int) -> list[int]:
    """Where the bins begin and end, as indices: where the time passes a multiple of the width."""
    if not at or at[-1] == at[0]:
        return []
    cuts = [0]
    for i, now in enumerate(at):
        last = at[cuts[-1]]
        if now // width > last // width and 3 * (now - last) >= 2 * width:
            cuts.append(i)
    if cuts[-1] != len(at) - 1:
        if len(cuts) > 1 and 3 * (at[-1] - at[cuts[-1]]) < 2 * width:
            cuts.pop()
        cuts.append(len(at) - 1)
    return cuts


def _with_reports(done: Sequence[float], available: Sequence[float]) -> list[int]:
    """The cuts that are left when bins with threads and without a report are joined to a neighbour."""
    kept = [0]
    for i in range(1, len(done)):
        if done[i] > done[kept[-1]] or available[i] == available[kept[-1]]:
            kept.append(i)
    if kept[-1] != len(done) - 1:
        if len(kept) > 1:
            kept.pop()
        kept.append(len(done) - 1)
    while len(kept) > 1 and done[kept[-1]] == done[kept[-2]] and available[kept[-1]] > available[kept[-2]]:
        kept.pop(-2)
    return kept


def _binned(edges: NDArray[np.int64], available: NDArray[np.float64], done: NDArray[np.float64]) -> Timeline:
    start, stop = edges[:-1], edges[1:]
    nthreads = np.diff(available) / (stop - start)
    ns = np.diff(done, axis=0)
    whole = ns.sum(axis=1)
    scale = np.divide(nthreads, whole, out=np.zeros_like(whole), where=whole > 0)
    return Timeline(start, stop, nthreads, ns * scale[:, None])


#: A worker's presence: its address, and when it joined.
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WorkersMoment:
    """What each worker's threads had done by one instant; a few are kept, so as arrays."""

    rows: Mapping[Key, int]
    #: Nanoseconds by :data:`~dask_efficiency.cluster.ACTIVITIES`, shape (workers, activities).
    activity: NDArray[np.int64]

    @classmethod
    def of(cls, present: Iterable[Presence]) -> WorkersMoment:
        """Of the workers that are there."""
        here = list(present)
        rows = [[presence.activity.get(name, 0) for name in ACTIVITIES] for presence in here]
        return cls(
            {(presence.address, presence.joined): i for i, presence in enumerate(here)},
            np.array(rows, dtype=np.int64).reshape(-1, len(ACTIVITIES)),
        )


#: Before there was anything.
NOTHING = WorkersMoment({}, np.zeros((0, len(ACTIVITIES)), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Workers:
    """Some workers' time while there was work, and what it says of all."""

    names: tuple[str, ...]
    nthreads: tuple[int, ...]
    #: Share by :data:`~dask_efficiency.cluster.ACTIVITIES`, shape (workers, activities); rows add up to 1,
    #: or to 0 where there was no work.
    shares: NDArray[np.float64]
    #: What is shown of how many, in words.
    title: str


def workers(present: Iterable[Presence], then: WorkersMoment = NOTHING, *, at_most: int = MAX_WORKERS) -> Workers:
    """The workers by name; of more than ``at_most``, those whose time was useful least.

    Parameters
    ----------
    present
        The workers that are there.
    then
        Their time counts from then on; that of a worker which joined later, from its joining.
    at_most
        Number of workers.
    """
    here = list(present)
    judged = _worked_and_useful(here, then)
    title = "Workers"
    if len(here) > at_most:
        shares = np.array([useful / worked if worked > 0 else math.nan for worked, useful in judged])
        title = f"The {at_most} of {len(here)} workers whose time was useful least"
        if not np.isnan(shares).all():
            low, median, high = (format_share(share) for share in np.nanquantile(shares, [0, 0.5, 1]).tolist())
            title += f" (of all, least {low}, median {median}, most {high})"
        chosen = np.argsort(shares, kind="stable")[:at_most].tolist()  # those without work come last
    else:
        chosen = sorted(range(len(here)), key=lambda i: _natural(here[i].name))
    return Workers(
        tuple(label(here[i].name) for i in chosen),
        tuple(here[i].nthreads for i in chosen),
        np.array([_shares(here[i], judged[i][0], then) for i in chosen]).reshape(-1, len(ACTIVITIES)),
        title,
    )


def _worked_and_useful(here: Iterable[Presence], then: WorkersMoment) -> list[tuple[int, int]]:
    """Nanoseconds while there was work, and the useful ones of them, of each worker."""
    whole, useful, without = (
        [*column.tolist(), 0]
        for column in (
            then.activity.sum(axis=1),
            then.activity[:, [ACTIVITIES.index(_CPU), ACTIVITIES.index(_GPU)]].sum(axis=1),
            then.activity[:, ACTIVITIES.index(_NO_WORK)],
        )
    )
    rows = then.rows
    found = []
    for presence in here:
        row = presence.activity
        i = rows.get((presence.address, presence.joined), -1)  # the last is of nobody
        worked = sum(row.values()) - row.get(_NO_WORK, 0) - (whole[i] - without[i])
        found.append((worked, row.get(_CPU, 0) + row.get(_GPU, 0) - useful[i]))
    return found


def _shares(presence: Presence, worked: int, then: WorkersMoment) -> list[float]:
    i = then.rows.get((presence.address, presence.joined))
    before = [0] * len(ACTIVITIES) if i is None else then.activity[i].tolist()
    return [
        (presence.activity.get(name, 0) - ns) / worked if worked > 0 and name != _NO_WORK else 0.0
        for name, ns in zip(ACTIVITIES, before, strict=True)
    ]


def label(name: str) -> str:
    """A user's name as a text that is short, visible, and nothing but text to a reader of formulas."""
    return _FORMULA.sub(_WORD_JOINER, shorten(harmless(shorten(name, 4 * NAME_LENGTH)), NAME_LENGTH))


def sentence(nanoseconds: Mapping[str, int], reasons: Mapping[str, str]) -> str:
    """What share of the time was useful and what the largest loss is, with a full stop.

    Parameters
    ----------
    nanoseconds
        By activity, as from :func:`gained`.
    reasons
        Worker name to the reason why its time is not measured.
    """
    recent = EfficiencyReport(
        name="recent",
        started=0.0,
        window_seconds=0.0,
        # Without a length there is no runtime to be said: a live view has no run.
        wall_seconds=0.0,
        by_worker={"": Breakdown(nanoseconds)},
        not_measured=reasons,
    )
    return f"{verdict(recent)}."


def span_of(seconds: float) -> str:
    """How far back a view looks, in words."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


def _natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts ``w2`` before ``w10``."""
    parts = re.split(r"([0-9]{1,18})", name[:200])
    return [(text, 0) if i % 2 == 0 else ("", int(text)) for i, text in enumerate(parts)]
