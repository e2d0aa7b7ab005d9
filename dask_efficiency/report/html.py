"""A report as a page of its own: one file that opens offline, with every section in reading order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from dask_efficiency.buckets import Breakdown, Bucket
from dask_efficiency.critical_paths.path import PathValues
from dask_efficiency.critical_paths.scope import Question
from dask_efficiency.report import path_html, timeline_figure, worker_strips
from dask_efficiency.report.advice import advised
from dask_efficiency.report.blocks import Html, breakdown_figure, joined, legend, line, losses, small_bar, table
from dask_efficiency.report.figures import format_percent, format_seconds, format_share, harmless, shorten
from dask_efficiency.report.files import to_dict
from dask_efficiency.report.gpu_html import gpu_section
from dask_efficiency.report.lost_time import in_order, lost_time, parts_of, percent_of
from dask_efficiency.report.model import PHASES, ReportValues
from dask_efficiency.report.page import folded, headline, lines_and_table, page, section, whole_section
from dask_efficiency.report.section import Section, name_of
from dask_efficiency.report.sections import (
    beside,
    context,
    factors,
    least_useful_first,
    not_counted,
    not_measured,
    notes,
    prefixes,
    repeats,
    spans,
    title,
    top_groups,
    workers,
)
from dask_efficiency.report.straggler_html import RULES as STRAGGLER_RULES
from dask_efficiency.report.straggler_html import straggler_section
from dask_efficiency.report.verdict import verdict
from dask_efficiency.report.wall_clock import ON_CLUSTER, WORTH_SAYING, parts
from dask_efficiency.storage import writing
from dask_efficiency.trace.errors import EmptyTraceError

#: More workers than these are drawn as strips, and listed where one asks for it.
WORKERS_WITH_BARS = 30
MAX_WORKERS = 250

#: Prefixes with a bar of their own; more, up to a limit, are listed where one asks for it.
PREFIXES_WITH_BARS = 20
MAX_PREFIXES = 250

#: Characters of a setting's value, and of the code.
VALUE_LENGTH = 100
MAX_CODE = 12_000

_RULES = """
.dask-efficiency .de-share{width:12em;padding-top:4px}
@media (max-width:640px){.dask-efficiency .de-share{width:6em}}
.dask-efficiency main .de-share .de-bar,.dask-efficiency main .de-share .de-bar rect{height:12px}
.dask-efficiency .de-share .de-bar rect.de-plain{fill:var(--de-dim)}
.dask-efficiency .de-columns{display:flex;flex-wrap:wrap;gap:0 56px}
"""


def render_page(report: ReportValues) -> str:
    """The report as a self-contained document; its element ``#data`` holds the headline numbers and the timeline."""
    body = joined((_headline(report), *(part(report) for part in SECTIONS), _footer(report)))
    return page(
        f"{title(report)} - efficiency report",
        body,
        data=_data(report),
        script=timeline_figure.SCRIPT + worker_strips.SCRIPT,
        rules=_RULES + timeline_figure.RULES + worker_strips.RULES + STRAGGLER_RULES,
    )


