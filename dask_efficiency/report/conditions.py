"""Conditions: figures of a report that decide which advice applies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dask_efficiency.accounts.buckets import GOOD, HELD, Breakdown, Bucket, cause_name
from dask_efficiency.accounts.cluster.history import WITHOUT_ACCOUNT
from dask_efficiency.accounts.cluster.scheduler_loop import RECEIVING, SENDING, STEP, STREAM
from dask_efficiency.accounts.lines import (
    CHILD_CPU,
    EVENT_LOOP,
    NO_CORE,
    blamed,
    is_import,
    is_the_users,
    place_of,
)
from dask_efficiency.accounts.metered import of_shuffles
from dask_efficiency.accounts.waits import CHILD, CLUSTER, LIBRARY, LOCK, SHUFFLE, place_of_wait
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.report.blocks import (
    blocks_of_scheduler,
    held_by_client,
    is_run,
    most_of,
    overhead_blocked,
    own_blocks,
    place_of_blocks,
    place_on_worker,
    waited_for_blocks,
)
from dask_efficiency.report.gil import longest_holder, share_of_holders, under_gil, works_on_text
from dask_efficiency.report.gpu import waiting_seconds
from dask_efficiency.report.memory_needs import NO_NEEDS, MemoryNeeds, needs_of
from dask_efficiency.report.messages import FINALIZE, large_objects, objects_fetched
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sizes import NO_SIZES, SMALL_TASK_SECONDS, TASK_SECONDS, Sizes, sizes_of
from dask_efficiency.report.skew import larger_input, longest_slept, median_seconds, ran_alone, ran_in_turn
from dask_efficiency.report.turnover import FEW_STAYED, came_and_went
from dask_efficiency.report.values import Amount, LongHold
from dask_efficiency.report.wall_clock import client_doing, client_phase, sending, time_of_client_counts, waited_in_turn
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_number,
    format_seconds,
    format_share,
    name_of,
)
from dask_efficiency.show.finding import MOST, WORTH_FINDING

#: Cause of idle time that ends sooner with tasks queued at the workers.
ROUND_TRIPS = cause_name(Bucket.IDLE, "round-trips")
#: Waits that overlap with more threads, if there are tasks for them.
OF_THREADS = (cause_name(Bucket.THREAD_NONCPU, "sleep"), cause_name(Bucket.THREAD_NONCPU, "network"))
#: Share of the makespan from which the longest chain bounds a run. By judgement.
CHAINED = 0.8
#: Graphs of one task each from which it matters that the client waited before it sent them: a guess.
MANY_GRAPHS = 10
#: Tasks of a graph for each thread below which most threads have nothing to do while it runs. A guess.
FEW_TASKS = 2
#: Share of a client's sleep with work outstanding from which it may have waited for that. A guess.
POLLS = 0.1

#: Handler of ``client.run_on_scheduler``.
RUN_FUNCTION = "run_function"
#: Parts of the scheduler's event loop that tasks' own traffic takes.
_OF_TASKS = (STREAM, SENDING, RECEIVING, STEP)

_NOTHING_MOVED = Amount(0, 0)
_UNKNOWN = math.nan


@dataclass(frozen=True, slots=True)
class Conditions:
    """Figures that the conditions of advice look at; with the defaults, no condition holds."""

    #: Mean seconds of a task in its thread.
    task_seconds: float = _UNKNOWN
    #: Seconds that half of the tasks took at most, by the medians of prefixes.
    median_seconds: float = _UNKNOWN
    #: Mean number of threads with work outstanding, and of those that held a task.
    threads: float = _UNKNOWN
    held_threads: float = _UNKNOWN
    cores: float = _UNKNOWN
    others: float = 0.0
    #: Share of the cores that tasks, libraries' threads and other processes use.
    cores_used: float = _UNKNOWN
    #: Share of the CPU time in libraries' own threads.
    libraries: float = _UNKNOWN
    #: Shares of the waiting for the GIL while event loops held it, and while pandas worked on text.
    gil_of_loops: float = _UNKNOWN
    #: Share of what tasks compute, by samples, that is under the GIL.
    under_gil: float = _UNKNOWN
    #: The same of the tasks that held the GIL for longest while others waited for it.
    under_gil_of_holder: float = _UNKNOWN
    gil_of_text: float = _UNKNOWN
    #: Place of most of the waiting for locks, and for the cluster, by cause, of :mod:`dask_efficiency.accounts.waits`;
    #: empty for a cause that has several.
    places: Mapping[str, str] = field(default_factory=dict)
    #: Seconds in which child processes computed while tasks waited for them, and their share of that waiting.
    children_seconds: float = 0.0
    children_share: float = 0.0
    #: True if tasks wait longer for cores than for the GIL.
    short_of_cores: bool = False
    one_thread_each: bool = False
    #: Share of ``thread-noncpu`` spent waiting for GPUs, and of the finalized time spent spilling.
    gpu_waiting: float = 0.0
    spilling: float = 0.0
    spilled: Amount = _NOTHING_MOVED
    read_back: Amount = _NOTHING_MOVED
    #: Share of the makespan of the longest chain of tasks; known with a trace.
    chain: float = _UNKNOWN
    #: Share of it in which one task ran alone while threads were free; known with a trace.
    alone: float = _UNKNOWN
    #: Ratio of the longest task's input to the usual one, for a task far longer than its like.
    larger_input: float = _UNKNOWN
    #: Prefix whose tasks ran for most of the time while nothing else could; empty if there is none.
    waited_for: str = ""
    #: Number of graphs that the client sent, of those that it sent with nothing outstanding, and of tasks for each.
    graphs: int = 0
    rounds: int = 0
    tasks_per_graph: float = _UNKNOWN
    #: True if each of its tasks fills a worker: one per worker, or with threads of its own.
    fills_workers: bool = False
    #: Shares of the idle time for the scheduler and for round trips in which event loops imported modules; in which
    #: workers' were blocked, and by what most; in which these waited for a core; and in which another thread held the
    #: GIL of the scheduler's process.
    importing: float = 0.0
    blocked: float = 0.0
    blocked_by: str = ""
    #: Share of the workers' overhead that blocks of their event loops explain; and True if what blocked most was a
    #: function that ``client.run`` called, other code of the user's, or a thread of a task that held the GIL.
    overhead_blocked: float = 0.0
    run_blocks: bool = False
    own_code_blocks: bool = False
    task_blocks: bool = False
    starved: float = 0.0
    gil_held: float = 0.0
    gil_held_by: str = ""
    #: ``distributed.scheduler.worker-saturation``, a higher one, and the share of the work on the cluster that this
    #: saves, by a replay; NaN without one.
    saturation: float = _UNKNOWN
    saturation_needed: float = _UNKNOWN
    saturation_saves: float = _UNKNOWN
    #: The share that twice the threads save where tasks sleep, or wait for the network, by a replay; NaN without one.
    threads_save: float = _UNKNOWN
    #: Memory that the run needed, and why results were kept.
    memory: MemoryNeeds = NO_NEEDS
    #: Sizes of partitions, and numbers of threads and processes, that would do.
    sizes: Sizes = NO_SIZES
    #: Share of the time with work in which the scheduler's event loop was busy.
    loop_busy: float = _UNKNOWN
    #: Largest use of the event loop and its share, if it is none of Dask's own task handlers; else the handler, and 0.
    loop_by: str = ""
    loop_share: float = 0.0
    #: Phase of most of the client's time without work on the cluster, if that was work for Dask: ``"gather"``.
    client_phase: str = ""
    #: What it did then, by its samples: ``"compute"``; empty if not known.
    client_activity: str = ""
    #: Seconds in which it built graphs, for each task.
    building: float = 0.0
    #: True if it slept while work was outstanding, too, as one does that polls.
    polls: bool = False
    #: Function of a library that sent graphs at the line that waited for most of them; empty if it called Dask itself.
    sent_by: str = ""
    #: True if it waited for many graphs one after the other at that line, for most of the client's time.
    in_turn: bool = False
    #: Objects in lists and the like that were pickled one by one for clients.
    objects_fetched: float = 0.0
    #: Times that each task ran that failed in the end.
    attempts: float = 0.0
    #: Type of large objects from worker to worker whose size Dask does not know by itself; may be empty.
    large_objects: str = ""
    joining: bool = False  # only that explains unmeasured time
    came_and_went: bool = False
    ran_in_turn: bool = False  # tasks that all waited for ran one after the other
    longest_slept: bool = False

    @property
    def small_tasks(self) -> bool:
        """True if tasks are so small that Dask's own work on each takes about as long."""
        return self.task_seconds < SMALL_TASK_SECONDS

    @property
    def long_tasks(self) -> bool:
        """True if tasks are long enough: in the mean, and most of them."""
        return self.task_seconds >= TASK_SECONDS and not self.median_seconds < TASK_SECONDS

    @property
    def one_by_one(self) -> bool:
        """True if the client sent many graphs, each too small for the cluster, and waited for most of them."""
        few = self.tasks_per_graph < 2
        if self.in_turn and self.held_threads < MOST * self.threads:  # they do not fill the threads
            few = few or self.tasks_per_graph < FEW_TASKS * self.threads
        return self.rounds >= MANY_GRAPHS and self.rounds > MOST * self.graphs and few

    @property
    def chained(self) -> bool:
        """True if one chain of tasks is nearly all of the run, and no task is most of it."""
        return self.chain >= CHAINED

    @property
    def threads_in_vain(self) -> bool:
        """True if more threads would have nothing to do: by a replay, or else as one chain or client is waited for."""
        unknown = math.isnan(self.threads_save)
        return self.chained or self.one_by_one if unknown else self.threads_save < WORTH_FINDING

    def in_vain(self, kind: str) -> bool:
        """True if the cure of a kind that was replayed saves next to nothing; there are others."""
        if kind == ROUND_TRIPS:
            return self.saturation_saves < WORTH_FINDING
        return kind in OF_THREADS and self.threads_in_vain

    @property
    def times_read_back(self) -> float:
        """Bytes read back over bytes spilled."""
        return self.read_back.nbytes / self.spilled.nbytes if self.spilled.nbytes else math.nan

    @property
    def waits_for_shuffle(self) -> bool:
        """True if all waited for a P2P shuffle to end."""
        return of_shuffles(self.waited_for)

    @property
    def waits_for_result(self) -> bool:
        """True if all waited for the task that puts the result of a ``compute()`` together for the client."""
        return self.waited_for.startswith(FINALIZE)

    @property
    def fetches_result(self) -> bool:
        """True if all waited for a task that puts a result together, which the client then waited to receive."""
        return self.waits_for_result and self.client_receives and bool(self.client_activity)

    @property
    def client_receives(self) -> bool:
        """True if the client receives results for most of its time without work on the cluster."""
        if self.client_activity:
            return self.client_activity in ("receive", "unpickle")
        return self.client_phase == "gather"

    @property
    def in_libraries(self) -> bool:
        """True if libraries' own threads do most of the computing: a lock that tasks wait for is then a library's."""
        return self.libraries > MOST

    @property
    def for_libraries(self) -> bool:
        """True if tasks wait for a library's own threads, or for a lock inside it, in no place known to be another."""
        return self.in_libraries and self.places.get(LOCK, "") in ("", LIBRARY)

    @property
    def imports(self) -> bool:
        """True if threads wait for the scheduler mostly while event loops import modules."""
        return self.importing > MOST

    @property
    def loops_blocked(self) -> bool:
        """True if they wait for it mostly while workers' event loops are blocked, by imports or anything else."""
        return self.blocked > MOST

    @property
    def overhead_of_blocks(self) -> bool:
        """True if most of the workers' overhead is that event loops were blocked, and not for lack of a core."""
        return self.overhead_blocked > MOST and bool(self.blocked_by)

    @property
    def loops_starved(self) -> bool:
        """True if event loops were blocked mostly as they waited for a core."""
        return self.loops_blocked and self.starved > MOST * self.blocked

    @property
    def gil_taken(self) -> bool:
        """True if they wait for it mostly while another thread holds the GIL of the scheduler's process."""
        return self.gil_held > MOST

    @property
    def no_scheduling(self) -> bool:
        """True if something other than tasks explains the waiting for the scheduler, and for round trips."""
        return self.imports or self.gil_taken or self.loop_held or self.loops_blocked

    @property
    def scheduler_busy(self) -> bool:
        """True if the scheduler's event loop is busy most of the time, and so bounds the cluster."""
        return self.loop_busy > MOST

    @property
    def loop_held(self) -> bool:
        """True if one thing other than the tasks' own traffic keeps it busy, such as a plugin."""
        return self.scheduler_busy and self.loop_share > MOST

    @property
    def _whole_threads(self) -> float:
        """Number of threads for a sentence: whole, unless "5 threads share 5 cores" came of it."""
        if not math.isfinite(self.threads) or self.threads > self.cores >= round(self.threads):
            return self.threads
        return round(self.threads)

    def words(self) -> dict[str, str]:
        """Figures and names for use in a sentence."""
        return {
            "task": format_seconds(self.task_seconds),
            "threads": format_number(self._whole_threads),
            "held": format_number(self.held_threads, digits=2),
            "cores": format_number(self.cores),
            "children": format_seconds(self.children_seconds),
            "others": format_share(self.others),
            "chain": format_share(self.chain),
            "graphs": format_count(self.graphs, "graph"),
            "alone": format_share(self.alone),
            "larger": format_number(self.larger_input),
            "waited_for": name_of(self.waited_for),
            "saturation": f"{self.saturation:g}",
            "needed": f"{self.saturation_needed:.1f}",
            "spilled": format_bytes(self.spilled.nbytes),
            "read_back": format_bytes(self.read_back.nbytes),
            "times": format_number(self.times_read_back, digits=2),
            "sent_by": name_of(self.sent_by),
            "loop_busy": format_share(self.loop_busy),
            "loop_by": name_of(self.loop_by),
            "loop_share": format_share(self.loop_share),
            "objects": format_count(round(self.objects_fetched), "object"),
            "attempts": format_number(self.attempts),
            "large_objects": name_of(self.large_objects),
            **self.memory.words(),
            **self.sizes.words(),
        }


