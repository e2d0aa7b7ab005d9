"""Facts: the figures of a report that say which advice applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, HELD, Breakdown, Bucket
from dask_efficiency.accounts.cluster.losses import FOR_MEMORY
from dask_efficiency.accounts.cluster.scheduler_loop import STREAM
from dask_efficiency.accounts.lines import IMPORT, blamed, is_the_users, place_of
from dask_efficiency.accounts.profile import EVENT_LOOP, Frame
from dask_efficiency.report.gpu import waiting_seconds
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import larger_input
from dask_efficiency.report.values import Amount, GilHolder, HeldResult
from dask_efficiency.show.figures import format_bytes, format_seconds, format_share, harmless, name_of, shorten

#: Of the largest part of something: a rule holds for a loss where it holds for this share of it.
MOST = 0.5

#: Characters of a client's name in a sentence, such as ``Client-7d24439e``.
MAX_CLIENT = 15


@dataclass(frozen=True, slots=True)
class Facts:
    """What the conditions of the advice look at."""

    #: Mean time that a task was in its thread, seconds; NaN where none ended.
    task_seconds: float
    #: Threads, and how many of them held a task, in the mean over the time with work.
    threads: float
    held_threads: float
    #: NaN where it is not known.
    cores: float
    #: Share of the cores that other processes have; 0 where it is not known.
    others: float
    #: Share of the CPU time that is of libraries' own threads.
    libraries: float
    #: Shares of the waiting for the GIL in which event loops had it, and in which pandas worked on text; NaN where
    #: nobody was seen.
    gil_of_loops: float
    gil_of_text: float
    #: Whether tasks wait for cores longer than for the GIL.
    short_of_cores: bool
    #: Whether no worker has several threads.
    one_thread_each: bool
    #: Share of ``thread-noncpu`` that is waiting for GPUs.
    gpu_waiting: float
    #: Share of the finalized time that was spilling.
    spilling: float
    #: How many times what was spilled was read back, and how much both were; NaN and empty where nothing was spilled.
    times_read_back: float
    spilled: str
    read_back: str
    #: Shares of the makespan: of the longest chain of tasks, and of the longest task; NaN without a trace.
    chain: float
    longest_task: float
    #: How many times as large as usual the input of the task is that took far longer than its like; NaN if not known.
    larger_input: float
    #: The prefix whose tasks ran while nothing else could, for most of that time; empty where there is none.
    waited_for: str
    #: Whether each of its tasks fills a worker: one on each of several, or with threads of its own.
    fills_workers: bool
    #: Share of the idle time for the scheduler in which event loops of workers imported modules.
    importing: float
    #: Share of the time that was lost with workers, or recomputed, of which nannies killed the workers for memory.
    lost_for_memory: float
    #: ``distributed.scheduler.worker-saturation``, and the value at which round trips would fill no slot's time; NaN
    #: where that is not known.
    saturation: float
    saturation_needed: float
    #: Share of the results on workers short of memory, and bytes, that only a client held, of one prefix; and which.
    held_share: float
    held_nbytes: float
    held_prefix: str
    held_by: str
    #: Share of the time with work in which the scheduler's event loop was busy; NaN where that is not known.
    loop_busy: float
    #: What took most of that, and its share, where it is no handler of Dask's own for tasks; else that, and 0.
    loop_by: str
    loop_share: float
    #: Whether nothing but joining explains unmeasured time.
    joining: bool

    @property
    def in_libraries(self) -> bool:
        """Whether libraries' own threads do most of what tasks compute: a lock that these wait at is a library's."""
        return self.libraries > MOST

    @property
    def imports(self) -> bool:
        """Whether threads wait for the scheduler mostly while event loops import modules."""
        return self.importing > MOST

    @property
    def scheduler_busy(self) -> bool:
        """Whether the scheduler bounds the cluster: its event loop is busy for most of the time."""
        return self.loop_busy > MOST

    @property
    def loop_held(self) -> bool:
        """Whether what keeps it busy is one thing beside the tasks' own traffic, such as a plugin."""
        return self.scheduler_busy and self.loop_share > MOST

    def words(self) -> dict[str, str]:
        """The figures and names as they stand in a sentence."""
        return {
            "task": format_seconds(self.task_seconds),
            "threads": f"{self.threads:.3g}",
            "held": f"{self.held_threads:.2g}",
            "cores": f"{self.cores:.3g}",
            "others": format_share(self.others),
            "chain": format_share(self.chain),
            "longest": format_share(self.longest_task),
            "larger": f"{self.larger_input:.3g}",
            "waited_for": name_of(self.waited_for),
            "saturation": f"{self.saturation:g}",
            "held_results": name_of(self.held_prefix),
            "held_bytes": format_bytes(self.held_nbytes),
            "held_by": shorten(harmless(self.held_by[:MAX_CLIENT]), MAX_CLIENT),
            "needed": f"{self.saturation_needed:.1f}",
            "spilled": self.spilled,
            "read_back": self.read_back,
            "times": f"{self.times_read_back:.2g}",
            "loop_busy": format_share(self.loop_busy),
            "loop_by": name_of(self.loop_by),
            "loop_share": format_share(self.loop_share),
        }


