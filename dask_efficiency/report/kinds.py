"""Kinds of findings: title, advice, and the section of the documentation that explains each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from dask_efficiency.accounts.waits import (
    CLUSTER,
    DASK_LOCK,
    DATABASE,
    LIBRARY,
    LIBRARY_LOCK,
    LOCK,
    MESSAGES,
    SHUFFLE,
    TASKS,
    THREAD,
)
from dask_efficiency.report.beside_kinds import BESIDE_TEXT
from dask_efficiency.report.conditions import NOTHING_KNOWN, Conditions
from dask_efficiency.report.memory_needs import GROWS, HOLDS_BACK
from dask_efficiency.report.wall_clock import MANY_GRAPHS
from dask_efficiency.show.finding import MOST, WORTH_FINDING
from dask_efficiency.straggler.observations import SIZES_DIFFER

#: Share of the time from which spilling explains late event loops; and ratio of bytes read back to bytes spilled from
#: which results were read repeatedly. By judgement.
SPILLS, READ_AGAIN = 0.05, 1.5
#: Saturation from which each thread has its next task at hand.
FULL = 2.0
#: Mean number of threads with a task below which tasks run one at a time. By judgement.
ONE_TASK = 1.1
#: Share of the cores from which other processes explain waiting for cores. By judgement.
OTHERS = 0.2

#: Share of the CPU time in threads of libraries below which these crowd no cores. By judgement.
FEW_IN_LIBRARIES = 0.05
#: Share from which they crowd these, so that fewer of them may help; and workers' threads, as a multiple of cores, from
#: which these crowd them. By judgement.
MANY_IN_LIBRARIES, NEARLY_AS_MANY = 0.25, 0.75
#: Threads, as a share of the cores, up to which more of them have cores to run on. By judgement.
SPARE = 0.5
#: Seconds of building for each task from which it is what tasks are made of that takes long, a hundred times as long as
#: one of a collection; and tasks of a graph below which taking it in takes long for what it is cut of. By judgement.
LONG_BUILDING, FEW_IN_GRAPH = 0.01, 10
#: Share of the cores in use, by anybody, from which processes find none; and objects from which it matters that each
#: is pickled by itself on its way to a client, for some seconds. By judgement.
FULL_CORES, MANY_OBJECTS = 0.9, 50_000
#: Failed attempts for each task that failed in the end, from which many were tried again. By judgement.
RETRIED = 3

#: Share of what is computed that must be seen under the GIL to hold others up, and below which it leaves the GIL to
#: them: on a crowded host, who wants it back is often taken for one that computes. By judgement: half or twice of it
#: changes no first screen of the runs in tests/data (``benchmarks.studies.constants``).
UNDER_GIL = 0.25

#: Condition, and what to do where it holds.
Cure: TypeAlias = tuple[Callable[[Conditions], bool], str]


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Title and advice for losses of a bucket or cause.

    The advice claims nothing about the run; the first of the cures whose condition holds is given instead. Names in
    braces are those of :meth:`Conditions.words`.
    """

    title: str
    advice: str
    cures: tuple[Cure, ...]

    def advised(self, facts: Conditions) -> str:
        """Advice for a run."""
        words = next((cure for holds, cure in self.cures if holds(facts)), self.advice)
        return words.format(**facts.words())


def shares_cores(facts: Conditions) -> bool:
    """True if threads wait for cores while others of the cluster's own compute on these: each core is busy with one."""
    as_many = facts.threads > NEARLY_AS_MANY * facts.cores and facts.libraries < MANY_IN_LIBRARIES
    return as_many and facts.others < OTHERS and facts.children_share < MOST


def _may_wait(facts: Conditions) -> bool:
    """True if nothing but round trips themselves is known to make threads wait for these."""
    return not (facts.no_scheduling or facts.scheduler_busy)


#: Methods of libraries' collections that compute one of them, and nothing else.
ASKS = ("load", "compute", "persist", "values", "to_numpy", "item", "__array__")


def _in_rounds(facts: Conditions) -> bool:
    """True if the client waited for each of many graphs that its user, and no library, asks for."""
    return facts.in_turn and facts.in_rounds and facts.sent_by.rpartition(".")[2] in ("", *ASKS)


def _many_small(facts: Conditions) -> bool:
    return facts.graphs >= MANY_GRAPHS and facts.tasks_per_graph < FEW_IN_GRAPH


