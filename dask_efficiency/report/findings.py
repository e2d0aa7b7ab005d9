"""Findings of a report: losses, their savings, and the headline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dask_efficiency.accounts.buckets import HELD, UNKNOWN, Bucket
from dask_efficiency.report.again import computed_again
from dask_efficiency.report.blocks import FOR_SCHEDULER, stacks_beside_tasks
from dask_efficiency.report.bounds import CORE, OF_CURE, bounded_saving, by_fewer_tasks, kept_promise, largest_saving
from dask_efficiency.report.computed_first import computed_first
from dask_efficiency.report.computing import GIL, MAY_GO
from dask_efficiency.report.conditions import NOTHING_KNOWN, Conditions
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.culprits import find_culprits, lost_prefixes, lost_stacks
from dask_efficiency.report.cures import tasks_by_prefix, with_builder, with_recipe
from dask_efficiency.report.endings import ENDINGS, ending_clause, endings, follows
from dask_efficiency.report.gpu import summary
from dask_efficiency.report.inner_graphs import of_inner_graphs
from dask_efficiency.report.kinds import (
    BESIDE,
    OF_SMALL_TASKS,
    OF_WAITING,
    OTHERS,
    holds_any,
    page_of,
    shares_cores,
    words_of,
)
from dask_efficiency.report.lost_time import CauseLoss, largest_loss, losses_worth_finding
from dask_efficiency.report.memory_needs import told_beside
from dask_efficiency.report.messages import EXPLAINS, OF_LOOPS, Told, fetched_text, heavy_loads, told_by_loads
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.much_time import much_of_all
from dask_efficiency.report.places import place_of_loss, sender_of_most
from dask_efficiency.report.skew import TIED, waited_behind
from dask_efficiency.report.stacks import exact_stacks
from dask_efficiency.report.turnover import FEW_STAYED, came_and_went, first_request
from dask_efficiency.report.values import ALL, BOUNDS, DASK_ACTIVITIES, Culprit, ProfileRow, Saved
from dask_efficiency.report.wall_clock import (
    NO_WORKERS,
    ON_CLUSTER,
    client_doing,
    client_line,
    client_time_text,
    largest_is_elsewhere,
    mostly_seceded,
    sender,
    time_of_client_counts,
    wall_clock_known,
    wall_clock_parts,
    work_of_client,
)
from dask_efficiency.report.whole_inputs import WHOLE_INPUTS
from dask_efficiency.show.figures import (
    format_count,
    format_number,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    name_of,
    sentence,
    shorten,
)
from dask_efficiency.show.finding import (
    KNOWN,
    MAX_FINDINGS,
    MAX_HEADLINE,
    MAX_SHOWN,
    MOST,
    WORTH_FINDING,
    Basis,
    Finding,
)
from dask_efficiency.straggler.wording import as_finding

#: Share of the first finding's saving from which others are shown with it. By judgement.
WORTH_SHOWING = 0.25
#: Weights in the ranking: bounds are seldom reached, NAMED explain causes. By judgement; see benchmarks/diagnoses.py.
BOUND_COUNTS, NAMED_COUNTS = 0.5, 2.0
NAMED = frozenset({"slow-worker", "slow-host", "repeats", "reads-again", WHOLE_INPUTS, *EXPLAINS})
#: Loss while one task puts a result together, which is part of its way to the client.
FETCHED = "idle/parallelism"
OF_GRAPH = "idle/graph"
#: Part of what many small graphs and their tasks cost from which it is for the graphs. By judgement.
PART_OF_GRAPHS = 1 / 3
SLEEP = "thread-noncpu/sleep"
#: Process memory above the limit, told where neither spilling nor pauses are, which have the size as well.
OVER_LIMIT = "over-limit"


def find(report: EfficiencyReport) -> tuple[Finding, ...]:
    """Findings of a report: what went wrong, then the largest saving first, then unknown savings by thread time.

    Savings are replayed if the report has that (:attr:`~EfficiencyReport.savings`). Otherwise they are bounds: thread
    time over the mean number of threads, at most what the ideal runtime leaves. Savings do not add up, as two findings
    may cover the same seconds.
    """
    first, facts = endings(report), conditions_of(report)
    if report.client and nothing_ran(report) and not wall_clock_known(report) and time_of_client_counts(report):
        first.append(wall_clock_finding(report, client_time_text(report), report.client_seconds, facts))
    if not wall_clock_known(report) or not report.breakdown:
        return tuple(first[:MAX_FINDINGS])
    least, exact = WORTH_FINDING * report.wall_clock_seconds, exact_stacks(report)
    found = [
        *(*_losses(report, facts, exact), *_slow_workers(report), *_repeats(report, facts, exact)),
        *(*_elsewhere(report, facts), *_gpus(report)),
    ]
    much, explained = much_of_all(report, facts, exact)
    if holds_any(("many-small",), facts):  # computed together, these are few graphs, and taken in once
        lost = {one.kind: one.lost_seconds for one in found}
        of_graphs, of_small = lost.get(OF_GRAPH, 0.0), lost.get("small-tasks", 0.0)
        explained |= {"small-tasks"} if of_graphs > PART_OF_GRAPHS * (of_graphs + of_small) else set()
    if _mostly_again(report, found):
        explained |= {"small-tasks"}
    found = _computed_first(report, [one for one in found if one.kind not in explained]) + much
    sized = any(one.kind in (Bucket.SPILL, Bucket.PAUSED) for one in found)
    beside = [(kind, where) for kind, where in told_beside(report, facts.memory) if kind != OVER_LIMIT or not sized]
    found += [_beside(kind, facts, where=where, evidence=facts.memory.evidence) for kind, where in beside]
    found = [kept_promise(report, one, least) for one in found]
    worth = [one for one in found if one.saves_seconds is None or one.saves_seconds >= least]
    worth = [one for one in worth if not follows(first, report, one.kind)]
    ranked = sorted(worth, key=_ranking)
    return (*first, *_told_once(_slept_first(ranked) if facts.longest_slept else ranked))[:MAX_FINDINGS]


def _slept_first(found: Sequence[Finding]) -> list[Finding]:
    """Put sleeping, for which threads are idle behind the longest task, right before these."""
    slept = [one for one in found if one.kind == SLEEP]
    rest = [one for one in found if one.kind != SLEEP]
    places = [i for i, one in enumerate(found) if one.kind in (SLEEP, FETCHED)][:1]
    return [*rest[: places[0]], *slept, *rest[places[0] :]] if places else rest


def _told_once(found: Iterable[Finding]) -> Iterable[Finding]:
    """First of all findings with the same cure at the same place."""
    first: dict[tuple[str, str], Finding] = {}
    for one in found:
        first.setdefault((one.advice, one.where or one.kind), one)
    return first.values()


def _computed_first(report: EfficiencyReport, found: list[Finding]) -> list[Finding]:
    """Add the finding of what a client waits for before its result, in place of threads that are idle meanwhile."""
    first = computed_first(report)
    if first is None or any(one.title == first.title and not one.kind.startswith(Bucket.IDLE) for one in found):
        return found
    return [*(one for one in found if one.title != first.title), first]


def leading(report: EfficiencyReport) -> tuple[Finding, ...]:
    """Findings that are shown first, at most :data:`MAX_SHOWN`.

    What went wrong, what costs most, of which none is far smaller than the first, and what is not measured, leaks, is
    short of memory, or may be killed.
    """
    found = report.findings
    wrong = [one for one in found if one.kind in ENDINGS]
    unmeasured = Bucket.UNMEASURED if report.not_measured else ""
    unknown = [one for one in found if one.kind in ("leak", OVER_LIMIT, unmeasured)]
    costs = [one for one in found if one not in (*wrong, *unknown)]
    costs = [one for one in costs if _expected_saving(one) >= WORTH_SHOWING * _expected_saving(costs[0])]
    shown = (*wrong, *costs)[: MAX_SHOWN - len(unknown)]
    sized = [one for one in found if one.kind in (Bucket.SPILL, Bucket.PAUSED) and _is_short(one)]
    if sized and not unknown and not any(_is_short(one) for one in shown):
        return (*shown[: MAX_SHOWN - 1], sized[0])
    return (*shown, *unknown)


def _is_short(one: Finding) -> bool:
    """True for findings that name memory that would do, where there was less."""
    return one.evidence.get("memory_needed", 0.0) > one.evidence.get("memory_limit", math.inf)


def _expected_saving(one: Finding) -> float:
    """Expected saving: bounds are discounted, most where they far exceed what is known."""
    known = min(math.inf if one.saves_seconds is None else one.saves_seconds, one.evidence.get(KNOWN, math.inf))
    if not math.isfinite(known) or OF_CURE in one.evidence:
        return 0.0
    return known if one.basis is Basis.REPLAYED else BOUND_COUNTS * known


def _ranking(one: Finding) -> tuple[bool, float, bool, float]:
    expected = _expected_saving(one) * (NAMED_COUNTS if one.kind in NAMED else 1.0)
    # What takes much of the time counts without a promise; of other findings without a saving, those come last of which
    # it is known that their cure saves nothing.
    unknown = one.saves_seconds is None and (KNOWN not in one.evidence or OF_CURE in one.evidence)
    return unknown, -expected, OF_CURE in one.evidence, -one.lost_seconds


def headline(report: EfficiencyReport) -> str:
    """Runtime and possible saving; at most :data:`MAX_HEADLINE` characters, no full stop."""
    whole = report.breakdown
    if not whole:
        return f"{_without_threads(report)}{ending_clause(report) if report.ended_by else ''}"
    there = whole.total_ns - whole.ns(Bucket.NO_WORK)
    if nothing_ran(report):
        ending = ending_clause(report)
        if ending and not report.ended_by:  # a graph was there, or under way
            return f"{format_seconds(report.window_seconds)}{ending}"
        return f"Nothing ran: there was no work in any of {format_thread_time(whole.total_ns)}{ending}"
    finalized = there - whole.ns(Bucket.RUNNING)
    if not finalized and not report.ended_by:
        return f"Too early to tell: {format_thread_time(whole.ns(Bucket.RUNNING))} are running and nothing has ended"
    if whole.ns(Bucket.UNMEASURED) == finalized > 0:
        reasons = set(report.not_measured.values())
        why = f" ({harmless(reasons.pop())})" if len(reasons) == 1 else ""
        return shorten(f"Nothing was measured: all of {format_thread_time(finalized)}{why}", MAX_HEADLINE)
    if not wall_clock_known(report):
        return f"{format_share(report.efficiency)} of {format_thread_time(finalized)} were useful"
    return f"{format_seconds(report.wall_clock_seconds)}{_saving_clause(report)}"


def nothing_ran(report: EfficiencyReport) -> bool:
    """True if threads were there, and no work was."""
    whole = report.breakdown
    if not whole:
        return False
    without_work = report.window_seconds > 0 and not report.cluster_seconds and not whole.ns(*HELD)
    return without_work or whole.ns(Bucket.NO_WORK) == whole.total_ns


def _without_threads(report: EfficiencyReport) -> str:
    if report.no_workers_seconds > 0:
        return f"No worker was there, and work waited for {format_seconds(report.no_workers_seconds)}"
    if report.window_seconds > 0 and not report.by_worker:
        return f"No worker was there in {format_seconds(report.window_seconds)}"
    return "Nothing was recorded: the window holds no thread time"


def in_a_line(report: EfficiencyReport) -> str:
    """Efficiency and largest loss, for live views; no full stop."""
    whole = report.breakdown
    if math.isnan(report.efficiency) or whole.ns(Bucket.UNMEASURED) == whole.total_ns - whole.ns(Bucket.NO_WORK):
        return headline(report)
    text = f"{format_share(report.efficiency)} efficient"
    if (largest := largest_loss(report)) is not None:
        facts = conditions_of(report)
        (title, _), where = words_of(facts, largest.kind), place_of_loss(report, facts, largest, find_culprits(report))
        text += f"; {title}: {format_seconds(largest.ns / 1e9)} of thread time" + (f", {where}" if where else "")
    return text


def _saving_clause(report: EfficiencyReport) -> str:
    if clause := ending_clause(report):
        return f"{clause} ({_cluster_size(report)})"
    if largest_is_elsewhere(report):
        what, seconds = next(iter(wall_clock_parts(report).items()))
        return f", {format_seconds(seconds)} of it {what} ({_cluster_size(report)})"
    best, well = next(iter(report.findings), None), f"{format_share(report.efficiency)} efficient"
    if best is None:
        least = format_seconds(WORTH_FINDING * report.wall_clock_seconds)
        return f"; no finding saves more than {least} ({well}{_bound_clause(report)})"
    if best.saves_seconds is None:
        return f", {well} ({_cluster_size(report)})"
    shown = [one for one in (best, *leading(report)) if one.saves_seconds is not None]
    most = max(one.saves_seconds or 0.0 for one in shown)
    saved = max((one.saves_seconds or 0.0 for one in shown if one.basis is Basis.REPLAYED), default=0.0)
    if best.basis is Basis.REPLAYED and ALL in report.savings:
        saved = max(saved, min(report.savings[ALL].seconds, largest_saving(report)))
    # no finding below may promise more
    figures = [format_seconds(saved)] if saved else ["up"]
    if most > saved:
        figures.append(format_seconds(most))
    return f", of which {' to '.join(dict.fromkeys(figures))} can be saved ({_cluster_size(report)})"


def _bound_clause(report: EfficiencyReport) -> str:
    bounds = report.ideal_bounds
    binding = max(bounds, key=lambda name: (bounds[name], name != "slots"), default="")
    words = {"cores": f"{format_number(report.cores or math.nan)} cores", "chain": "its longest chain of tasks"}
    return f", bound by {words[binding]}" if binding in words else ""


def _cluster_size(report: EfficiencyReport) -> str:
    threads = {*report.nthreads.values()}
    workers = format_count(len(report.by_worker), "worker")
    if not threads:
        return workers
    if len(threads) == 1:
        return f"{workers} x {format_count(threads.pop(), 'thread')}"
    return f"{workers}, {format_count(sum(report.nthreads.values()), 'thread')}"


def _losses(report: EfficiencyReport, facts: Conditions, exact: Sequence[ProfileRow]) -> list[Finding]:
    worth = _behind_long(report, losses_worth_finding(report))
    told, worth = told_by_loads(report, facts.waited_for, worth, loops_held_gil=facts.gil_of_loops > MOST)
    culprits = find_culprits(report, exact) if worth else ()
    of_small = {*OF_SMALL_TASKS} - {*(OF_LOOPS if facts.overhead_is_own else ())} if facts.small_tasks else ()
    if facts.no_scheduling:
        worth = _as_one(worth)
    of_waiting = OF_WAITING if facts.one_by_one else ()
    joined = [
        part for part in worth if part.kind in of_waiting or (part.kind in of_small and part.kind not in report.savings)
    ]
    graph = sum(part.ns for part in joined if part.kind == OF_GRAPH)
    # Graphs, not the number of their tasks, cost most; or much, where each has few and the next is taken in meanwhile.
    part_of_graphs = PART_OF_GRAPHS if holds_any(("many-small",), facts) else MOST
    if of_small and graph > part_of_graphs * sum(part.ns for part in joined):
        joined = [part for part in joined if part.kind != OF_GRAPH or part.kind in of_waiting]
    if facts.no_scheduling:  # that explains some, or all, of the waiting
        of_others = FOR_SCHEDULER if facts.one_by_one else (*FOR_SCHEDULER, "graph", UNKNOWN, "")
        joined = [part for part in joined if part.bucket is not Bucket.IDLE or part.cause not in of_others]
    stacks = {**lost_stacks(report, exact), **stacks_beside_tasks(report)} if worth else {}
    prefixes = lost_prefixes(exact)
    found = [_of_load(report, replace(facts, large_objects=one.large_objects), one) for one in told] + [
        with_recipe(
            report, loss_finding(report, facts, part, culprits), stacks.get(part.kind, ()), prefixes[part.kind], facts
        )
        for part in worth
        if part not in joined and not (part.kind == FETCHED and _is_fetched(report, facts))
    ]
    lost = sum(part.ns for part in joined) / 1e9
    if facts.one_by_one:
        found.append(_waited_for_each(report, facts, lost))
    elif joined:  # Dask's work for each task also takes cores and the GIL from everything else
        evidence = {"task_seconds": facts.task_seconds, KNOWN: lost / report.mean_threads}
        evidence |= {"times_as_large": float(facts.sizes.times)} if facts.sizes.times > 1 else {}
        of_all = _beside("small-tasks", facts, where=sender_of_most(report), lost_seconds=lost, evidence=evidence)
        bounded, saved = min(lost / report.mean_threads, largest_saving(report)), report.savings.get("small-tasks")
        of_all = _with_replay(report, of_all, saved) if saved else _bounded(of_all, bounded)
        plain = of_all = by_fewer_tasks(report, of_all, times=facts.sizes.times, seconds=facts.sizes.small.seconds)
        for activity in ("build", "send") if facts.scattered_in_turn else ("build",):
            rows = [(row.stack, row.ns) for row in report.client if row.activity == activity]
            of_all = with_recipe(report, of_all, rows, tasks_by_prefix(report)) if of_all is plain else of_all
        found += [of_inner_graphs(report, with_builder(report, of_all, "build"), found)]
    return found


def _of_load(report: EfficiencyReport, facts: Conditions, told: Told) -> Finding:
    """Finding of tasks, results or graphs that kept event loops busy."""
    saves = min(told.saves_seconds, largest_saving(report)) + told.on_client
    found = _bounded(_beside(told.kind, facts, where=told.where, lost_seconds=told.lost_seconds), saves)
    return with_builder(report, found, "build", "hash") if told.kind == "large-graph" else found


def _waited_for_each(report: EfficiencyReport, facts: Conditions, lost: float) -> Finding:
    """Finding of tasks that a client sent one by one; the client's own work for each of them is part of it."""
    found = _beside("one-by-one", facts, where=sentence(sender(report)), lost_seconds=lost)
    on_client = work_of_client(report)
    on_cluster = min(lost / report.mean_threads, largest_saving(report)) if lost else 0.0
    found = with_recipe(report, found, [(row.stack, row.ns) for row in report.client], tasks_by_prefix(report))
    return _bounded(found, on_client + on_cluster)