def facts_of(report: EfficiencyReport) -> Facts:
    """What the conditions look at, of a report."""
    whole = report.breakdown
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    tasks = sum(report.tasks.values())
    wall, noncpu = report.cluster_seconds, whole[Bucket.THREAD_NONCPU]
    in_threads = whole.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9
    cpu = whole.ns(Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS)
    path = report.path
    known = path is not None and path.makespan_seconds > 0
    known = known and path is not None and path.divisible
    chain = path.floor_seconds / path.makespan_seconds if known and path is not None else math.nan
    longest = path.longest_task_seconds / path.makespan_seconds if known and path is not None else math.nan
    waited_for = _waited_for(report)
    most_held = next(iter(report.held_results), HeldResult("", "", 0.0, 0.0))
    spilled, read_back = (report.moved.get(way, Amount(0, 0)) for way in ("spilled", "read-back"))
    loop_busy, loop_by, loop_share = _loop(report)
    return Facts(
        task_seconds=in_threads / tasks if tasks else math.nan,
        threads=report.threads,
        held_threads=whole.ns(*HELD) / 1e9 / wall if wall else math.nan,
        cores=math.nan if report.cores is None else report.cores,
        others=report.others_share or 0.0,
        libraries=whole.ns(Bucket.LIBRARY_THREADS) / cpu if cpu else 0.0,
        gil_of_loops=_share_of_holders(report, lambda holder: holder.holder == EVENT_LOOP),
        gil_of_text=_share_of_holders(report, lambda holder: any(map(_works_on_text, holder.stack))),
        short_of_cores=report.waiting.get("core", 0.0) > report.waiting.get("gil", 0.0),
        one_thread_each=bool(report.nthreads) and max(report.nthreads.values()) == 1,
        gpu_waiting=waiting_seconds(report.details) / noncpu if noncpu else 0.0,
        spilling=whole.ns(Bucket.SPILL) / finalized if finalized else 0.0,
        times_read_back=read_back.nbytes / spilled.nbytes if spilled.nbytes else math.nan,
        spilled=format_bytes(spilled.nbytes),
        read_back=format_bytes(read_back.nbytes),
        # One task that is most of the chain is no chain.
        chain=math.nan if longest >= MOST else chain,
        longest_task=longest,
        larger_input=larger_input(report, waited_for),
        waited_for=waited_for,
        fills_workers=_fills_workers(report, waited_for),
        importing=_importing(report),
        lost_for_memory=_lost_for_memory(report),
        saturation=math.nan if report.worker_saturation is None else report.worker_saturation,
        saturation_needed=_saturation_needed(report),
        held_share=most_held.share,
        held_nbytes=most_held.nbytes,
        held_prefix=most_held.prefix,
        held_by=most_held.client,
        loop_busy=loop_busy,
        loop_by=loop_by,
        loop_share=loop_share,
        joining=not report.not_measured,
    )


def _share_of_holders(report: EfficiencyReport, meant: Callable[[GilHolder], bool]) -> float:
    whole = sum(holder.ns for holder in report.gil_holders)
    return sum(holder.ns for holder in report.gil_holders if meant(holder)) / whole if whole else math.nan


def _works_on_text(frame: Frame) -> bool:
    """Whether a line is one of the methods of pandas on columns of text."""
    return "pandas" in frame.file and "str" in (frame.file + frame.function).lower().rpartition("pandas")[2]


def _waited_for(report: EfficiencyReport) -> str:
    """The prefix for whose tasks everything waited for most of the time without parallelism."""
    waited = report.waited_for
    longest = max(waited, key=lambda prefix: waited[prefix], default="")
    return longest if waited and waited[longest] > MOST * sum(waited.values()) else ""