def _many_graphs(facts: Conditions) -> bool:
    return facts.graphs >= MANY_GRAPHS and facts.client_phase in ("optimize", "upload", "calls")


#: Conditions of cures by name.
_CONDITIONS: Mapping[str, Callable[[Conditions], bool]] = {
    "for-gpus": lambda facts: facts.gpu_waiting > MOST,
    "held": lambda facts: facts.memory.held.at_peak > 0,
    "leaks": lambda facts: facts.memory.grown > 0,
    "ran-ahead": lambda facts: facts.memory.ran_ahead and facts.saturation > HOLDS_BACK,
    "ran-ahead-anyway": lambda facts: facts.memory.ran_ahead,
    "shared": lambda facts: facts.memory.too_little and facts.memory.overcounted > GROWS * facts.memory.limit,
    "second-use": lambda facts: facts.memory.second_use,
    "task-takes-most": lambda facts: facts.memory.tasks_take_most and facts.memory.threads == 1,
    "tasks-take-most": lambda facts: facts.memory.tasks_take_most,
    "too-little": lambda facts: facts.memory.too_little,
    "spilling": lambda facts: facts.spilling >= SPILLS,
    "spilling-short": lambda facts: facts.spilling >= SPILLS and facts.memory.too_little,
    "read-again": lambda facts: facts.times_read_back >= READ_AGAIN,
    "events": lambda facts: facts.loop_held and facts.loop_of_events,
    "passes-results": lambda facts: facts.scheduler_busy and facts.loop_of_results,
    "loop-held": lambda facts: facts.loop_held,
    "scheduler-busy": lambda facts: facts.scheduler_busy,
    "imports": lambda facts: facts.imports,
    "long-tasks": lambda facts: facts.long_tasks,
    "gil-released": lambda facts: facts.under_gil < UNDER_GIL and not facts.under_gil_of_holder >= UNDER_GIL,
    "little-gil": lambda facts: facts.under_gil < UNDER_GIL and facts.spilling < SPILLS,
    "larger": lambda facts: facts.sizes.wanted > 1,
    "many-operations": lambda facts: facts.sizes.operations > 1,
    "in-one": lambda facts: facts.waited_for in facts.sizes.in_one,
    "smaller": lambda facts: facts.sizes.smaller > 1,
    "skewed": lambda facts: facts.larger_input >= SIZES_DIFFER,
    "long-task": lambda facts: facts.alone >= MOST,
    "chained": lambda facts: facts.chained,
    "threads-in-vain": lambda facts: facts.threads_in_vain,
    "for-shuffle": lambda facts: facts.waits_for_shuffle,
    "for-result": lambda facts: facts.waits_for_result,
    "fills-workers": lambda facts: facts.fills_workers,
    "waited-for": lambda facts: bool(facts.waited_for),
    "in-turn": lambda facts: facts.ran_in_turn,
    "in-rounds": _in_rounds,
    "rounds-need-last": lambda facts: facts.needs_last and _in_rounds(facts),
    "needs-last": lambda facts: facts.needs_last,
    "longest-slept": lambda facts: facts.longest_slept,
    "made-singly": lambda facts: bool(facts.made_singly),
    "sends": lambda facts: facts.client_activity == "send",
    "many-graphs": _many_graphs,
    "many-small": _many_small,
    "graphs-need-last": lambda facts: facts.needs_last and _many_graphs(facts),
    "small-need-last": lambda facts: facts.needs_last and _many_small(facts),
    "data-in-graphs": lambda facts: facts.data_in_graphs,
    "optimizes": lambda facts: facts.client_phase == "optimize",
    "uploads": lambda facts: facts.client_phase == "upload",
    "calls": lambda facts: facts.client_phase == "calls" or facts.client_activity in ("call", "wait"),
    "gathers": lambda facts: facts.client_phase == "gather",
    "sent-by-library": lambda facts: bool(facts.sent_by),
    "graph-built": lambda facts: facts.client_activity == "build",
    "long-built": lambda facts: facts.client_activity == "build" and facts.long_tasks,
    "built-of-much": lambda facts: facts.client_activity == "build" and facts.building >= LONG_BUILDING,
    "lets-go": lambda facts: facts.client_activity == "release",
    "hashes": lambda facts: facts.client_activity == "hash",
    "pickles": lambda facts: facts.client_activity == "pickle",
    "fetches-objects": lambda facts: facts.objects_fetched >= MANY_OBJECTS and facts.client_receives,
    "fetches": lambda facts: facts.client_activity in ("unpickle", "receive"),
    "runs-locally": lambda facts: facts.client_activity == "local",
    "computes": lambda facts: facts.client_activity == "compute",
    "polls": lambda facts: facts.client_activity == "sleep" and facts.polls,
    "sleeps": lambda facts: facts.client_activity == "sleep",
    "reads": lambda facts: facts.client_activity in ("file", "network", "child-process"),
    "imports-itself": lambda facts: facts.client_activity == "import",
    "one-task": lambda facts: facts.held_threads < ONE_TASK and facts.threads > 2 * ONE_TASK,
    "killed": lambda facts: facts.memory.lost_for_memory > MOST,
    "gil-between-long": lambda facts: facts.gil_of_loops > MOST and facts.long_tasks,
    "gil-of-loops": lambda facts: facts.gil_of_loops > MOST,
    "cores-full": lambda facts: facts.cores_used >= FULL_CORES and not facts.gil_of_text > MOST,
    "gil-not-of-text": lambda facts: facts.gil_of_text <= MOST,
    "one-thread-each": lambda facts: facts.one_thread_each,
    "short-of-cores": lambda facts: facts.short_of_cores,
    "others-late": lambda facts: facts.others >= OTHERS and facts.spilling < SPILLS,
    "others": lambda facts: facts.others >= OTHERS,
    "of-shuffles": lambda facts: facts.places.get(CLUSTER) == SHUFFLE,
    "for-tasks": lambda facts: facts.places.get(CLUSTER) == TASKS,
    "for-dasks-lock": lambda facts: facts.places.get(CLUSTER) == DASK_LOCK,
    "for-messages": lambda facts: facts.places.get(CLUSTER) == MESSAGES,
    "for-threads": lambda facts: facts.places.get(LOCK) == THREAD,
    "in-a-library": lambda facts: facts.places.get(LOCK) == LIBRARY,
    "at-a-librarys-alone": lambda facts: facts.places.get(LOCK) == LIBRARY_LOCK and facts.one_thread_each,
    "at-a-librarys": lambda facts: facts.places.get(LOCK) == LIBRARY_LOCK,
    "for-database": lambda facts: facts.places.get(LOCK) == DATABASE,
    "children-compute": lambda facts: facts.children_share > MOST,
    "children-known": lambda facts: facts.children_seconds > 0,
    "for-libraries": lambda facts: facts.for_libraries,
    "in-libraries": lambda facts: facts.in_libraries,
    "spare-cores": lambda facts: facts.threads <= SPARE * facts.cores and not facts.libraries >= FEW_IN_LIBRARIES,
    "many-threads": lambda facts: facts.threads > facts.cores > 0 and not facts.libraries >= MANY_IN_LIBRARIES,
    "no-library": lambda facts: shares_cores(facts) and facts.libraries < FEW_IN_LIBRARIES,
    "gil-taken": lambda facts: facts.gil_taken,
    "crowded-loops": lambda facts: facts.loops_starved and facts.others >= OTHERS,
    "loops-starved": lambda facts: facts.loops_starved,
    "loops-blocked": lambda facts: facts.loops_blocked,
    "loops-run": lambda facts: facts.loops_blocked and facts.run_blocks,
    "loops-own": lambda facts: facts.loops_blocked and facts.own_code_blocks,
    "blocked-run": lambda facts: facts.overhead_of_blocks and facts.run_blocks,
    "blocked-own": lambda facts: facts.overhead_of_blocks and facts.own_code_blocks,
    "loops-gil": lambda facts: facts.loops_blocked and facts.task_blocks,
    "blocked-gil": lambda facts: facts.overhead_of_blocks and facts.task_blocks,
    "blocked": lambda facts: facts.overhead_of_blocks,
    "saturation": lambda facts: (
        _may_wait(facts) and facts.saturation_saves >= WORTH_FINDING and facts.saturation < facts.saturation_needed
    ),
    "low-saturation": lambda facts: _may_wait(facts) and math.isnan(facts.saturation_saves) and facts.saturation < FULL,
    "retried": lambda facts: facts.failed_attempts >= RETRIED * facts.failed > 0,
    "large-objects": lambda facts: bool(facts.large_objects),
    "joining": lambda facts: facts.joining,
    "came-and-went": lambda facts: facts.came_and_went,
}


