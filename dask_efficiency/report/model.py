"""EfficiencyReport: the thread time of one window of a cluster's life, and its interpretation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.accounts.buckets import (
    CAUSE_NAMES,
    CAUSES,
    GOOD,
    HELD,
    Breakdown,
    Bucket,
    cause_name,
    causes_of,
    combine,
    fit_causes,
)
from dask_efficiency.accounts.cluster.scheduler_loop import SchedulerLoop
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.wire.snapshots import OTHER_CPU
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
    factors_of,
    losses_of,
)
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.shown import Printed, late

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.path.path import CriticalPath
    from dask_efficiency.show.document import Document, HasSection
    from dask_efficiency.show.finding import Finding

#: Relative deviation of the mean number of threads from a whole number that is rounded away. A guess.
APART = 0.01


@dataclass(frozen=True, slots=True, repr=False)
class EfficiencyReport(Printed):
    """Thread time of a cluster in a window, exact: workers' breakdowns add up to nthreads x elapsed nanoseconds.

    Parameters
    ----------
    name
        Name of the window.
    started, window_seconds
        Start of the window, seconds since the epoch by the client's clock; and its length.
    cluster_seconds
        Part of the window with work outstanding and at least one worker (T).
    by_worker
        Breakdown of each worker; holds every thread-second of the window.
    by_prefix
        Time held by tasks of each prefix; under ``lost-worker``, that of tasks on lost workers.
    by_span
        All time by span. A span ("outer") includes its inner ones ("outer/inner"), so top-level spans add up to
        ``by_worker``. "(other work)" has other clients' spans and work from before the window; "(no span)" ``no-work``,
        ``lost-worker``, ``unmeasured``, and tasks known from heartbeats only. Free slots are shared equally, at any
        instant, by the spans of a level with work, a span's own tasks counting as one more. Empty in retrospect.
    phases
        Seconds in each of :data:`~dask_efficiency.report.values.PHASES`, without overlap.
    tasks
        Tasks finalized in the window, by outcome; ``without account`` are results of workers that left or fell silent
        before they reported them.
    nthreads
        Threads of each worker.
    outside, details
        Seconds by activity outside the thread slots, and within buckets in more detail; in no sum.
    not_measured
        Worker name to the reason why (part of) its time is ``unmeasured``.
    repeats
        Results of each prefix that were computed again on request. That time counts as useful.
    notes
        Caveats of the figures, a sentence each.
    price_per_worker_hour
        Any currency; None leaves money out.
    environment
        Versions and settings by name.
    timeline
        Slots by activity (not outcome), sampled: it agrees with the breakdowns roughly. None if not recorded.
    code
        The code that ran, in pieces.
    computed_by
        Line of the user's own code that sent each prefix's tasks, with its source: ```df.x.mean().compute()` in
        etl.py:42``. Unknown prefixes are left out.
    stragglers
        Workers slower than their peers at any time in the window, the most certain first.
    gpu
        GPU time of each worker that asked for one, or the reason why it could not be watched.
    no_workers_seconds
        Part of the window with work outstanding and without any worker.
    cores
        Mean number of processors that the workers may use over ``cluster_seconds``. None if unknown.
    others_share
        Share of their time used by processes other than workers and scheduler, 0 to 1. None if unknown.
    worker_saturation
        The scheduler's ``distributed.scheduler.worker-saturation``; None if unknown.
    held_results
        Results that only clients held while workers were short of memory, the largest first.
    arrivals
        Workers that joined during the window.
    long_tail
        Tasks of the recorded run that took far longer than others of their prefix, the longest first.
    skew
        Spread of times and result sizes of each prefix's successful tasks; prefixes beyond
        :data:`~dask_efficiency.accounts.skew.MAX_PREFIXES` are together under
        :data:`~dask_efficiency.accounts.rows.OTHER`. Empty in retrospect.
    path
        Summary of the recorded run's critical path; None without ``trace=True``.
    attendance
        Counts as of :func:`~dask_efficiency.accounts.cluster.presence.attendance`; empty if not counted.
    lost_workers
        Workers lost in the window, or whose results were recomputed in it. Their ``ns`` add up to ``lost-worker`` if
        all were metered, their ``recomputed_ns`` to ``recomputed``. Empty in retrospect.
    causes_by_worker, causes_by_prefix, causes_by_span
        Nanoseconds of the buckets of :data:`~dask_efficiency.accounts.buckets.CAUSES` by cause, with names of
        :func:`~dask_efficiency.accounts.buckets.cause_name`; they add up to the bucket in ``by_worker``, ``by_prefix``
        or ``by_span``. By prefix only ``thread-noncpu``, by span also ``idle``.
    profile, gil_holders
        Sampled lines on which tasks computed and waited, and holders of the GIL while tasks waited for it.
    gil_holds, loop_blocks
        Longest times for which one thread kept others from the GIL, or blocked an event loop.
    moved
        Bytes and counts of results and shuffles' messages, by :data:`~dask_efficiency.accounts.metered.WAYS`.
    metered
        Counts of Dask's ``context_meter`` by label, beyond seconds that are in buckets. Empty in retrospect.
    scheduler_loop
        Time of the scheduler's event loop by handler and plugin; None if not measured.
    waited_for
        Nanoseconds of ``idle`` for lack of parallelism, by prefix of the tasks that ran meanwhile.
    not_sampled
        Worker name to the reason why its threads were not sampled.
    savings
        Savings by replay (:func:`~dask_efficiency.simulation.saving.savings`), by kind of finding and for :data:`ALL`.
    trace
        Record of the window, task by task, with ``trace=True``. Saved in a file of its own, not with the report.
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
        """Thread time of the whole cluster by bucket."""
        return combine(self.by_worker.values())

    @property
    def causes(self) -> dict[str, float]:
        """Thread-seconds of the cluster by cause; names of :func:`~dask_efficiency.accounts.buckets.cause_name`."""
        whole = {name: sum(row.get(name, 0) for row in self.causes_by_worker.values()) for name in CAUSE_NAMES}
        return {name: ns / 1e9 for name, ns in whole.items() if ns}

    def causes_ns(self, bucket: Bucket) -> dict[str, int]:
        """Nanoseconds of one bucket by bare cause, the largest first; they add up to it, or are empty.

        Time of workers that were not sampled is ``unknown``.
        """
        rows = self.causes_by_worker.values()
        seen = {cause: sum(row.get(cause_name(bucket, cause), 0) for row in rows) for cause in CAUSES.get(bucket, ())}
        if not any(seen.values()):
            return {}
        found = causes_of(fit_causes(seen, bucket, self.breakdown.ns(bucket)), bucket)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def causes_of(self, bucket: Bucket) -> dict[str, float]:
        """Thread-seconds of one bucket by bare cause, the largest first; they add up to it, or are empty."""
        return {cause: ns / 1e9 for cause, ns in self.causes_ns(bucket).items()}

    @property
    def waiting(self) -> dict[str, float]:
        """Thread-seconds of ``thread-noncpu`` by cause, the largest first; empty without samples."""
        return self.causes_of(Bucket.THREAD_NONCPU)

    @property
    def idle_causes(self) -> dict[str, float]:
        """Thread-seconds of ``idle`` by cause, the largest first; empty if unknown."""
        return self.causes_of(Bucket.IDLE)

    @property
    def thread_seconds(self) -> float:
        """Thread-seconds while there was work and a worker (S): all buckets but ``no-work``."""
        whole = self.breakdown
        return (whole.total_ns - whole.ns(Bucket.NO_WORK)) / 1e9

    @property
    def useful_seconds(self) -> float:
        """Useful thread-seconds (U): ``thread-cpu``, ``gpu`` and ``library-threads``."""
        return self.breakdown.ns(*GOOD) / 1e9

    @property
    def efficiency(self) -> float:
        """Useful share of the finalized thread time, in [0, 1]; NaN without work."""
        whole = self.breakdown
        finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
        return whole.ns(*GOOD) / finalized if finalized else math.nan

    @property
    def occupancy(self) -> float:
        """Share of the thread time that tasks held, in [0, 1]; NaN without work."""
        whole = self.breakdown
        there = whole.total_ns - whole.ns(Bucket.NO_WORK)
        return whole.ns(*HELD) / there if there else math.nan

    @property
    def mean_threads(self) -> float:
        """Mean number of threads while there was work (N = S / T); 0.0 without work."""
        return self.thread_seconds / self.cluster_seconds if self.cluster_seconds else 0.0

    @property
    def threads(self) -> float:
        """:attr:`mean_threads` for display, rounded to a nearby whole number: workers' windows do not quite align."""
        mean = self.mean_threads
        whole = round(mean) if math.isfinite(mean) else 0
        return whole if whole and abs(mean - whole) <= APART * whole else mean

    @property
    def client_seconds(self) -> float:
        """Seconds of the window without outstanding work: the client's own time."""
        return max(0.0, self.window_seconds - self.cluster_seconds - self.no_workers_seconds)

    @property
    def wall_clock_seconds(self) -> float:
        """Length of the window: work on the cluster, time without workers, and the client's own time."""
        return self.cluster_seconds + self.no_workers_seconds + self.client_seconds

    @property
    def ideal_bounds(self) -> dict[str, float]:
        """Lower bounds of the runtime in seconds, by kind of bound; empty without work.

        Returns
        -------
        dict
            ``"slots"``: useful thread-seconds over the mean number of threads (U / N). ``"cores"``: CPU seconds of
            tasks and of the threads that libraries started, over the processors that the workers share, if known.
            ``"chain"``: useful seconds on the longest chain of dependent tasks, with a trace.
        """
        if not self.mean_threads:
            return {}
        bounds = {"slots": self.useful_seconds / self.mean_threads}
        if self.cores is not None and 0 < self.cores < math.inf:
            # The bucket holds only what tasks waited for; libraries' threads also compute while tasks do.
            libraries = max(self.breakdown[Bucket.LIBRARY_THREADS], self.outside.get(OTHER_CPU, 0.0))
            bounds["cores"] = (self.breakdown[Bucket.THREAD_CPU] + libraries) / self.cores
        if self.path is not None and self.path.chain_seconds >= 0:  # NaN in a file is no bound
            bounds["chain"] = self.path.chain_seconds
        return bounds

    @property
    def ideal_seconds(self) -> float:
        """Runtime without losses (T*): the largest of :attr:`ideal_bounds`; 0.0 without work.

        At most ``cluster_seconds``: if clocks disagree, the run counts as ideal.

        References
        ----------
        The "perfect runtime" of dask/distributed issue 7565, which has the bound by slots only.
        """
        return min(max(self.ideal_bounds.values(), default=0.0), self.cluster_seconds)

    @property
    def headroom(self) -> float:
        """Factor by which the run could be shorter (T / T*); NaN if nothing was useful."""
        return self.cluster_seconds / self.ideal_seconds if self.ideal_seconds else math.nan

    @property
    def load_balance(self) -> float:
        """Mean over maximum of the workers' held time, in (0, 1]; NaN if no task ran."""
        held = [breakdown.ns(*HELD) for breakdown in self.by_worker.values()]
        return sum(held) / len(held) / max(held) if any(held) else math.nan

    @property
    def factors(self) -> dict[str, float]:
        """Factors of the efficiency, each in [0, 1]; their product is :attr:`efficiency`.

        References
        ----------
        POP Centre of Excellence, multiplicative performance metrics; 0.8 and above is good there. We differ: the causes
        are Dask's, and load balance is reported separately.
        """
        return factors_of(self.breakdown)

    @property
    def losses(self) -> tuple[BucketLoss, ...]:
        """Lost time by bucket, the largest first; with useful time they add up to S - running."""
        return losses_of(self.breakdown, self.mean_threads, self.money)

    def money(self, thread_seconds: float) -> float | None:
        """Price of thread time; a worker's price is shared equally by its threads."""
        threads = sum(self.nthreads.values())
        if self.price_per_worker_hour is None or not threads:
            return None
        return thread_seconds / 3600 * self.price_per_worker_hour * len(self.nthreads) / threads

    def critical_path(self, **scope: Any) -> CriticalPath:
        """Critical path of the recorded :attr:`trace`: the cause of every second of the wall clock.

        Takes ``target``, ``span`` or ``window``, as :func:`~dask_efficiency.critical_path` does.

        Raises
        ------
        ValueError
            If the report has no trace.
        """
        from dask_efficiency.runs.path.path import critical_path

        if self.trace is None:
            raise ValueError(
                f"the report {self.name!r:.80} has no trace; expected one of efficiency_report(trace=True)"
            )

        return critical_path(self.trace, **scope)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Losses with place, saving and advice; the largest saving first."""
        found: tuple[Finding, ...] = late("dask_efficiency.report.findings:find")(self)
        return found

    @property
    def first_screen(self) -> Document:
        """First screen of the report, for a renderer."""
        found: Document = self._from_sections("first_screen")
        return found

    def __repr__(self) -> str:
        return f"<EfficiencyReport {self.name!r:.80}: {self.headline}>"

    def _repr_html_(self) -> str:
        from dask_efficiency.show.html.render import fragment

        return fragment(self._from_sections("notebook"))

    def show(self, *titles: str) -> None:
        """Print the whole report, or the sections with these titles.

        Raises
        ------
        ValueError
            If there is no such section; the message names all sections.
        """
        from dask_efficiency.show.terminal import show

        show(late(f"{self._sections_module}:chosen")(self, titles))

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """Lines of code that lost most time, and why; the most costly first."""
        found: tuple[Culprit, ...] = late("dask_efficiency.report.culprits:find_culprits")(self)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Report as plain data, exact: the content of :meth:`save`."""
        found: dict[str, Any] = late("dask_efficiency.report.files:to_dict")(self)
        return found

    def to_frame(self, by: str = "worker") -> pd.DataFrame:
        """Thread-seconds as a table.

        Parameters
        ----------
        by
            ``"worker"``, ``"prefix"`` or ``"span"``: one column per bucket, and ``total``; a span includes its inner
            spans. ``"bucket"``: columns ``thread_seconds`` and ``share`` (of all thread time, [0, 1]). ``"cause"``:
            columns ``bucket``, ``cause`` (empty if a bucket has none), ``thread_seconds``, ``share`` and
            ``share_of_bucket``. ``"line"``: columns ``bucket``, ``cause``, ``prefix``, ``function`` (called by the
            line), ``file``, ``line`` and ``thread_seconds``, the most costly first; file and line are missing without a
            sample. ``"skew"``: a row per prefix with the fields of :class:`~dask_efficiency.accounts.skew.Skew`.
            ``"finding"``: a row per finding. ``"metered"``: the rows of ``metered``. ``"lost-worker"``: a row per lost
            worker, with columns ``reason``, ``in_order``, ``lost_seconds``, ``running_seconds`` (of its running tasks),
            ``recomputed_seconds`` and ``recomputed_tasks``. ``"scheduler"``: a row for each costly handler, callback
            and hook of the scheduler's event loop; hooks are part of handlers.

        Raises
        ------
        ValueError
            If ``by`` is something else.
        """
        frame: pd.DataFrame = late("dask_efficiency.report.frames:to_frame")(self, by)
        return frame

    def to_speedscope(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the sampled stacks for speedscope.app, one profile per bucket and cause, to a path or fsspec URL.

        Raises
        ------
        NoStacksError
            If no stack was sampled.
        """
        late("dask_efficiency.report.stacks:save_speedscope")(self, path, **storage_options)

    def to_collapsed(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the sampled stacks as collapsed stacks for flamegraph.pl, with nanoseconds, to a path or fsspec URL.

        A name in ``.gz`` is compressed.

        Raises
        ------
        NoStacksError
            If no stack was sampled.
        """
        late("dask_efficiency.report.stacks:save_collapsed")(self, path, **storage_options)

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the report as JSON, to a local path or any fsspec URL."""
        late("dask_efficiency.report.files:save")(self, path, **storage_options)

    def to_html(
        self, path: str | os.PathLike[str], *, predictions: Sequence[HasSection] = (), **storage_options: Any
    ) -> None:
        """Write the report as one HTML file that works offline, to a local path or any fsspec URL.

        Parameters
        ----------
        predictions
            Results of :func:`~dask_efficiency.simulate` and :func:`~dask_efficiency.sweep` on the report's trace, shown
            after the critical path.
        """
        from dask_efficiency.show.html.render import save_page

        page = late(f"{self._sections_module}:with_predictions")(self._from_sections("page"), predictions)
        save_page(page, path, **storage_options)