def _as_one(parts: Sequence[CauseLoss]) -> list[CauseLoss]:
    """Join the waits for the scheduler, for which there is one reason, under the name of the longest."""
    waits = [part for part in parts if part.bucket is Bucket.IDLE and part.cause in FOR_SCHEDULER]
    rest = [part for part in parts if part not in waits]
    return [*(replace(part, ns=sum(one.ns for one in waits)) for part in waits[:1]), *rest]


def _behind_long(report: EfficiencyReport, parts: Sequence[CauseLoss]) -> list[CauseLoss]:
    """Join what tasks that may not run elsewhere wait behind a long one to the time in which that ran alone."""
    if not waited_behind(report):
        return list(parts)
    tied = [part for part in parts if part.bucket is Bucket.IDLE and part.cause in (*TIED, "parallelism")]
    rest = [part for part in parts if part not in tied]
    joined = [replace(tied[0], cause="parallelism", ns=sum(part.ns for part in tied))] if tied else []
    return sorted((*joined, *rest), key=lambda part: -part.ns)


def _beside(kind: str, facts: Conditions = NOTHING_KNOWN, **fields: Any) -> Finding:
    """Finding of one of the kinds :data:`BESIDE` the buckets."""
    found = BESIDE[kind]
    return Finding(kind, **{"title": found.title, "advice": found.advised(facts), "page": page_of(kind)} | fields)