def holds_any(names: Iterable[str], facts: Conditions) -> bool:
    """True if one of the conditions with these names holds."""
    return any(_CONDITIONS[name](facts) for name in names)


def _kinds(text: str, above: Mapping[str, FindingKind] = MappingProxyType({})) -> Mapping[str, FindingKind]:
    """Kinds by name from lines: name and title, then the cures, each behind its condition, and the advice.

    A line ``as: NAME`` stands for the cures of a kind above.
    """
    kinds = dict(above)
    for part in re.split(r"\n(?=\S)", text.strip()):
        first, *lines, advice = (line.strip() for line in part.splitlines())
        name, _, title = first.partition(": ")
        cures: list[Cure] = []
        for line in lines:
            when, _, words = line.partition(": ")
            cures += kinds[words].cures if when == "as" else [(_CONDITIONS[when], words)]
        kinds[name] = FindingKind(title, advice, tuple(cures))
    return MappingProxyType({name: kind for name, kind in kinds.items() if name not in above})


#: Kinds by bucket, or bucket and cause.
KINDS = _kinds("""
thread-noncpu/gil: Waiting for the GIL
    gil-between-long: Look for large results, or a busy host: event loops held the GIL, and tasks of {task} are long enough.
    gil-of-loops: Use fewer and longer tasks with smaller results: event loops held the GIL.
    one-thread-each: Find which other threads run Python code: each worker has one thread for tasks.
    short-of-cores: Use fewer threads: they wait even longer for cores.
    cores-full: Make this code do less: the cores are in use, so that processes save little.
    gil-released: Make fewer calls, of more data each: each waits to have the GIL back.
    gil-not-of-text: Use processes: {processes} each.
    Use string[pyarrow] for text, or processes: {processes} each.
thread-noncpu/core: Waiting for a core
    others: Find them: other processes use {others} of these cores.
    in-libraries: Give libraries' threads less to do, such as fewer columns or row groups to read, or use more cores.
    many-threads: Use more cores: {threads} threads share {cores} cores. Fewer threads are no slower.
    no-library: Leave a core to the client, the scheduler and event loops: {threads} threads have {cores} cores.
    Set OMP_NUM_THREADS=1 for libraries' own threads, use fewer threads, or more cores.
thread-noncpu/throttled: Waiting for the container's CPU limit
    Raise the container's CPU limit, or use fewer threads: other cores of the node do not help.
thread-noncpu/stopped: Processes stood still
    See what stops them: SIGSTOP, a frozen container, or a paused machine.
thread-noncpu/lock: Waiting for a lock
    for-gpus: Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.
    for-database: Compute before the transaction, and commit at once: a task that has the lock keeps all others out.
    for-libraries: Give libraries' threads less to do, such as fewer columns or row groups to read.
    for-threads: See what that thread does: tasks hold their own threads until it is done.
    at-a-librarys-alone: See who else takes it, such as other processes: each worker has one thread for tasks.
    at-a-librarys: See what it guards: if each process has one, use more workers of one thread each.
    in-a-library: Give the library less to do, or use processes: it waits for its threads, or for other tasks in it.
    See what holds the lock: hold it shorter, or in fewer tasks.
thread-noncpu/cluster: Waiting for the cluster's answer
    of-shuffles: Shuffle fewer bytes, such as fewer columns, or filter first: tasks wait until data are sent or written.
    for-tasks: Return futures, send tasks from the client, or use worker_client(): these tasks keep their threads.
    for-dasks-lock: Hold it shorter, just for what needs it: all other tasks of the cluster wait meanwhile.
    for-messages: Make what they wait for an argument of theirs, or secede() first: they keep their threads.
    See what these tasks ask the cluster for: they hold their threads until it answers.
thread-noncpu/sleep: Sleeping
    longest-slept: Avoid the sleep. Before a retry, it is better that a Semaphore limits how many ask at a time.
    threads-in-vain: Avoid the sleep: more threads do not help, as too few tasks can run at a time.
    Avoid the sleep, or use {nthreads} per worker, so that sleeps overlap.
thread-noncpu/file: Waiting for files
    Read more at a time, use faster disks, or more threads per worker, so that reads overlap.
thread-noncpu/network: Waiting for the network
    threads-in-vain: Prefetch, or ask for more at a time: more threads do not help, as too few tasks can run at a time.
    Use {nthreads} per worker, so that requests overlap; or prefetch, or ask for more at a time.
thread-noncpu/child-process: Waiting for child processes
    children-compute: Run no more of them at once than cores: they computed for {children}, on cores of the workers.
    children-known: See what they do, and whether they start each time: they computed for {children} meanwhile.
    See what the child does: if it computes, it uses a core that is not counted here.
thread-noncpu/unknown: Tasks off the CPU, for no known reason
    for-gpus: Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.
    No sample showed why: a longer run has more samples.
thread-noncpu: Tasks off the CPU, for no known reason
    for-gpus: Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.
    See what they wait for: I/O, sleep, a lock, the GIL, or a library's own threads at work.
spill: Spilling to disk
    leaks: Find what keeps memory in {left_by}, which left it behind: more memory only delays this.
    shared: Turn off distributed.worker.memory.target: results share memory, and count {overcounted} more than there is.
    held: Release what is not used again: {held_by} holds {held_bytes} of {held_results}{held_sent} that no task waits for.
    ran-ahead: Set distributed.scheduler.worker-saturation to 1.1, from {saturation}: {kept_bytes} of {kept} ran ahead.
    ran-ahead-anyway: Give workers {enough} each, or read in the tasks that use it: {kept_bytes} of {kept} ran ahead.
    second-use: Give workers {enough} each, or compute {waited} before: {kept} was kept {kept_for} for {needed_by}, which waited.
    task-takes-most: Give workers {enough} each, or make partitions smaller: a task of {hungriest} takes {working}.
    tasks-take-most: Give workers {enough} each, or fewer threads: {at_a_time} tasks of {hungriest} at a time take {working} each.
    too-little: Give workers {enough} each, make partitions smaller, or persist less: they have {memory_limit}.
    read-again: Persist less, or use results at once: {spilled} spilled, {read_back} read back ({times} times).
    Give workers more memory, make partitions smaller, or persist less.
overhead/hand-over: Handing tasks over to threads
    blocked-run: Submit that function as a task, or make it a coroutine: client.run blocks event loops until it returns.
    blocked-own: Do that in a task, or in a thread of its own: it blocked the event loop, which answered nobody meanwhile.
    blocked-gil: Hold the GIL for less time there, as in smaller pieces: event loops answered nobody meanwhile.
    blocked: See what blocked the workers' event loops: they answered nobody meanwhile.
    others-late: Find them: other processes use {others} of these cores, and event loops were late.
    little-gil: Look for large results, or a busy host: tasks leave the GIL to event loops, which were late.
    Look for tasks that hold the GIL, or a busy host.
overhead/event-loop: Waiting for the workers' event loops
    as: overhead/hand-over
    spilling-short: Give workers {enough} each: event loops are late, as workers spill.
    spilling: Give workers more memory, or make partitions smaller: event loops are late, and workers spill.
    Look for tasks that hold the GIL, large results, or a busy host.
overhead/rescheduled: Shuffled tasks began on other workers than their data
    Use fewer output partitions: each starts anywhere, then restarts at its data.
overhead/unknown: Overhead of the workers
    as: overhead/hand-over
    spilling-short: Give workers {enough} each: event loops are late, as workers spill.
    spilling: Give workers more memory, or make partitions smaller: event loops are late, and workers spill.
    Event loops were late: look for tasks that hold the GIL, large results, or a busy host.
overhead: Overhead of the workers
    as: overhead/hand-over
    spilling-short: Give workers {enough} each: event loops are late, as workers spill.
    spilling: Give workers more memory, or make partitions smaller: event loops are late, and workers spill.
    Event loops were late: look for tasks that hold the GIL, large results, or a busy host.
failed: Tasks failed
    Read the tracebacks: each retry costs the whole task again.
cancelled: Tasks were cancelled
    came-and-went: Let workers finish before they close, as by a longer wait before scaling down.
    Keep futures that are used; what runs does not stop at cancel(): let it check a deadline, or an Event.
recomputed: Results were lost and computed again
    killed: Give workers more memory, or make partitions smaller: workers were killed for lack of memory.
    See why workers left: results were lost with them.
paused: Workers paused, short of memory
    as: spill
    one-thread-each: Give workers more memory, or make partitions smaller: they were above worker.memory.pause.
    Give workers more memory or fewer threads: they were above worker.memory.pause.
retiring: Workers were retiring
    Scale down less eagerly: a larger wait_count or interval in adapt().
waiting-on-data: Waiting for data of other workers
    Use fewer shuffles, or fewer but larger workers.
constrained: Waiting for resources=
    Offer more of the resource per worker, ask for less of it, or send tasks first that ask for none.
idle/scheduler: Threads idle, waiting for the scheduler
    imports: Import modules before the work, by client.run or a preload: event loops were importing.
    gil-taken: Do it in a task, or another process: it held the GIL of the scheduler's, which answered nobody meanwhile.
    events: Send fewer, as by logging at a coarser level, or to files: they took {loop_share} of the scheduler's event loop.
    loop-held: Do without it, or speed it up: it took {loop_share} of the scheduler's event loop, busy {loop_busy} of the time.
    passes-results: Reduce results before, or use gather(direct=True): they pass the scheduler, busy {loop_busy} of the time.
    scheduler-busy: Use fewer and longer tasks: the scheduler was busy {loop_busy} of the time, most with {loop_by}.
    crowded-loops: Find them: other processes use {others} of these cores, and event loops waited for one.
    loops-starved: Use fewer threads, or more cores: event loops waited for one.
    loops-run: Submit that function as a task, or make it a coroutine: client.run blocks event loops until it returns.
    loops-own: Do that in a task, or in a thread of its own: it blocked the event loop, which answered nobody meanwhile.
    loops-gil: Hold the GIL for less time there, as in smaller pieces: event loops answered nobody meanwhile.
    loops-blocked: See what blocked the workers' event loops: they answered nobody meanwhile.
    long-tasks: Look for a busy host, or large graphs and results: tasks of {task} are long enough.
    Use fewer and longer tasks, by bigger partitions or by fusing them.
idle/round-trips: Threads idle from a result to the next task
    saturation: Set distributed.scheduler.worker-saturation to {needed}, from {saturation}: a replay of the run says so.
    low-saturation: Raise distributed.scheduler.worker-saturation, from {saturation}: trace=True says whether it helps.
    as: idle/scheduler
    Use fewer and longer tasks, by bigger partitions or by fusing them.
idle/imbalance: Threads idle while tasks queue at other workers
    See what ties tasks to workers where they queue: split uneven partitions, or replicate() a large input.
idle/restricted: Threads idle that may not run the waiting tasks
    Let more workers run these tasks: workers=, resources= and annotations restrict them.
idle/graph: Threads idle while the scheduler takes in a graph
    events: Send fewer, as by logging at a coarser level, or to files: they took {loop_share} of the scheduler's event loop.
    loop-held: Do without it, or speed it up: it took {loop_share} of the scheduler's event loop, busy {loop_busy} of the time.
    small-need-last: Do more in each step, and persist() what stays the same: each of {graphs} needs the one before.
    many-small: Compute all of it together, by one dask.compute(): {graphs} came, each with its whole collection.
    data-in-graphs: Load data in tasks, or persist() what is used again: each graph's data go through the scheduler.
    long-tasks: Build smaller graphs, and keep large objects out of them: the scheduler takes each in as a whole.
    Make graphs smaller, by bigger partitions, and keep large objects out of them.
idle/parallelism: Threads idle, too few tasks at a time
    skewed: Split or salt the key: the input of the longest task is {larger} times as large.
    for-shuffle: Shuffle fewer bytes, such as fewer columns, or filter first: all waited until the shuffle had ended.
    in-one: Pass split_out={threads} to that aggregation: all waited for {waited_for}, in which one task has all of its result.
    for-result: Reduce the result, write it to files, or persist() it: one task put all of it together for the client.
    long-task: Split that task: for {alone} of the makespan, it ran and other threads had none.
    chained: More workers do not help: one chain of tasks is {chain} of the makespan.
    fills-workers: Use fewer threads per worker, or run other work with {waited_for}: each of its tasks fills a worker.
    in-turn: Break up the chain, such as by adding up in pairs: tasks of {waited_for} ran one after the other.
    rounds-need-last: Split the longest tasks, or persist() what stays the same: each of {graphs} needs the one before.
    in-rounds: Ask for several at once, if none needs another, or split the longest tasks: {graphs} came one by one.
    waited-for: Split the tasks of {waited_for}, which all waited for, or run other work with them.
    one-task: One task ran at a time on {threads} threads: a chain, or a client that waits for each result.
    smaller: Make partitions {smaller_by} times smaller{smaller_to}: {few} are too few for {threads} threads.
    Make partitions smaller, or split the tasks that all others wait for.
idle/unknown: Threads idle
    There were too few tasks at a time, or a busy scheduler.
idle: Threads idle
    skewed: Split or salt the key: the input of the longest task is {larger} times as large.
    long-task: Split that task: for {alone} of the makespan, it ran and other threads had none.
    chained: More workers do not help: one chain of tasks is {chain} of the makespan.
    one-task: One task ran at a time on {threads} threads: a chain, or a client that waits for each result.
    {held} of {threads} threads had a task: there were too few at a time, or a busy scheduler.
lost-worker: Workers vanished
    killed: Give workers more memory, or make partitions smaller: workers were killed for lack of memory.
    They were killed for memory, or their job ended: see the nanny's and the job's logs.
unmeasured: Time that was not measured
    joining: Workers were joining: it takes a moment until each is metered.
    See Not measured: the package must be on every worker before the work.
""")  # noqa: E501