def save_page(report: ReportValues, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the page to a local path or any fsspec URL, as :func:`~dask_efficiency.report.files.save` does."""
    with writing(path, compression="infer", **storage_options) as file:
        file.write(render_page(report).encode("utf-8"))


def _data(report: ReportValues) -> dict[str, Any]:
    # all of the report would take more room than what is shown of it
    whole = to_dict(report)
    timeline = None if report.timeline is None else timeline_figure.data(report.timeline)
    return {"format": whole["format"], "summary": whole["summary"], "timeline": timeline}


def _headline(report: ReportValues) -> Html:
    figures = lost_time(report)
    named = [("efficiency", format_share(report.efficiency))] if not math.isnan(report.efficiency) else []
    if 0 < report.cluster_seconds < math.inf:
        named.append(("wall clock", format_seconds(report.wall_clock_seconds)))
        if ON_CLUSTER not in parts(report) or len(parts(report)) > 1:
            named.append(("work on the cluster", format_seconds(report.cluster_seconds)))
        if report.useful_seconds and report.breakdown[Bucket.RUNNING] < WORTH_SAYING * report.thread_seconds:
            named.append(("ideally", format_seconds(report.ideal_seconds)))
    if figures.parts:
        named.append((f"useful of all thread-{figures.thread_scale.unit}", f"{_useful(report)} of {figures.settled}"))
    if figures.money_scale is not None:
        named.append(("cost, useful and lost", figures.total.money))
    return joined((headline(title(report), context(report), verdict(report), named), breakdown_figure(figures.parts)))


def _useful(report: ReportValues) -> str:
    return lost_time(report).useful.thread_time or "0"


def _lost_time(report: ReportValues) -> Html:
    return section(
        "Lost time, and what to do about it", *losses(lost_time(report), advised(report), not_counted(report))
    )


def _factors(report: ReportValues) -> Html:
    return whole_section(factors(report))


def _timeline(report: ReportValues) -> Html:
    timeline = report.timeline
    if timeline is None or not any(map(any, timeline.activity.values())):
        return Html("")
    totals = Breakdown({name: sum(row) for name, row in timeline.activity.items()})
    parts = parts_of({**in_order(totals), Bucket.NO_WORK: totals.ns(Bucket.NO_WORK)})
    parts = tuple(part for part in parts if part.nanoseconds)
    width = format_seconds(timeline.bin_ns / 1e9)
    said = (
        f"Threads by what they were doing, in steps of {width}. A running task counts as what its thread does: "
        "whether it fails, or was done before, is not seen here."
    )
    return section(
        "Through the run",
        line(said, dim=True),
        timeline_figure.figure(timeline, parts),
        legend({part.bucket: f"{percent_of(part)} %" for part in parts}),
    )


def _critical_path(report: ReportValues) -> Html:
    if report.trace is None:
        return Html("")
    try:
        return path_html.page_section(PathValues.of(report.trace, Question()))
    except EmptyTraceError:  # no task ended in the window
        return Html("")


def _workers(report: ReportValues) -> Html:
    if len(report.by_worker) <= WORKERS_WITH_BARS:
        part = workers(report, in_full=WORKERS_WITH_BARS)
        rows = [report.by_worker[name] for name in least_useful_first(report)]
        return section("Workers", joined(map(line, part.lines)), _with_bars(part, rows))
    everyone = workers(report, in_full=MAX_WORKERS)
    return section(
        "Workers",
        worker_strips.strips(report),
        lines_and_table(workers(report)),
        folded(f"All {len(everyone.rows)} workers", _sortable(everyone)) if len(everyone.rows) > 10 else "",
    )


def _prefixes(report: ReportValues) -> Html:
    part = prefixes(report, at_most=PREFIXES_WITH_BARS)
    rows = list(top_groups(report.by_prefix, "prefix", "prefixes", PREFIXES_WITH_BARS).values())
    everything = prefixes(report, at_most=MAX_PREFIXES)
    more = folded(f"All {len(everything.rows)} prefixes", _sortable(everything)) if everything.rows != part.rows else ""
    # the rest together may be larger than any: beside their bar no other would be seen
    return section(part.title, joined(map(line, part.lines)), _with_bars(part, rows[:PREFIXES_WITH_BARS]), more)


def _spans(report: ReportValues) -> Html:
    return whole_section(spans(report))


def _phases(report: ReportValues) -> Html:
    order = [*PHASES, *(phase for phase in report.phases if phase not in PHASES)]
    took = {phase: report.phases[phase] for phase in order if 0 < report.phases.get(phase, 0) < math.inf}
    whole = max(report.window_seconds, sum(took.values()))
    if not took or not whole < math.inf:
        return Html("")
    rows = [
        (
            name_of(phase),
            _plain_bar(seconds / whole),
            format_seconds(seconds),
            format_percent(round(1000 * seconds / whole)),
        )
        for phase, seconds in took.items()
    ]
    if (rest := whole - sum(took.values())) > 0.0005 * whole:
        share = format_percent(round(1000 * rest / whole))
        rows.append(("none of these", _plain_bar(rest / whole), format_seconds(rest), share))
    return section("Client phases", table(("phase", "", "time", "%"), rows, words=(0, 1)))


def _beside(report: ReportValues) -> Html:
    outside = beside("Outside the thread slots (shown beside, not added)", report.outside)
    details = beside("Known more finely (shown beside, not added)", report.details)
    return joined(map(whole_section, (outside, details)))


def _not_measured(report: ReportValues) -> Html:
    return whole_section(not_measured(report))


def _notes(report: ReportValues) -> Html:
    return whole_section(notes(report))


def _environment(report: ReportValues) -> Html:
    rows = [(name_of(name), shorten(harmless(value), VALUE_LENGTH)) for name, value in report.environment.items()]
    settings = [row for row in rows if "." in row[0]]
    facts = [row for row in rows if "." not in row[0]]
    tables = [table(("what", "value"), facts, words=(0, 1))] if facts else []
    if settings:
        tables.append(table(("Dask's configuration", "value"), settings, words=(0, 1)))
    return section("Environment", Html(f'<div class="de-columns">{joined(tables)}</div>') if tables else "")


def _repeats(report: ReportValues) -> Html:
    return whole_section(repeats(report))


def _code(report: ReportValues) -> Html:
    pieces = []
    room = MAX_CODE
    for code in report.code:
        text = "\n".join(map(harmless, code[:room].expandtabs(4).split("\n")))
        pieces.append(joined((Html("<pre>"), text, Html("</pre>"))))
        room -= len(code)
        if room <= 0:
            pieces.append(line("The rest of the code is left out.", dim=True))
            break
    return section("The code that ran", *pieces)


#: The page from top to bottom; one that has nothing to say is empty.
SECTIONS: tuple[Callable[[ReportValues], Html], ...] = (
    _lost_time,
    _factors,
    _timeline,
    _critical_path,
    straggler_section,
    gpu_section,
    _workers,
    _prefixes,
    _spans,
    _repeats,
    _phases,
    _beside,
    _not_measured,
    _notes,
    _environment,
    _code,
)


def _footer(report: ReportValues) -> Html:
    version = name_of(report.environment.get("dask-efficiency", ""))
    said = [f"Measured by dask-efficiency {version}".rstrip()]
    with suppress(ValueError, OverflowError, OSError):  # no date that a calendar has
        if report.started:
            said.append(f"began {datetime.fromtimestamp(report.started, tz=UTC):%Y-%m-%d %H:%M:%S} UTC")
    return joined((Html('<footer class="de-dim">'), ", ".join(said) + ".", Html("</footer>")))


def _with_bars(part: Section, breakdowns: list[Breakdown]) -> Html:
    """A section's table with a bar of each row's time behind its name; rows without a breakdown have none."""
    if not part.rows:
        return Html("")
    parts = [parts_of(in_order(row)) for row in breakdowns]
    whole = max(sum(part.nanoseconds for part in row) for row in parts)
    bars = [small_bar(row, whole_ns=whole) for row in parts]
    heads = (part.heads[0], "", *part.heads[1:])
    rows = [
        (cells[0], Html(f'<div class="de-share">{bar}</div>'), *cells[1:])
        for cells, bar in zip_longest(part.rows, bars, fillvalue="")
    ]
    return table(heads, rows, words=(0, 1, *(column + 1 for column in part.words if column)), sortable=True)


def _sortable(part: Section) -> Html:
    return table(part.heads, part.rows, words=part.words, sortable=True)


def _plain_bar(share: float) -> Html:
    return Html(
        '<div class="de-share"><svg class="de-bar" width="100%" height="12" aria-hidden="true">'
        f'<rect class="de-plain" width="{100 * share:.2f}%" height="12"/></svg></div>'
    )
