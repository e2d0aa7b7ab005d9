"""Advice: what to do about each loss, by rules that apply only where the report's own figures support them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, HELD, Breakdown, Bucket
from dask_efficiency.accounts.causes import UNKNOWN
from dask_efficiency.accounts.causes import name_of as cause_name
from dask_efficiency.accounts.lines import IMPORT, blamed
from dask_efficiency.accounts.profile import EVENT_LOOP, Frame
from dask_efficiency.report.gpu import waiting_seconds
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.profile import GilHolder
from dask_efficiency.report.skew import larger_input
from dask_efficiency.show.figures import format_seconds, format_share, name_of
from dask_efficiency.straggler.sizes import SIZES_DIFFER

#: Losses below this share get no advice: little is to be gained there.
WORTH_ADVICE = 0.05

#: Tasks that hold a thread for less are small: handing one out costs Dask about a millisecond in all.
SMALL_TASK_SECONDS = 0.02

#: Of the largest part of something: a rule holds for a loss where it holds for this share of it.
MOST = 0.5

#: Where fewer threads than this hold a task in the mean, there is hardly ever more than one task.
ONE_TASK = 1.1

#: The longest chain is what a run is up against where it makes up this share of the makespan.
CHAINED = 0.8

#: From this share of the cores on, other processes are why threads wait for them.
OTHERS = 0.2

#: In place of a cause: a bucket of which no cause is known, or none is worth advice of its own.
WHOLE = ""


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
    #: Whether no worker has several threads.
    one_thread_each: bool
    #: Share of ``thread-noncpu`` that is waiting for GPUs.
    gpu_waiting: float
    #: Share of the finalized time that was spilling.
    spilling: float
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
    #: Whether nothing but joining explains unmeasured time.
    joining: bool

    @property
    def in_libraries(self) -> bool:
        """Whether libraries' own threads do most of what tasks compute: a lock that these wait at is a library's."""
        return self.libraries > MOST

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
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """A rule: what to do about a loss where a condition holds, and where to read more."""

    bucket: Bucket
    #: The causes that it is for; :data:`WHOLE` for a bucket without.
    causes: tuple[str, ...]
    #: Of the facts.
    holds: Callable[[Facts], bool]
    #: A clause, which may stand in a sentence after a colon; names in braces are those of :meth:`Facts.words`.
    words: str


def page_of(bucket: str, cause: str = WHOLE) -> str:
    """Where the documentation says more about a loss."""
    return f"docs/buckets.md#{bucket}{f'-{cause}' if cause else ''}"


def _always(facts: Facts) -> bool:
    return True


def _small(facts: Facts) -> bool:
    return facts.task_seconds < SMALL_TASK_SECONDS


_BARE = (WHOLE,)

#: For each bucket and cause the first rule that holds is given. Each ends with one that claims nothing of the run.
RULES: tuple[Advice, ...] = (
    Advice(
        Bucket.THREAD_NONCPU,
        (WHOLE, "lock", UNKNOWN),
        lambda facts: facts.gpu_waiting > MOST,
        "mostly waiting for GPUs that did not work for the task, see GPUs below",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("gil",),
        lambda facts: facts.gil_of_loops > MOST,
        "fewer and longer tasks with smaller results (event loops held it)",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("gil",),
        lambda facts: facts.one_thread_each,
        "see which threads beside the tasks run Python code, each worker has one thread for tasks",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("gil",),
        lambda facts: facts.gil_of_text <= MOST,
        "processes (more workers with fewer threads each)",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("gil",),
        _always,
        "use string[pyarrow] for text, or processes (more workers with fewer threads each)",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("core",),
        lambda facts: facts.others >= OTHERS,
        "other processes use {others} of these cores, see which they are",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("core",),
        lambda facts: facts.in_libraries,
        "less for libraries' threads to do, such as fewer columns or row groups to read, or more cores",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("core",),
        lambda facts: facts.threads > facts.cores,
        "fewer threads, or more cores ({threads} threads share {cores} cores)",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("core",),
        _always,
        "OMP_NUM_THREADS=1 for libraries' own threads, fewer threads, more cores, or less beside them",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("throttled",),
        _always,
        "raise the container's CPU limit, or use fewer threads (other cores of the node do not help)",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("stopped",),
        _always,
        "see what stops them, such as SIGSTOP, a frozen container, or a paused machine",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("lock",),
        lambda facts: facts.in_libraries,
        "less for libraries' threads to do, such as fewer columns or row groups to read",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("lock",),
        _always,
        "see what holds the lock, and hold it for less, or let fewer tasks need it",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("sleep",),
        _always,
        "see what sleeps, and whether it must, or use more threads per worker, so that sleeps overlap",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("file",),
        _always,
        "read more at a time, use faster disks, or more threads per worker, so that reads overlap",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("network",),
        _always,
        "more threads per worker, so that requests overlap, or prefetch, or ask for more at a time",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        ("child-process",),
        _always,
        "see what the child does (if it computes, it takes a core that no figure here counts)",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        (UNKNOWN,),
        _always,
        "no sample showed why, longer runs and longer tasks give more samples",
    ),
    Advice(
        Bucket.THREAD_NONCPU,
        _BARE,
        _always,
        "in tasks, off the CPU: I/O, sleep, a lock, the GIL, or a library's own threads at work",
    ),
    Advice(Bucket.SPILL, _BARE, _always, "more memory per worker, smaller partitions, persist less"),
    Advice(
        Bucket.OVERHEAD,
        (WHOLE, "hand-over", "event-loop", UNKNOWN),
        _small,
        "bigger partitions, or fuse tasks (those of {task} are small for Dask)",
    ),
    Advice(
        Bucket.OVERHEAD,
        (WHOLE, "event-loop", UNKNOWN),
        lambda facts: facts.spilling >= WORTH_ADVICE,
        "more memory or smaller partitions (event loops were late, and workers spilled)",
    ),
    Advice(
        Bucket.OVERHEAD,
        ("hand-over",),
        _always,
        "look for tasks that keep the GIL, or a busy host",
    ),
    Advice(
        Bucket.OVERHEAD,
        ("event-loop",),
        _always,
        "look for tasks that keep the GIL, large results, or a busy host",
    ),
    Advice(
        Bucket.OVERHEAD,
        (WHOLE, UNKNOWN),
        _always,
        "event loops of workers were late, look for tasks that keep the GIL, large results, or a busy host",
    ),
    Advice(Bucket.FAILED, _BARE, _always, "read the tracebacks: each of retries= costs the whole task again"),
    Advice(Bucket.CANCELLED, _BARE, _always, "keep futures until they are used, let workers finish before they close"),
    Advice(Bucket.RECOMPUTED, _BARE, _always, "results were lost with their workers: see why those went"),
    Advice(Bucket.PAUSED, _BARE, _always, "memory above worker.memory.pause: more memory, fewer threads per worker"),
    Advice(Bucket.RETIRING, _BARE, _always, "scale down less eagerly: a larger wait_count or interval in adapt()"),
    Advice(
        Bucket.WAITING_ON_DATA, _BARE, _always, "tasks waited for transfers: fewer shuffles, fewer but larger workers"
    ),
    Advice(
        Bucket.CONSTRAINED, _BARE, _always, "tasks waited for resources=: offer more of it per worker, or ask for less"
    ),
    Advice(
        Bucket.IDLE,
        (WHOLE, "parallelism"),
        lambda facts: facts.larger_input >= SIZES_DIFFER,
        "split or salt the key (the input of the longest task is {larger} times as large)",
    ),
    Advice(
        Bucket.IDLE,
        (WHOLE, "parallelism"),
        lambda facts: facts.longest_task >= MOST,
        "split the task that took {longest} of the makespan while other threads had none",
    ),
    Advice(
        Bucket.IDLE,
        (WHOLE, "parallelism"),
        lambda facts: facts.chain >= CHAINED,
        "more workers do not help, tasks waited for one another ({chain} of the makespan is one chain)",
    ),
    Advice(
        Bucket.IDLE,
        ("scheduler",),
        lambda facts: facts.importing > MOST,
        "import modules on the workers before the work, by client.run or a preload (their event loops did)",
    ),
    Advice(
        Bucket.IDLE,
        (WHOLE, "scheduler", UNKNOWN),
        _small,
        "bigger partitions, or fuse tasks (those of {task} end before the scheduler hands out more)",
    ),
    Advice(
        Bucket.IDLE,
        ("parallelism",),
        lambda facts: facts.fills_workers,
        "fewer threads per worker, as each task of {waited_for} fills one, or something to run beside them",
    ),
    Advice(
        Bucket.IDLE,
        ("parallelism",),
        lambda facts: bool(facts.waited_for),
        "split the tasks of {waited_for}, for which all waited, or run something beside them",
    ),
    Advice(
        Bucket.IDLE,
        (WHOLE, "parallelism"),
        lambda facts: facts.held_threads < ONE_TASK and facts.threads > 2 * ONE_TASK,
        "one task at a time on {threads} threads, by a chain, or a client that waits for each result",
    ),
    Advice(
        Bucket.IDLE,
        ("scheduler",),
        _always,
        "fewer and longer tasks, by bigger partitions or by fusing them",
    ),
    Advice(
        Bucket.IDLE,
        ("imbalance",),
        _always,
        "see what ties tasks to the workers at which they queue, or split uneven partitions",
    ),
    Advice(
        Bucket.IDLE,
        ("restricted",),
        _always,
        "let more workers run these tasks (workers=, resources= and annotations tie them down)",
    ),
    Advice(
        Bucket.IDLE,
        ("graph",),
        _always,
        "make graphs smaller, by bigger partitions, and keep large objects out of them",
    ),
    Advice(
        Bucket.IDLE,
        ("parallelism",),
        _always,
        "smaller partitions, or split the tasks that all others wait for",
    ),
    Advice(
        Bucket.IDLE,
        _BARE,
        _always,
        "{held} of {threads} threads had a task: too few at a time, or a busy scheduler",
    ),
    Advice(Bucket.IDLE, (UNKNOWN,), _always, "too few tasks at a time, or a busy scheduler"),
    Advice(
        Bucket.LOST_WORKER, _BARE, _always, "killed for memory, or its job ended: see the nanny's and the job's logs"
    ),
    Advice(
        Bucket.UNMEASURED,
        _BARE,
        lambda facts: facts.joining,
        "workers that were joining: it takes a moment until each is metered",
    ),
    Advice(Bucket.UNMEASURED, _BARE, _always, "see Not measured; the package must be on every worker before the work"),
)


def advised(report: EfficiencyReport) -> dict[str, str]:
    """Advice by bucket or cause (:func:`~dask_efficiency.accounts.causes.name_of`), the largest loss first.

    For the causes that are worth it; for a bucket that is, where none of its causes is.
    """
    facts = facts_of(report)
    return {
        cause_name(bucket, cause) if cause else str(bucket): advice(bucket, facts, cause)
        for bucket, cause in _worth_it(report)
    }


def _worth_it(report: EfficiencyReport) -> list[tuple[Bucket, str]]:
    whole = report.breakdown
    least = WORTH_ADVICE * (whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING))
    found = []
    for loss in report.losses:
        if loss.share >= WORTH_ADVICE:
            causes = [cause for cause, ns in report.causes_ns(loss.bucket).items() if ns >= least]
            found += [(loss.bucket, cause) for cause in causes or [WHOLE]]
    return found


def advice(bucket: str, facts: Facts, cause: str = WHOLE) -> str:
    """What to do about time lost to a bucket, or to a cause in it, in one line; empty where that is no loss."""
    rules = (rule for rule in RULES if rule.bucket == bucket and cause in rule.causes and rule.holds(facts))
    rule = next(rules, None)
    return "" if rule is None else rule.words.format(**facts.words())


def cause_advice(bucket: str, cause: str) -> str:
    """What to do about a cause, whatever else is known of the run; empty where there is none.

    Parameters
    ----------
    bucket, cause
        As in :data:`~dask_efficiency.accounts.causes.CAUSES`.
    """
    return advice(bucket, _NOTHING_KNOWN, cause)


def read_on(report: EfficiencyReport) -> str:
    """What prints more about what is advised; empty where nothing is."""
    kinds = [cause_name(bucket, cause) if cause else str(bucket) for bucket, cause in _worth_it(report)]
    return f"Read on: dask-efficiency explain {' | '.join(kinds)}" if kinds else ""


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
    return Facts(
        task_seconds=in_threads / tasks if tasks else math.nan,
        threads=report.threads,
        held_threads=whole.ns(*HELD) / 1e9 / wall if wall else math.nan,
        cores=math.nan if report.cores is None else report.cores,
        others=report.others_share or 0.0,
        libraries=whole.ns(Bucket.LIBRARY_THREADS) / cpu if cpu else 0.0,
        gil_of_loops=_share_of_holders(report, lambda holder: holder.holder == EVENT_LOOP),
        gil_of_text=_share_of_holders(report, lambda holder: any(map(_works_on_text, holder.stack))),
        one_thread_each=bool(report.nthreads) and max(report.nthreads.values()) == 1,
        gpu_waiting=waiting_seconds(report.details) / noncpu if noncpu else 0.0,
        spilling=whole.ns(Bucket.SPILL) / finalized if finalized else 0.0,
        # One task that is most of the chain is no chain.
        chain=math.nan if longest >= MOST else chain,
        longest_task=longest,
        larger_input=larger_input(report, waited_for),
        waited_for=waited_for,
        fills_workers=_fills_workers(report, waited_for),
        importing=_importing(report),
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
_NOTHING_KNOWN = Facts(
    task_seconds=_UNKNOWN,
    threads=_UNKNOWN,
    held_threads=_UNKNOWN,
    cores=_UNKNOWN,
    others=0.0,
    libraries=0.0,
    gil_of_loops=_UNKNOWN,
    gil_of_text=_UNKNOWN,
    one_thread_each=False,
    gpu_waiting=0.0,
    spilling=0.0,
    chain=_UNKNOWN,
    longest_task=_UNKNOWN,
    larger_input=_UNKNOWN,
    waited_for="",
    fills_workers=False,
    importing=0.0,
    joining=False,
)
