"""Kinds of findings: title, advice, and the section of the documentation that explains each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dask_efficiency.report.facts import MOST, NOTHING_KNOWN, Facts
from dask_efficiency.straggler.observations import SIZES_DIFFER

#: Share of the time from which spilling explains late event loops. By judgement.
SPILLS = 0.05
#: Ratio of bytes read back to bytes spilled from which results were read repeatedly. By judgement.
READ_AGAIN = 1.5
#: Mean number of threads with a task below which tasks run one at a time. By judgement.
ONE_TASK = 1.1
#: Share of the cores from which other processes explain waiting for cores. By judgement.
OTHERS = 0.2


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Title and advice for losses of a bucket or cause.

    The advice claims nothing about the run; the first of the cures whose condition holds is given instead. Names in
    braces are those of :meth:`Facts.words`.
    """

    title: str
    advice: str
    cures: tuple[tuple[Callable[[Facts], bool], str], ...]

    def advised(self, facts: Facts) -> str:
        """Advice for a run."""
        words = next((cure for holds, cure in self.cures if holds(facts)), self.advice)
        return words.format(**facts.words())


#: Conditions of cures by name.
_CONDITIONS: Mapping[str, Callable[[Facts], bool]] = {
    "for-gpus": lambda facts: facts.gpu_waiting > MOST,
    "held": lambda facts: facts.held.share > MOST,
    "spilling": lambda facts: facts.spilling >= SPILLS,
    "read-again": lambda facts: facts.times_read_back >= READ_AGAIN,
    "loop-held": lambda facts: facts.loop_held,
    "scheduler-busy": lambda facts: facts.scheduler_busy,
    "imports": lambda facts: facts.imports,
    "skewed": lambda facts: facts.larger_input >= SIZES_DIFFER,
    "long-task": lambda facts: facts.longest_task >= MOST,
    "chained": lambda facts: facts.chained,
    "fills-workers": lambda facts: facts.fills_workers,
    "waited-for": lambda facts: bool(facts.waited_for),
    "one-task": lambda facts: facts.held_threads < ONE_TASK and facts.threads > 2 * ONE_TASK,
    "killed": lambda facts: facts.lost_for_memory > MOST,
    "gil-of-loops": lambda facts: facts.gil_of_loops > MOST,
    "gil-not-of-text": lambda facts: facts.gil_of_text <= MOST,
    "one-thread-each": lambda facts: facts.one_thread_each,
    "short-of-cores": lambda facts: facts.short_of_cores,
    "others": lambda facts: facts.others >= OTHERS,
    "in-libraries": lambda facts: facts.in_libraries,
    "many-threads": lambda facts: facts.threads > facts.cores,
    "saturation": lambda facts: facts.saturation < facts.saturation_needed,
    "joining": lambda facts: facts.joining,
}


def _kinds(text: str) -> Mapping[str, FindingKind]:
    """Kinds by name from lines: name and title, then the cures, each behind its condition, and the advice."""
    found = {}
    for part in re.split(r"\n(?=\S)", text.strip()):
        first, *cures, advice = (line.strip() for line in part.splitlines())
        name, _, title = first.partition(": ")
        conditions = (cure.partition(": ") for cure in cures)
        found[name] = FindingKind(title, advice, tuple((_CONDITIONS[when], words) for when, _, words in conditions))
    return MappingProxyType(found)