def conditions_of(report: EfficiencyReport) -> Conditions:
    """Conditions of a report."""
    whole = report.breakdown
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    tasks = sum(n for outcome, n in report.tasks.items() if outcome != WITHOUT_ACCOUNT)
    wall, noncpu = report.cluster_seconds, whole[Bucket.THREAD_NONCPU]
    in_threads = whole.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9
    cpu = whole.ns(Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS)
    chain = alone = math.nan
    if (path := report.path) is not None and path.makespan_seconds > 0 and path.divisible:
        task = ran_alone(report)
        chain = path.floor_seconds / path.makespan_seconds
        alone = task.alone_seconds / path.makespan_seconds if task is not None else 0.0
    waited_for = _waited_for(report)
    waiting = report.waiting
    children = sum(row.ns for row in report.profile if row.bucket == CHILD_CPU) / 1e9
    busy, by, share = _loop(report)
    holds = [block for block in blocks_of_scheduler(report) if block.holder not in (EVENT_LOOP, NO_CORE)]
    starved = [block for block in report.loop_blocks if block.holder == NO_CORE]
    by_work = [block for block in report.loop_blocks if block.holder != NO_CORE]
    saves = report.savings.get(ROUND_TRIPS)
    of_threads = [report.savings[kind].seconds for kind in OF_THREADS if kind in report.savings]
    doing, sender = client_doing(report), sending(report)
    return Conditions(
        task_seconds=in_threads / tasks if tasks else math.nan,
        median_seconds=median_seconds(report),
        threads=report.threads,
        held_threads=whole.ns(*HELD) / 1e9 / wall if wall else math.nan,
        cores=math.nan if report.cores is None else report.cores,
        others=report.others_share or 0.0,
        cores_used=_cores_used(report),
        libraries=whole.ns(Bucket.LIBRARY_THREADS) / cpu if cpu else math.nan,
        gil_of_loops=share_of_holders(report, lambda holder: holder.holder == EVENT_LOOP),
        under_gil=under_gil(report),
        under_gil_of_holder=under_gil(report, longest_holder(report)),
        gil_of_text=share_of_holders(report, lambda holder: any(map(works_on_text, holder.stack))),
        places={cause: _place(report, cause) for cause in (LOCK, CLUSTER)},
        children_seconds=children,
        children_share=children / waiting[CHILD] if waiting.get(CHILD) else 0.0,
        short_of_cores=waiting.get("core", 0.0) > waiting.get("gil", 0.0),
        one_thread_each=bool(report.nthreads) and max(report.nthreads.values()) == 1,
        gpu_waiting=waiting_seconds(report.details) / noncpu if noncpu else 0.0,
        spilling=whole.ns(Bucket.SPILL) / finalized if finalized else 0.0,
        spilled=report.moved.get("spilled", _NOTHING_MOVED),
        read_back=report.moved.get("read-back", _NOTHING_MOVED),
        # A single task that is most of the run is no chain.
        chain=math.nan if alone >= MOST else chain,
        alone=alone,
        larger_input=larger_input(report, waited_for),
        waited_for=waited_for,
        graphs=report.graphs,
        rounds=report.rounds,
        tasks_per_graph=tasks / report.graphs if report.graphs else math.nan,
        fills_workers=_fills_workers(report, waited_for),
        importing=waited_for_blocks(report, [block for block in own_blocks(report) if is_import(block.stack)]),
        blocked=waited_for_blocks(report, report.loop_blocks),
        blocked_by=place_on_worker(by_work),
        overhead_blocked=overhead_blocked(report, by_work),
        run_blocks=most_of(by_work, lambda block: block.holder == EVENT_LOOP and any(map(is_run, block.stack))),
        own_code_blocks=most_of(by_work, _is_own_code),
        task_blocks=most_of(by_work, lambda block: block.holder != EVENT_LOOP),
        starved=waited_for_blocks(report, starved),
        gil_held=waited_for_blocks(report, holds),
        gil_held_by=held_by_client(report, holds) or place_of_blocks(holds),
        saturation=math.nan if report.worker_saturation is None else report.worker_saturation,
        saturation_needed=saturation_needed(report),
        threads_save=max(of_threads) / wall if of_threads and wall > 0 else math.nan,
        saturation_saves=saves.seconds / wall if saves is not None and wall > 0 else math.nan,
        memory=needs_of(report),
        sizes=sizes_of(report),
        loop_busy=busy,
        loop_by=by,
        loop_share=share,
        client_phase=client_phase(report),
        client_activity=doing.activity if doing is not None and time_of_client_counts(report) else "",
        building=sum(row.ns for row in report.client if row.activity == "build") / 1e9 / tasks if tasks else 0.0,
        polls=_polls(report),
        sent_by=sender.line.function if sender is not None and sender.by_library else "",
        in_turn=sender is not None and sender.share > MOST and waited_in_turn(report, sender.line),
        objects_fetched=objects_fetched(report),
        attempts=_attempts(report),
        large_objects=large_objects(report),
        joining=not report.not_measured,
        came_and_went=bool(came_and_went(report.attendance, times=FEW_STAYED)),
        ran_in_turn=ran_in_turn(report, waited_for),
        longest_slept=longest_slept(report),
    )


