"""Findings of a report: losses, their savings, and the headline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dask_efficiency.accounts.buckets import HELD, UNKNOWN, Bucket
from dask_efficiency.accounts.metered import SECONDS
from dask_efficiency.report.culprits import find_culprits
from dask_efficiency.report.facts import NOTHING_KNOWN, Facts, facts_of
from dask_efficiency.report.gpu import summary
from dask_efficiency.report.kinds import BESIDE, IN_LIBRARIES, KINDS, OF_SMALL_TASKS, advice, page_of
from dask_efficiency.report.lost_time import CauseLoss, largest_loss, losses_worth_finding
from dask_efficiency.report.metered import own_labels
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import held_up, longest, recorded_tasks
from dask_efficiency.report.turnover import first_request, lost_worker_name
from dask_efficiency.report.values import ALL, BOUNDS, Culprit, Saved
from dask_efficiency.report.wall_clock import (
    NO_WORKERS,
    ON_CLUSTER,
    client_time_text,
    largest_is_elsewhere,
    wall_clock_known,
    wall_clock_parts,
)
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    name_of,
    sentence,
    shorten,
)
from dask_efficiency.show.finding import MAX_FINDINGS, MAX_HEADLINE, MAX_SHOWN, WORTH_FINDING, Basis, Finding
from dask_efficiency.straggler.wording import as_finding

#: Share of the first finding's saving from which others are shown with it. By judgement.
WORTH_SHOWING = 0.25
#: Weights in the ranking: a bound is seldom reached; findings that name a worker or results explain causes and come
#: first. By judgement: benchmarks/diagnoses.py checks which findings lead.
BOUND_COUNTS, NAMED_COUNTS = 0.5, 2.0
NAMED = frozenset({"slow-worker", "slow-host", "repeats"})
#: Share of the time of a culprit that a user's label must cover to be named: waits just outside it share the line's
#: cause. A guess.
COVERED = 0.9
#: Evidence key: seconds of the wall clock that a finding is known to cost, its thread time over the threads.
KNOWN = "wall_clock_seconds"


def find(report: EfficiencyReport) -> tuple[Finding, ...]:
    """Findings of a report, the largest saving first, then those of unknown saving by thread time.

    Savings are replayed if the report has that (:attr:`~EfficiencyReport.savings`). Otherwise they are bounds: thread
    time over the mean number of threads, at most what the ideal runtime leaves. Savings do not add up, as two findings
    may cover the same seconds.
    """
    if not wall_clock_known(report) or not report.breakdown:
        return ()
    least = WORTH_FINDING * report.wall_clock_seconds
    found = [*_losses(report), *_slow_workers(report), *_repeats(report), *_elsewhere(report), *_gpus(report)]
    worth = [one for one in found if one.saves_seconds is None or one.saves_seconds >= least]
    return tuple(sorted(worth, key=_ranking)[:MAX_FINDINGS])


def leading(report: EfficiencyReport) -> tuple[Finding, ...]:
    """Findings that are shown first: at most :data:`MAX_SHOWN`, none far smaller than the first."""
    found = find(report)
    return tuple(
        one for one in found[:MAX_SHOWN] if _expected_saving(one) >= WORTH_SHOWING * _expected_saving(found[0])
    )


def _expected_saving(one: Finding) -> float:
    """Expected saving: bounds are discounted, most where they far exceed what is known."""
    known = min(one.saves_seconds or 0.0, one.evidence.get(KNOWN, math.inf))
    return known * (BOUND_COUNTS if one.basis is Basis.BOUNDED else 1.0)


def _ranking(one: Finding) -> tuple[bool, float, float]:
    expected = _expected_saving(one) * (NAMED_COUNTS if one.kind in NAMED else 1.0)
    return one.saves_seconds is None, -expected, -one.lost_seconds


def headline(report: EfficiencyReport) -> str:
    """Runtime and possible saving; at most :data:`MAX_HEADLINE` characters, no full stop."""
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
        reasons = set(report.not_measured.values())
        why = f" ({harmless(reasons.pop())})" if len(reasons) == 1 else ""
        return shorten(f"Nothing was measured: all of {format_thread_time(finalized)}{why}", MAX_HEADLINE)
    if not wall_clock_known(report):
        return f"{format_share(report.efficiency)} of {format_thread_time(finalized)} were useful"
    return f"{format_seconds(report.wall_clock_seconds)}{_saving_clause(report)}"


def in_a_line(report: EfficiencyReport) -> str:
    """Efficiency and largest loss, for live views; no full stop."""
    whole = report.breakdown
    if math.isnan(report.efficiency) or whole.ns(Bucket.UNMEASURED) == whole.total_ns - whole.ns(Bucket.NO_WORK):
        return headline(report)
    text = f"{format_share(report.efficiency)} efficient"
    if (largest := largest_loss(report)) is not None:
        facts = facts_of(report)
        title, where = _title_of(facts, largest.kind), _place_of(report, facts, largest, find_culprits(report))
        text += f"; {title}: {format_seconds(largest.ns / 1e9)} of thread time" + (f", {where}" if where else "")
    return text


def _saving_clause(report: EfficiencyReport) -> str:
    if largest_is_elsewhere(report):
        what, seconds = next(iter(wall_clock_parts(report).items()))
        return f", {format_seconds(seconds)} of it {what} ({_cluster_size(report)})"
    best, well = next(iter(find(report)), None), f"{format_share(report.efficiency)} efficient"
    if best is None:
        least = format_seconds(WORTH_FINDING * report.wall_clock_seconds)
        return f"; no finding saves more than {least} ({well}{_bound_clause(report)})"
    if best.saves_seconds is None:
        return f", {well} ({_cluster_size(report)})"
    saved, up_to = best.saves_seconds, "up to " if best.basis is Basis.BOUNDED else ""
    if best.basis is Basis.REPLAYED and ALL in report.savings:
        saved = max(saved, min(report.savings[ALL].seconds, _largest_saving(report)))
    return f", of which {up_to}{format_seconds(saved)} can be saved ({_cluster_size(report)})"


def _bound_clause(report: EfficiencyReport) -> str:
    bounds = report.ideal_bounds
    binding = max(bounds, key=lambda name: (bounds[name], name != "slots"), default="")
    words = {"cores": f"{report.cores or math.nan:.3g} cores", "chain": "its longest chain of tasks"}
    return f", bound by {words[binding]}" if binding in words else ""


def _cluster_size(report: EfficiencyReport) -> str:
    threads = {*report.nthreads.values()}
    workers = format_count(len(report.by_worker), "worker")
    if not threads:
        return workers
    if len(threads) == 1:
        return f"{workers} x {format_count(threads.pop(), 'thread')}"
    return f"{workers}, {format_count(sum(report.nthreads.values()), 'thread')}"


def _losses(report: EfficiencyReport) -> list[Finding]:
    worth, facts = losses_worth_finding(report), facts_of(report)
    culprits = find_culprits(report) if worth else ()
    of_small = OF_SMALL_TASKS if facts.small_tasks else ()
    # Imports on event loops, or a scheduler plugin, then explain the waiting for the scheduler.
    known = facts.imports or facts.loop_held
    small = [part for part in worth if part.kind in of_small and not (part.bucket is Bucket.IDLE and known)]
    found = [loss_finding(report, facts, part, culprits) for part in worth if part not in small]
    if small:  # Dask's work for each task also takes cores and the GIL from everything else
        lost = sum(part.ns for part in small) / 1e9
        evidence = {"task_seconds": facts.task_seconds, KNOWN: lost / report.mean_threads}
        of_all = _beside("small-tasks", facts, lost_seconds=lost, evidence=evidence)
        found.append(_bounded(of_all, _largest_saving(report)))
    return found


def _beside(kind: str, facts: Facts = NOTHING_KNOWN, **fields: Any) -> Finding:
    """Finding of one of the kinds :data:`BESIDE` the buckets."""
    found = BESIDE[kind]
    return Finding(kind, **{"title": found.title, "advice": found.advised(facts), "page": page_of(kind)} | fields)


def _bounded(found: Finding, seconds: float) -> Finding:
    return replace(found, saves_seconds=seconds, basis=Basis.BOUNDED)


def loss_finding(report: EfficiencyReport, facts: Facts, part: CauseLoss, culprits: Sequence[Culprit] = ()) -> Finding:
    """Finding of a loss."""
    kind, lost = part.kind, part.ns / 1e9
    found = Finding(
        kind=kind,
        title=_title_of(facts, kind),
        where=_place_of(report, facts, part, culprits),
        lost_seconds=lost,
        advice=advice(kind, facts),
        page=page_of(kind),
        evidence={"share_of_thread_time": lost / report.thread_seconds},
    )
    if kind == Bucket.THREAD_NONCPU:  # may include computing in libraries' threads, which is no loss
        return found
    if kind == "idle/parallelism" and facts.chained:  # the chain may be impossible to break up
        return found
    if kind in report.savings:
        return _with_replay(report, found, report.savings[kind])
    return _bounded(found, min(lost / report.mean_threads, _largest_saving(report)))


def _largest_saving(report: EfficiencyReport) -> float:
    return max(0.0, report.cluster_seconds - report.ideal_seconds)


def _title_of(facts: Facts, kind: str) -> str:
    return IN_LIBRARIES if facts.in_libraries and kind == "thread-noncpu/lock" else KINDS[kind].title


def _with_replay(report: EfficiencyReport, found: Finding, saved: Saved) -> Finding:
    """Add a replayed saving, kept within limits whatever a file contains."""
    most = _largest_saving(report)
    seconds, low, high = (min(max(each, 0.0), most) for each in (saved.seconds, saved.low, saved.high))
    if not all(map(math.isfinite, (seconds, low, high))):
        return found
    if found.kind in BOUNDS:
        return _bounded(found, seconds)
    interval = (min(low, seconds), max(seconds, high))
    return replace(found, saves_seconds=seconds, saves_interval=interval, basis=Basis.REPLAYED)


def _place_of(report: EfficiencyReport, facts: Facts, part: CauseLoss, culprits: Sequence[Culprit]) -> str:
    """Place to blame: a line, the task that all waited for, or what keeps the scheduler busy."""
    if part.bucket in (Bucket.LOST_WORKER, Bucket.RECOMPUTED):
        return _lost_worker(report, part.bucket)
    if part.bucket is Bucket.IDLE:
        if part.cause in ("scheduler", "graph") and facts.loop_held and not facts.imports:
            return sentence(facts.loop_by)
        return _long_task(report) if part.cause == "parallelism" else ""
    causes = (part.cause,) if part.cause else (UNKNOWN, "")
    of_tasks = part.bucket is Bucket.THREAD_NONCPU
    culprit = next((one for one in culprits if one.bucket == part.bucket and one.cause in causes), None)
    moved = _spilled(report) if part.bucket is Bucket.SPILL else ""
    if culprit is None:
        return moved
    return ": ".join(filter(None, (_culprit_text(culprit) + (_user_label(report, culprit) if of_tasks else ""), moved)))


def _culprit_text(culprit: Culprit) -> str:
    """Holder of what was waited for if known, else the line of the loss, or its prefix."""
    computed = f", computed by {sentence(culprit.computed_by)}" if culprit.computed_by else ""
    if culprit.held_by:
        return f"held by {sentence(culprit.held_by)}{computed}"
    if not culprit.line:
        return f"tasks of {name_of(culprit.prefix)}" if culprit.prefix else ""
    called = f"`{name_of(culprit.function)}`, " if culprit.function else ""
    tasks = f" (tasks of {name_of(culprit.prefix)})" if culprit.prefix and culprit.prefix != culprit.function else ""
    return f"{called}{name_of(culprit.line)}{tasks}{computed}"


def _lost_worker(report: EfficiencyReport, bucket: Bucket) -> str:
    cost = attrgetter("ns" if bucket is Bucket.LOST_WORKER else "recomputed_ns")
    ranked = sorted(filter(cost, report.lost_workers), key=cost, reverse=True)
    if not ranked:
        return ""
    return lost_worker_name(ranked[0]) + (f", and {len(ranked) - 1} more" if len(ranked) > 1 else "")


def _spilled(report: EfficiencyReport) -> str:
    words = {"spilled": "spilled", "read-back": "read back"}
    shown = (f"{format_bytes(report.moved[way].nbytes)} {what}" for way, what in words.items() if way in report.moved)
    return ", ".join(shown)


def _user_label(report: EfficiencyReport, culprit: Culprit) -> str:
    """User's own label under which tasks of the culprit's prefix spent nearly all of the culprit's time, or more."""
    of_prefix = {
        label: n
        for (label, unit, prefix), n in own_labels(report.metered).items()
        if (unit, prefix) == (SECONDS, culprit.prefix)
    }
    label = max(of_prefix, key=lambda label: of_prefix[label], default="")
    return f", in your label {name_of(label)}" if label and of_prefix[label] >= COVERED * culprit.seconds else ""


