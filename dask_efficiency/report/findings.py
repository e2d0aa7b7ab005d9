"""Findings of a report: what costs it time, what fixing each one saves, and the headline above them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask_efficiency.accounts.buckets import HELD, Bucket
from dask_efficiency.accounts.causes import UNKNOWN, name_of
from dask_efficiency.report.advice import WHOLE, Facts, advice, facts_of, page_of
from dask_efficiency.report.arrivals import first_request
from dask_efficiency.report.culprits import find_culprits
from dask_efficiency.report.gpu import summary
from dask_efficiency.report.largest import Largest, largest_losses, parts_of_loss
from dask_efficiency.report.model import Culprit, EfficiencyReport
from dask_efficiency.report.skew import held_up
from dask_efficiency.report.wall_clock import (
    NO_WORKERS,
    ON_CLUSTER,
    client,
    largest_is_elsewhere,
    parts,
    wall_clock_known,
)
from dask_efficiency.show.figures import (
    format_count,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    sentence,
    shorten,
)
from dask_efficiency.show.figures import (
    name_of as shown_name,
)
from dask_efficiency.show.finding import Basis, Finding
from dask_efficiency.straggler.wording import as_finding

#: Nothing below this share of the wall clock is a finding.
WORTH_FINDING = 0.03

#: More are no findings; and so many are shown first, each worth at least this share of the first one.
MAX_FINDINGS, MAX_SHOWN, WORTH_SHOWING = 10, 3, 0.25

#: In the ranking, a bound counts as this share of it; and so many times what names a worker or results, which are why
#: threads wait that stand beside it.
BOUND_COUNTS, NAMED_COUNTS = 0.5, 2.0
NAMED = frozenset({"slow-worker", "repeats"})

#: Thread time of the results that were made again, as a share of all, from which that is a finding.
WORTH_REPEATING = 0.03

#: Characters of a task's key, and of a headline.
MAX_KEY = 40
MAX_HEADLINE = 100

#: What each kind is called.
TITLES: dict[tuple[str, str], str] = {
    (Bucket.THREAD_NONCPU, "gil"): "Waiting for the GIL",
    (Bucket.THREAD_NONCPU, "core"): "Waiting for a core",
    (Bucket.THREAD_NONCPU, "throttled"): "Waiting for the container's CPU limit",
    (Bucket.THREAD_NONCPU, "stopped"): "Processes stood still",
    (Bucket.THREAD_NONCPU, "lock"): "Waiting for a lock",
    (Bucket.THREAD_NONCPU, "sleep"): "Sleeping",
    (Bucket.THREAD_NONCPU, "file"): "Waiting for files",
    (Bucket.THREAD_NONCPU, "network"): "Waiting for the network",
    (Bucket.THREAD_NONCPU, "child-process"): "Waiting for child processes",
    (Bucket.THREAD_NONCPU, WHOLE): "Tasks off the CPU, for no known reason",
    (Bucket.SPILL, WHOLE): "Spilling to disk",
    (Bucket.OVERHEAD, "hand-over"): "Handing tasks over to threads",
    (Bucket.OVERHEAD, "event-loop"): "Waiting for the workers' event loops",
    (Bucket.OVERHEAD, WHOLE): "Overhead of the workers",
    (Bucket.FAILED, WHOLE): "Tasks failed",
    (Bucket.CANCELLED, WHOLE): "Tasks were cancelled",
    (Bucket.RECOMPUTED, WHOLE): "Results were lost and computed again",
    (Bucket.PAUSED, WHOLE): "Workers paused, short of memory",
    (Bucket.RETIRING, WHOLE): "Workers were retiring",
    (Bucket.WAITING_ON_DATA, WHOLE): "Waiting for data of other workers",
    (Bucket.CONSTRAINED, WHOLE): "Waiting for resources=",
    (Bucket.IDLE, "scheduler"): "Threads idle, waiting for the scheduler",
    (Bucket.IDLE, "imbalance"): "Threads idle while tasks queue at other workers",
    (Bucket.IDLE, "restricted"): "Threads idle that may not run the tasks there are",
    (Bucket.IDLE, "graph"): "Threads idle while the scheduler takes in a graph",
    (Bucket.IDLE, "parallelism"): "Threads idle, too few tasks at a time",
    (Bucket.IDLE, WHOLE): "Threads idle",
    (Bucket.LOST_WORKER, WHOLE): "Workers vanished",
    (Bucket.UNMEASURED, WHOLE): "Time that was not measured",
}

#: The same where tasks wait at locks of libraries whose own threads compute.
IN_LIBRARIES = "Waiting for threads of a library"


def find(report: EfficiencyReport) -> tuple[Finding, ...]:
    """What costs the run time, what saves most first; then what nobody knows the saving of, by thread time.

    Savings of a cause are replayed where the report has that (:attr:`~EfficiencyReport.without_largest_seconds`); else
    they are bounds: the thread time over the mean number of threads, and no more than the ideal runtime leaves. They do
    not add up: two findings may be of the same seconds.
    """
    if not wall_clock_known(report) or not report.breakdown:
        return ()
    least = WORTH_FINDING * report.wall_clock_seconds
    found = [
        *_losses(report, least),
        *map(as_finding, report.stragglers),
        *_repeats(report),
        *_elsewhere(report),
        *_gpus(report),
    ]
    worth = [one for one in found if one.saves_seconds is None or one.saves_seconds >= least]
    return tuple(sorted(worth, key=_rank)[:MAX_FINDINGS])


def leading(report: EfficiencyReport) -> tuple[Finding, ...]:
    """The findings that are shown first: at most :data:`MAX_SHOWN`, none that is small beside the first one."""
    found = find(report)
    return tuple(one for one in found[:MAX_SHOWN] if _expected(one) >= WORTH_SHOWING * _expected(found[0]))


def _expected(one: Finding) -> float:
    """What fixing it may be expected to save: a bound is seldom reached."""
    return (one.saves_seconds or 0.0) * (BOUND_COUNTS if one.basis is Basis.BOUNDED else 1.0)


def _rank(one: Finding) -> tuple[bool, float, float]:
    """By what is to be expected; who or what is named explains causes beside it."""
    expected = _expected(one) * (NAMED_COUNTS if one.kind in NAMED else 1.0)
    return one.saves_seconds is None, -expected, -one.lost_seconds


def headline(report: EfficiencyReport) -> str:
    """How long it took, and how much of that can be saved; at most :data:`MAX_HEADLINE` characters, no full stop."""
    whole = report.breakdown
    if not whole:
        return "Nothing was recorded: the window holds no thread time"
    there = whole.total_ns - whole.ns(Bucket.NO_WORK)
    if not there:
        return f"Nothing ran: there was no work in any of {format_thread_time(whole.total_ns)}"
    finalized = there - whole.ns(Bucket.RUNNING)
    if not finalized:
        return f"Too early to tell: {format_thread_time(whole.ns(Bucket.RUNNING))} are running and nothing has ended"
    if whole.ns(Bucket.UNMEASURED) == finalized:
        return shorten(f"Nothing was measured: all of {format_thread_time(finalized)}{_reason(report)}", MAX_HEADLINE)
    if not wall_clock_known(report):
        return f"{format_share(report.efficiency)} of {format_thread_time(finalized)} were useful"
    return f"{format_seconds(report.wall_clock_seconds)}{_of_which(report)}"


def in_a_line(report: EfficiencyReport) -> str:
    """How efficient it is, and the largest loss, for a view of what goes on; no full stop."""
    whole = report.breakdown
    if math.isnan(report.efficiency) or whole.ns(Bucket.UNMEASURED) == whole.total_ns - whole.ns(Bucket.NO_WORK):
        return headline(report)
    said = f"{format_share(report.efficiency)} efficient"
    for largest in largest_losses(report)[:1]:
        title, where = _title(facts_of(report), largest), _where(report, largest, find_culprits(report))
        said += f"; {title}: {format_seconds(largest.ns / 1e9)} of thread time" + (f", {where}" if where else "")
    return said


def _of_which(report: EfficiencyReport) -> str:
    if largest_is_elsewhere(report):
        what, seconds = next(iter(parts(report).items()))
        return f", {format_seconds(seconds)} of it {what} ({_who(report)})"
    best, well = next(iter(find(report)), None), f"{format_share(report.efficiency)} efficient"
    if best is None:
        least = format_seconds(WORTH_FINDING * report.wall_clock_seconds)
        return f"; nothing found that would save more than {least} ({well}{_bound(report)})"
    if best.saves_seconds is None:
        return f", {well} ({_who(report)})"
    up_to = "up to " if best.basis is Basis.BOUNDED else ""
    return f", of which {up_to}{format_seconds(best.saves_seconds)} can be saved ({_who(report)})"


def _bound(report: EfficiencyReport) -> str:
    """What no faster run can beat."""
    bounds = report.ideal_bounds
    binding = max(bounds, key=lambda name: (bounds[name], name != "slots"), default="")
    said = {"cores": f"{report.cores or math.nan:.3g} cores", "chain": "its longest chain of tasks"}
    return f", bound by {said[binding]}" if binding in said else ""


def _who(report: EfficiencyReport) -> str:
    """Workers and threads."""
    threads = {*report.nthreads.values()}
    workers = format_count(len(report.by_worker), "worker")
    if not threads:
        return workers
    if len(threads) == 1:
        return f"{workers} x {format_count(threads.pop(), 'thread')}"
    return f"{workers}, {format_count(sum(report.nthreads.values()), 'thread')}"


def _reason(report: EfficiencyReport) -> str:
    reasons = set(report.not_measured.values())
    return f" ({harmless(reasons.pop())})" if len(reasons) == 1 else ""


# -- losses ----------------------------------------------------------------------------------------


def _losses(report: EfficiencyReport, least: float) -> list[Finding]:
    facts, largest = facts_of(report), next(iter(largest_losses(report)), None)
    lost = [part for loss in report.losses for part in parts_of_loss(report, loss.bucket)]
    worth = [part for part in lost if part.ns / 1e9 >= least * report.mean_threads]
    culprits = find_culprits(report) if worth else ()
    return [of_loss(report, facts, part, culprits, replayed=part == largest) for part in worth]


def of_loss(
    report: EfficiencyReport, facts: Facts, part: Largest, culprits: Sequence[Culprit] = (), *, replayed: bool = False
) -> Finding:
    """What a loss of a run costs it."""
    bucket, cause, lost = part.bucket, part.cause, part.ns / 1e9
    saves: float | None
    saves, basis = _saves(report, lost, replayed=replayed)
    if (bucket, cause) == (Bucket.THREAD_NONCPU, WHOLE):
        # It may hold what libraries' own threads computed, which is no loss.
        saves, basis = None, Basis.UNKNOWN
    todo = advice(bucket, facts, cause)
    return Finding(
        kind=name_of(bucket, cause) if cause else str(bucket),
        title=_title(facts, part),
        where=_where(report, part, culprits),
        lost_seconds=lost,
        saves_seconds=saves,
        basis=basis,
        advice=f"{todo[:1].upper()}{todo[1:]}." if todo else "",
        page=page_of(bucket, cause),
        evidence={"share_of_thread_time": lost / report.thread_seconds},
    )


def _title(facts: Facts, part: Largest) -> str:
    if facts.in_libraries and (part.bucket, part.cause) == (Bucket.THREAD_NONCPU, "lock"):
        return IN_LIBRARIES
    return TITLES.get((part.bucket, part.cause)) or TITLES[part.bucket, WHOLE]


def _saves(report: EfficiencyReport, lost: float, *, replayed: bool) -> tuple[float, Basis]:
    took = report.cluster_seconds
    without = report.without_largest_seconds
    if replayed and without is not None and 0 <= without <= took:
        return took - without, Basis.REPLAYED
    return max(0.0, min(lost / report.mean_threads, took - report.ideal_seconds)), Basis.BOUNDED


def _where(report: EfficiencyReport, part: Largest, culprits: Sequence[Culprit]) -> str:
    """The line to blame; of idle threads the task that all waited for."""
    if part.bucket is Bucket.IDLE:
        return _held_up_by(report) if part.cause == "parallelism" else ""
    causes = (part.cause,) if part.cause else (UNKNOWN, WHOLE)
    culprit = next((one for one in culprits if one.bucket == part.bucket and one.cause in causes), None)
    return "" if culprit is None else _line(culprit)


def _line(culprit: Culprit) -> str:
    """Who held what was waited for, where that is known; else the line on which the time went, or the prefix."""
    computed = f", computed by {sentence(culprit.computed_by)}" if culprit.computed_by else ""
    if culprit.held_by:
        return f"held by {sentence(culprit.held_by)}{computed}"
    if not culprit.line:
        return f"tasks of {shown_name(culprit.prefix)}" if culprit.prefix else ""
    called = f"`{shown_name(culprit.function)}`, " if culprit.function else ""
    tasks = f" (tasks of {shown_name(culprit.prefix)})" if culprit.prefix and culprit.prefix != culprit.function else ""
    return f"{called}{shown_name(culprit.line)}{tasks}{computed}"


def _held_up_by(report: EfficiencyReport) -> str:
    """The task that took far longer than its like while all others waited; empty where there is none."""
    for recorded in report.long_tail[:1]:
        took = f"{format_seconds(recorded.seconds)}, {recorded.times_longer:.3g} times the median"
        return f"Task {shorten(shown_name(recorded.key), MAX_KEY)} took {took}"
    for prefix, longest in list(held_up(report).items())[:1]:
        took = f"{format_seconds(longest.max_seconds)}, {longest.times_longer:.3g} times the median"
        return f"The longest of {longest.count} {shown_name(prefix)} took {took}"
    return ""


# -- what no bucket has ----------------------------------------------------------------------------


def _repeats(report: EfficiencyReport) -> list[Finding]:
    """Results that were made again because somebody asked for them again."""
    lost, tasks, times = 0.0, 0, 0
    for prefix, repeat in report.repeats.items():
        row, skew = report.by_prefix.get(prefix), report.skew.get(prefix)
        tasks, times = tasks + repeat.tasks, max(times, repeat.times)
        if row is not None and skew is not None and skew.count:
            lost += min(repeat.tasks / skew.count, 1.0) * row.total_ns / 1e9
    held = report.breakdown.ns(*HELD) / 1e9
    if not held or lost < WORTH_REPEATING * held:
        return []
    most = max(report.repeats, key=lambda prefix: report.repeats[prefix].tasks)
    return [
        Finding(
            kind="repeats",
            title="The same results were computed again",
            where=f"{format_count(tasks, 'task')}, up to {times} times, most of {shown_name(most)}",
            lost_seconds=lost,
            # Threads are idle between those tasks as between others.
            saves_seconds=min(lost / held, 1.0) * report.cluster_seconds,
            basis=Basis.BOUNDED,
            advice="Use persist() for what is used again.",
            page="docs/report.md",
            evidence={"tasks": tasks, "times": times},
        )
    ]


def _elsewhere(report: EfficiencyReport) -> list[Finding]:
    """What the wall clock went to while there was no work, or no worker."""
    elsewhere = {what: seconds for what, seconds in parts(report).items() if what != ON_CLUSTER}
    return [of_wall_clock(report, what, seconds) for what, seconds in elsewhere.items()]


def of_wall_clock(report: EfficiencyReport, what: str, seconds: float) -> Finding:
    """What time without any worker, or else time of the client's own, costs a run."""
    if what == NO_WORKERS:
        kind, title, todo = "no-workers", "No worker was there", "Start workers before the work, or scale up sooner."
    else:
        title = f"No work on the cluster, {client(report)}" if report.phases else "No work on the cluster"
        kind, todo = "client", "See what the client does between its calls of Dask."
    return Finding(
        kind=kind,
        title=title,
        where=first_request(report.arrivals) if what == NO_WORKERS else "",
        saves_seconds=seconds,
        basis=Basis.BOUNDED,
        advice=todo,
        page="docs/report.md",
    )


def _gpus(report: EfficiencyReport) -> list[Finding]:
    """How much of the time GPUs did nothing: what that costs the run is not known."""
    found = summary(report.gpu)
    if found is None or not found.elapsed or found.shares_of_time["idle"] < WORTH_FINDING:
        return []
    idle = found.shares_of_time["idle"]
    return [
        Finding(
            kind="gpu-idle",
            title="GPUs idle" if len(found.own) > 1 else "GPU idle",
            where=f"{format_share(idle)} of the time",
            advice="See what tasks do between their kernels, and give the GPU more work at a time.",
            page="docs/gpu.md",
            evidence={"share_of_time": idle},
        )
    ]
