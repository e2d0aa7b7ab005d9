"""Workloads with one known bottleneck each, and the judgement of what the first screen says of a run of them.

Misleading is data: patterns of sentences that are untrue of a workload, with the reason; and a runtime below the
stopwatch's for which nobody is named. A cause that is not named yet is counted, and no failure. The runs are made, and
kept in tests/data/diagnoses, by :mod:`benchmarks.findings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from benchmarks import diagnoses_work as work
from benchmarks.workload_runs import Ran
from dask_efficiency.report.findings import leading
from dask_efficiency.report.sections import stragglers
from dask_efficiency.report.sections.report import context
from dask_efficiency.runs.sections import path as path_sections
from dask_efficiency.runs.stragglers.offline import judge

#: A runtime this much below the stopwatch's misleads.
TOLERANCE = 0.8

PROCESSES = r"[Uu]se processes"
CHAINED = r"one after the other"
#: The time that a headline gives.
TOOK = re.compile(r"^([\d.]+) (ms|s|min)\b")
#: A list of all that waiting may be for names none of it.
ALTERNATIVES = re.compile(r"I/O, [^;\n]*\bor\b[^;\n]*")
#: Misleads where a trace was recorded.
ASKS_FOR_TRACE = r"trace=True tells|record a trace"
UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A workload, and what is true of it."""

    name: str
    run: Callable[..., Ran]
    truth: str
    #: Sentences that would be untrue of it, as regular expressions, with the reasons.
    misleads: Mapping[str, str]
    #: What names the true cause.
    names: str
    #: Modules that Dask does not bring along.
    needs: tuple[str, ...] = ()
    #: True if the trace is worth keeping.
    traced: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentences that a user reads of a workload, what else is known of it, and which sentences mislead."""

    name: str
    headline: str
    path: str
    stragglers: str
    #: How much the report and the path cover, and the path's bounds.
    context_lines: str
    stopwatch_seconds: float
    kernel: dict[str, float]
    misleads: list[str] = field(default_factory=list)
    named: bool = False

    @property
    def first(self) -> str:
        """The sentences that a user reads before any table, a line each."""
        return "\n".join((self.headline, self.path, self.stragglers))


DIAGNOSES = (
    Diagnosis(
        "object_strings",
        work.object_strings,
        "four threads of one process take turns at the GIL: more processes with fewer threads help",
        {},
        r"GIL",
        needs=("pandas",),
    ),
    Diagnosis(
        "threads_beyond_cores",
        work.threads_beyond_cores,
        "sixteen threads compute on two cores that are always busy: more cores help, or fewer threads",
        {PROCESSES: "processes would wait for the same two cores", CHAINED: "sixteen run at the same time"},
        r"more threads than cores|cores are busy|wait\w* for (a )?cores?",
    ),
    Diagnosis(
        "parquet",
        work.parquet,
        "Arrow decodes in threads of its own, which keep the cores busy: this is useful work",
        {
            PROCESSES: "the work is done by Arrow's threads, whatever runs the task",
            r"mostly wait": "the work is done meanwhile, in Arrow's threads",
            r"waiting for a lock": "it is Arrow's threads that tasks wait for",
            r"largest loss is thread-noncpu": "that is no loss: Arrow's threads do the task's work",
        },
        r"librar(y|ies)|Arrow",
        needs=("pandas", "pyarrow"),
    ),
    Diagnosis(
        "own_threads",
        work.own_threads,
        "the one task computes in two threads of OpenBLAS, on all cores that there are: nothing is lost",
        {
            r"split|more workers do not help": "the task is spread over its own threads",
        },
        r"`products`|products",
    ),
    Diagnosis(
        "slow_server",
        work.slow_server,
        "tasks wait 250 ms for each answer of a server, and the cores are free: more threads help, or a faster server",
        {PROCESSES: "a process waits for the server as a thread does"},
        r"network|server|socket|I/O",
    ),
    Diagnosis(
        "distributed_lock",
        work.distributed_lock,
        "a distributed Lock lets one of four threads work at a time",
        {
            PROCESSES: "the lock holds for all processes of the cluster",
            r"shared (equally )?by": "the lock allows one at a time",
        },
        r"lock",
    ),
    Diagnosis(
        "lock_and_sleep",
        work.lock_and_sleep,
        "tasks wait for a lock, and sleep about as long",
        {PROCESSES: "the lock holds for all processes of the cluster"},
        r"(?s)lock.*sleep|sleep.*lock",
    ),
    Diagnosis(
        "spilling",
        work.spilling,
        "1.6 GB pass through 500 MB: the worker writes to disk and reads back, and its event loop blocks meanwhile",
        {r"too small|small tasks|fuse|longer tasks": "tasks of 40 MB are not too small"},
        r"spill|memory",
    ),
    Diagnosis(
        "skew",
        work.skew,
        "the last partition is 20 times as large as the others: one thread works on it while the rest has nothing",
        {
            CHAINED: "there is one long task, no chain",
            r"as long for the same work": "it is not the same work: the input is 20 times as large",
            r"a faster 'convert'": "one of them is longer, as its input is",
            r"fewer workers": "with fewer workers the run takes longer",
        },
        r"large|skew|uneven|unbalanced",
    ),
    Diagnosis(
        "skewed_shuffle",
        work.skewed_shuffle,
        "more than half of the rows have one key, and one task works on them while the rest has nothing",
        {
            CHAINED: "there is one long task, no chain",
            r"a faster 'heavy'": "one of them is longer, as its input is",
            r"fewer workers": "with fewer workers the run takes longer",
        },
        r"salt the key",
        needs=("pandas", "pyarrow"),
    ),
    Diagnosis(
        "flood",
        work.flood,
        "50,000 tasks of 1 ms: the scheduler and the workers' event loops take longer for each than it takes itself",
        {
            r"too few": "50,000 tasks are not too few",
            r"more workers|more threads": "the scheduler is busy already",
            r"processes instead": "tasks wait for the scheduler, not for each other",
        },
        r"scheduler|too small|small tasks|tasks are short|longer tasks",
        traced=False,
    ),
    Diagnosis(
        "client_at_80_percent",
        work.client_at_80_percent,
        "the client builds graphs for 80 % of the time, and the cluster has nothing to do",
        {},
        r"client|your own code",
    ),
    Diagnosis(
        "client_at_48_percent",
        work.client_at_48_percent,
        "the client builds graphs for 48 % of the time, and the cluster has nothing to do; the rest is computing",
        {},
        r"client|your own code",
    ),
    Diagnosis(
        "chain",
        work.chain,
        "each task needs the one before: one thread of two can work, whatever the number of workers",
        {
            r"repartition": "there is one task at a time, of any partition",
            r"fewer workers": "that saves money and no time",
            r"too small|small tasks": "tasks take 200 ms",
        },
        r"chain|one after the other",
    ),
    Diagnosis(
        "cpu_hog",
        work.cpu_hog,
        "three other processes compute on the core of worker 0, whose tasks take twice as long",
        {PROCESSES: "other processes of Dask would share the core with the hogs too"},
        r"0 takes|worker '?0|others use its core",
    ),
    Diagnosis(
        "stopped_worker",
        work.stopped_worker,
        "the process of one worker of four is stopped for half of the time",
        {PROCESSES: "each worker is a process", r"wait for each other": "it has one thread"},
        r"stands still|stood still",
    ),
    Diagnosis(
        "busy_host",
        work.busy_host,
        "four programs that are not Dask's compute on the same two cores: the threads have half of them",
        {
            PROCESSES: "processes would wait for the same two cores",
            "one thread at a time": "two computed at a time",
            r"fewer threads": "others have the cores",
        },
        r"other processes use \d+ % of these cores",
    ),
    Diagnosis(
        "half_waiting",
        work.half_waiting,
        "two threads compute for half of each task and wait for something else in the other half",
        {PROCESSES: "nothing waits for the GIL", "one thread at a time": "they compute whenever they do not sleep"},
        r"wait|sleep|I/O",
    ),
    Diagnosis(
        "no_workers_at_first",
        work.no_workers_at_first,
        "there is no worker for the first 6 s; then two workers sleep for 2 s, as they are told to",
        {
            PROCESSES: "the tasks sleep",
            r"fewer and longer tasks|scheduler and its messages": "the scheduler had no worker to send anything to",
            r"\b0 slots": "there were two",
            r"(?:[4-9]|\d\d)\.\d s: with these tasks this cluster is not faster": "it is, with workers",
        },
        r"no[- ]workers?|without (any )?workers?",
    ),
    Diagnosis(
        "repeated_computes",
        work.repeated_computes,
        "the client asks for the same collection four times, and each time it is made anew: persist it",
        {r"recomputed": "nothing was lost: the client asked again", r"lost or released": "nothing was lost"},
        r"computed (\w+ )?(again|times)|persist",
    ),
    Diagnosis(
        "thinking_client",
        work.thinking_client,
        "the script sleeps for 0.9 s before each computation of 0.2 s",
        {},
        r"client|your own code",
    ),
)


def verdict_of(diagnosis: Diagnosis, ran: Ran) -> Verdict:
    """The first screen of a run, with the sentences in it that mislead."""
    report = ran.report
    path = report.critical_path() if report.trace is not None else None
    about_path = (path_sections.context(path), *path_sections.bounds(path).lines) if path is not None else ()
    verdict = Verdict(
        name=diagnosis.name,
        headline=f"{report.headline}\n" + "\n".join(map(str, leading(report))),
        path="\n".join([path.headline, *map(str, path.findings)]) if path is not None else "not recorded",
        stragglers=stragglers.headline(judge(report.trace)) if report.trace is not None else "not recorded",
        context_lines=" | ".join((context(report), *about_path)),
        stopwatch_seconds=ran.stopwatch_seconds,
        kernel=ran.kernel,
    )
    named = re.search(diagnosis.names, ALTERNATIVES.sub("", verdict.first), re.IGNORECASE) is not None
    return replace(verdict, misleads=_misleading(diagnosis, ran, verdict), named=named)


def _misleading(diagnosis: Diagnosis, ran: Ran, verdict: Verdict) -> list[str]:
    patterns = dict(diagnosis.misleads)
    if ran.report.trace is not None:
        patterns[ASKS_FOR_TRACE] = "it was recorded"
    text = f"{verdict.first}\n{verdict.context_lines}"
    untrue = [f"{found[0]!r}: {why}" for pattern, why in patterns.items() if (found := re.search(pattern, text))]
    return untrue + _took(ran, diagnosis, verdict.headline)


def _took(ran: Ran, diagnosis: Diagnosis, headline: str) -> list[str]:
    """A runtime that is less than a user waited, with nobody named who had the rest."""
    found = TOOK.search(headline)
    if not found or re.search(diagnosis.names, headline):
        return []
    took = float(found[1]) * UNITS[found[2]]
    if took >= TOLERANCE * ran.stopwatch_seconds:
        return []
    return [f"{found[0]!r}: a stopwatch says {ran.stopwatch_seconds:.3g} s"]
