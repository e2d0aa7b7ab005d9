"""Facts: figures of a report that decide which advice applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, HELD, Breakdown, Bucket
from dask_efficiency.accounts.cluster.losses import BY_KERNEL, FOR_MEMORY
from dask_efficiency.accounts.cluster.scheduler_loop import STREAM
from dask_efficiency.accounts.lines import EVENT_LOOP, IMPORT, Frame, blamed, is_the_users, place_of
from dask_efficiency.report.gpu import waiting_seconds
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import larger_input
from dask_efficiency.report.values import Amount, GilHolder, HeldResult
from dask_efficiency.show.figures import format_bytes, format_seconds, format_share, harmless, name_of, shorten

#: Share from which a rule holds for a loss: more than half of it.
MOST = 0.5
#: Seconds in a thread below which a task is small: Dask spends about a millisecond on each.
SMALL_TASK_SECONDS = 0.02
#: Share of the makespan from which the longest chain bounds a run. By judgement.
CHAINED = 0.8
#: Characters of a client's name in a sentence, such as ``Client-7d24439e``.
MAX_CLIENT = 15

_NOTHING_MOVED, _NOTHING_HELD = Amount(0, 0), HeldResult("", "", 0.0, 0.0)
_UNKNOWN = math.nan


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures that the conditions of advice look at; with the defaults, no condition holds."""

    #: Mean seconds of a task in its thread.
    task_seconds: float = _UNKNOWN
    #: Mean number of threads with work outstanding, and of those that held a task.
    threads: float = _UNKNOWN
    held_threads: float = _UNKNOWN
    cores: float = _UNKNOWN
    others: float = 0.0
    #: Share of the CPU time in libraries' own threads.
    libraries: float = 0.0
    #: Shares of the waiting for the GIL while event loops held it, and while pandas worked on text.
    gil_of_loops: float = _UNKNOWN
    gil_of_text: float = _UNKNOWN
    #: True if tasks wait longer for cores than for the GIL.
    short_of_cores: bool = False
    one_thread_each: bool = False
    #: Share of ``thread-noncpu`` spent waiting for GPUs, and of the finalized time spent spilling.
    gpu_waiting: float = 0.0
    spilling: float = 0.0
    spilled: Amount = _NOTHING_MOVED
    read_back: Amount = _NOTHING_MOVED
    #: Shares of the makespan: the longest chain of tasks, and the longest task; known with a trace.
    chain: float = _UNKNOWN
    longest_task: float = _UNKNOWN
    #: Ratio of the longest task's input to the usual one, for a task far longer than its like.
    larger_input: float = _UNKNOWN
    #: Prefix whose tasks ran for most of the time while nothing else could; empty if there is none.
    waited_for: str = ""
    #: True if each of its tasks fills a worker: one per worker, or with threads of its own.
    fills_workers: bool = False
    #: Share of the idle time for the scheduler in which workers' event loops imported modules.
    importing: float = 0.0
    #: Share of lost and recomputed time for which nannies or the kernel killed workers for memory.
    lost_for_memory: float = 0.0
    #: ``distributed.scheduler.worker-saturation``, and the value at which round trips would leave no slot idle.
    saturation: float = _UNKNOWN
    saturation_needed: float = _UNKNOWN
    #: Results of one prefix that only a client held, on workers short of memory.
    held: HeldResult = _NOTHING_HELD
    #: Share of the time with work in which the scheduler's event loop was busy.
    loop_busy: float = _UNKNOWN
    #: Largest use of the event loop and its share, if it is not one of Dask's own task handlers; else the handler, and
    #: 0.
    loop_by: str = ""
    loop_share: float = 0.0
    #: True if only joining explains unmeasured time.
    joining: bool = False

    @property
    def small_tasks(self) -> bool:
        """True if tasks are so small that Dask's own work on each takes about as long."""
        return self.task_seconds < SMALL_TASK_SECONDS

    @property
    def chained(self) -> bool:
        """True if one chain of tasks is nearly all of the run, and no task is most of it."""
        return self.chain >= CHAINED

    @property
    def times_read_back(self) -> float:
        """Bytes read back over bytes spilled."""
        return self.read_back.nbytes / self.spilled.nbytes if self.spilled.nbytes else math.nan

    @property
    def in_libraries(self) -> bool:
        """True if libraries' own threads do most of the computing: a lock that tasks wait for is then a library's."""
        return self.libraries > MOST

    @property
    def imports(self) -> bool:
        """True if threads wait for the scheduler mostly while event loops import modules."""
        return self.importing > MOST

    @property
    def scheduler_busy(self) -> bool:
        """True if the scheduler's event loop is busy most of the time, and so bounds the cluster."""
        return self.loop_busy > MOST

    @property
    def loop_held(self) -> bool:
        """True if one thing other than the tasks' own traffic keeps it busy, such as a plugin."""
        return self.scheduler_busy and self.loop_share > MOST

    def words(self) -> dict[str, str]:
        """Figures and names for use in a sentence."""
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
            "held_results": name_of(self.held.prefix),
            "held_bytes": format_bytes(self.held.nbytes),
            "held_by": shorten(harmless(self.held.client[:MAX_CLIENT]), MAX_CLIENT),
            "needed": f"{self.saturation_needed:.1f}",
            "spilled": format_bytes(self.spilled.nbytes),
            "read_back": format_bytes(self.read_back.nbytes),
            "times": f"{self.times_read_back:.2g}",
            "loop_busy": format_share(self.loop_busy),
            "loop_by": name_of(self.loop_by),
            "loop_share": format_share(self.loop_share),
        }