def _bounded(found: Finding, seconds: float) -> Finding:
    return replace(found, saves_seconds=seconds, basis=Basis.BOUNDED)


def loss_finding(
    report: EfficiencyReport, facts: Conditions, part: CauseLoss, culprits: Sequence[Culprit] = ()
) -> Finding:
    """Finding of a loss."""
    kind, lost = part.kind, part.ns / 1e9
    title, words = words_of(facts, kind)
    found = Finding(
        kind=kind,
        title=title,
        where=place_of_loss(report, facts, part, culprits),
        lost_seconds=lost,
        advice=words,
        page=page_of(kind),
        evidence={"share_of_thread_time": lost / report.thread_seconds}
        | (facts.memory.evidence if part.bucket in (Bucket.SPILL, Bucket.PAUSED) else {}),
    )
    if kind == Bucket.THREAD_NONCPU:  # may include computing in libraries' threads, which is no loss
        return found
    if kind == Bucket.UNMEASURED:  # what these threads did may have been useful
        return found
    if shares_cores(facts) and (kind == CORE or (kind == GIL and facts.short_of_cores)):
        # Others compute on these cores meanwhile: fewer threads save none of it, and what else can be done comes first.
        return replace(found, evidence={**found.evidence, KNOWN: MAY_GO * bounded_saving(report, kind, lost)})
    if kind == CORE and facts.others >= OTHERS:  # what is known is what others computed there
        known = min(bounded_saving(report, kind, lost), facts.others * report.cluster_seconds)
        found = replace(found, evidence={**found.evidence, KNOWN: known})
    if kind == "idle/parallelism" and facts.chained:  # the chain may be impossible to break up
        return found
    if kind in report.savings and not facts.in_vain(kind):
        return _with_replay(report, found, report.savings[kind])
    return _bounded(found, bounded_saving(report, kind, lost))


