"""Advice: what to do about each loss, by rules that apply only where the report's own figures support them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dask_efficiency.buckets import HELD, Breakdown, Bucket
from dask_efficiency.report.figures import format_seconds, format_share
from dask_efficiency.report.gpu import waiting_seconds
from dask_efficiency.report.model import ReportValues

#: Losses below this share get no advice: little is to be gained there.
WORTH_ADVICE = 0.05

#: Tasks that hold a thread for less are small: handing one out costs Dask about a millisecond in all.
SMALL_TASK_SECONDS = 0.02

#: From this share on of what is not explained otherwise, threads that libraries started are worth words.
LIBRARIES = 0.25

#: A worker whose threads compute for this many cores together may do so because of the GIL.
ONE_CORE = (0.6, 1.15)

#: Of two threads, one core may as well be two that wait for half of the time.
MIN_THREADS = 3

#: Of the largest part of something: a rule holds for a loss where it holds for this share of it.
MOST = 0.5

#: Where fewer threads than this hold a task in the mean, there is hardly ever more than one task.
ONE_TASK = 1.1

#: Below this load balance (mean over maximum of the workers' held time), the work was uneven.
EVEN = 0.8

#: The longest chain is what a run is up against where it makes up this share of the makespan.
CHAINED = 0.8


@dataclass(frozen=True, slots=True)
class Facts:
    """What the conditions of the advice look at."""

    #: Mean time that a task was in its thread, seconds; NaN where none ended.
    task_seconds: float
    #: Threads, and how many of them held a task, in the mean over the time with work.
    threads: float
    held_threads: float
    #: None where it is not known.
    cores: float | None
    #: Shares of ``thread-noncpu``: waiting for GPUs, and for a core.
    gpu_waiting: float
    core_waiting: float
    #: Share of it in which threads that libraries started ran, or were ready to.
    libraries: float
    #: Share of ``thread-noncpu`` in workers of three threads or more that computed for about one core together.
    one_core: float
    #: Share of the finalized time that was spilling.
    spilling: float
    load_balance: float
    #: Shares of the makespan: of the longest chain of tasks, and of the longest task; NaN without a trace.
    chain: float
    longest_task: float
    #: Whether nothing but joining explains unmeasured time.
    joining: bool

    def words(self) -> dict[str, str]:
        """The figures as they stand in a sentence."""
        return {
            "task": format_seconds(self.task_seconds),
            "threads": f"{self.threads:.3g}",
            "held": f"{self.held_threads:.2g}",
            "cores": "the" if self.cores is None else f"{self.cores:.3g}",
            "balance": f"{self.load_balance:.2f}",
            "chain": format_share(self.chain),
            "longest": format_share(self.longest_task),
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """A rule: what to do about a loss where a condition holds, and where to read more."""

    bucket: Bucket
    #: Of the facts.
    holds: Callable[[Facts], bool]
    #: One sentence without a full stop; names in braces are figures of :meth:`Facts.words`.
    words: str

    @property
    def page(self) -> str:
        """Where the documentation says more."""
        return f"docs/buckets.md#{self.bucket}"


def _always(facts: Facts) -> bool:
    return True


#: For each bucket the first rule that holds is given. Each ends with one that claims nothing of the run.
RULES: tuple[Advice, ...] = (
    Advice(
        Bucket.THREAD_NONCPU,
        lambda facts: facts.gpu_waiting > MOST,
        "mostly waiting for GPUs that did not work for the task: see GPUs below",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        lambda facts: facts.core_waiting > MOST,
        "waiting for {cores} cores: fewer threads, more cores, or less beside them on the host",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        lambda facts: facts.libraries > LIBRARIES,
        "libraries' own threads (Arrow, BLAS, OpenMP) computed meanwhile: that part is work, not waiting",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        lambda facts: facts.one_core > MOST,
        "each worker used about one core: if its tasks wait for nothing, that is the GIL; use processes",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        _always,
        "in tasks, off the CPU: I/O, sleep, a lock, the GIL, or a library's own threads at work",
    ),
    Advice(Bucket.SPILL, _always, "more memory per worker, smaller partitions, persist less"),
    Advice(
        Bucket.OVERHEAD,
        lambda facts: facts.task_seconds < SMALL_TASK_SECONDS,
        "tasks of {task} are small for Dask: bigger partitions, fuse tasks",
    ),
    Advice(
        Bucket.OVERHEAD,
        lambda facts: facts.spilling >= WORTH_ADVICE,
        "workers' event loops were late, and they spilled: more memory, smaller partitions",
    ),
    Advice(
        Bucket.OVERHEAD,
        _always,
        "workers' event loops were late: tasks that keep the GIL, large results, or a busy host",
    ),
    Advice(Bucket.FAILED, _always, "read the tracebacks: each of retries= costs the whole task again"),
    Advice(Bucket.CANCELLED, _always, "keep futures until they are used, let workers finish before they close"),
    Advice(Bucket.RECOMPUTED, _always, "results were lost with their workers: see why those went"),
    Advice(Bucket.PAUSED, _always, "memory above worker.memory.pause: more memory, fewer threads per worker"),
    Advice(Bucket.RETIRING, _always, "scale down less eagerly: a larger wait_count or interval in adapt()"),
    Advice(Bucket.WAITING_ON_DATA, _always, "tasks waited for transfers: fewer shuffles, fewer but larger workers"),
    Advice(Bucket.CONSTRAINED, _always, "tasks waited for resources=: offer more of it per worker, or ask for less"),
    Advice(
        Bucket.IDLE,
        lambda facts: facts.longest_task >= MOST,
        "one task took {longest} of the makespan while other threads had none: split it",
    ),
    Advice(
        Bucket.IDLE,
        lambda facts: facts.chain >= CHAINED,
        "tasks waited for one another ({chain} of the makespan is one chain): more workers do not help",
    ),
    Advice(
        Bucket.IDLE,
        lambda facts: facts.task_seconds < SMALL_TASK_SECONDS,
        "tasks of {task} end sooner than the scheduler hands out more: bigger partitions, fuse tasks",
    ),
    Advice(
        Bucket.IDLE,
        lambda facts: facts.held_threads < ONE_TASK and facts.threads > 2 * ONE_TASK,
        "one task at a time, {held} of {threads} threads: a chain, or a client that waits for each result",
    ),
    Advice(
        Bucket.IDLE,
        lambda facts: facts.load_balance < EVEN,
        "uneven work (load balance {balance}): some tasks are longer, or tied to few workers; split them",
    ),
    Advice(
        Bucket.IDLE,
        lambda facts: not math.isnan(facts.chain),
        "{held} of {threads} threads had a task: too few at a time, or a busy scheduler; see the critical path",
    ),
    Advice(
        Bucket.IDLE,
        _always,
        "{held} of {threads} threads had a task: too few at a time, or a busy scheduler; trace=True tells",
    ),
    Advice(Bucket.LOST_WORKER, _always, "killed for memory, or its job ended: see the nanny's and the job's logs"),
    Advice(
        Bucket.UNMEASURED,
        lambda facts: facts.joining,
        "workers that were joining: it takes a moment until each is metered",
    ),
    Advice(Bucket.UNMEASURED, _always, "see Not measured; the package must be on every worker before the work"),
)


def advised(report: ReportValues) -> dict[str, str]:
    """What to do, by bucket, for the losses that are worth it; the largest first."""
    worth = [loss.bucket for loss in report.losses if loss.share >= WORTH_ADVICE]
    if not worth:
        return {}
    facts = facts_of(report)
    return {str(bucket): advice(bucket, facts) for bucket in worth}


def advice(bucket: str, facts: Facts) -> str:
    """What to do about time lost to a bucket, in one line; empty where the bucket is no loss."""
    rule = _rule(bucket, facts)
    return "" if rule is None else rule.words.format(**facts.words())


def _rule(bucket: str, facts: Facts) -> Advice | None:
    return next((rule for rule in RULES if rule.bucket == bucket and rule.holds(facts)), None)


def read_on(report: ReportValues) -> str:
    """Where the documentation says more about what is advised; empty where nothing is."""
    facts = facts_of(report)
    headings: dict[str, list[str]] = {}
    for bucket in advised(report):
        if (rule := _rule(bucket, facts)) is not None:
            file, mark, heading = rule.page.partition("#")
            headings.setdefault(file, []).append(mark + heading)
    pages = [f"{file}{', '.join(found)}" for file, found in headings.items()]
    return f"Read on: {'; '.join(pages)}" if pages else ""


def facts_of(report: ReportValues) -> Facts:
    """What the conditions look at, of a report."""
    whole = report.breakdown
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    tasks = sum(report.tasks.values())
    wall, noncpu = report.cluster_seconds, whole[Bucket.THREAD_NONCPU]
    in_threads = whole.ns(Bucket.THREAD_CPU, Bucket.GPU, Bucket.THREAD_NONCPU) / 1e9
    path = report.path
    known = path is not None and path.makespan_seconds > 0
    chain = path.floor_seconds / path.makespan_seconds if known and path is not None else math.nan
    longest = path.longest_task_seconds / path.makespan_seconds if known and path is not None else math.nan
    return Facts(
        task_seconds=in_threads / tasks if tasks else math.nan,
        threads=report.mean_threads,
        held_threads=whole.ns(*HELD) / 1e9 / wall if wall else math.nan,
        cores=report.cores,
        gpu_waiting=waiting_seconds(report.details) / noncpu if noncpu else 0.0,
        core_waiting=report.core_wait_seconds / noncpu if noncpu else 0.0,
        libraries=report.library_share,
        one_core=_one_core(report),
        spilling=whole.ns(Bucket.SPILL) / finalized if finalized else 0.0,
        load_balance=report.load_balance,
        # One task that is most of the chain is no chain.
        chain=math.nan if longest >= MOST else chain,
        longest_task=longest,
        joining=not report.not_measured,
    )


def _one_core(report: ReportValues) -> float:
    """Share of ``thread-noncpu`` in workers of several threads whose CPU time is that of about one core."""
    whole = report.breakdown.ns(Bucket.THREAD_NONCPU)
    if not whole:
        return 0.0
    found = sum(
        row.ns(Bucket.THREAD_NONCPU)
        for name, row in report.by_worker.items()
        if ONE_CORE[0] <= _cores_used(row, report.nthreads.get(name, 1)) <= ONE_CORE[1]
    )
    return found / whole


def _cores_used(row: Breakdown, nthreads: int) -> float:
    """How many cores a worker's tasks kept busy, in the mean over the time with work; NaN for few threads."""
    there = (row.total_ns - row.ns(Bucket.NO_WORK)) / nthreads
    return row.ns(Bucket.THREAD_CPU) / there if nthreads >= MIN_THREADS and there else math.nan


def cause_advice(bucket: str, cause: str) -> str:
    """What to do about a cause, in one line; empty where nothing is known to help."""
    return ""