#: Kinds by bucket, or bucket and cause.
KINDS = _kinds("""
thread-noncpu/gil: Waiting for the GIL
    gil-of-loops: Use fewer and longer tasks with smaller results: event loops held the GIL.
    one-thread-each: Find which other threads run Python code: each worker has one thread for tasks.
    short-of-cores: Use fewer threads: they wait even longer for cores.
    gil-not-of-text: Use processes: more workers with fewer threads each.
    Use string[pyarrow] for text, or processes: more workers with fewer threads each.
thread-noncpu/core: Waiting for a core
    others: Find them: other processes use {others} of these cores.
    in-libraries: Give libraries' threads less to do, such as fewer columns or row groups to read, or use more cores.
    many-threads: Use fewer threads, or more cores: {threads} threads share {cores} cores.
    Set OMP_NUM_THREADS=1 for libraries' own threads, use fewer threads, or more cores.
thread-noncpu/throttled: Waiting for the container's CPU limit
    Raise the container's CPU limit, or use fewer threads: other cores of the node do not help.
thread-noncpu/stopped: Processes stood still
    See what stops them: SIGSTOP, a frozen container, or a paused machine.
thread-noncpu/lock: Waiting for a lock
    for-gpus: Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.
    in-libraries: Give libraries' threads less to do, such as fewer columns or row groups to read.
    See what holds the lock: hold it shorter, or in fewer tasks.
thread-noncpu/sleep: Sleeping
    Avoid the sleep, or use more threads per worker, so that sleeps overlap.
thread-noncpu/file: Waiting for files
    Read more at a time, use faster disks, or more threads per worker, so that reads overlap.
thread-noncpu/network: Waiting for the network
    Use more threads per worker, so that requests overlap; or prefetch, or ask for more at a time.
thread-noncpu/child-process: Waiting for child processes
    See what the child does: if it computes, it uses a core that is not counted here.
thread-noncpu/unknown: Tasks off the CPU, for no known reason
    for-gpus: Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.
    No sample showed why: longer runs and longer tasks give more samples.
thread-noncpu: Tasks off the CPU, for no known reason
    for-gpus: Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.
    See what they wait for: I/O, sleep, a lock, the GIL, or a library's own threads at work.
spill: Spilling to disk
    held: Release what is not used again: {held_by} holds {held_bytes} of {held_results} that no task waits for.
    read-again: Persist less, or use results at once: {spilled} spilled, {read_back} read back ({times} times).
    Give workers more memory, make partitions smaller, or persist less.
overhead/hand-over: Handing tasks over to threads
    Look for tasks that hold the GIL, or a busy host.
overhead/event-loop: Waiting for the workers' event loops
    spilling: Give workers more memory, or make partitions smaller: event loops are late, and workers spill.
    Look for tasks that hold the GIL, large results, or a busy host.
overhead/rescheduled: Shuffled tasks began on other workers than their data
    Use fewer output partitions: each starts anywhere, then restarts at its data.
overhead/unknown: Overhead of the workers
    spilling: Give workers more memory, or make partitions smaller: event loops are late, and workers spill.
    Event loops were late: look for tasks that hold the GIL, large results, or a busy host.
overhead: Overhead of the workers
    spilling: Give workers more memory, or make partitions smaller: event loops are late, and workers spill.
    Event loops were late: look for tasks that hold the GIL, large results, or a busy host.
failed: Tasks failed
    Read the tracebacks: each retry costs the whole task again.
cancelled: Tasks were cancelled
    Keep futures until they are used, and let workers finish before they close.
recomputed: Results were lost and computed again
    killed: Give workers more memory, or make partitions smaller: workers were killed for lack of memory.
    See why workers left: results were lost with them.
paused: Workers paused, short of memory
    held: Release what is not used again: {held_by} holds {held_bytes} of {held_results} that no task waits for.
    Give workers more memory or fewer threads: they were above worker.memory.pause.
retiring: Workers were retiring
    Scale down less eagerly: a larger wait_count or interval in adapt().
waiting-on-data: Waiting for data of other workers
    Use fewer shuffles, or fewer but larger workers.
constrained: Waiting for resources=
    Offer more of the resource per worker, or ask for less.
idle/scheduler: Threads idle, waiting for the scheduler
    imports: Import modules before the work, by client.run or a preload: event loops were importing.
    loop-held: Do without it, or speed it up: it took {loop_share} of the scheduler's event loop, busy {loop_busy} of the time.
    scheduler-busy: Use fewer and longer tasks: the scheduler was busy {loop_busy} of the time, most with {loop_by}.
    Use fewer and longer tasks, by bigger partitions or by fusing them.
idle/round-trips: Threads idle from a result to the next task
    saturation: Set distributed.scheduler.worker-saturation to {needed}, from {saturation}: tasks take {task} each.
    Raise distributed.scheduler.worker-saturation: workers wait while the scheduler holds ready tasks back.
idle/imbalance: Threads idle while tasks queue at other workers
    See what ties tasks to the workers at which they queue, or split uneven partitions.
idle/restricted: Threads idle that may not run the waiting tasks
    Let more workers run these tasks: workers=, resources= and annotations restrict them.
idle/graph: Threads idle while the scheduler takes in a graph
    loop-held: Do without it, or speed it up: it took {loop_share} of the scheduler's event loop, busy {loop_busy} of the time.
    Make graphs smaller, by bigger partitions, and keep large objects out of them.
idle/parallelism: Threads idle, too few tasks at a time
    skewed: Split or salt the key: the input of the longest task is {larger} times as large.
    long-task: Split the task that took {longest} of the makespan while other threads had none.
    chained: More workers do not help: one chain of tasks is {chain} of the makespan.
    fills-workers: Use fewer threads per worker, or run other work with {waited_for}: each of its tasks fills a worker.
    waited-for: Split the tasks of {waited_for}, which all waited for, or run other work with them.
    one-task: One task ran at a time on {threads} threads: a chain, or a client that waits for each result.
    Make partitions smaller, or split the tasks that all others wait for.
idle/unknown: Threads idle
    There were too few tasks at a time, or a busy scheduler.
idle: Threads idle
    skewed: Split or salt the key: the input of the longest task is {larger} times as large.
    long-task: Split the task that took {longest} of the makespan while other threads had none.
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

#: Losses that small tasks cause, unless something else is known to: one fault, with one cure.
OF_SMALL_TASKS = (
    *("idle", "idle/unknown", "idle/scheduler"),
    *("overhead", "overhead/unknown", "overhead/hand-over", "overhead/event-loop"),
)

#: Kinds without a bucket, or with several.
BESIDE = _kinds("""
small-tasks: Tasks are too small for Dask
    Make partitions bigger, or fuse tasks: those of {task} end before the scheduler hands out more.
repeats: The same results were computed again
    Use persist() for what is used again.
no-workers: No worker was there
    Start workers before the work, or scale up sooner.
client: No work on the cluster
    See what the client does between its calls to Dask.
gpu-idle: GPUs idle
    See what tasks do between their kernels, and give GPUs more work at a time.
""")

#: Title of waiting for locks if tasks wait for libraries whose own threads compute.
IN_LIBRARIES = "Waiting for threads of a library"


def advice(kind: str, facts: Facts = NOTHING_KNOWN) -> str:
    """Advice for a bucket or cause; empty for buckets that are no loss."""
    return KINDS[kind].advised(facts) if kind in KINDS else ""


def page_of(kind: str) -> str:
    """Section of the documentation on a bucket or cause."""
    return f"docs/buckets.md#{kind.replace('/', '-')}"


#: In an installed package, and in a checkout.
_PAGES = (Path(__file__).with_name("buckets.md"), Path(__file__).parents[2] / "docs" / "buckets.md")

_HEADING = re.compile(r"^(#+) (.*)$")
#: Target of links.
_LABEL = re.compile(r"^\(.*\)=$")


def explain(kind: str) -> str:
    """Section of the documentation on a kind; a cause alone (``"sleep"``) is enough where one bucket has it."""
    sections = explained()
    if not sections:
        raise FileNotFoundError(f"there is no {_PAGES[0].name} in the package; expected what its wheel brings along")
    found = [name for name in sections if name == kind] or [name for name in sections if name.endswith(f"/{kind}")]
    if len(found) != 1:
        what, known = ("several kinds", found) if found else ("no kind", sorted(sections))
        raise ValueError(f"{kind!r:.80} is {what}; expected one of {', '.join(known)}")
    return sections[found[0]]


def explained() -> dict[str, str]:
    """Sections by kind; a bucket's includes its causes. Empty if the package has no page."""
    text = next((page.read_text(encoding="utf-8") for page in _PAGES if page.exists()), "")
    lines = [line for line in text.splitlines() if not _LABEL.match(line)]
    heads = [(i, len(match[1]), match[2]) for i, line in enumerate(lines) if (match := _HEADING.match(line))]
    found = {}
    for place, (begin, level, title) in enumerate(heads):
        end = next((i for i, other, _ in heads[place + 1 :] if other <= level or title.startswith("`")), len(lines))
        if title.startswith("`") and title.endswith("`"):
            found[title.strip("`")] = "\n".join(lines[begin:end]).strip()
    return found