#: Losses of which the cure shortens the longest chain of tasks.
OF_CHAINS = ("idle", "idle/parallelism")
#: Losses while a client waits for each result before it sends more: one fault, with one cure.
OF_WAITING = ("idle", "idle/unknown", "idle/parallelism", "idle/graph", "idle/scheduler", "idle/round-trips")

#: Losses that small tasks cause, unless something else is known to: one fault, with one cure.
OF_SMALL_TASKS = (
    *("idle", "idle/unknown", "idle/scheduler", "idle/round-trips", "idle/graph"),
    *("overhead", "overhead/unknown", "overhead/hand-over", "overhead/event-loop"),
)

#: Kinds without a bucket, or with several.
BESIDE = _kinds(BESIDE_TEXT, KINDS)

#: Title of waiting for locks if tasks wait for libraries whose own threads compute.
IN_LIBRARIES = "Waiting for threads of a library"
FOR_LOCKS, FOR_CLUSTER = "thread-noncpu/lock", "thread-noncpu/cluster"
#: Titles of waiting by kind, and by the place where tasks wait.
AT_PLACES: Mapping[str, Mapping[str, str]] = {
    FOR_LOCKS: {
        THREAD: "Waiting for another thread",
        LIBRARY: "Waiting inside a library",
        LIBRARY_LOCK: "Waiting for a library's lock",
        DATABASE: "Waiting for a database's lock",
    },
    FOR_CLUSTER: {
        TASKS: "Tasks wait for other tasks, and keep their threads",
        DASK_LOCK: "Waiting for a lock of Dask's",
        MESSAGES: "Waiting for a queue, variable or event of Dask's",
        SHUFFLE: "Waiting for a shuffle to move data",
    },
}


def advice(kind: str, facts: Conditions = NOTHING_KNOWN) -> str:
    """Advice for a bucket or cause; empty for buckets that are no loss."""
    return KINDS[kind].advised(facts) if kind in KINDS else ""


def words_of(facts: Conditions, kind: str) -> tuple[str, str]:
    """Title and advice of a loss."""
    if kind not in AT_PLACES:
        return KINDS[kind].title, advice(kind, facts)
    place = facts.places.get(kind.rpartition("/")[2], "")
    if kind == FOR_LOCKS and place in AT_PLACES[FOR_CLUSTER]:  # as in reports of earlier versions
        kind, facts = FOR_CLUSTER, replace(facts, places={CLUSTER: place})
    title = AT_PLACES[kind].get(place, KINDS[kind].title)
    return IN_LIBRARIES if kind == FOR_LOCKS and facts.for_libraries else title, advice(kind, facts)


def page_of(kind: str) -> str:
    """Section of the documentation on a bucket or cause."""
    return f"docs/buckets.md#{kind.replace('/', '-')}"
