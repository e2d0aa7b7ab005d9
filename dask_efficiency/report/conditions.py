"""Conditions: figures of a report that decide which advice applies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dask_efficiency.accounts.buckets import Bucket, cause_name
from dask_efficiency.accounts.metered import of_shuffles
from dask_efficiency.accounts.waits import LIBRARY, LOCK
from dask_efficiency.report.memory_needs import NO_NEEDS, MemoryNeeds
from dask_efficiency.report.messages import FINALIZE
from dask_efficiency.report.sizes import NO_SIZES, SMALL_TASK_SECONDS, TASK_SECONDS, Sizes
from dask_efficiency.report.values import Amount
from dask_efficiency.report.wall_clock import MANY_GRAPHS
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
#: Turns of the scheduler's handler of `scatter`, some three a call, from which there are many calls. A guess.
MANY_SCATTERS = 30
#: Tasks of a graph for each thread below which most threads have nothing to do while it runs. A guess.
FEW_TASKS = 2
NOTHING_MOVED = Amount(0, 0)
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
    spilled: Amount = NOTHING_MOVED
    read_back: Amount = NOTHING_MOVED
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
    loop_of_events: bool = False  # such as log records of workers
    loop_of_results: bool = False  # on their way to clients
    loop_share: float = 0.0
    #: Phase of most of the client's time without work on the cluster, if that was work for Dask: ``"gather"``.
    client_phase: str = ""
    #: What it did then, by its samples: ``"compute"``; empty if not known.
    client_activity: str = ""
    #: Seconds in which it went through lists and the like by item as it built graphs, for each task.
    building: float = 0.0
    #: True if it slept while work was outstanding, too, as one does that polls.
    polls: bool = False
    #: Function of a library that sent graphs at the line that waited for most of them; empty if it called Dask itself.
    sent_by: str = ""
    #: Function that it called at one line for a dataframe each of many files or parts, and how often.
    made_singly: str = ""
    singles: int = 0
    #: True if it waited for many graphs one after the other at that line, for most of the client's time.
    in_turn: bool = False
    in_loop: int = 0  # number of graphs of that line, if each needs the one before
    needs_last: bool = False  # by the program's text, each graph of that line needs the one before
    #: Objects in lists and the like that were pickled one by one for clients.
    objects_fetched: float = 0.0
    #: Turns of the scheduler's handler of `scatter`.
    scatters: int = 0
    #: Attempts at tasks that failed, and tasks that failed in the end.
    failed_attempts: int = 0
    failed: int = 0
    #: Type of large objects from worker to worker whose size Dask does not know by itself; may be empty.
    large_objects: str = ""
    data_in_graphs: bool = False  # graphs, or their tasks, are large
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
        return self.in_rounds and few

    @property
    def in_rounds(self) -> bool:
        """True if the client sent many graphs, and waited for most of them before the next one."""
        return self.rounds >= MANY_GRAPHS and self.rounds > MOST * self.graphs

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
    def overhead_is_own(self) -> bool:
        """True if most of that overhead is that the user's own code blocked event loops."""
        return self.overhead_of_blocks and self.own_code_blocks

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
    def scattered_in_turn(self) -> bool:
        """True if the client called scatter again and again, each of which the scheduler takes in some turns."""
        return self.scatters >= MANY_SCATTERS

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
            "graphs": format_count(self.in_loop or self.graphs, "graph"),
            "alone": format_share(self.alone),
            "larger": format_number(self.larger_input),
            "waited_for": name_of(self.waited_for),
            "saturation": f"{self.saturation:g}",
            "needed": f"{self.saturation_needed:.1f}",
            "spilled": format_bytes(self.spilled.nbytes),
            "read_back": format_bytes(self.read_back.nbytes),
            "times": format_number(self.times_read_back, digits=2),
            "sent_by": name_of(self.sent_by),
            "made_singly": name_of(self.made_singly),
            "singles": format_number(self.singles),
            "loop_busy": format_share(self.loop_busy),
            "loop_by": name_of(self.loop_by),
            "loop_share": format_share(self.loop_share),
            "objects": format_count(round(self.objects_fetched), "object"),
            "failed_attempts": format_count(self.failed_attempts, "attempt"),
            "large_objects": name_of(self.large_objects),
            **self.memory.words(),
            **self.sizes.words(),
        }


#: Conditions for which no condition holds.
NOTHING_KNOWN = Conditions()