def _with_replay(report: EfficiencyReport, found: Finding, saved: Saved) -> Finding:
    """Add a replayed saving, kept within limits whatever a file contains; with memory, tasks compute for less long."""
    most = report.cluster_seconds if found.kind == Bucket.SPILL else largest_saving(report, found.kind)
    seconds, low, high = (min(max(each, 0.0), most) for each in (saved.seconds, saved.low, saved.high))
    if not all(map(math.isfinite, (seconds, low, high))):
        return found
    if found.kind in BOUNDS:  # of which no replay promises more than the loss takes
        return _bounded(found, min(seconds, bounded_saving(report, found.kind, found.lost_seconds)))
    low, high = min(low, seconds), max(seconds, high)
    return replace(found, saves_seconds=seconds, saves_interval=(low, high), basis=Basis.REPLAYED)


def _slow_workers(report: EfficiencyReport) -> list[Finding]:
    savings = report.savings
    found = [(one := as_finding(slow), savings.get(f"{one.kind}/{slow.subject}")) for slow in report.stragglers]
    return [one if saved is None else _with_replay(report, one, saved) for one, saved in found]


def _repeats(report: EfficiencyReport, facts: Conditions, exact: Sequence[ProfileRow]) -> list[Finding]:
    if facts.one_by_one and facts.sent_by:  # what a library asks for cannot be kept
        return []
    again = computed_again(report, exact)
    if again is None:
        return []
    held = report.breakdown.ns(*HELD) / 1e9
    asked = f", computed by {sentence(report.computed_by[again.prefix])}" if again.prefix in report.computed_by else ""
    where = f"{format_count(again.tasks, 'task')}, up to {again.times} times, most of {name_of(again.most)}{asked}"
    # Threads are idle between those tasks as between others.
    share = again.seconds / max(held, again.seconds)
    evidence = {"tasks": again.tasks, "times": again.times}
    found = _beside("repeats", where=where, lost_seconds=share * report.thread_seconds, evidence=evidence)
    stacks = stacks_beside_tasks(report)["idle"]  # of the client that asked again
    prefixes = {repeat.within or name: repeat.tasks for name, repeat in report.repeats.items()}
    return [_bounded(with_recipe(report, found, stacks, prefixes), share * report.cluster_seconds)]


