"""Document of a report, section by section, for a screen, a notebook or a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.plugin.source import bounded
from dask_efficiency.report.endings import MANY
from dask_efficiency.report.explanations import explanations
from dask_efficiency.report.files import to_dict
from dask_efficiency.report.findings import headline, leading, nothing_ran
from dask_efficiency.report.lost_time import LostTime, loss_cells, lost_time, why_not_known
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sections.client import client
from dask_efficiency.report.sections.culprits import culprits, flame_graph, holds, scheduler_loop
from dask_efficiency.report.sections.endings import failed_tasks, outstanding_tasks
from dask_efficiency.report.sections.gpu import GOOD_FACTOR, gpu_notes, gpus
from dask_efficiency.report.sections.groups import lost_workers, operators, prefixes, repeats, spans, torch, workers
from dask_efficiency.report.sections.memory_through import kept, memory_through
from dask_efficiency.report.sections.metered import labels, memory, moved, shuffles
from dask_efficiency.report.sections.stragglers import long_tail, skew, stragglers
from dask_efficiency.report.turnover import came_and_went, lost_worker_name, most_costly_first
from dask_efficiency.report.values import PHASES
from dask_efficiency.report.wall_clock import ON_CLUSTER, WORTH_SAYING, ideal_time_lines, wall_clock_parts
from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.sections.path import quick_improvements
from dask_efficiency.runs.sections.path import sections as path_sections
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.show.document import (
    PAGE,
    SCREEN,
    Aside,
    ByBucket,
    Cell,
    Code,
    Document,
    Extent,
    HasSection,
    Section,
    Share,
    Table,
    Through,
    bucket_label,
    cause_label,
    legend_of,
    section,
    slices_of,
    with_content,
)
from dask_efficiency.show.drawn_buckets import in_order, parts_of
from dask_efficiency.show.figures import (
    DETAIL_LENGTH,
    MINOR_ROWS,
    format_count,
    format_percent,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    name_of,
    sentence,
    shorten,
    upper_first,
    workers_named,
)
from dask_efficiency.show.finding import MAX_SHOWN, numbered

#: Thread-seconds below which a low factor means nothing, as a factor is a share of what is left. By judgement.
MIN_FACTOR_SECONDS = 1.0
#: Hint at the end of the first screen.
MORE = (
    "More: report.show(), or --all on the command line, prints all of it, report.show('Workers') a section; "
    "report.to_html(path) writes a page; `dask-efficiency explain sleep` says what a cause means."
)

#: Sections of a page that are unfolded from the start, besides caveats.
UNFOLDED = ("More findings", "Lost time", "Through the run", "Memory through the run")


def document(report: EfficiencyReport, extent: Extent = SCREEN) -> Document:
    """Report for a screen."""
    return replace(first_screen(report), sections=sections(report, extent), last=())


def first_screen(report: EfficiencyReport) -> Document:
    """First screen: runtime, savings, and where to find more."""
    texts, parts = (title(report), context(report), headline(report)), lost_time(report).parts
    if nothing_ran(report):
        parts = ()  # at most what was there for an instant, or was not measured
    if report.breakdown[Bucket.RUNNING] > MANY * report.thread_seconds:  # it would be missing in the bar
        parts = parts_of(in_order(report.breakdown))
    first = numbered(leading(report))
    return Document(*texts, (), (MORE,), findings=first, figure=ByBucket(parts) if parts else None)


def chosen(report: EfficiencyReport, titles: Sequence[str]) -> Document:
    """Whole report, or the sections with these titles; a wrong title is an error that names all."""
    whole = document(report)
    if not titles:
        return whole
    known = {one.title.lower(): one for one in whole.sections if one.title}
    unknown = [title for title in titles if title.lower() not in known]
    if unknown:
        raise ValueError(f"{unknown[0]!r:.80} is no section of this report; expected one of {sorted(known)}")
    return replace(whole, findings=(), figure=None, sections=tuple(known[title.lower()] for title in titles))


def notebook(report: EfficiencyReport) -> Document:
    """Report for a notebook: the first screen, with everything but caveats folded below it."""
    shown = document(report)
    return replace(shown, sections=tuple(replace(one, folded=not one.caveat) for one in shown.sections))


def page(report: EfficiencyReport) -> Document:
    """Report for a page of its own, with more content; most sections are folded."""
    shown = document(report, PAGE)
    return replace(
        shown,
        sections=tuple(replace(one, folded=not (one.caveat or one.title in UNFOLDED)) for one in shown.sections),
        stats=_stats(report, lost_time(report)),
        footer=_footer(report),
        page_title=f"{title(report)} - efficiency report",
        data=_data(report),
    )


def sections(report: EfficiencyReport, extent: Extent = SCREEN) -> tuple[Section, ...]:
    """Every section with content, in reading order."""
    return with_content(*(text(report, extent) for text in SECTIONS))


def title(report: EfficiencyReport) -> str:
    """Name of the report."""
    return name_of(report.name) or "efficiency"


def context(report: EfficiencyReport) -> str:
    """Coverage of the report: workers, threads, window, cost and tasks."""
    covered = _attendance_texts(report)
    if report.window_seconds > 0:
        covered.append(f"a window of {format_seconds(report.window_seconds)}")
    covered += _cost(report)
    ended = dict(report.tasks) | {"outstanding": sum(one.tasks for one in report.unfinished)}
    tasks = ", ".join(f"{count} {name_of(outcome)}" for outcome, count in ended.items() if count)
    return "; ".join([", ".join(covered), *([f"tasks: {tasks}"] if tasks else []), *_lost_names(report)])


def _lost_names(report: EfficiencyReport) -> list[str]:
    """Workers that vanished: the one, or their number and the most costly one."""
    lost = most_costly_first([one for one in report.lost_workers if one.worker and not one.in_order])
    if len(lost) < 2:
        return [lost_worker_name(one) for one in lost]
    return [f"{len(lost)} workers were lost, such as {name_of(lost[0].worker)} ({sentence(lost[0].reason)})"]


def _cost(report: EfficiencyReport) -> Iterator[str]:
    """Price of all thread time, and of the lost part, where workers have a price."""
    figures = lost_time(report)
    if figures.money_scale is not None and figures.parts:
        lost = sum(loss.money or 0.0 for loss in report.losses)
        yield f"cost {figures.rows[-1].money} ({figures.money_scale.figure(lost)} of it for lost time)"


def _attendance_texts(report: EfficiencyReport) -> list[str]:
    if not (there := report.attendance):  # from a file older than this field
        threads = sum(report.nthreads.values())
        return [format_count(len(report.by_worker), "worker"), *([format_count(threads, "thread")] if threads else [])]
    workers, threads = (there.get(name, 0) for name in ("workers", "most_threads"))
    if changed := came_and_went(there):
        return [f"{changed} with {format_count(threads, 'thread')}"]
    return [format_count(workers, "worker"), format_count(threads, "thread")]


def _stats(report: EfficiencyReport, figures: LostTime) -> tuple[tuple[str, str], ...]:
    found = [("efficiency", format_share(report.efficiency))] if not math.isnan(report.efficiency) else []
    if 0 < report.cluster_seconds < math.inf:
        found.append(("wall clock", format_seconds(report.wall_clock_seconds)))
        if ON_CLUSTER not in wall_clock_parts(report) or len(wall_clock_parts(report)) > 1:
            found.append(("work on the cluster", format_seconds(report.cluster_seconds)))
        if report.useful_seconds and report.breakdown[Bucket.RUNNING] < WORTH_SAYING * report.thread_seconds:
            found.append(("ideally", format_seconds(report.ideal_seconds)))
    if figures.parts:
        useful = figures.rows[0].thread_time or "0"
        found.append((f"useful of all thread-{figures.thread_scale.unit}", f"{useful} of {figures.finalized}"))
    if figures.money_scale is not None:
        found.append(("cost, useful and lost", figures.rows[-1].money))
    return tuple(found)


def _footer(report: EfficiencyReport) -> str:
    text = f"Measured by dask-efficiency {name_of(report.environment.get('dask-efficiency', ''))}".rstrip()
    with suppress(ValueError, OverflowError, OSError):  # no date of the calendar
        if report.started:
            text += f", began {datetime.fromtimestamp(report.started, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{text}."


def _data(report: EfficiencyReport) -> dict[str, Any]:
    """Head and timeline: the full report would take more room than its page."""
    whole = to_dict(report)
    for name in ("findings", "first_finding", "losses"):
        del whole["head"][name]  # they are shown
    timeline = None if report.timeline is None else _mean_threads(report.timeline)
    return {"format": whole["format"], "head": whole["head"], "timeline": timeline}


def _mean_threads(timeline: Timeline) -> dict[str, Any]:
    """Mean number of threads in each bin, by activity and by cause, to hundredths."""

    def threads(rows: Mapping[str, Sequence[int]]) -> dict[str, list[float]]:
        return {
            name: [round(ns / width, 2) for ns, width in zip(row, timeline.widths, strict=True)]
            for name, row in rows.items()
        }

    return {
        "bin_seconds": timeline.bin_ns / 1e9,
        "seconds": timeline.elapsed_ns / 1e9,
        "threads": threads(timeline.activity),
        "causes": threads(timeline.causes),
    }


def with_predictions(document: Document, predictions: Sequence[HasSection]) -> Document:
    """Page with a section of predictions after the critical path, or at its end."""
    if not predictions:
        return document
    parts = document.sections
    behind = next((i for i, part in enumerate(parts, 1) if part.title.startswith("Critical path")), len(parts))
    added = section("Simulation: what it would take elsewhere", *(found.section for found in predictions))
    return replace(document, sections=(*parts[:behind], added, *parts[behind:]))


def more_findings(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Findings after the first ones, a line each."""
    first = leading(report)
    return section("More findings", *(one.in_a_line for one in report.findings if one not in first))