def _attempts(report: EfficiencyReport) -> float:
    failed = sum(failure.tasks for failure in report.failures)
    return report.tasks.get(Outcome.FAILED, 0) / failed if failed else 0.0


def _polls(report: EfficiencyReport) -> bool:
    sleeping = [(row.ns, row.idle_ns) for row in report.client if row.activity == "sleep"]
    return sum(ns - idle for ns, idle in sleeping) > POLLS * sum(ns for ns, _ in sleeping)


def _is_own_code(block: LongHold) -> bool:
    return block.holder == EVENT_LOOP and not block.doing and is_the_users(blamed(block.stack).file)


def _cores_used(report: EfficiencyReport) -> float:
    used = report.ideal_bounds.get("cores", math.nan)
    return used / report.cluster_seconds + (report.others_share or 0.0) if report.cluster_seconds else math.nan


def _place(report: EfficiencyReport, cause: str) -> str:
    """Place at which tasks waited most of the time, for a cause; empty without one, or samples.

    Where a P2P shuffle moves data, tasks wait until buffers are sent or written, whatever the samples of some show.
    """
    name = cause_name(Bucket.THREAD_NONCPU, cause)
    rows = [row for row in report.profile if row.bucket == Bucket.THREAD_NONCPU and row.cause == cause]
    found: Counter[str] = Counter()
    for row in rows:
        found[place_of_wait(row.stack)] += row.ns
    place, ns = next(iter(found.most_common(1)), ("", 0))
    moving = {row.prefix for row in rows if place_of_wait(row.stack) == SHUFFLE}
    waited = {prefix: row.get(name, 0) for prefix, row in report.causes_by_prefix.items()}
    moved = sum(ns for prefix, ns in waited.items() if of_shuffles(prefix) or prefix in moving)
    if moved > MOST * sum(waited.values()):
        return SHUFFLE
    return place if ns > MOST * found.total() else ""