def _mostly_again(report: EfficiencyReport, found: Iterable[Finding]) -> bool:
    """True if most tasks computed what had been computed before, and the others cost less as small tasks than these."""
    again = sum(repeat.tasks for repeat in report.repeats.values() if not repeat.within)
    tasks = sum(skew.count for skew in report.skew.values())
    saves = {one.kind: one.saves_seconds or 0.0 for one in found}
    rest = (1.0 - again / tasks) * saves.get("small-tasks", 0.0) if tasks else 0.0
    return again > MOST * tasks and rest < saves.get("repeats", 0.0)


def _is_fetched(report: EfficiencyReport, facts: Conditions) -> bool:
    """True if a result's way to the client, with the task that puts it together, is a finding of the client's time."""
    return facts.fetches_result and bool(report.phases) and not mostly_seceded(report)


def _elsewhere(report: EfficiencyReport, facts: Conditions) -> list[Finding]:
    parts = wall_clock_parts(report).items()
    if not report.phases:  # no client's block: nobody waited for the time without work
        parts = {what: seconds for what, seconds in parts if what in (ON_CLUSTER, NO_WORKERS)}.items()
    found = [wall_clock_finding(report, what, seconds, facts) for what, seconds in parts if what != ON_CLUSTER]
    if _is_fetched(report, facts):  # the one task that puts the result together, and its way to the client
        together = sum(part.ns for part in losses_worth_finding(report) if part.kind == FETCHED) / 1e9
        longer = min(together / report.mean_threads, largest_saving(report, FETCHED)) if together else 0.0
        found = [_bounded(one, (one.saves_seconds or 0.0) + longer) if one.kind == "client" else one for one in found]
    told = facts.one_by_one and (facts.client_activity in DASK_ACTIVITIES or (not report.client and facts.client_phase))
    told = told or (facts.client_phase == "upload" and any(spent for *_, spent in heavy_loads(report)))
    return [one for one in found if not (one.kind == "client" and told)]


