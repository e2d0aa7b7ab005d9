"""What a report says beside its lost time, as titled lines and tables for any renderer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from dask_efficiency.buckets import GOOD, HELD, Breakdown, Bucket, combine
from dask_efficiency.report.arrivals import lines as arrival_lines
from dask_efficiency.report.figures import (
    apportion,
    format_percent,
    format_seconds,
    format_share,
    format_thread_time,
    time_scale,
)
from dask_efficiency.report.gpu_sections import gpu_notes, gpu_sections
from dask_efficiency.report.lost_time import in_order
from dask_efficiency.report.model import ALL_WORKERS, OTHER_WORK, PHASES, ReportValues
from dask_efficiency.report.section import Section, name_of, named, sentence
from dask_efficiency.report.wall_clock import lines as ideal_lines
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.long_tail import LongTask
from dask_efficiency.straggler.score import SIZES_DIFFER
from dask_efficiency.straggler.wording import MEANINGS

#: What POP calls good.
GOOD_FACTOR = 0.8
#: A factor is the share that is left of some thread time; of less of that than this, a low one means nothing.
MIN_FACTOR_SECONDS = 1.0
WORKERS_IN_FULL = 8
WORST_WORKERS = 5
TOP_GROUPS = 8
TOP_LABELS = 12
MAX_STRAGGLERS = 20
MAX_LONG_TASKS = 5


def sections(report: ReportValues) -> tuple[Section, ...]:
    """Every section that has something to say, in reading order."""
    found = (
        factors(report),
        phases(report),
        workers(report),
        prefixes(report),
        spans(report),
        repeats(report),
        stragglers(report),
        long_tail(report),
        *gpu_sections(report),
        beside("Outside the thread slots (shown beside, not added)", report.outside),
        beside("Known more finely (shown beside, not added)", report.details),
        not_measured(report),
        notes(report),
    )
    return tuple(section for section in found if section.lines or section.rows)


def title(report: ReportValues) -> str:
    """The report's name; "efficiency" where it has none."""
    return name_of(report.name) or "efficiency"


def context(report: ReportValues) -> str:
    """How much the report covers: workers, threads, window and tasks."""
    covered = _who_was_there(report)
    if report.window_seconds > 0:
        covered.append(f"a window of {format_seconds(report.window_seconds)}")
    tasks = ", ".join(f"{count} {name_of(outcome)}" for outcome, count in report.tasks.items() if count)
    return ", ".join(covered) + (f"; tasks: {tasks}" if tasks else "")


def not_counted(report: ReportValues) -> str:
    """The time that is in no figure: nobody asked for anything, or there was no worker; empty where there is none."""
    ns = report.breakdown.ns(Bucket.NO_WORK)
    said = [f"{format_thread_time(ns)} with no work outstanding (no-work)"] if ns else []
    if report.no_workers_seconds > 0:
        said.append(f"{format_seconds(report.no_workers_seconds)} of wall clock without any worker (no-workers)")
    return f"Not counted: {' and '.join(said)}" if said else ""


