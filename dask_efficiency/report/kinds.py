"""Kinds of findings: title, advice, and the section of the documentation that explains each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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


class FindingKind:
    """Title and advice for losses of a bucket or cause.

    The advice claims nothing about the run; the first of the cures whose condition holds is given instead. Names in
    braces are those of :meth:`Facts.words`.
    """

    def __init__(self, title: str, advice: str, *cures: tuple[Callable[[Facts], bool], str]) -> None:
        self.title, self.advice, self.cures = title, advice, cures

    def advised(self, facts: Facts) -> str:
        """Advice for a run."""
        words = next((cure for holds, cure in self.cures if holds(facts)), self.advice)
        return words.format(**facts.words())


_FOR_GPUS = (
    lambda facts: facts.gpu_waiting > MOST,
    "Mostly, tasks wait for GPUs that do not work for them: see the section on GPUs.",
)
_HELD = (
    lambda facts: facts.held.share > MOST,
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
_CHAIN = (lambda facts: facts.chained, "More workers do not help: one chain of tasks is {chain} of the makespan.")
_ONE_TASK = (
    lambda facts: facts.held_threads < ONE_TASK and facts.threads > 2 * ONE_TASK,
    "One task ran at a time on {threads} threads: a chain, or a client that waits for each result.",
)
_KILLED = (
    lambda facts: facts.lost_for_memory > MOST,
    "Give workers more memory, or make partitions smaller: workers were killed for lack of memory.",
)

_OVERHEAD = FindingKind(
    "Overhead of the workers",
    "Event loops were late: look for tasks that hold the GIL, large results, or a busy host.",
    _LATE,
)

#: Kinds by bucket, or bucket and cause.
KINDS: Mapping[str, FindingKind] = MappingProxyType(
    {
        "thread-noncpu/gil": FindingKind(
            "Waiting for the GIL",
            "Use string[pyarrow] for text, or processes: more workers with fewer threads each.",
            (
                lambda facts: facts.gil_of_loops > MOST,
                "Use fewer and longer tasks with smaller results: event loops held the GIL.",
            ),
            (
                lambda facts: facts.one_thread_each,
                "Find which other threads run Python code: each worker has one thread for tasks.",
            ),
            (lambda facts: facts.short_of_cores, "Use fewer threads: they wait even longer for cores."),
            (lambda facts: facts.gil_of_text <= MOST, "Use processes: more workers with fewer threads each."),
        ),
        "thread-noncpu/core": FindingKind(
            "Waiting for a core",
            "Set OMP_NUM_THREADS=1 for libraries' own threads, use fewer threads, or more cores.",
            (lambda facts: facts.others >= OTHERS, "Find them: other processes use {others} of these cores."),
            (
                lambda facts: facts.in_libraries,
                "Give libraries' threads less to do, such as fewer columns or row groups to read, or use more cores.",
            ),
            (
                lambda facts: facts.threads > facts.cores,
                "Use fewer threads, or more cores: {threads} threads share {cores} cores.",
            ),
        ),
        "thread-noncpu/throttled": FindingKind(
            "Waiting for the container's CPU limit",
            "Raise the container's CPU limit, or use fewer threads: other cores of the node do not help.",
        ),
        "thread-noncpu/stopped": FindingKind(
            "Processes stood still", "See what stops them: SIGSTOP, a frozen container, or a paused machine."
        ),
        "thread-noncpu/lock": FindingKind(
            "Waiting for a lock",
            "See what holds the lock: hold it shorter, or in fewer tasks.",
            _FOR_GPUS,
            (
                lambda facts: facts.in_libraries,
                "Give libraries' threads less to do, such as fewer columns or row groups to read.",
            ),
        ),
        "thread-noncpu/sleep": FindingKind(
            "Sleeping", "Avoid the sleep, or use more threads per worker, so that sleeps overlap."
        ),
        "thread-noncpu/file": FindingKind(
            "Waiting for files",
            "Read more at a time, use faster disks, or more threads per worker, so that reads overlap.",
        ),
        "thread-noncpu/network": FindingKind(
            "Waiting for the network",
            "Use more threads per worker, so that requests overlap; or prefetch, or ask for more at a time.",
        ),
        "thread-noncpu/child-process": FindingKind(
            "Waiting for child processes",
            "See what the child does: if it computes, it uses a core that is not counted here.",
        ),
        "thread-noncpu/unknown": FindingKind(
            "Tasks off the CPU, for no known reason",
            "No sample showed why: longer runs and longer tasks give more samples.",
            _FOR_GPUS,
        ),
        "thread-noncpu": FindingKind(
            "Tasks off the CPU, for no known reason",
            "See what they wait for: I/O, sleep, a lock, the GIL, or a library's own threads at work.",
            _FOR_GPUS,
        ),
        "spill": FindingKind(
            "Spilling to disk",
            "Give workers more memory, make partitions smaller, or persist less.",
            _HELD,
            (
                lambda facts: facts.times_read_back >= READ_AGAIN,
                "Persist less, or use results at once: {spilled} spilled, {read_back} read back ({times} times).",
            ),
        ),
        "overhead/hand-over": FindingKind(
            "Handing tasks over to threads", "Look for tasks that hold the GIL, or a busy host."
        ),
        "overhead/event-loop": FindingKind(
            "Waiting for the workers' event loops",
            "Look for tasks that hold the GIL, large results, or a busy host.",
            _LATE,
        ),
        "overhead/rescheduled": FindingKind(
            "Shuffled tasks began on other workers than their data",
            "Use fewer output partitions: each starts anywhere, then restarts at its data.",
        ),
        "overhead/unknown": _OVERHEAD,
        "overhead": _OVERHEAD,
        "failed": FindingKind("Tasks failed", "Read the tracebacks: each retry costs the whole task again."),
        "cancelled": FindingKind(
            "Tasks were cancelled", "Keep futures until they are used, and let workers finish before they close."
        ),
        "recomputed": FindingKind(
            "Results were lost and computed again", "See why workers left: results were lost with them.", _KILLED
        ),
        "paused": FindingKind(
            "Workers paused, short of memory",
            "Give workers more memory or fewer threads: they were above worker.memory.pause.",
            _HELD,
        ),
        "retiring": FindingKind(
            "Workers were retiring", "Scale down less eagerly: a larger wait_count or interval in adapt()."
        ),
        "waiting-on-data": FindingKind(
            "Waiting for data of other workers", "Use fewer shuffles, or fewer but larger workers."
        ),
        "constrained": FindingKind("Waiting for resources=", "Offer more of the resource per worker, or ask for less."),
        "idle/scheduler": FindingKind(
            "Threads idle, waiting for the scheduler",
            "Use fewer and longer tasks, by bigger partitions or by fusing them.",
            (
                lambda facts: facts.imports,
                "Import modules before the work, by client.run or a preload: event loops were importing.",
            ),
            _LOOP_HELD,
            (
                lambda facts: facts.scheduler_busy,
                "Use fewer and longer tasks: the scheduler was busy {loop_busy} of the time, most with {loop_by}.",
            ),
        ),
        "idle/round-trips": FindingKind(
            "Threads idle from a result to the next task",
            "Raise distributed.scheduler.worker-saturation: workers wait while the scheduler holds ready tasks back.",
            (
                lambda facts: facts.saturation < facts.saturation_needed,
                "Set distributed.scheduler.worker-saturation to {needed}, from {saturation}: tasks take {task} each.",
            ),
        ),
        "idle/imbalance": FindingKind(
            "Threads idle while tasks queue at other workers",
            "See what ties tasks to the workers at which they queue, or split uneven partitions.",
        ),
        "idle/restricted": FindingKind(
            "Threads idle that may not run the waiting tasks",
            "Let more workers run these tasks: workers=, resources= and annotations restrict them.",
        ),
        "idle/graph": FindingKind(
            "Threads idle while the scheduler takes in a graph",
            "Make graphs smaller, by bigger partitions, and keep large objects out of them.",
            _LOOP_HELD,
        ),
        "idle/parallelism": FindingKind(
            "Threads idle, too few tasks at a time",
            "Make partitions smaller, or split the tasks that all others wait for.",
            _SKEWED,
            _LONGEST,
            _CHAIN,
            (
                lambda facts: facts.fills_workers,
                "Use fewer threads per worker, or run other work with {waited_for}: each of its tasks fills a worker.",
            ),
            (
                lambda facts: bool(facts.waited_for),
                "Split the tasks of {waited_for}, which all waited for, or run other work with them.",
            ),
            _ONE_TASK,
        ),
        "idle/unknown": FindingKind("Threads idle", "There were too few tasks at a time, or a busy scheduler."),
        "idle": FindingKind(
            "Threads idle",
            "{held} of {threads} threads had a task: there were too few at a time, or a busy scheduler.",
            _SKEWED,
            _LONGEST,
            _CHAIN,
            _ONE_TASK,
        ),
        "lost-worker": FindingKind(
            "Workers vanished",
            "They were killed for memory, or their job ended: see the nanny's and the job's logs.",
            _KILLED,
        ),
        "unmeasured": FindingKind(
            "Time that was not measured",
            "See Not measured: the package must be on every worker before the work.",
            (lambda facts: facts.joining, "Workers were joining: it takes a moment until each is metered."),
        ),
    }
)

#: Losses that small tasks cause, unless something else is known to: one fault, with one cure.
OF_SMALL_TASKS = (
    *("idle", "idle/unknown", "idle/scheduler"),
    *("overhead", "overhead/unknown", "overhead/hand-over", "overhead/event-loop"),
)

#: Kinds without a bucket, or with several.
BESIDE: Mapping[str, FindingKind] = MappingProxyType(
    {
        "small-tasks": FindingKind(
            "Tasks are too small for Dask",
            "Make partitions bigger, or fuse tasks: those of {task} end before the scheduler hands out more.",
        ),
        "repeats": FindingKind("The same results were computed again", "Use persist() for what is used again."),
        "no-workers": FindingKind("No worker was there", "Start workers before the work, or scale up sooner."),
        "client": FindingKind("No work on the cluster", "See what the client does between its calls to Dask."),
        "gpu-idle": FindingKind(
            "GPUs idle", "See what tasks do between their kernels, and give GPUs more work at a time."
        ),
    }
)

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
