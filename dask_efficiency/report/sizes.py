"""Sizes: by how much larger or smaller partitions should be, and how many threads and processes there should be."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dask_efficiency.accounts.buckets import GOOD, HELD, Bucket
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.wall_clock import MANY_GRAPHS, need_last
from dask_efficiency.show.figures import format_bytes, format_count, format_number, format_seconds
from dask_efficiency.show.finding import MOST

#: Seconds in a thread below which a task is small: Dask spends about a millisecond on each.
SMALL_TASK_SECONDS = 0.02
#: Seconds that a task should take: Dask spends about a millisecond on each, and its own advice is 100 ms.
TASK_SECONDS = 0.1
#: Tasks that each thread should be left with, so that all end at about the same time. By judgement: with four of equal
#: length for each, a quarter of the last round is idle in the mean.
TASKS_OF_A_THREAD = 4
#: Chunks that a task has in memory at a time (input, output, and what is between), and the share of a worker's memory
#: that those of all its threads may take: the rest is for results that wait. By judgement.
COPIES, OF_MEMORY = 4, 0.5
#: Share of the longest task by which the one that it is joined to may take longer, however long it is. By judgement.
MORE_OF_LONGEST = 0.1
#: Bytes below which results are no partitions or chunks, but a few numbers each. By judgement.
MIN_CHUNK = 1 << 16
#: Prefixes of tasks in which a dataframe is reduced to one partition, unless ``split_out`` says how many, by names that
#: nothing without it has, as ``sum`` and ``cov``.
TREE = re.compile(r"(?:\w*groupby\w*|drop_?duplicates|unique|value_?counts)-tree")
#: Bytes of a result, or of all that came to a client, below which their size does not matter. By judgement: half or
#: twice as many change no first screen of the runs in tests/data (``benchmarks.studies.constants``).
LARGE_RESULTS = 1 << 20
#: Bytes that a process of Dask takes before it has any data, with pandas: measured.
PROCESS = 150 << 20


class Alike(NamedTuple):
    """Tasks of a prefix: their number, seconds of each, and bytes of the largest results that as many tasks have."""

    tasks: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0

    def words(self, rounds: int) -> str:
        """Word them, given the number of graphs that ran one after the other."""
        nbytes = f" and {format_bytes(self.nbytes)}" if self.nbytes >= MIN_CHUNK else ""
        graphs = f" in {rounds} graphs" if rounds > 1 else ""
        return f"{format_count(self.tasks, 'task')} of {format_seconds(self.seconds)}{nbytes}{graphs}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that would do, with their reasons; 0 where nothing is known, or nothing is to change."""

    #: The most small tasks of a prefix, and the tasks of the prefix that took most time.
    small: Alike = Alike()  # noqa: RUF009  # immutable
    long: Alike = Alike()  # noqa: RUF009  # immutable
    #: Number of graphs that were sent with nothing outstanding, so that their tasks did not run together.
    rounds: int = 1
    #: True if each of these needs the one before.
    needs_last: bool = False
    #: How many times as large partitions should be, as far as memory and threads allow it, and without these limits.
    times: int = 0
    wanted: int = 0
    #: Operations that the small tasks are of, where those of each are too few to be joined; else 0.
    operations: int = 0
    #: True if memory is what limits them, rather than the number of threads.
    by_memory: bool = False
    #: How many times smaller they should be, for each thread to have some.
    smaller: int = 0
    #: Workers of one thread each that have the memory and the cores of the present ones.
    processes: int = 0
    #: Threads of a worker whose waits would overlap with each other's computing.
    nthreads: int = 0
    #: Prefixes of aggregations of dataframes of which one task has all of a large result.
    in_one: frozenset[str] = frozenset()
    #: What makes partitions of another size: ``chunks="{size}"``; empty if it is not known.
    call: str = ""

    def words(self) -> dict[str, str]:
        """Figures for use in a sentence."""
        times = max(self.times, 1)
        fewer, call = -(-self.small.tasks // times), in_numbers(self.call, self.small, times)
        smaller = max(self.smaller, 1)
        these = self.small.words(self.rounds)
        larger = f"Use fewer threads: {these} are too few to be joined, and too small for so many threads"
        if self.rounds >= MANY_GRAPHS:
            together = "or compute several results by one dask.compute()"
            more = "and persist() what stays the same" if self.needs_last else together
            larger = f"Use larger partitions, {more}: {these} are few in each"
        if self.times > 1:
            larger = f"Make partitions {self.times} times as large, from {these} to {format_number(fewer)} tasks"
            larger += f": {call}" if call else ""
        elif self.by_memory:
            larger = f"Give workers more memory first: {self.wanted} of {these} joined do not fit into it"
        return {
            "small": these,
            "operations": format_number(self.operations),
            "few": self.long.words(self.rounds),
            "resized": larger,
            "smaller_by": str(smaller),
            "smaller_to": f", {format_bytes(self.long.nbytes / smaller)} each" if self.long.nbytes >= MIN_CHUNK else "",
            "processes": f"{self.processes} workers of 1 thread"
            if self.processes
            else "more workers with fewer threads",
            "nthreads": f"{self.nthreads} threads" if self.nthreads else "more threads",
        }


#: Sizes of which none is known.
NO_SIZES = Sizes()


def sizes_of(report: EfficiencyReport) -> Sizes:
    """Sizes of partitions, and numbers of threads and processes, for a report's run."""
    threads = sum(report.nthreads.values())
    known = {prefix: one for prefix, one in report.skew.items() if one.count and prefix != OTHER}
    if not known or not threads:
        return NO_SIZES
    rounds, tasks = max(report.rounds, 1), sum(one.count for one in known.values())
    larger = larger_partitions(
        known,
        seconds=report.breakdown.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9 / tasks,
        share=report.breakdown.ns(*HELD) / 1e9 / threads / rounds,
        threads=threads,
        rounds=rounds,
        memory=_memory_of_a_thread(report),
    )
    long = longest_prefix(known)
    # A prefix with fewer tasks than there were graphs was not in all of them.
    per_thread = long.count / (rounds if long.count >= rounds else 1) / threads
    # With less to do than Dask needs for a task, smaller ones only cost more.
    split = math.ceil(TASKS_OF_A_THREAD / per_thread) if per_thread < TASKS_OF_A_THREAD else 0
    can_change = larger.times > 1 or larger.by_memory or threads > 1
    return Sizes(
        small=larger.small,
        long=Alike(long.count, long.median_seconds, _widest(long, known)),
        rounds=rounds,
        needs_last=need_last(report) > 0,
        times=larger.times,
        wanted=larger.wanted if can_change else 0,
        operations=0 if larger.times > 1 else larger.operations,
        by_memory=larger.by_memory,
        smaller=min(split, int(long.median_seconds / TASK_SECONDS)) if split > 1 else 0,
        processes=_processes(report),
        nthreads=_nthreads(report),
        in_one=frozenset(
            n for n, one in known.items() if TREE.fullmatch(n) and one.max_bytes >= LARGE_RESULTS and threads > 1
        ),
        call=_call(report, larger),
    )


class Larger(NamedTuple):
    """Number of neighbours to be joined to one task, as larger partitions do; 0 where none are."""

    times: int
    #: Without limits, and True if the limit is memory rather than the number of threads.
    wanted: int
    by_memory: bool
    #: Operations that they are of, if they are of several.
    operations: int
    #: Those that are joined, and by prefix all of which there are about as many.
    small: Alike
    wide: Mapping[str, Skew]


def larger_partitions(
    known: Mapping[str, Skew], *, seconds: float, share: float, threads: int, rounds: int, memory: float
) -> Larger:
    """Choose how many tasks to join, so that each takes :data:`TASK_SECONDS`.

    Parameters
    ----------
    known
        Tasks by prefix; those of the prefix that has most small ones are joined, with as many of others.
    seconds
        Mean of all tasks.
    share, threads
        Seconds of work for each thread, and the number of threads: each is left with several tasks, and the longest
        does not end long after all others.
    rounds
        Number of graphs that ran one after the other.
    memory
        Bytes that a thread may have for its partitions.
    """
    small = [one for one in known.values() if one.median_seconds < SMALL_TASK_SECONDS]
    most = max(small, key=lambda one: one.count, default=longest_prefix(known))
    wide = {prefix: one for prefix, one in known.items() if one.count > MOST * most.count}
    median, nbytes = most.median_seconds, _widest(most, known)
    operations = round(most.count / most.in_a_group) if most.in_a_group >= 1.0 else 0
    count = max(most.count // max(rounds, operations), 1)
    longest = max(one.max_seconds for one in wide.values())
    room = memory / max(COPIES * nbytes, *(one.p95_working for one in wide.values()), 1e-9)
    wanted = int(min(TASK_SECONDS / seconds, count)) if seconds > 0 else 0
    more = max(share / 2 - longest, MORE_OF_LONGEST * longest)
    balanced = more / median + 1.0 if median > 0 else math.inf
    by_threads = min(count / (TASKS_OF_A_THREAD * threads), balanced)
    times = _round(min(wanted, room, by_threads))
    found = (
        times if times > 1 else 0,
        wanted if wanted > 1 else 0,
        room < by_threads,
        operations if operations > rounds else 0,
    )
    return Larger(*found, Alike(most.count, median, nbytes), wide)


def longest_prefix(known: Mapping[str, Skew]) -> Skew:
    """Tasks of the prefix that took most time."""
    return max(known.values(), key=lambda one: one.count * one.median_seconds)


def _widest(most: Skew, known: Mapping[str, Skew]) -> float:
    """Bytes of the largest results that about as many tasks have."""
    return max(one.median_bytes for one in known.values() if one.count > MOST * most.count)


def _memory_of_a_thread(report: EfficiencyReport) -> float:
    """Bytes of chunks that a thread may have in memory; infinite where nothing is known."""
    limits = [(one.limit or one.host, report.nthreads.get(name, 1)) for name, one in report.memory.items()]
    return min((OF_MEMORY * limit / nthreads for limit, nthreads in limits if limit), default=math.inf)


def _round(times: float) -> int:
    """Round down to one digit, from 10 on."""
    whole = int(max(times, 0.0))
    unit = int(10.0 ** (len(str(whole)) - 1))
    return whole // unit * unit


def _processes(report: EfficiencyReport) -> int:
    """Workers of one thread each in place of the present ones; 0 if memory or cores would not do."""
    threads = sum(report.nthreads.values())
    if len(report.nthreads) == threads or not all(name in report.memory for name in report.nthreads):
        return 0
    if report.cores is not None:
        threads = min(threads, int(report.cores))
    limits = sum(one.limit for one in report.memory.values())
    peaks = sum(max(one.peak, 0) for one in report.memory.values())
    more = PROCESS * (threads - len(report.nthreads))
    fit = threads > len(report.nthreads) and peaks + more <= limits and tasks_fit(report, 1, limits / threads)
    return threads if fit else 0


def _nthreads(report: EfficiencyReport) -> int:
    """Twice the threads, which is what a replay of the run has; 0 if workers differ, or memory would not do."""
    threads = {2 * nthreads for nthreads in report.nthreads.values()}
    limit = min((limit for one in report.memory.values() if (limit := one.limit or one.host)), default=0)
    return threads.pop() if len(threads) == 1 and tasks_fit(report, max(threads), limit) else 0


def tasks_fit(report: EfficiencyReport, nthreads: int, limit: float) -> bool:
    """True if a worker's memory has room for a large task in each of its threads; without a limit it has."""
    working = [one.max_working if nthreads == 1 else one.p95_working for one in report.skew.values()]
    return not limit or PROCESS + nthreads * max(working, default=0.0) <= limit


def _call(report: EfficiencyReport, larger: Larger) -> str:
    """Change that makes larger partitions, by what the keys and the lines of code say of the collection."""
    files = {frame.file for row in report.profile for frame in row.stack}
    lines = " ".join(report.computed_by.get(prefix, "") for prefix in larger.wide)
    if "client.map(" in lines or "client.submit(" in lines:
        return CALLS
    dimensions, is_sized = _most_dimensions(larger), larger.small.nbytes >= MIN_CHUNK
    # A call behind these would leave the small tasks, and join their results.
    if (is_sized or dimensions) and any("pandas/" in file or "dask/dataframe" in file for file in files):
        return FRAMES if report.rounds <= 1 else FRAMES.replace("{n}", "")
    if dimensions > 1 or (dimensions and any("dask/array" in file for file in files)):
        return ARRAYS if is_sized else ARRAYS_ALONE
    return ""


#: Changes that make larger partitions, by collection; those of a size are where it begins.
CALLS = "pass client.map lists of {times} items"
FRAMES = "npartitions={n} or blocksize= where the dataframe begins"
ARRAYS = 'chunks="{size}" where the array begins, or else x.rechunk'
ARRAYS_ALONE = "larger chunks= where the array begins"
FRAMES_OR_ARRAYS = 'npartitions={n} of a dataframe or bag, or chunks="{size}" of an array, where it begins'


def call_by_keys(larger: Larger) -> str:
    """Change that makes larger partitions, by the keys alone; empty if they do not tell it."""
    dimensions, is_sized = _most_dimensions(larger), larger.small.nbytes >= MIN_CHUNK
    if not dimensions:
        return CALLS
    arrays = ARRAYS if is_sized else ARRAYS_ALONE
    return arrays if dimensions > 1 else FRAMES_OR_ARRAYS if is_sized else ""


def _most_dimensions(larger: Larger) -> int:
    """Number of dimensions of the collection, by its keys; 0 if they are no blocks of one."""
    return max(_dimensions(one.longest_key) for one in larger.wide.values())


def in_numbers(call: str, small: Alike, times: int) -> str:
    """Word a change of partitions with their number and size."""
    size = format_bytes(small.nbytes * times).replace(" ", "")
    return call.format(size=size, n=-(-small.tasks // times), times=times)


def _dimensions(key: str) -> int:
    """Number of dimensions of the collection that a key is of; 0 if it is of none."""
    try:
        parts = ast.literal_eval(key) if key.startswith("(") else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return 0
    return sum(isinstance(part, int) for part in parts)
