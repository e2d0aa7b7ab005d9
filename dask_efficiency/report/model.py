"""EfficiencyReport: the thread time of one window of a cluster's life, and what it means."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.accounts.buckets import GOOD, HELD, Breakdown, Bucket, combine
from dask_efficiency.accounts.causes import CAUSES, NAMES, fit, name_of, of_bucket
from dask_efficiency.accounts.cluster.scheduler_loop import SchedulerLoop
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.gpu.totals import GpuTotals
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.wire.wire import OTHER_CPU
from dask_efficiency.report.turnover import Arrival, LostWorker
from dask_efficiency.report.values import (
    Amount,
    BucketLoss,
    Culprit,
    GilHolder,
    HeldResult,
    LongHold,
    MeteredRow,
    ProfileRow,
    Repeat,
    Saved,
)
from dask_efficiency.runs.path.summary import PathSummary
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.shown import Printed, late

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.report.sections.predictions import Predicted
    from dask_efficiency.runs.path.path import CriticalPath
    from dask_efficiency.show.document import Document
    from dask_efficiency.show.finding import Finding

#: Names of the factors whose product is the efficiency, with the buckets that each takes away,
#: in the order in which they are taken (accounting after the POP methodology).
FACTORS: dict[str, tuple[Bucket, ...]] = {
    "supply": (Bucket.IDLE, Bucket.CONSTRAINED),
    "transfer": (Bucket.WAITING_ON_DATA,),
    "memory": (Bucket.PAUSED, Bucket.SPILL),
    "goodput": (
        Bucket.FAILED,
        Bucket.CANCELLED,
        Bucket.RECOMPUTED,
        Bucket.LOST_WORKER,
        Bucket.RETIRING,
    ),
    "in-task": (Bucket.THREAD_NONCPU, Bucket.OVERHEAD),
    "unknown": (Bucket.UNMEASURED,),
}

#: By so much of it, the mean number of threads may seem to be off while no worker comes or goes.
APART = 0.01


#: Client phases of a compute(), in the order in which they happen.
PHASES = ("optimize", "upload", "schedule", "run", "gather")


@dataclass(frozen=True, slots=True, repr=False)
class EfficiencyReport(Printed):
    """Where the threads of a cluster spent a window of time.

    All breakdowns are exact: the sum over the workers is their nthreads x elapsed time, in
    integer nanoseconds.

    Parameters
    ----------
    name
        What the window is called.
    started
        When it opened, seconds since the epoch by the client's clock.
    window_seconds
        From opening to closing.
    cluster_seconds
        The part of it in which the cluster had work outstanding and at least one worker (T).
    by_worker
        Worker name to its breakdown; every thread-second of the window is in here.
    by_prefix
        Task prefix to the time that its tasks held threads, and under ``lost-worker`` that of its tasks that ran on
        workers that were lost.
    by_span
        All time of the window by span. A span ("outer") has what the spans in it ("outer/inner") have, too, so those
        without a slash add up to ``by_worker``, bucket by bucket. Spans of other clients, and of work from before the
        window, are in "(other work)". The time of free slots is shared, at any instant, equally by the spans at the top
        that have work outstanding then; and what one of them has, by those in it that have, its own tasks counting as
        one more. "(no span)" has what is nobody's: ``no-work``, ``lost-worker``, ``unmeasured``, and what tasks did of
        which only heartbeats told. Empty in retrospect: heartbeats do not say which spans tasks were of.
    phases
        Seconds of the window in each of :data:`PHASES`, without overlap.
    tasks
        Number of tasks finalized in the window, by outcome; ``without account`` are those whose results came from
        workers that left or fell silent before they reported them.
    nthreads
        Threads of each worker.
    outside
        Seconds spent outside the thread slots, by activity: shown beside, never added.
    details
        Seconds within a bucket that are known more finely: shown beside, never added.
    not_measured
        Worker name to the reason why (part of) its time is ``unmeasured``.
    repeats
        Task prefix to how often its results were computed again because somebody asked for them again. That time
        counts as useful.
    notes
        What a reader must know to trust the numbers, a sentence each.
    price_per_worker_hour
        Any currency; None leaves money out.
    environment
        Versions and settings, name to value.
    timeline
        What the slots were doing through the window, by activity and not by outcome: sampled, so that it
        agrees with the breakdowns only nearly. None where nobody looked.
    code
        The code that ran, in pieces.
    computed_by
        Task prefix to the line of the user's own code that sent its tasks, with its source:
        ```df.x.mean().compute()` in etl.py:42``. Without the prefixes of which nobody knows.
    stragglers
        The workers that took longer than their peers for the same work, at some time in the window; the most certain
        first.
    gpu
        Worker name to what its tasks had of each GPU in the window, where anything asked for one; with
        ``meter`` ``"none"`` where it could not be watched, and why.
    no_workers_seconds
        The part of the window in which work was outstanding and there was no worker.
    cores
        How many processors the workers shared, in the mean over ``cluster_seconds``: those of their hosts that they may
        use, and no more than their containers' CPU limits. None where that is not known.
    others_share
        For which share of their time these processors computed for other processes than workers and scheduler, in
        [0, 1]. None where that is not known.
    worker_saturation
        The scheduler's ``distributed.scheduler.worker-saturation``; None where that is not known.
    held_results
        What only clients held while workers were short of memory, the largest first.
    arrivals
        The workers that came during the window.
    long_tail
        Tasks that took far longer than the others of their prefix, in the recorded run; the longest first.
    skew
        Task prefix to how its tasks that succeeded compare in time, and their results in size; no more prefixes than
        :data:`~dask_efficiency.accounts.skew.MAX_PREFIXES`, the rest together under
        :data:`~dask_efficiency.accounts.worker.balance.OTHER`. Empty in retrospect.
    path
        What the critical path of the recorded run says; None without ``trace=True``.
    attendance
        How many workers came and went in the window, and how many there were at a time, as of
        :func:`~dask_efficiency.accounts.cluster.attendance.attendance`; empty where nobody counted.
    lost_workers
        The workers that vanished in the window, and those with which results were lost that were computed again in it:
        why each went, and what that cost. Their ``ns`` are all of ``lost-worker`` where each was metered; their
        ``recomputed_ns`` all of ``recomputed``. Empty in retrospect.
    causes_by_worker, causes_by_prefix, causes_by_span
        Nanoseconds of the buckets of :data:`~dask_efficiency.accounts.causes.CAUSES` by cause, named as by
        :func:`~dask_efficiency.accounts.causes.name_of`: they add up to that bucket of ``by_worker``, ``by_prefix`` or
        ``by_span``. By prefix those of ``thread-noncpu`` only, by span those of ``idle``, too.
    profile
        The lines on which tasks computed and waited, sampled.
    gil_holders
        Who had the GIL while tasks waited for it, sampled.
    gil_holds, loop_blocks
        The longest times for which one thread kept all others of its worker from the GIL, or blocked its event loop;
        the longest first.
    moved
        Bytes and counts of results that were spilled, read back, found in memory, received or sent, and of messages of
        P2P shuffles, by :data:`~dask_efficiency.accounts.metered.WAYS`.
    metered
        What Dask's ``context_meter`` counted under users' labels and its own, beyond the seconds that are in the
        buckets, and in the background of P2P shuffles. Empty in retrospect.
    scheduler_loop
        What the scheduler's event loop spent the window on, by handler and plugin; None where that was not measured.
    waited_for
        Task prefix to nanoseconds of ``idle`` for lack of parallelism while its tasks were those that ran.
    not_sampled
        Worker name to the reason why nobody looked what its threads waited for.
    savings
        What cures save, by replays of the recorded run, as :func:`~dask_efficiency.simulation.saving.savings` has it:
        by kind of finding, and under :data:`ALL` by all of them.
    trace
        What happened in the window, task by task, where ``trace=True`` was given. It is not part of what
        is saved: it has a file of its own.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.report.sections.report"

    name: str
    started: float
    window_seconds: float
    cluster_seconds: float
    by_worker: Mapping[str, Breakdown]
    by_prefix: Mapping[str, Breakdown] = field(default_factory=dict)
    by_span: Mapping[str, Breakdown] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    nthreads: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, float] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    repeats: Mapping[str, Repeat] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    price_per_worker_hour: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    timeline: Timeline | None = None
    code: tuple[str, ...] = ()
    computed_by: Mapping[str, str] = field(default_factory=dict)
    stragglers: tuple[SlowWorker, ...] = ()
    gpu: Mapping[str, GpuTotals] = field(default_factory=dict)
    no_workers_seconds: float = 0.0
    cores: float | None = None
    others_share: float | None = None
    worker_saturation: float | None = None
    held_results: tuple[HeldResult, ...] = ()
    path: PathSummary | None = None
    arrivals: tuple[Arrival, ...] = ()
    long_tail: tuple[LongTask, ...] = ()
    skew: Mapping[str, Skew] = field(default_factory=dict)
    attendance: Mapping[str, int] = field(default_factory=dict)
    lost_workers: tuple[LostWorker, ...] = ()
    causes_by_worker: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    causes_by_prefix: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    causes_by_span: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    profile: tuple[ProfileRow, ...] = ()
    gil_holders: tuple[GilHolder, ...] = ()
    gil_holds: tuple[LongHold, ...] = ()
    loop_blocks: tuple[LongHold, ...] = ()
    moved: Mapping[str, Amount] = field(default_factory=dict)
    metered: tuple[MeteredRow, ...] = ()
    scheduler_loop: SchedulerLoop | None = None
    waited_for: Mapping[str, int] = field(default_factory=dict)
    not_sampled: Mapping[str, str] = field(default_factory=dict)
    savings: Mapping[str, Saved] = field(default_factory=dict)
    trace: RunTrace | None = field(default=None, compare=False)

    @property
    def breakdown(self) -> Breakdown:
        """The whole cluster's thread time by bucket."""
        return combine(self.by_worker.values())

    @property
    def causes(self) -> dict[str, float]:
        """Thread-seconds of the cluster by cause; names of :func:`~dask_efficiency.accounts.causes.name_of`."""
        rows = self.causes_by_worker.values()
        whole = {name: sum(row.get(name, 0) for row in rows) for name in NAMES}
        return {name: ns / 1e9 for name, ns in whole.items() if ns}

    def causes_ns(self, bucket: Bucket) -> dict[str, int]:
        """Nanoseconds of one bucket by bare cause, the largest first; they add up to it, or are empty.

        What is of workers of which nobody knows is among the ``unknown``.
        """
        rows = self.causes_by_worker.values()
        seen = {cause: sum(row.get(name_of(bucket, cause), 0) for row in rows) for cause in CAUSES.get(bucket, ())}
        if not any(seen.values()):
            return {}
        found = of_bucket(fit(seen, bucket, self.breakdown.ns(bucket)), bucket)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def causes_of(self, bucket: Bucket) -> dict[str, float]:
        """Thread-seconds of one bucket by bare cause, the largest first; they add up to it, or are empty."""
        return {cause: ns / 1e9 for cause, ns in self.causes_ns(bucket).items()}

    @property
    def waiting(self) -> dict[str, float]:
        """Thread-seconds of ``thread-noncpu`` by cause, the largest first; empty where nobody looked."""
        return self.causes_of(Bucket.THREAD_NONCPU)

    @property
    def idle_causes(self) -> dict[str, float]:
        """Thread-seconds of ``idle`` by cause, the largest first; empty where nobody looked."""
        return self.causes_of(Bucket.IDLE)

    @property
    def thread_seconds(self) -> float:
        """Thread-seconds while there was work and a worker (S): all buckets but ``no-work``."""
        whole = self.breakdown
        return (whole.total_ns - whole.ns(Bucket.NO_WORK)) / 1e9

    @property
    def useful_seconds(self) -> float:
        """Thread-seconds of good work (U): ``thread-cpu``, ``gpu`` and ``library-threads``."""
        return self.breakdown.ns(*GOOD) / 1e9

    @property
    def efficiency(self) -> float:
        """Useful share of the finalized thread time, in [0, 1]; NaN where there was no work."""
        whole = self.breakdown
        finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
        return whole.ns(*GOOD) / finalized if finalized else math.nan

    @property
    def occupancy(self) -> float:
        """Share of the thread time that tasks held, useful or not, in [0, 1]; NaN without work."""
        whole = self.breakdown
        there = whole.total_ns - whole.ns(Bucket.NO_WORK)
        return whole.ns(*HELD) / there if there else math.nan

    @property
    def mean_threads(self) -> float:
        """Threads there while there was work (N = S / T); 0.0 without work."""
        return self.thread_seconds / self.cluster_seconds if self.cluster_seconds else 0.0

    @property
    def threads(self) -> float:
        """The same as it is said: the whole number that it is next to, for workers' windows begin and end apart."""
        mean = self.mean_threads
        whole = round(mean) if math.isfinite(mean) else 0
        return whole if whole and abs(mean - whole) <= APART * whole else mean

    @property
    def client_seconds(self) -> float:
        """The part of the window without outstanding work: the client's own time."""
        return max(0.0, self.window_seconds - self.cluster_seconds - self.no_workers_seconds)

    @property
    def wall_clock_seconds(self) -> float:
        """How long the window was: work on the cluster, time without any worker, and the client's own time."""
        return self.cluster_seconds + self.no_workers_seconds + self.client_seconds

    @property
    def ideal_bounds(self) -> dict[str, float]:
        """Seconds that the useful work takes at least, by what sets the bound; empty without work.

        Returns
        -------
        dict
            ``"slots"``: useful thread-seconds divided by the mean number of threads (U / N). ``"cores"``: CPU seconds
            of tasks and of the threads that libraries started, also while a task computed itself, divided by the
            processors that the workers share, where that is known. ``"chain"``: useful seconds on the longest chain of
            tasks that need one another, where a trace was recorded.
        """
        if not self.mean_threads:
            return {}
        bounds = {"slots": self.useful_seconds / self.mean_threads}
        if self.cores is not None and 0 < self.cores < math.inf:
            # The bucket holds at most what tasks waited for libraries; their threads also compute beside them.
            libraries = max(self.breakdown[Bucket.LIBRARY_THREADS], self.outside.get(OTHER_CPU, 0.0))
            bounds["cores"] = (self.breakdown[Bucket.THREAD_CPU] + libraries) / self.cores
        if self.path is not None and self.path.chain_seconds >= 0:  # NaN in a file is no bound
            bounds["chain"] = self.path.chain_seconds
        return bounds

    @property
    def ideal_seconds(self) -> float:
        """Runtime with no time lost (T*): the largest of :attr:`ideal_bounds`; 0.0 without work.

        Never more than ``cluster_seconds``: where clocks say otherwise, the run itself was as fast as can be.

        References
        ----------
        The "perfect runtime" of dask/distributed issue 7565, which knows the bound by slots only.
        """
        return min(max(self.ideal_bounds.values(), default=0.0), self.cluster_seconds)

    @property
    def headroom(self) -> float:
        """How many times shorter the run could be (T / T*); NaN where nothing was useful."""
        return self.cluster_seconds / self.ideal_seconds if self.ideal_seconds else math.nan

    @property
    def load_balance(self) -> float:
        """Mean over maximum of the workers' held time, in (0, 1]; NaN where no task ran."""
        held = [breakdown.ns(*HELD) for breakdown in self.by_worker.values()]
        return sum(held) / len(held) / max(held) if any(held) else math.nan

    @property
    def factors(self) -> dict[str, float]:
        """Factors of the efficiency, each in [0, 1]; their product is :attr:`efficiency`.

        References
        ----------
        POP Centre of Excellence, multiplicative performance metrics; 0.8 and above is good there.
        We differ: the causes are Dask's, and load balance is reported apart.
        """
        whole = self.breakdown
        left = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
        # once nothing is left, no cause can take more: the product stays the efficiency
        neutral = 1.0 if left else math.nan
        factors = {}
        for name, buckets in FACTORS.items():
            after = left - whole.ns(*buckets)
            factors[name] = after / left if left else neutral
            left = after
        return factors

    @property
    def losses(self) -> tuple[BucketLoss, ...]:
        """Lost time by cause, largest first. With the useful time they add up to S - running."""
        whole = self.breakdown
        finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
        threads = self.mean_threads
        found = [
            BucketLoss(
                bucket=Bucket(bucket),
                thread_seconds=whole[bucket],
                wall_seconds=whole[bucket] / threads if threads else 0.0,
                share=whole.ns(bucket) / finalized,
                money=self.money(whole[bucket]),
            )
            for bucket in whole
            if bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)
        ]
        return tuple(sorted(found, key=lambda loss: -loss.thread_seconds))

    def money(self, thread_seconds: float) -> float | None:
        """Price of thread time: a worker's price shared equally by its threads."""
        threads = sum(self.nthreads.values())
        if self.price_per_worker_hour is None or not threads:
            return None
        return thread_seconds / 3600 * self.price_per_worker_hour * len(self.nthreads) / threads

    def critical_path(self, **scope: Any) -> CriticalPath:
        """What every second of the wall clock was spent on, from the recorded :attr:`trace`.

        Parameters
        ----------
        **scope
            ``target``, ``span`` or ``window``, as of :func:`~dask_efficiency.critical_path`.

        Raises
        ------
        ValueError
            If the report has no trace.
        """
        if self.trace is None:
            raise ValueError(
                f"the report {self.name!r:.80} has no trace; expected one of efficiency_report(trace=True)"
            )
        from dask_efficiency.runs.path.path import critical_path

        return critical_path(self.trace, **scope)

    @property
    def headline(self) -> str:
        """How long it took, and how much of that can be saved, in at most 100 characters."""
        return str(late("dask_efficiency.report.findings:headline")(self))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What costs time, where, what fixing each saves, and how; what saves most comes first."""
        found: tuple[Finding, ...] = late("dask_efficiency.report.findings:find")(self)
        return found

    @property
    def first_screen(self) -> Document:
        """What is said of it first; what a renderer takes."""
        found: Document = self._from_sections("first_screen")
        return found

    def __repr__(self) -> str:
        return f"<EfficiencyReport {self.name!r:.80}: {self.headline}>"

    def _repr_html_(self) -> str:
        from dask_efficiency.show.html.render import fragment

        return fragment(self._from_sections("notebook"))

    def show(self, *titles: str) -> None:
        """Print everything that the report says, or the sections of these titles.

        Raises
        ------
        ValueError
            If there is no such section; names those that there are.
        """
        from dask_efficiency.show.terminal.coloured import show

        show(late(f"{self._sections_module}:chosen")(self, titles))

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """The lines of code on which most time was lost, and why; the most costly first."""
        found: tuple[Culprit, ...] = late("dask_efficiency.report.culprits:find_culprits")(self)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, exact: what :meth:`save` writes."""
        found: dict[str, Any] = late("dask_efficiency.report.files:to_dict")(self)
        return found

    def to_frame(self, by: str = "worker") -> pd.DataFrame:
        """Thread-seconds as a table: a row for each worker, prefix, span, bucket, cause or line of code.

        Parameters
        ----------
        by
            ``"worker"``, ``"prefix"`` or ``"span"``: one column a bucket, and ``total``. Spans have the time of the
            spans in them, too: those without a slash add up.
            ``"bucket"``: columns ``thread_seconds`` and ``share`` (of all thread time, [0, 1]).
            ``"cause"``: columns ``bucket``, ``cause`` (empty where a bucket has none), ``thread_seconds``, ``share``
            and ``share_of_bucket``. ``"line"``: columns ``bucket``, ``cause``, ``prefix``, ``function`` (what the line
            called), ``file``, ``line`` and ``thread_seconds``, the most costly first; file and line are missing where
            no sample was taken. ``"skew"``: a row for each prefix, the fields of
            :class:`~dask_efficiency.accounts.skew.Skew`. ``"finding"``: a row for each of :attr:`findings`.
            ``"lost-worker"``: a row for each of ``lost_workers``, with columns ``reason``, ``in_order``,
            ``lost_seconds``, ``running_seconds`` (of its running tasks), ``recomputed_seconds`` and
            ``recomputed_tasks``.
            ``"scheduler"``: a row for each handler, callback and hook that took most of the scheduler's event loop,
            the most costly first; hooks are part of handlers.

        Raises
        ------
        ValueError
            If ``by`` is something else.
        """
        frame: pd.DataFrame = late("dask_efficiency.report.frames:to_frame")(self, by)
        return frame

    def to_speedscope(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the sampled stacks for speedscope.app, one profile for each bucket and cause.

        Parameters
        ----------
        path
            A local path or any fsspec URL.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Raises
        ------
        NoStacksError
            If no stack was sampled.
        """
        late("dask_efficiency.report.stack_files:save_speedscope")(self, path, **storage_options)

    def to_collapsed(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the sampled stacks with their nanoseconds, a line each: collapsed stacks, as flamegraph.pl reads them.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A name in ``.gz`` is compressed.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Raises
        ------
        NoStacksError
            If no stack was sampled.
        """
        late("dask_efficiency.report.stack_files:save_collapsed")(self, path, **storage_options)

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the report as JSON, to a local path or any fsspec URL."""
        late("dask_efficiency.report.files:save")(self, path, **storage_options)

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        predictions: Sequence[Predicted] = (),
        **storage_options: Any,
    ) -> None:
        """Write the report as one HTML file that works offline, to a local path or any fsspec URL.

        Parameters
        ----------
        path
            A local path or any fsspec URL.
        predictions
            What :func:`~dask_efficiency.simulate` and :func:`~dask_efficiency.sweep` made of the report's trace, to be
            shown behind the critical path.
        **storage_options
            For the file system, as in :func:`fsspec.open`.
        """
        from dask_efficiency.report.sections.predictions import with_predictions
        from dask_efficiency.show.html.render import save_page

        save_page(with_predictions(self._from_sections("page"), predictions), path, **storage_options)