def _who_was_there(report: ReportValues) -> list[str]:
    there = report.attendance
    if not there:  # of a file of before they were counted
        threads = sum(report.nthreads.values())
        return [_count(len(report.by_worker), "worker"), *([_count(threads, "thread")] if threads else [])]
    workers, most, threads = (there.get(name, 0) for name in ("workers", "most_workers", "most_threads"))
    if workers == most:
        return [_count(workers, "worker"), _count(threads, "thread")]
    return [f"{workers} workers came and went", f"at most {most} at a time with {_count(threads, 'thread')}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def factors(report: ReportValues) -> Section:
    """The product that is the efficiency."""
    if math.isnan(report.efficiency):
        return Section("Factors")
    product = " x ".join(f"{name} {factor:.3f}" for name, factor in report.factors.items())
    lines = [f"efficiency {report.efficiency:.3f} = {product}"]
    poor: list[str] = []
    too_short: list[str] = []
    left = report.thread_seconds - report.breakdown[Bucket.RUNNING]
    for name, factor in report.factors.items():
        if factor < GOOD_FACTOR:
            (poor if left >= MIN_FACTOR_SECONDS else too_short).append(name)
        left *= factor
    if poor:
        lines.append(f"below {GOOD_FACTOR}, the mark of a good factor: {', '.join(poor)}")
    if too_short:
        lines.append(
            f"nothing is said of {', '.join(too_short)}: a share of less than {MIN_FACTOR_SECONDS:g} thread-second"
        )
    lines += ideal_lines(report)
    return Section("Factors", tuple(lines))


def phases(report: ReportValues) -> Section:
    """The client's phases in a line."""
    order = [*PHASES, *(phase for phase in report.phases if phase not in PHASES)]
    took = [f"{name_of(phase)} {format_seconds(report.phases[phase])}" for phase in order if report.phases.get(phase)]
    return Section("Client phases", (", ".join(took),) if took else ())


def workers(report: ReportValues, *, in_full: int = WORKERS_IN_FULL) -> Section:
    """The spread over the workers, and those that did least useful work; of ``in_full`` at most, all."""
    if report.by_worker.keys() == {ALL_WORKERS}:
        return Section("Workers", ("a report in retrospect does not tell them apart",))
    there = {name: row.total_ns - row.ns(Bucket.NO_WORK) for name, row in report.by_worker.items()}
    shares = [row.ns(*HELD) / there[name] for name, row in report.by_worker.items() if there[name]]
    if not shares:
        return Section("Workers")
    low, middle, high = (format_share(f(shares)) for f in (min, statistics.median, max))
    lines = [f"share of its time held by tasks: min {low}, median {middle}, max {high}"]
    if not math.isnan(report.load_balance):
        lines[0] += f"; load balance {report.load_balance:.2f}"
    lines += arrival_lines(report.arrivals)
    scale = time_scale(sum(there.values()) / 1e9)
    steps = apportion(list(there.values()), scale.steps(sum(there.values()) / 1e9))
    time = dict(zip(there, map(scale.text, steps), strict=True))
    shown = least_useful_first(report)
    if len(shown) > in_full:
        shown = [name for name in shown if there[name]][:WORST_WORKERS]
        lines.append(f"the {len(shown)} of {len(there)} with the smallest useful share:")
    rows = tuple(_worker_row(report, name, time[name]) for name in shown)
    heads = ("worker", "threads", f"thread-{scale.unit}", "held", "useful", "largest loss")
    return Section("Workers", tuple(lines), heads, rows, words=(0, 5))


def least_useful_first(report: ReportValues) -> list[str]:
    """The workers' names, those first whose time was useful least; those of which nothing settled come last."""
    return sorted(report.by_worker, key=lambda name: _useful(report.by_worker[name]))


def _worker_row(report: ReportValues, name: str, time: str) -> tuple[str, ...]:
    row = report.by_worker[name]
    there = row.total_ns - row.ns(Bucket.NO_WORK)
    held = format_share(row.ns(*HELD) / there) if there else "-"
    useful = _useful(row)
    lost = [bucket for bucket in in_order(row) if bucket not in (*GOOD, Bucket.RUNNING)]
    settled = there - row.ns(Bucket.RUNNING)
    loss = f"{lost[0]} {format_share(row.ns(lost[0]) / settled)}" if lost else ""
    threads = str(report.nthreads.get(name, "-"))
    return name_of(name), threads, time, held, format_share(useful) if useful <= 1 else "-", loss


def _useful(row: Breakdown) -> float:
    """Useful share of the settled time; infinite where nothing settled, so that it sorts last."""
    settled = row.total_ns - row.ns(Bucket.NO_WORK, Bucket.RUNNING)
    return row.ns(*GOOD) / settled if settled else math.inf


def prefixes(report: ReportValues, *, at_most: int = TOP_GROUPS) -> Section:
    """The prefixes that held most time; each row adds up to its last figure. The rest are one row."""
    groups = top_groups(report.by_prefix, "prefix", "prefixes", at_most)
    if not groups:
        return Section("Prefixes")
    columns: dict[str, tuple[Bucket, ...]] = {
        "cpu": (Bucket.THREAD_CPU,),
        "gpu": (Bucket.GPU,),
        "noncpu": (Bucket.THREAD_NONCPU,),
        "spill": (Bucket.SPILL,),
        "overhead": (Bucket.OVERHEAD,),
        "failed": (Bucket.FAILED,),
        "other": (Bucket.CANCELLED, Bucket.RECOMPUTED, Bucket.RUNNING),
    }
    for optional in ("gpu", "other"):
        if not any(row.ns(*columns[optional]) for row in groups.values()):
            del columns[optional]
    scale = time_scale(max(row.ns(*HELD) for row in groups.values()) / 1e9)
    rows = []
    for name, row in groups.items():
        total = scale.steps(row.ns(*HELD) / 1e9)
        steps = apportion([row.ns(*buckets) for buckets in columns.values()], total)
        rows.append((name, *map(scale.text, steps), scale.text(total)))
    lines = ("other: cancelled, recomputed or still running",) if "other" in columns else ()
    heads = ("prefix", *columns, "held")
    return Section(f"Prefixes by time held (thread-{scale.unit})", lines, heads, tuple(rows))


def spans(report: ReportValues) -> Section:
    """The spans where there is more than one, and how much of the time was other work."""
    if len(report.by_span) < 2:
        return Section("Spans")
    groups = top_groups(report.by_span, "span", "spans")
    held = [row.ns(*HELD) for row in groups.values()]
    scale = time_scale(sum(held) / 1e9)
    steps = apportion(held, scale.steps(sum(held) / 1e9))
    tenths = apportion(held, 1000)
    rows = tuple(
        (name, scale.text(step), format_percent(share), _useful_text(row))
        for (name, row), step, share in zip(groups.items(), steps, tenths, strict=True)
    )
    own = [name for name in report.by_span if not name.endswith(OTHER_WORK)]
    lines: tuple[str, ...] = ()
    if len(own) < len(report.by_span) and any(held):
        share = sum(report.by_span[name].ns(*HELD) for name in own) / sum(held)
        lines = (f"the report's own work held {format_share(share)} of this time, other work the rest",)
    return Section("Spans", lines, ("span", f"held, thread-{scale.unit}", "%", "useful"), rows)


def repeats(report: ReportValues) -> Section:
    """What was computed again because it was asked for again, the prefixes with most such tasks first."""
    heading = "Computed again"
    ranked = sorted(report.repeats, key=lambda name: (-report.repeats[name].tasks, name))
    if not ranked:
        return Section(heading)
    times = max(repeat.times for repeat in report.repeats.values())
    tasks = _count(sum(repeat.tasks for repeat in report.repeats.values()), "task")
    told = f"the same results were computed up to {times} times, because they were asked for again ({tasks} more): "
    lines = [told + "persist() what several computations share, or compute them together in one dask.compute()"]
    if len(ranked) > TOP_GROUPS:
        lines.append(f"the {TOP_GROUPS} prefixes with most of these tasks, of {len(ranked)}:")
    rows = tuple(
        (name_of(name) or "(no prefix)", str(report.repeats[name].tasks), f"{report.repeats[name].times} times")
        for name in ranked[:TOP_GROUPS]
    )
    return Section(heading, tuple(lines), ("prefix", "tasks", "computed up to"), rows)


def stragglers(report: ReportValues) -> Section:
    """Who was slow, why, and how much longer it took; before that, what each cause means and what to look at."""
    findings = report.stragglers
    if not findings:
        return Section("Stragglers")
    rows = tuple(
        (
            name_of(finding.worker) if finding.worker else "(all of the host)",
            name_of(finding.host) or "-",
            str(finding.cause),
            format_times(finding.effect),
            _since(finding, report.started),
            format_share(finding.confidence),
        )
        for finding in findings[:MAX_STRAGGLERS]
    )
    lines = [f"{cause}: {'; '.join(MEANINGS[cause])}" for cause in dict.fromkeys(found.cause for found in findings)]
    if len(findings) > MAX_STRAGGLERS:
        lines.append(f"the {MAX_STRAGGLERS} most certain of {len(findings)}:")
    heads = ("worker", "host", "cause", "takes", "since", "sure")
    return Section("Stragglers: slow for the same work", tuple(lines), heads, rows, words=(0, 1, 2, 4))


def slow_worker(finding: Finding) -> str:
    """A finding as a clause: who takes how much longer, and what that means."""
    who = f"worker {name_of(finding.worker)}" if finding.worker else f"all of host {name_of(finding.host)}"
    times = "longer" if finding.effect is None else f"{format_times(finding.effect)[:-1]} times as long"
    lost = finding.seconds_lost
    saved = f", without which the run is {format_seconds(lost)} shorter" if lost else ""
    return f"{who} takes {times} for the same work: {MEANINGS[finding.cause][0]}{saved}"


def long_task(one: LongTask) -> str:
    """What a task took that is far longer than the others of its prefix, and its size where that is part of why."""
    took = f"task {name_of(one.key)!r} took {format_seconds(one.seconds)}, {one.times_longer:.3g} times the median"
    larger = one.times_larger
    return f"{took} of its prefix" + (f", its input is {larger:.3g} times as large" if larger >= SIZES_DIFFER else "")


def long_tail(report: ReportValues) -> Section:
    """The tasks that took far longer than the others of their prefix."""
    return Section("Long tail", tuple(long_task(one) for one in report.long_tail[:MAX_LONG_TASKS]))


def format_times(effect: float | None) -> str:
    """A multiple, as ``1.50x``; a dash where it is not known."""
    if effect is None:
        return "-"
    return f"{effect:.2f}x" if effect < 9.995 else f"{effect:.3g}x"


def _since(finding: Finding, started: float) -> str:
    seconds = finding.since - started
    if math.isnan(seconds):
        return "-"
    return f"after {format_seconds(seconds)}" if seconds > 0 else "the beginning"


def _useful_text(row: Breakdown) -> str:
    useful = _useful(row)
    return format_share(useful) if useful <= 1 else "-"


def top_groups(groups: Mapping[str, Breakdown], one: str, many: str, at_most: int = TOP_GROUPS) -> dict[str, Breakdown]:
    """The groups that held most time by what they are called on a screen, then the rest as one."""
    ranked = sorted((name for name in groups if groups[name].ns(*HELD)), key=lambda name: -groups[name].ns(*HELD))
    rest = ranked[at_most:]
    top: dict[str, Breakdown] = {}
    for name in ranked[:at_most]:
        label = name_of(name) or f"(no {one})"
        # two names may look the same once they are cut
        top[label if label not in top else f"{label} ({len(top) + 1})"] = groups[name]
    if rest:
        label = f"{len(rest)} more {one if len(rest) == 1 else many}"
        top[label] = combine(groups[name] for name in rest)
    return top


def beside(heading: str, seconds: Mapping[str, float]) -> Section:
    """Seconds by label that are in no sum, the largest first."""
    ranked = sorted((label for label in seconds if seconds[label]), key=lambda label: -seconds[label])
    rows = tuple((name_of(label), format_seconds(seconds[label])) for label in ranked[:TOP_LABELS])
    lines = (f"the {TOP_LABELS} largest of {len(ranked)}",) if len(ranked) > TOP_LABELS else ()
    return Section(heading, lines, ("activity", "time") if rows else (), rows)


def not_measured(report: ReportValues) -> Section:
    """The reasons for unmeasured time, each with the workers that it concerns."""
    by_reason: dict[str, list[str]] = {}
    for worker, reason in report.not_measured.items():
        by_reason.setdefault(reason, []).append(worker)
    lines = []
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1]))[:TOP_LABELS]:
        lines.append(f"{named(names)}: {sentence(reason)}")
    if len(by_reason) > TOP_LABELS:
        lines.append(f"{len(by_reason) - TOP_LABELS} more reasons")
    return Section("Not measured", tuple(lines), caveat=True)


def notes(report: ReportValues) -> Section:
    """What a reader must know to trust the numbers."""
    return Section("Notes", (*map(sentence, report.notes), *gpu_notes(report)), caveat=True)