def _long_task(report: EfficiencyReport) -> str:
    found = recorded_tasks(report) or [longest(report, prefix) for prefix in held_up(report)]
    return found[0].where if found else ""


def _slow_workers(report: EfficiencyReport) -> list[Finding]:
    savings = report.savings
    found = [(one := as_finding(slow), savings.get(f"{one.kind}/{slow.subject}")) for slow in report.stragglers]
    return [one if saved is None else _with_replay(report, one, saved) for one, saved in found]


def _repeats(report: EfficiencyReport) -> list[Finding]:
    lost, tasks, times = 0.0, 0, 0
    for prefix, repeat in report.repeats.items():
        row, skew = report.by_prefix.get(prefix), report.skew.get(prefix)
        tasks, times = tasks + repeat.tasks, max(times, repeat.times)
        if row is not None and skew is not None and skew.count:
            lost += min(repeat.tasks / skew.count, 1.0) * row.ns(*HELD) / 1e9
    if not lost:
        return []
    held = report.breakdown.ns(*HELD) / 1e9
    most = max(report.repeats, key=lambda prefix: report.repeats[prefix].tasks)
    where = f"{format_count(tasks, 'task')}, up to {times} times, most of {name_of(most)}"
    found = _beside("repeats", where=where, lost_seconds=lost, evidence={"tasks": tasks, "times": times})
    # Threads are idle between those tasks as between others.
    return [_bounded(found, lost / max(held, lost) * report.cluster_seconds)]


def _elsewhere(report: EfficiencyReport) -> list[Finding]:
    parts = wall_clock_parts(report).items()
    return [wall_clock_finding(report, what, seconds) for what, seconds in parts if what != ON_CLUSTER]


def wall_clock_finding(report: EfficiencyReport, what: str, seconds: float) -> Finding:
    """Finding of time without any worker, or of the client's own time."""
    if what == NO_WORKERS:
        return _bounded(_beside("no-workers", where=first_request(report.arrivals)), seconds)
    found = _beside("client")
    title = f"{found.title}, {client_time_text(report)}" if report.phases else found.title
    return _bounded(replace(found, title=title), seconds)


def _gpus(report: EfficiencyReport) -> list[Finding]:
    """Idle share of the GPUs; its cost to the run is unknown."""
    found = summary(report.gpu)
    if found is None or not found.elapsed or (idle := found.shares_of_time["idle"]) < WORTH_FINDING:
        return []
    return [_beside("gpu-idle", where=f"{format_share(idle)} of the time", evidence={"share_of_time": idle})]