def _waited_for(report: EfficiencyReport) -> str:
    """Prefix that everything waited for, for most of the time without parallelism."""
    waited = report.waited_for
    longest = max(waited, key=lambda prefix: waited[prefix], default="")
    return longest if waited and waited[longest] > MOST * sum(waited.values()) else ""


def saturation_needed(report: EfficiencyReport) -> float:
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
    own = [part for part in (*loop.handlers, *loop.hooks) if part.kind not in _OF_TASKS or is_the_users(part.file)]
    most = max(own, key=lambda part: part.seconds, default=None)
    if most is not None and most.seconds > MOST * loop.busy_seconds:
        where = f" in {place_of(most.stack[0])}" if most.file else ""
        if most.name == RUN_FUNCTION:  # what it called
            where = f": {place_of_blocks([one for one in loop.blocks if one.holder == EVENT_LOOP])}"
        return loop.busy_with_work, f"{most.kind} `{most.name}`{where}", most.seconds / loop.busy_seconds
    return loop.busy_with_work, loop.handlers[0].title if loop.handlers else "", 0.0


def _fills_workers(report: EfficiencyReport, prefix: str) -> bool:
    skew, whole = report.skew.get(prefix), report.by_prefix.get(prefix)
    one_each = skew is not None and skew.count == len(report.by_worker) > 1 and skew.times_longer < 2
    return one_each or (whole is not None and has_own_threads(whole))


def has_own_threads(whole: Breakdown) -> bool:
    """True if such tasks compute, and do so for more than a third of their time in threads of libraries."""
    return 3 * whole.ns(Bucket.LIBRARY_THREADS) > whole.ns(*HELD) and whole.ns(Bucket.THREAD_CPU) > 0


#: Conditions for which no condition holds.
NOTHING_KNOWN = Conditions()
