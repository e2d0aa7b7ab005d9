"""Kinds of findings in a report: what each is called, what to do about it, and where the documentation says more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dask_efficiency.report.facts import MOST, NOTHING_KNOWN, Facts
from dask_efficiency.straggler.observations import SIZES_DIFFER

#: Tasks that hold a thread for less are small: handing one out costs Dask about a millisecond in all.
SMALL_TASK_SECONDS = 0.02

#: Share of the time from which on spilling is why event loops are late.
SPILLS = 0.05

#: What was spilled was read again and again from so many times on.
READ_AGAIN = 1.5

#: Where fewer threads than this hold a task in the mean, there is hardly ever more than one task.
ONE_TASK = 1.1

#: The longest chain is what a run is up against where it makes up this share of the makespan.
CHAINED = 0.8

#: From this share of the cores on, other processes are why threads wait for them.
OTHERS = 0.2


class Kind:
    """What losses of a bucket or cause are called, and what to do about them.

    Parameters
    ----------
    title
        At most :data:`~dask_efficiency.show.finding.MAX_TITLE` characters.
    advice
        A sentence that claims nothing of the run; names in braces are those of :meth:`Facts.words`.
    *cures
        What to do instead where a condition holds: the first that does is given.
    """

    def __init__(self, title: str, advice: str, *cures: tuple[Callable[[Facts], bool], str]) -> None:
        self.title = title
        self.advice = advice
        self.cures = cures

    def advised(self, facts: Facts) -> str:
        """What to do about it in a run."""
        words = next((cure for holds, cure in self.cures if holds(facts)), self.advice)
        return words.format(**facts.words())


def are_small(facts: Facts) -> bool:
    """Whether tasks are so small that what Dask does for each takes about as long."""
    return facts.task_seconds < SMALL_TASK_SECONDS


def is_chained(facts: Facts) -> bool:
    """Whether nearly all of the run is one chain of tasks, of which none is most of it."""
    return facts.chain >= CHAINED


_FOR_GPUS = (
    lambda facts: facts.gpu_waiting > MOST,
    "Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.",
)
_HELD = (
    lambda facts: facts.held_share > MOST,
    "Release what is not used again: {held_by} holds {held_bytes} of {held_results} that no task waits for.",
)
_LATE = (
    lambda facts: facts.spilling >= SPILLS,
    "Give workers more memory, or make partitions smaller: event loops are late, and workers spill.",
)
_LOOP_HELD = (
    lambda facts: facts.loop_held,
    "Do without it, or speed it up: it took {loop_share} of the scheduler's event loop, busy {loop_busy} of the time.",
)
_SKEWED = (
    lambda facts: facts.larger_input >= SIZES_DIFFER,
    "Split or salt the key: the input of the longest task is {larger} times as large.",
)
_LONGEST = (
    lambda facts: facts.longest_task >= MOST,
    "Split the task that took {longest} of the makespan while other threads had none.",
)
_CHAIN = (
    is_chained,
    "More workers do not help: tasks waited for one another, {chain} of the makespan is one chain.",
)
_ONE_TASK = (
    lambda facts: facts.held_threads < ONE_TASK and facts.threads > 2 * ONE_TASK,
    "One task ran at a time on {threads} threads: a chain, or a client that waits for each result.",
)
_KILLED = (
    lambda facts: facts.lost_for_memory > MOST,
    "Give workers more memory, or make partitions smaller: nannies killed workers near their limit.",
)

#: By bucket, or bucket and cause.
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "thread-noncpu/gil": Kind(
            "Waiting for the GIL",
            "Use string[pyarrow] for text, or processes: more workers with fewer threads each.",
            (
                lambda facts: facts.gil_of_loops > MOST,
                "Use fewer and longer tasks with smaller results: event loops held the GIL.",
            ),
            (
                lambda facts: facts.one_thread_each,
                "See which threads beside the tasks run Python code: each worker has one thread for tasks.",
            ),
            (lambda facts: facts.short_of_cores, "Use fewer threads: they wait for cores, too, and for longer."),
            (lambda facts: facts.gil_of_text <= MOST, "Use processes: more workers with fewer threads each."),
        ),
        "thread-noncpu/core": Kind(
            "Waiting for a core",
            "Set OMP_NUM_THREADS=1 for libraries' own threads, use fewer threads, or more cores.",
            (
                lambda facts: facts.others >= OTHERS,
                "See which processes they are: other processes use {others} of these cores.",
            ),
            (
                lambda facts: facts.in_libraries,
                "Give libraries' threads less to do, such as fewer columns or row groups to read, or use more cores.",
            ),
            (
                lambda facts: facts.threads > facts.cores,
                "Use fewer threads, or more cores: {threads} threads share {cores} cores.",
            ),
        ),
        "thread-noncpu/throttled": Kind(
            "Waiting for the container's CPU limit",
            "Raise the container's CPU limit, or use fewer threads: other cores of the node do not help.",
        ),
        "thread-noncpu/stopped": Kind(
            "Processes stood still", "See what stops them, such as SIGSTOP, a frozen container, or a paused machine."
        ),
        "thread-noncpu/lock": Kind(
            "Waiting for a lock",
            "See what holds the lock: hold it for less, or let fewer tasks need it.",
            _FOR_GPUS,
            (
                lambda facts: facts.in_libraries,
                "Give libraries' threads less to do, such as fewer columns or row groups to read.",
            ),
        ),
        "thread-noncpu/sleep": Kind(
            "Sleeping", "See what sleeps, and whether it must; or use more threads per worker, so that sleeps overlap."
        ),
        "thread-noncpu/file": Kind(
            "Waiting for files",
            "Read more at a time, use faster disks, or more threads per worker, so that reads overlap.",
        ),
        "thread-noncpu/network": Kind(
            "Waiting for the network",
            "Use more threads per worker, so that requests overlap; or prefetch, or ask for more at a time.",
        ),
        "thread-noncpu/child-process": Kind(
            "Waiting for child processes",
            "See what the child does: where it computes, it takes a core that no figure here counts.",
        ),
        "thread-noncpu/unknown": Kind(
            "Tasks off the CPU, for no known reason",
            "No sample showed why: longer runs and longer tasks give more samples.",
            _FOR_GPUS,
        ),
        "thread-noncpu": Kind(
            "Tasks off the CPU, for no known reason",
            "See what they wait for: I/O, sleep, a lock, the GIL, or a library's own threads at work.",
            _FOR_GPUS,
        ),
        "spill": Kind(
            "Spilling to disk",
            "Give workers more memory, make partitions smaller, or persist less.",
            _HELD,
            (
                lambda facts: facts.times_read_back >= READ_AGAIN,
                "Persist less, or use it up at once: {spilled} were spilled, {read_back} read back, {times} times.",
            ),
        ),
        "overhead/hand-over": Kind(
            "Handing tasks over to threads", "Look for tasks that keep the GIL, or a busy host."
        ),
        "overhead/event-loop": Kind(
            "Waiting for the workers' event loops",
            "Look for tasks that keep the GIL, large results, or a busy host.",
            _LATE,
        ),
        "overhead/rescheduled": Kind(
            "Shuffled tasks began on other workers than their data",
            "Use fewer output partitions: each begins anywhere, and then where its data is.",
        ),
        "overhead/unknown": Kind(
            "Overhead of the workers",
            "Event loops were late: look for tasks that keep the GIL, large results, or a busy host.",
            _LATE,
        ),
        "overhead": Kind(
            "Overhead of the workers",
            "Event loops were late: look for tasks that keep the GIL, large results, or a busy host.",
            _LATE,
        ),
        "failed": Kind("Tasks failed", "Read the tracebacks: each of retries= costs the whole task again."),
        "cancelled": Kind(
            "Tasks were cancelled", "Keep futures until they are used, and let workers finish before they close."
        ),
        "recomputed": Kind(
            "Results were lost and computed again", "See why workers went: results were lost with them.", _KILLED
        ),
        "paused": Kind(
            "Workers paused, short of memory",
            "Give workers more memory or fewer threads: they were above worker.memory.pause.",
            _HELD,
        ),
        "retiring": Kind(
            "Workers were retiring", "Scale down less eagerly: a larger wait_count or interval in adapt()."
        ),
        "waiting-on-data": Kind(
            "Waiting for data of other workers", "Use fewer shuffles, or fewer but larger workers."
        ),
        "constrained": Kind("Waiting for resources=", "Offer more of the resource per worker, or ask for less."),
        "idle/scheduler": Kind(
            "Threads idle, waiting for the scheduler",
            "Use fewer and longer tasks, by bigger partitions or by fusing them.",
            (
                lambda facts: facts.imports,
                "Import modules before the work, by client.run or a preload: the workers' event loops did.",
            ),
            _LOOP_HELD,
            (
                lambda facts: facts.scheduler_busy,
                "Use fewer and longer tasks: the scheduler was busy {loop_busy} of the time, most with {loop_by}.",
            ),
        ),
        "idle/round-trips": Kind(
            "Threads idle from a result to the next task",
            "Raise distributed.scheduler.worker-saturation: workers wait while the scheduler holds ready tasks back.",
            (
                lambda facts: facts.saturation < facts.saturation_needed,
                "Set distributed.scheduler.worker-saturation to {needed}, from {saturation}: tasks take {task} each.",
            ),
        ),
        "idle/imbalance": Kind(
            "Threads idle while tasks queue at other workers",
            "See what ties tasks to the workers at which they queue, or split uneven partitions.",
        ),
        "idle/restricted": Kind(
            "Threads idle that may not run the tasks there are",
            "Let more workers run these tasks: workers=, resources= and annotations tie them down.",
        ),
        "idle/graph": Kind(
            "Threads idle while the scheduler takes in a graph",
            "Make graphs smaller, by bigger partitions, and keep large objects out of them.",
            _LOOP_HELD,
        ),
        "idle/parallelism": Kind(
            "Threads idle, too few tasks at a time",
            "Make partitions smaller, or split the tasks that all others wait for.",
            _SKEWED,
            _LONGEST,
            _CHAIN,
            (
                lambda facts: facts.fills_workers,
                "Use fewer threads per worker, or run something beside {waited_for}: each of its tasks fills a worker.",
            ),
            (
                lambda facts: bool(facts.waited_for),
                "Split the tasks of {waited_for}, for which all waited, or run something beside them.",
            ),
            _ONE_TASK,
        ),
        "idle/unknown": Kind("Threads idle", "There were too few tasks at a time, or a busy scheduler."),
        "idle": Kind(
            "Threads idle",
            "{held} of {threads} threads had a task: there were too few at a time, or a busy scheduler.",
            _SKEWED,
            _LONGEST,
            _CHAIN,
            _ONE_TASK,
        ),
        "lost-worker": Kind(
            "Workers vanished",
            "They were killed for memory, or their job ended: see the nanny's and the job's logs.",
            _KILLED,
        ),
        "unmeasured": Kind(
            "Time that was not measured",
            "See Not measured: the package must be on every worker before the work.",
            (lambda facts: facts.joining, "Workers were joining: it takes a moment until each is metered."),
        ),
    }
)

#: What small tasks cause, unless something else is known to: one fault, with one cure.
OF_SMALL_TASKS = (
    *("idle", "idle/unknown", "idle/scheduler"),
    *("overhead", "overhead/unknown", "overhead/hand-over", "overhead/event-loop"),
)

#: What has no bucket, or several.
BESIDE: Mapping[str, Kind] = MappingProxyType(
    {
        "small-tasks": Kind(
            "Tasks are too small for Dask",
            "Make partitions bigger, or fuse tasks: those of {task} end before the scheduler hands out more.",
        ),
        "repeats": Kind("The same results were computed again", "Use persist() for what is used again."),
        "no-workers": Kind("No worker was there", "Start workers before the work, or scale up sooner."),
        "client": Kind("No work on the cluster", "See what the client does between its calls of Dask."),
        "gpu-idle": Kind("GPUs idle", "See what tasks do between their kernels, and give GPUs more work at a time."),
    }
)

#: The title of waiting for locks where tasks wait at those of libraries whose own threads compute.
IN_LIBRARIES = "Waiting for threads of a library"


def advice(kind: str, facts: Facts = NOTHING_KNOWN) -> str:
    """What to do about a bucket or cause, in a sentence; without facts, one that claims nothing of the run.

    Empty for what is no loss.
    """
    return KINDS[kind].advised(facts) if kind in KINDS else ""


def page_of(kind: str) -> str:
    """Where the documentation says more about a bucket or cause."""
    return f"docs/buckets.md#{kind.replace('/', '-')}"
