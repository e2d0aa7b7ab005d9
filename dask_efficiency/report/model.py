"""EfficiencyReport: the thread time of one window of a cluster's life, and its interpretation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.accounts.buckets import (
    GOOD,
    HELD,
    Bucket,
)
from dask_efficiency.accounts.cluster.memory_timeline import MemoryTimeline
from dask_efficiency.accounts.cluster.scheduler_loop import SchedulerLoop
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.wire.snapshots import OTHER_CPU
from dask_efficiency.plugin.wings import offered
from dask_efficiency.report.turnover import Arrival, LostWorker
from dask_efficiency.report.values import (
    BucketLoss,
    ClientRow,
    Culprit,
    Failure,
    GilHolder,
    GraphsSent,
    HeldFor,
    LockLook,
    LongHold,
    Made,
    ProfiledOperator,
    ProfileRow,
    Repeat,
    Saved,
    Unfinished,
    factors_of,
    losses_of,
)
from dask_efficiency.report.views import FactViews
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.shown import Printed, Shown, late

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.path.path import CriticalPath
    from dask_efficiency.show.document import Document, HasSection
    from dask_efficiency.show.finding import Finding

#: Relative deviation of the mean number of threads from a whole number that is rounded away. A guess.
APART = 0.01


# It has no slots, because a cached property needs a ``__dict__``.
@dataclass(frozen=True, repr=False)
class EfficiencyReport(FactViews, Printed):
    """Thread time of a cluster in a window, exact: workers' breakdowns add up to nthreads x elapsed nanoseconds.

    Parameters
    ----------
    name
        Name of the window.
    started, window_seconds
        Start of the window, seconds since the epoch by the client's clock; and its length.
    cluster_seconds
        Part of the window with work outstanding and at least one worker (T).
    facts
        All that was measured, as one table: the thread time by worker, span, prefix, bucket and cause, and what has a
        label beside it. The views of it are properties.
    phases
        Seconds in each of :data:`~dask_efficiency.report.values.PHASES`, without overlap.
    tasks
        Tasks finalized in the window, by outcome; ``without account`` are results of workers that left or fell silent
        before they reported them.
    nthreads
        Threads of each worker.
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
    memory_timeline
        Memory of the cluster and of each worker over time, from heartbeats. None if not recorded.
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
    cores, others_share
        Mean number of processors that the workers may use over ``cluster_seconds``; and the share of their time used by
        processes other than workers and scheduler, 0 to 1. None if unknown.
    worker_saturation
        The scheduler's ``distributed.scheduler.worker-saturation``; None if unknown.
    graphs, rounds
        Number of graphs that the client sent; and of those that it sent with none of its results outstanding.
    client, sent_by
        Sampled activities of the client by stack, the longest first; and graphs by the line that sent them
        (``"etl.py:42"``). Empty if the client was not sampled.
    made
        Collections by the line of the client's that made them, in the order of their first ones.
    arrivals
        Workers that joined.
    skew
        Spread of times and result sizes of each prefix's successful tasks; prefixes beyond
        :data:`~dask_efficiency.accounts.rows.MAX_SENT` are together under
        :data:`~dask_efficiency.accounts.rows.OTHER`. Empty in retrospect.
    path, long_tail, operators
        Of a recorded run: its critical path; tasks that took far longer than others of their prefix, the longest first;
        and operators of tasks under ``torch.profiler``. None or empty without ``trace=True``.
    attendance
        Counts as of :func:`~dask_efficiency.accounts.cluster.presence.attendance`; empty if not counted.
    lost_workers
        Workers lost in the window, or whose results were recomputed in it. Their ``ns`` add up to ``lost-worker`` if
        all were metered, their ``recomputed_ns`` to ``recomputed``. Empty in retrospect.
    profile, gil_holders, lock_looks
        Sampled lines on which tasks computed and waited, holders of the GIL while tasks waited for it, and likewise of
        locks.
    gil_holds, loop_blocks
        Longest times for which one thread kept others from the GIL, or blocked an event loop.
    scheduler_loop
        Time of the scheduler's event loop by handler and plugin; None if not measured.
    waited_for
        Nanoseconds of ``idle`` for lack of parallelism, by prefix of the tasks that ran meanwhile.
    held_for, held_at_peaks, cluster_peak
        Why results were kept in the workers' memory, the most byte-seconds first; by worker, when its process had most
        memory; and the most bytes of all processes at a time, 0 if unknown. The scheduler looks twice a second.
    not_sampled
        Worker name to the reason why its threads were not sampled.
    savings
        Savings by replay (:func:`~dask_efficiency.simulation.saving.savings`), by kind of finding and for :data:`ALL`.
    failures, unfinished
        Tasks that failed for good; and those that the block left outstanding or, in retrospect, paused workers hold up.
    stalls
        What stood still when the block ended, or a moment before; in retrospect, now. The most certain first.
    labels
        The user's own, by name, such as the branch: runs are chosen by them in a history.
    ended_by
        Exception that ended the block, ``"ValueError: no such file"``; empty if none did.
    trace
        Record of the window, task by task, with ``trace=True``. Saved in a file of its own, not with the report.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.report.sections.report"

    name: str
    started: float
    window_seconds: float
    cluster_seconds: float
    facts: Facts
    phases: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    nthreads: Mapping[str, int] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    repeats: Mapping[str, Repeat] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    price_per_worker_hour: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    timeline: Timeline | None = None
    memory_timeline: MemoryTimeline | None = None
    code: tuple[str, ...] = ()
    computed_by: Mapping[str, str] = field(default_factory=dict)
    stragglers: tuple[SlowWorker, ...] = ()
    gpu: Mapping[str, GpuTotals] = field(default_factory=dict)
    no_workers_seconds: float = 0.0
    cores: float | None = None
    others_share: float | None = None
    worker_saturation: float | None = None
    graphs: int = 0
    rounds: int = 0
    client: tuple[ClientRow, ...] = ()
    sent_by: Mapping[str, GraphsSent] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    path: PathSummary | None = None
    arrivals: tuple[Arrival, ...] = ()
    long_tail: tuple[LongTask, ...] = ()
    operators: tuple[ProfiledOperator, ...] = ()
    skew: Mapping[str, Skew] = field(default_factory=dict)
    attendance: Mapping[str, int] = field(default_factory=dict)
    lost_workers: tuple[LostWorker, ...] = ()
    profile: tuple[ProfileRow, ...] = ()
    gil_holders: tuple[GilHolder, ...] = ()
    lock_looks: tuple[LockLook, ...] = ()
    gil_holds: tuple[LongHold, ...] = ()
    loop_blocks: tuple[LongHold, ...] = ()
    scheduler_loop: SchedulerLoop | None = None
    waited_for: Mapping[str, int] = field(default_factory=dict)
    held_for: tuple[HeldFor, ...] = ()
    held_at_peaks: Mapping[str, tuple[HeldFor, ...]] = field(default_factory=dict)
    cluster_peak: int = 0
    not_sampled: Mapping[str, str] = field(default_factory=dict)
    savings: Mapping[str, Saved] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    stalls: tuple[StalledWork, ...] = ()
    ended_by: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    trace: RunTrace | None = field(default=None, compare=False)

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

    @cached_property
    def torch(self) -> Shown | None:
        """Summary of the recorded profiles, as :func:`~dask_efficiency.torch_traces.summary` makes it of files.

        None where no task of the :attr:`trace` used torch under ``torch.profiler``; a saved report has no trace.
        """
        summarised = offered("summary/torch") if self.trace is not None and self.trace.profiles else None
        found: Shown | None = None if summarised is None else summarised(self.trace)
        return found

    @cached_property
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

    def to_frame(self, by: str | None = None) -> pd.DataFrame:
        """All that was measured as a table, or thread-seconds by something.

        Parameters
        ----------
        by
            By default, each row of :attr:`facts`: columns ``worker``, ``span``, ``prefix``, ``bucket``, ``cause``,
            ``label`` and ``unit``, empty where it is not known, and ``value``: nanoseconds of thread time, or units.
            What is known by one of them only, such as the span of free time but not the worker, is there as two rows,
            one that adds it and one that takes it from where nothing is known: sums by one column are exact. With
            ``"worker"``, ``"prefix"`` or ``"span"``: one column per bucket, and ``total``; a span includes its inner
            spans. ``"bucket"``: columns ``thread_seconds`` and ``share`` (of all thread time, [0, 1]). ``"cause"``:
            columns ``bucket``, ``cause`` (empty if a bucket has none), ``thread_seconds``, ``share`` and
            ``share_of_bucket``. ``"line"``: columns ``bucket``, ``cause``, ``prefix``, ``function`` (called by the
            line), ``file``, ``line`` and ``thread_seconds``, the most costly first; file and line are missing without a
            sample. ``"skew"``: a row per prefix with the fields of :class:`~dask_efficiency.accounts.skew.Skew`.
            ``"finding"``: a row per finding. ``"metered"``: the rows of ``metered``. ``"lost-worker"``: a row per lost
            worker, with columns ``reason``, ``in_order``, ``lost_seconds``, ``running_seconds`` (of its running tasks),
            ``recomputed_seconds`` and ``recomputed_tasks``. ``"scheduler"``: a row for each costly handler, callback
            and hook of the scheduler's event loop; hooks are part of handlers. ``"client"``: a row for each activity
            and stack of the client; they add up to the window. ``"memory"``: a row per worker, with its memory
            ``limit``, the ``peak`` of its process, that of its results, those on disk included (``managed_peak``), and
            the ``ideal`` limit, with which it would have spilled nothing; bytes.

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
