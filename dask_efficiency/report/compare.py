"""Comparison of runs before and after a change."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from dask_efficiency.accounts.buckets import CAUSES, GOOD, HELD, Breakdown, Bucket, cause_name
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.report.difference import Difference, finite_or_nan
from dask_efficiency.report.files import load_report
from dask_efficiency.report.gpu import summary
from dask_efficiency.report.head import cluster_peak, worker_peak
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import FACTORS
from dask_efficiency.show.shown import Shown, late

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.show.finding import Finding

_NOT_LOST = (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)
_LOST_WHILE_HELD = tuple(bucket for bucket in HELD if bucket not in _NOT_LOST)


@dataclass(frozen=True, slots=True)
class CauseChange:
    """Nanoseconds of thread time lost to one bucket, or one cause within it, before and after."""

    bucket: Bucket
    time: Difference[int]
    #: Empty for free threads, or if unknown.
    by_prefix: Mapping[str, Difference[int]]
    #: As in :data:`~dask_efficiency.accounts.buckets.CAUSES`; empty for a whole bucket.
    cause: str = ""
    #: Causes, the largest change first; empty unless all runs know them. With one run per side they add up to ``time``.
    parts: tuple[CauseChange, ...] = ()

    @property
    def name(self) -> str:
        """Bucket, and the cause if there is one: ``"thread-noncpu/gil"``."""
        return cause_name(self.bucket, self.cause)


@dataclass(frozen=True, slots=True)
class PrefixChange:
    """Thread time that tasks of one prefix held, before and after, in nanoseconds."""

    useful: Difference[int]
    lost: Difference[int]
    #: True if no run before, or none after, has tasks of this prefix.
    is_new: bool
    is_gone: bool


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Runs before a change and runs after it; with several per side, medians are compared.

    Parameters
    ----------
    before, after
        Reports; at least one per side.
    names_before, names_after
        Names of the runs.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.report.sections.comparison"

    before: tuple[EfficiencyReport, ...]
    after: tuple[EfficiencyReport, ...]
    names_before: tuple[str, ...]
    names_after: tuple[str, ...]

    @property
    def sides(self) -> dict[str, tuple[EfficiencyReport, ...]]:
        """Runs by side, ``before`` and ``after``."""
        return {"before": self.before, "after": self.after}

    @property
    def runs(self) -> tuple[EfficiencyReport, ...]:
        """Runs of both sides."""
        return *self.before, *self.after

    @property
    def wall_clock_seconds(self) -> Difference[float]:
        """Runtime of each run, including the client's own time and time without workers; NaN if unknown."""
        return self._numbers(lambda run: run.wall_clock_seconds if run.cluster_seconds else math.nan)

    @property
    def no_workers_seconds(self) -> Difference[float]:
        """Seconds with work outstanding and without any worker; NaN if no run of a side knows."""
        return self._numbers(lambda run: run.no_workers_seconds if run.cluster_seconds else math.nan)

    @property
    def client_seconds(self) -> Difference[float]:
        """Seconds without outstanding work: the client's own time; NaN if no run of a side knows."""
        return self._numbers(lambda run: run.client_seconds if run.cluster_seconds else math.nan)

    @property
    def cluster_seconds(self) -> Difference[float]:
        """Seconds with work outstanding and a worker; NaN if no run of a side knows."""
        return self._numbers(lambda run: run.cluster_seconds or math.nan)

    @property
    def ideal_seconds(self) -> Difference[float]:
        """Runtime if every thread-second were useful; NaN if no run of a side knows."""
        return self._numbers(lambda run: run.ideal_seconds or math.nan)

    @property
    def efficiency(self) -> Difference[float]:
        """Useful share of the finalized thread time, in [0, 1]; NaN without work."""
        return self._numbers(lambda run: run.efficiency)

    @property
    def load_balance(self) -> Difference[float]:
        """Mean over maximum of the workers' held time, in (0, 1]; NaN if no task ran."""
        return self._numbers(lambda run: run.load_balance)

    @property
    def factors(self) -> dict[str, Difference[float]]:
        """Factors of the efficiency, each in [0, 1]; medians of factors do not multiply to the median."""
        sides = [[run.factors for run in runs] for runs in self.sides.values()]
        return {name: Difference(*(finite_or_nan(row[name] for row in rows) for rows in sides)) for name in FACTORS}

    @property
    def gpu(self) -> dict[str, Difference[float]]:
        """Shares of the GPUs' time by activity, each in [0, 1]; empty unless both sides have them."""
        shares = [
            [found.shares_of_time for run in runs if (found := summary(run.gpu)) is not None and found.elapsed]
            for runs in self.sides.values()
        ]
        if not all(shares):
            return {}
        return {name: Difference(*(tuple(row[name] for row in rows) for rows in shares)) for name in GPU_ACTIVITIES}

    @property
    def workers(self) -> Difference[int]:
        """Number of workers present at any time."""
        return self._whole(lambda run: run.attendance.get("workers", len(run.by_worker)))

    @property
    def threads(self) -> Difference[int]:
        """Threads of all workers."""
        return self._whole(lambda run: sum(run.nthreads.values()))

    @cached_property
    def tasks(self) -> dict[str, Difference[int]]:
        """Tasks that ended, by outcome."""
        return self._by_name(lambda run: run.tasks)

    @cached_property
    def moved(self) -> dict[str, Difference[int]]:
        """Bytes by way of transfer, as in :attr:`EfficiencyReport.moved`."""
        return self._by_name(lambda run: {way: amount.nbytes for way, amount in run.moved.items()})

    @property
    def peaks(self) -> dict[str, Difference[float]]:
        """Most process memory in bytes, of a ``worker`` and of all at a time, the ``cluster``; NaN if unknown."""
        return {"worker": self._numbers(worker_peak), "cluster": self._numbers(cluster_peak)}

    @cached_property
    def at_peak(self) -> dict[str, Difference[int]]:
        """Bytes in the worker with the highest peak, then: results in memory by prefix, and all else as ``""``."""
        return self._by_name(_at_peak)

    @property
    def byte_seconds(self) -> dict[str, Difference[float]]:
        """Bytes of results times the seconds for which they were in ``memory``, and on ``disk``; NaN if unknown."""
        return {name: self._numbers(partial(_byte_seconds, i)) for i, name in enumerate(("memory", "disk"))}

    @property
    def useful(self) -> Difference[int]:
        """Useful nanoseconds: ``thread-cpu``, ``gpu`` and ``library-threads``."""
        return self._of_buckets(*GOOD)

    @property
    def lost(self) -> Difference[int]:
        """Lost nanoseconds: all but useful, ``no-work`` and ``running``."""
        return self._of_buckets(*(bucket for bucket in Bucket if bucket not in _NOT_LOST))

    @property
    def running(self) -> Difference[int]:
        """Nanoseconds of tasks that had not ended."""
        return self._of_buckets(Bucket.RUNNING)

    @property
    def breakdowns(self) -> tuple[Breakdown, Breakdown]:
        """Medians of each bucket, before and after."""
        times = {bucket: self._of_buckets(bucket) for bucket in Bucket}
        before = Breakdown({bucket: time.before for bucket, time in times.items()})
        return before, Breakdown({bucket: time.after for bucket, time in times.items()})

    @cached_property
    def causes(self) -> tuple[CauseChange, ...]:
        """Lost time by bucket, the largest change first.

        The changes add up to that of :attr:`lost`; with several runs per side, together with :attr:`not_by_cause`.
        """
        lost = [bucket for bucket in Bucket if bucket not in _NOT_LOST]
        found = [self._change(bucket) for bucket in lost if any(bucket in run.breakdown for run in self.runs)]
        return tuple(sorted(found, key=_by_change))

    def _change(self, bucket: Bucket) -> CauseChange:
        by_prefix = _occurring(self._held_by_prefix(bucket)) if bucket in HELD else {}
        return CauseChange(bucket, self._of_buckets(bucket), by_prefix, parts=self._parts(bucket))

    def _parts(self, bucket: Bucket) -> tuple[CauseChange, ...]:
        if any(run.breakdown.ns(bucket) and not run.causes_ns(bucket) for run in self.runs):
            return ()
        times = _occurring(self._by_name(lambda run: run.causes_ns(bucket)))
        known = [cause for cause in CAUSES.get(bucket, ()) if cause in times]
        found = [CauseChange(bucket, times[cause], self._prefixes_of(bucket, cause), cause) for cause in known]
        return tuple(sorted(found, key=_by_change))

    def _prefixes_of(self, bucket: Bucket, cause: str) -> dict[str, Difference[int]]:
        name = cause_name(bucket, cause)
        rows = self._by_name(lambda run: {prefix: row.get(name, 0) for prefix, row in run.causes_by_prefix.items()})
        return _occurring(rows)

    @property
    def not_by_cause(self) -> tuple[int, int]:
        """Lost nanoseconds before and after, less the sum of the causes: medians of parts need not add up.

        Both are 0 with one run per side; either may be negative.
        """
        times = [cause.time for cause in self.causes]
        lost = self.lost
        return lost.before - sum(time.before for time in times), lost.after - sum(time.after for time in times)

    @cached_property
    def by_prefix(self) -> dict[str, PrefixChange]:
        """Useful and lost time by task prefix."""
        was, now = (
            {name for run in runs for name in run.by_prefix if run.by_prefix[name]} for runs in self.sides.values()
        )
        useful, lost = self._held_by_prefix(*GOOD), self._held_by_prefix(*_LOST_WHILE_HELD)
        return {
            name: PrefixChange(useful[name], lost[name], is_new=name not in was, is_gone=name not in now)
            for name in useful
            if name in was or name in now
        }

    @property
    def price_per_thread_hour(self) -> tuple[float, float] | None:
        """Price before and after, in any currency; None unless every run has one."""
        prices = [[run.money(3600.0) for run in runs] for runs in self.sides.values()]
        if None in (*prices[0], *prices[1]):
            return None
        before, after = (statistics.median(price for price in side if price is not None) for side in prices)
        return before, after

    @property
    def cost(self) -> Difference[float]:
        """Price of all thread time, in any currency; NaN unless every run has one."""
        if self.price_per_thread_hour is None:
            return Difference((math.nan,), (math.nan,))
        return self._numbers(lambda run: run.money(run.thread_seconds) or 0.0)

    @property
    def environment(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Versions and settings that differ between runs: values before and after."""

        def values(name: str, runs: Iterable[EfficiencyReport]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(run.environment.get(name, "") for run in runs))

        names = dict.fromkeys(name for run in self.runs for name in run.environment)
        sides = {name: (values(name, self.before), values(name, self.after)) for name in names}
        return {name: found for name, found in sides.items() if found[0] != found[1] or len(found[0]) > 1}

    @property
    def is_same(self) -> bool:
        """True if every figure is equal on both sides."""
        wall: list[Difference[Any]] = [self.wall_clock_seconds, self.cluster_seconds]
        times = [self.useful, self.lost, self.running, *(cause.time for cause in self.causes)]
        times += [time for change in self.by_prefix.values() for time in (change.useful, change.lost)]
        return not any(figure.change and not math.isnan(figure.change) for figure in (*wall, *times))

    def loses_more(self, than: float | Fraction) -> bool:
        """Compare the rise of lost time with the allowed one: 0.05 allows 5 %; from 0, any rise is more.

        A rise within the spread of the runs is none: runs without any change differ as much.
        """
        return self.lost.after > self.lost.before * (1 + Fraction(than)) and not self.lost.within_spread

    def peaks_higher(self, than: float | Fraction) -> bool:
        """Compare the rise of the largest peak of a worker's memory with the allowed one, as :meth:`loses_more`."""
        peak = self.peaks["worker"]
        return peak.after > peak.before * (1 + Fraction(than)) and not peak.within_spread

    @property
    def findings(self) -> tuple[Finding, ...]:
        """New, grown, reduced and gone losses; the largest change of the wall clock first."""
        found: tuple[Finding, ...] = late("dask_efficiency.report.comparison_findings:find")(self)
        return found

    @property
    def caveats(self) -> tuple[str, ...]:
        """Reasons why the sides may not be comparable, a sentence each."""
        found: tuple[str, ...] = late("dask_efficiency.report.comparison_findings:caveats")(self)
        return found

    def to_frame(self, by: str = "cause") -> pd.DataFrame:
        """Thread-seconds as a table.

        Parameters
        ----------
        by
            ``"cause"``: a row for each cause of loss, ``useful`` and ``running``; columns
            ``before``, ``after``, ``change``. ``"prefix"``: a row for each task prefix; the same
            columns after ``useful_`` and ``lost_``. ``"finding"``: a row for each of :attr:`findings`.
        """
        frame: pd.DataFrame = late("dask_efficiency.report.comparison_data:to_frame")(self, by)
        return frame

    def _repr_html_(self) -> str:
        from dask_efficiency.show.html.render import fragment

        return fragment(self._from_sections("page"))

    def _numbers(self, number_of: Callable[[EfficiencyReport], float]) -> Difference[float]:
        return Difference(*(finite_or_nan(map(number_of, runs)) for runs in self.sides.values()))

    def _whole(self, number_of: Callable[[EfficiencyReport], int]) -> Difference[int]:
        return Difference(*(tuple(map(number_of, runs)) for runs in self.sides.values()))

    def _of_buckets(self, *buckets: Bucket) -> Difference[int]:
        return self._whole(lambda run: run.breakdown.ns(*buckets))

    def _held_by_prefix(self, *buckets: Bucket) -> dict[str, Difference[int]]:
        return self._by_name(lambda run: {name: row.ns(*buckets) for name, row in run.by_prefix.items()})

    def _by_name(self, numbers_of: Callable[[EfficiencyReport], Mapping[str, int]]) -> dict[str, Difference[int]]:
        """Numbers by every name that a run has; 0 in runs without it."""
        sides = [[numbers_of(run) for run in runs] for runs in self.sides.values()]
        names = dict.fromkeys(name for rows in sides for row in rows for name in row)
        return {name: Difference(*(tuple(row.get(name, 0) for row in rows) for rows in sides)) for name in names}


def _at_peak(run: EfficiencyReport) -> dict[str, int]:
    top = next((one for one in run.memory.values() if one.peak), None)
    if top is None:
        return {}
    return {"": max(0, top.unmanaged_at_peak), **{prefix: held for prefix, (held, _) in top.at_peak.items()}}


def _byte_seconds(place: int, run: EfficiencyReport) -> float:
    return math.fsum(row[place] for row in run.byte_seconds.values()) if run.memory else math.nan


#: A report, or its path or fsspec URL.
ReportOrPath: TypeAlias = EfficiencyReport | str | os.PathLike[str]


def compare(
    before: ReportOrPath | Sequence[ReportOrPath], after: ReportOrPath | Sequence[ReportOrPath], **storage_options: Any
) -> Comparison:
    """Compare runs before a change with runs after it.

    Parameters
    ----------
    before, after
        A report, the path or fsspec URL of a saved one, or several of them. Of several, medians are compared, and each
        change with the spread of the runs on one side.
    **storage_options
        For the file systems of the paths, as in :func:`fsspec.open`.

    Raises
    ------
    ReportFileError
        If a file is no report.
    FileNotFoundError
        If a file does not exist.
    ValueError
        If a side is empty.
    TypeError
        If a side holds something else.

    Examples
    --------
    >>> compare("main.json", "branch.json")  # doctest: +SKIP
    >>> compare(["main1.json", "main2.json"], [report1, report2]).headline  # doctest: +SKIP
    """
    (names_before, reports_before), (names_after, reports_after) = (
        zip(*_read(side, given, storage_options), strict=True) for side, given in (("before", before), ("after", after))
    )
    return Comparison(reports_before, reports_after, names_before, names_after)


def _read(
    side: str, given: ReportOrPath | Sequence[ReportOrPath], storage_options: Mapping[str, Any]
) -> list[tuple[str, EfficiencyReport]]:
    runs = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not runs:
        raise ValueError(f"{side} is {given!r}; expected one run at least")
    read = []
    for run in runs:
        if isinstance(run, EfficiencyReport):
            read.append((run.name, run))
        elif isinstance(run, str | os.PathLike):
            read.append((os.fspath(run), load_report(run, **storage_options)))
        else:
            raise TypeError(f"{side} holds {run!r:.80}; expected an EfficiencyReport or the path of one")
    return read


def _occurring(times: Mapping[str, Difference[int]]) -> dict[str, Difference[int]]:
    return {name: time for name, time in times.items() if time.occurs}


def _by_change(part: CauseChange) -> tuple[int, int]:
    return -abs(part.time.change), -part.time.after