def wall_clock_finding(report: EfficiencyReport, what: str, seconds: float, facts: Conditions) -> Finding:
    """Finding of time without any worker, or of the client's own time."""
    if what == NO_WORKERS:
        return _bounded(
            _beside(
                "no-workers",
                facts,
                where=came_and_went(report.attendance, times=FEW_STAYED) or first_request(report.arrivals),
            ),
            seconds,
        )
    if mostly_seceded(report):
        return _bounded(_beside("seceded"), seconds)
    line = client_line(report, client_doing(report))
    fetched = fetched_text(report) if facts.client_receives or facts.client_activity in ("lock", "await") else ""
    found = _beside("client", facts, where=sentence(": ".join(filter(None, (fetched, line)))))
    title = f"{found.title}, {client_time_text(report)}" if report.phases else found.title
    stacks = [(row.stack, row.idle_ns) for row in report.client]
    return _bounded(with_recipe(report, replace(found, title=title), stacks), seconds)


def _gpus(report: EfficiencyReport) -> list[Finding]:
    """Idle share of the GPUs; its cost to the run is unknown."""
    found = summary(report.gpu)
    if found is None or not found.elapsed or (idle := found.shares_of_time["idle"]) < WORTH_FINDING:
        return []
    return [_beside("gpu-idle", where=f"{format_share(idle)} of the time", evidence={"share_of_time": idle})]