def meanings(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Documentation of the first findings, on a page."""
    known = explanations() if extent.drawn else {}
    kinds = dict.fromkeys(one.kind for one in leading(report))
    return section("What findings mean", *(known[kind] for kind in kinds if kind in known))


def losses(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Table of lost time by cause."""
    heading = "Lost time"
    found = lost_time(report)
    if not found.parts and not report.breakdown[Bucket.RUNNING]:
        return section(heading, Aside(not_counted(report)))
    heads, cells = loss_cells(found)
    labels = (cause_label(row.bucket, row.label) if row.bucket else bucket_label(row.label) for row in found.rows)
    rows: list[tuple[Cell, ...]] = [(label, *row[1:]) for label, row in zip(labels, cells, strict=True)]
    table = Table(heads, tuple(rows), sums=(len(cells) - 1,), strong=(0,))
    return section(heading, table, *map(Aside, (upper_first(why_not_known(report)), not_counted(report))))


def not_counted(report: EfficiencyReport) -> str:
    """Sentence on time that is in no figure, without work or without workers; may be empty."""
    ns = report.breakdown.ns(Bucket.NO_WORK)
    lines = [f"{format_thread_time(ns)} with no work outstanding (no-work)"] if ns else []
    if report.no_workers_seconds > 0:
        lines.append(f"{format_seconds(report.no_workers_seconds)} of wall clock without any worker (no-workers)")
    return f"Not counted: {' and '.join(lines)}" if lines else ""


def factors(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Product of factors that makes the efficiency, and bounds of the ideal time."""
    if math.isnan(report.efficiency):
        return Section("Factors")
    product = " x ".join(f"{name} {factor:.3f}" for name, factor in report.factors.items())
    lines = [f"efficiency {report.efficiency:.3f} = {product}"]
    left, low = report.thread_seconds - report.breakdown[Bucket.RUNNING], {}
    for name, factor in report.factors.items():
        if factor < GOOD_FACTOR:
            low[name] = left
        left *= factor
    poor, too_short = ([name for name in low if (low[name] >= MIN_FACTOR_SECONDS) is known] for known in (True, False))
    if poor:
        lines.append(f"below {GOOD_FACTOR}, the mark of a good factor: {', '.join(poor)}")
    if too_short:
        lines.append(f"no verdict on {', '.join(too_short)}: a share of less than {MIN_FACTOR_SECONDS:g} thread-second")
    lines += ideal_time_lines(report)
    return section("Factors", *lines)


def through_the_run(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Threads by activity through the run, as a figure."""
    timeline = report.timeline
    if not extent.drawn or timeline is None or not any(map(any, timeline.activity.values())):
        return section("")
    totals = Breakdown({name: sum(row) for name, row in timeline.activity.items()})
    by_bucket = parts_of({**in_order(totals), Bucket.NO_WORK: totals.ns(Bucket.NO_WORK)})
    slices = slices_of(tuple(part for part in by_bucket if part.nanoseconds))
    text = (
        f"Threads by what they were doing, in steps of {format_seconds(timeline.bin_ns / 1e9)}. A running task counts "
        "as what its thread does: whether it fails, or was done before, is not seen here."
    )
    return section("Through the run", Aside(text), Through(timeline, slices), legend_of(slices))


def critical_path(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Critical path of a report with a trace, as one section of its page."""
    if report.trace is None or not extent.drawn:
        return section("")
    try:
        path = CriticalPath.of(report.trace, Question())
    except EmptyTraceError:  # no task ended in the window
        return section("")
    heading = "Critical path: why it took so long"
    first = (f"{number}. {'. '.join(one.lines)}" for number, one in enumerate(path.findings[:MAX_SHOWN], 1))
    return section(heading, f"{path.headline}.", *first, *path_sections(path), quick_improvements(path))


def phases(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Client phases in a line, or as bars."""
    order = [*PHASES, *(phase for phase in report.phases if phase not in PHASES)]
    if extent.drawn:
        took = {phase: report.phases[phase] for phase in order if 0 < report.phases.get(phase, 0) < math.inf}
        return section("Client phases", _phase_table(took, report.window_seconds))
    lines = [f"{name_of(phase)} {format_seconds(report.phases[phase])}" for phase in order if report.phases.get(phase)]
    return section("Client phases", ", ".join(lines))


def _phase_table(phases: Mapping[str, float], window_seconds: float) -> Table:
    whole = max(window_seconds, sum(phases.values()))
    if not phases or not whole < math.inf:
        return Table((), ())
    shown = [(name_of(phase), took) for phase, took in phases.items()]
    if (rest := whole - sum(phases.values())) > 0.0005 * whole:
        shown.append(("none of these", rest))
    rows = tuple((name, format_seconds(took), format_percent(round(1000 * took / whole))) for name, took in shown)
    return Table(("phase", "time", "%"), rows, drawings=tuple(Share(took / whole) for _, took in shown))


def outside(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Time outside the thread slots."""
    return _not_added("Outside the thread slots (not in any sum)", report.outside)


def details(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Parts of buckets that are known in more detail."""
    return _not_added("Details of buckets (not in any sum)", report.details)


def _not_added(heading: str, seconds: Mapping[str, float]) -> Section:
    ranked = sorted((label for label in seconds if seconds[label]), key=lambda label: -seconds[label])
    rows = tuple((name_of(label), format_seconds(seconds[label])) for label in ranked[:MINOR_ROWS])
    more = f"the {MINOR_ROWS} largest of {len(ranked)}" if len(ranked) > MINOR_ROWS else ""
    return section(heading, more, Table(("activity", "time"), rows))


def not_measured(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Reasons for unmeasured time, each with its workers."""
    by_reason: dict[str, list[str]] = {}
    for worker, reason in report.not_measured.items():
        by_reason.setdefault(reason, []).append(worker)
    ranked = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    lines = [f"{workers_named(names)}: {sentence(reason)}" for reason, names in ranked[:MINOR_ROWS]]
    more = f"{len(ranked) - MINOR_ROWS} more reasons" if len(ranked) > MINOR_ROWS else ""
    return section("Not measured", *lines, more, caveat=True)


def notes(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Caveats of the figures."""
    return section("Notes", *map(sentence, report.notes), *gpu_notes(report), caveat=True)


def environment(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Versions, and Dask's configuration."""
    if not extent.drawn:
        return Section("Environment")
    rows = [(name_of(name), shorten(harmless(value), DETAIL_LENGTH)) for name, value in report.environment.items()]

    def part(head: str, settings: bool) -> Section:
        shown = tuple(row for row in rows if ("." in row[0]) is settings)
        return section("", Table((head, "value"), shown, words=(0, 1)), narrow=True)

    return section("Environment", part("what", False), part("Dask's configuration", True))


def code(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Code that ran; also a file's, which may hold more than a report keeps, is cut."""
    texts = bounded(report.code) if extent.drawn else ()
    shown = (Code("\n".join(map(harmless, text.expandtabs(4).split("\n")))) for text in texts)
    return section("The code that ran", *shown)


#: Sections of a report from top to bottom; those without content have no blocks.
SECTIONS: tuple[Callable[[EfficiencyReport, Extent], Section], ...] = (
    *(
        more_findings,
        failed_tasks,
        outstanding_tasks,
        losses,
        meanings,
        culprits,
        flame_graph,
        holds,
        factors,
        through_the_run,
        memory_through,
        critical_path,
    ),
    *(
        operators,
        torch,
        stragglers,
        long_tail,
        skew,
        shuffles,
        moved,
        memory,
        kept,
        labels,
        gpus,
        workers,
        lost_workers,
    ),
    *(
        prefixes,
        spans,
        repeats,
        phases,
        client,
        scheduler_loop,
        outside,
        details,
        not_measured,
        notes,
        environment,
        code,
    ),
)