def _importing(report: EfficiencyReport) -> float:
    """Share of the time in which threads were idle for the scheduler while their worker's event loop imported."""
    waited = report.causes_ns(Bucket.IDLE).get("scheduler", 0) / 1e9
    imports = (block for block in report.loop_blocks if blamed(block.stack).function == IMPORT)
    blocked = sum(block.seconds * report.nthreads.get(block.worker, 1) for block in imports)
    return blocked / waited if waited else 0.0


def _lost_for_memory(report: EfficiencyReport) -> float:
    cost = [(one.ns + one.recomputed_ns, one.reason.startswith(FOR_MEMORY)) for one in report.lost_workers]
    whole = sum(ns for ns, _ in cost)
    return sum(ns for ns, for_memory in cost if for_memory) / whole if whole else 0.0


def _saturation_needed(report: EfficiencyReport) -> float:
    """The saturation at which each slot has a next task at its worker for as long as a round trip takes.

    In a slot a task of length ``t`` is followed by a gap of ``g``: what its worker had beside, and twice the gap, for
    round trips differ, is to be there. A worker of ``n`` threads is sent ``ceil(saturation x n)`` tasks.
    """
    now, held = report.worker_saturation, report.breakdown.ns(*HELD)
    threads = report.nthreads.values()
    if now is None or not held or not threads or not math.isfinite(now):
        return math.nan
    beside = sum(max(0, math.ceil(now * n) - n) for n in threads) / sum(threads)
    gaps = report.causes_ns(Bucket.IDLE).get("round-trips", 0) / held
    return max(2.0, math.ceil(2 * (1 + beside + 2 * gaps)) / 2)


def _loop(report: EfficiencyReport) -> tuple[float, str, float]:
    """How busy the scheduler's event loop was, what with, and the share of that; see :class:`Facts`."""
    loop = report.scheduler_loop
    if loop is None or loop.busy_with_work is None or not loop.busy_seconds:
        return math.nan, "", 0.0
    own = [part for part in (*loop.handlers, *loop.hooks) if part.kind != STREAM or is_the_users(part.file)]
    most = max(own, key=lambda part: part.seconds, default=None)
    if most is not None and most.seconds > MOST * loop.busy_seconds:
        where = f" in {place_of(most.stack[0])}" if most.file else ""
        return loop.busy_with_work, f"{most.kind} `{most.name}`{where}", most.seconds / loop.busy_seconds
    return loop.busy_with_work, loop.handlers[0].name if loop.handlers else "", 0.0


def _fills_workers(report: EfficiencyReport, prefix: str) -> bool:
    """Whether each task of a prefix has a worker for itself, or computes in threads of its own, too."""
    skew, whole = report.skew.get(prefix), report.by_prefix.get(prefix)
    one_each = skew is not None and skew.count == len(report.by_worker) > 1 and skew.times_longer < 2
    return one_each or (whole is not None and has_own_threads(whole))


def has_own_threads(whole: Breakdown) -> bool:
    """Whether tasks that took this compute in threads of libraries about as much as in their own."""
    return 2 * whole.ns(Bucket.LIBRARY_THREADS) > whole.ns(Bucket.THREAD_CPU) > 0


_UNKNOWN = math.nan

#: Makes no condition hold.
NOTHING_KNOWN = Facts(
    task_seconds=_UNKNOWN,
    threads=_UNKNOWN,
    held_threads=_UNKNOWN,
    cores=_UNKNOWN,
    others=0.0,
    libraries=0.0,
    gil_of_loops=_UNKNOWN,
    gil_of_text=_UNKNOWN,
    short_of_cores=False,
    one_thread_each=False,
    gpu_waiting=0.0,
    spilling=0.0,
    times_read_back=_UNKNOWN,
    spilled="",
    read_back="",
    chain=_UNKNOWN,
    longest_task=_UNKNOWN,
    larger_input=_UNKNOWN,
    waited_for="",
    fills_workers=False,
    importing=0.0,
    lost_for_memory=0.0,
    saturation=_UNKNOWN,
    saturation_needed=_UNKNOWN,
    held_share=0.0,
    held_nbytes=0.0,
    held_prefix="",
    held_by="",
    loop_busy=_UNKNOWN,
    loop_by="",
    loop_share=0.0,
    joining=False,
)