def facts_of(report: EfficiencyReport) -> Facts:
    """Facts of a report."""
    whole = report.breakdown
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    tasks = sum(report.tasks.values())
    wall, noncpu = report.cluster_seconds, whole[Bucket.THREAD_NONCPU]
    in_threads = whole.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9
    cpu = whole.ns(Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS)
    chain = longest = math.nan
    if (path := report.path) is not None and path.makespan_seconds > 0 and path.divisible:
        chain, longest = (s / path.makespan_seconds for s in (path.floor_seconds, path.longest_task_seconds))
    waited_for = _waited_for(report)
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
        spilled=report.moved.get("spilled", _NOTHING_MOVED),
        read_back=report.moved.get("read-back", _NOTHING_MOVED),
        # A single task that is most of the chain is no chain.
        chain=math.nan if longest >= MOST else chain,
        longest_task=longest,
        larger_input=larger_input(report, waited_for),
        waited_for=waited_for,
        fills_workers=_fills_workers(report, waited_for),
        importing=_importing(report),
        lost_for_memory=_lost_for_memory(report),
        saturation=math.nan if report.worker_saturation is None else report.worker_saturation,
        saturation_needed=_saturation_needed(report),
        held=next(iter(report.held_results), _NOTHING_HELD),
        loop_busy=loop_busy,
        loop_by=loop_by,
        loop_share=loop_share,
        joining=not report.not_measured,
    )


def _share_of_holders(report: EfficiencyReport, meant: Callable[[GilHolder], bool]) -> float:
    whole = sum(holder.ns for holder in report.gil_holders)
    return sum(holder.ns for holder in report.gil_holders if meant(holder)) / whole if whole else math.nan


def _works_on_text(frame: Frame) -> bool:
    return "pandas" in frame.file and "str" in (frame.file + frame.function).lower().rpartition("pandas")[2]


def _waited_for(report: EfficiencyReport) -> str:
    """Prefix that everything waited for, for most of the time without parallelism."""
    waited = report.waited_for
    longest = max(waited, key=lambda prefix: waited[prefix], default="")
    return longest if waited and waited[longest] > MOST * sum(waited.values()) else ""


def _importing(report: EfficiencyReport) -> float:
    """Share of the idle time for the scheduler in which event loops imported modules."""
    waited = report.causes_ns(Bucket.IDLE).get("scheduler", 0) / 1e9
    imports = (block for block in report.loop_blocks if blamed(block.stack).function == IMPORT)
    blocked = sum(block.seconds * report.nthreads.get(block.worker, 1) for block in imports)
    return blocked / waited if waited else 0.0


def _lost_for_memory(report: EfficiencyReport) -> float:
    cost = [(one.ns + one.recomputed_ns, one.reason) for one in report.lost_workers]
    whole = sum(ns for ns, _ in cost)
    memory = sum(ns for ns, reason in cost if reason.startswith(FOR_MEMORY) or reason.endswith(BY_KERNEL))
    return memory / whole if whole else 0.0


def _saturation_needed(report: EfficiencyReport) -> float:
    """Saturation at which each slot has its next task on the worker for the length of a round trip.

    In a slot, a task of length ``t`` is followed by a gap ``g``. The tasks queued on the worker must cover the gap
    twice, as round trips vary. A worker with ``n`` threads is sent ``ceil(saturation x n)`` tasks.
    """
    now, held = report.worker_saturation, report.breakdown.ns(*HELD)
    threads = report.nthreads.values()
    if now is None or not held or not threads or not math.isfinite(now):
        return math.nan
    queued = sum(max(0, math.ceil(now * n) - n) for n in threads) / sum(threads)
    gaps = report.causes_ns(Bucket.IDLE).get("round-trips", 0) / held
    return max(2.0, math.ceil(2 * (1 + queued + 2 * gaps)) / 2)


def _loop(report: EfficiencyReport) -> tuple[float, str, float]:
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
    skew, whole = report.skew.get(prefix), report.by_prefix.get(prefix)
    one_each = skew is not None and skew.count == len(report.by_worker) > 1 and skew.times_longer < 2
    return one_each or (whole is not None and has_own_threads(whole))


def has_own_threads(whole: Breakdown) -> bool:
    """True if such tasks compute in threads of libraries more than half as much as in their own."""
    return 2 * whole.ns(Bucket.LIBRARY_THREADS) > whole.ns(Bucket.THREAD_CPU) > 0


#: Facts for which no condition holds.
NOTHING_KNOWN = Facts()
