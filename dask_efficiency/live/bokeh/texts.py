"""Sentences, titles, keys and tables of the pages, as HTML."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

import numpy as np

from dask_efficiency.accounts.buckets import BUCKET_DESCRIPTIONS, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.bokeh.columns import (
    FEW_GPUS,
    FEW_WORKERS,
    MANY,
    causes_of,
    percent_of,
    too_many_workers,
    with_work,
)
from dask_efficiency.live.last_seconds import (
    memory_text,
    moved_text,
    not_sampled_text,
    running_findings,
)
from dask_efficiency.live.tab_view import TabView
from dask_efficiency.report.findings import in_a_line
from dask_efficiency.report.gpu import MEANINGS as GPU_MEANINGS
from dask_efficiency.report.run_progress import left_text
from dask_efficiency.report.stalls import findings_of
from dask_efficiency.show.drawn_buckets import COLOURS, GPU_COLOURS, OTHER, OTHER_COLOUR, wedges
from dask_efficiency.show.figures import (
    FEW_ROWS,
    format_count,
    format_share,
    format_times,
    harmless,
    name_of,
    upper_first,
)
from dask_efficiency.show.finding import MAX_SHOWN
from dask_efficiency.straggler.causes import MEANINGS

NO_REPORT = "No worker has reported yet."
NO_TASK = "No task ended."
NO_TIME = "nothing by that name did anything."
NO_GPU = "No GPU is measured."

# -- headlines and titles --------------------------------------------------------------------


def headline(view: TabView) -> str:
    """Efficiency and largest loss of the last minutes, and the time left."""
    last = view.last
    left = "" if view.time_left is None else f" {upper_first(left_text(view.time_left))}."
    text = f"{escape(in_a_line(last.report))}.{left}" if last.did else NO_TIME if view.part_of else NO_REPORT
    return _since(last.seconds, f"{escape(view.part_of)}: {text}" if view.part_of else text)


def findings(view: TabView) -> str:
    """First findings of what is running, and the number of workers that are not sampled; may be empty."""
    # What something costs the cluster is not known of a part of it.
    found = findings_of(view.stalls)[:MAX_SHOWN] if view.part_of else running_findings(view.last, view.stalls)
    lines = [f"{number}. {harmless(one.in_a_line)}" for number, one in enumerate(found, 1)]
    missing = not_sampled_text(view.last.not_sampled)
    return "<br>".join(map(escape, [*lines, f"{missing}."] if missing else lines))


def data_moved(view: TabView) -> str:
    """Data that moved by way, in the last minutes and in all; may be empty."""
    text = moved_text(view.last)
    return _since(view.seconds_by_part, _broken_at_commas(text)) if text else ""


def memory(view: TabView) -> str:
    """Memory of the workers now; may be empty."""
    text = memory_text(view.last.now.memory)
    return f'<span style="color:#59636e">Now</span>&ensp;{_broken_at_commas(escape(text))}' if text else ""


def timeline_title(view: TabView) -> str:
    """Title of the timeline."""
    return _since(view.last.seconds, "Threads by what they were doing")


def workers_title(view: TabView) -> str:
    """Title of the page of workers."""
    text = f"{len(view.last.workers.names)} workers: share of their thread time while there was work"
    if too_many_workers(view):
        text += " (tick: median, box: 8 of 10 workers, line: all)"
    return _since(view.seconds_by_part, text)


def few_workers_title(view: TabView) -> str:
    """Title of the workers shown next to other figures."""
    useful = view.last.workers.useful
    text = "Workers"
    if len(useful) > FEW_WORKERS:
        text = f"The {FEW_WORKERS} of {len(useful)} workers whose time was useful least"
        if not np.isnan(useful).all():
            low, median, high = (format_share(share) for share in np.nanquantile(useful, [0, 0.5, 1]).tolist())
            text += f" (of all, least {low}, median {median}, most {high})"
    return escape(f"{text}: share of their thread time while there was work")


def prefixes_title(view: TabView) -> str:
    """Title of the page of prefixes."""
    return _since(view.seconds_by_part, "Thread time of the tasks that ended, by prefix")


def gpus_title(view: TabView) -> str:
    """Title of the page of GPUs."""
    return _since(view.seconds_by_part, _which_gpus(view, MANY) or NO_GPU)


def few_gpus_title(view: TabView) -> str:
    """Title and colours of the GPUs next to other figures; empty without GPUs."""
    which = _which_gpus(view, FEW_GPUS)
    return f"{which}&emsp;{gpu_key(view)}" if which else ""


def _which_gpus(view: TabView, at_most: int) -> str:
    gpus = view.last.gpus
    number = len(gpus.gpus)
    if not number:
        return ""
    text = format_count(number, "GPU")
    if gpus.shares_of_all:
        text += f", idle {escape(format_share(gpus.shares_of_all['idle']))} of the time"
    return f"The {at_most} of {text}, that are idle most" if number > at_most else text


def _since(seconds: float, text: str) -> str:
    return f'<span style="color:#59636e">Last {time_span(seconds)}</span>&ensp;{text}'


def time_span(seconds: float) -> str:
    """Duration in words."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


# -- keys ------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    colour: str
    name: str
    percent: str
    description: str


def key_table(view: TabView) -> str:
    """Key of the pie: colour and per cent of each activity, as a table."""
    return _table(map(_row, _entries(view)))


def key_with_causes(view: TabView) -> str:
    """Key of the pie with the causes of each activity below it."""
    return _table(_row(entry) + _cause_row(causes_of(view, entry.name)) for entry in _entries(view))


def _table(rows: Iterable[str]) -> str:
    return f'<table style="border-spacing:0 0.2em;font-size:inherit">{"".join(rows)}</table>'


def _row(entry: _Entry) -> str:
    return (
        f'<tr title="{escape(entry.description)}"><td style="white-space:nowrap">{_mark(entry.colour)}{entry.name}</td>'
        f'<td style="text-align:right;padding-left:12px;font-variant-numeric:tabular-nums">{entry.percent}</td></tr>'
    )


def _cause_row(causes: str) -> str:
    style = "color:#59636e;font-size:smaller;padding:0 0 0.2em 1.5em"
    return f'<tr><td colspan="2" style="{style}">{_broken_at_commas(causes)}</td></tr>' if causes else ""


def _broken_at_commas(text: str) -> str:
    """Text whose lines break after commas only."""
    return text.replace(" ", "&nbsp;").replace("-", "-&NoBreak;").replace(",&nbsp;", ", ")


def timeline_key(view: TabView) -> str:
    """Key of the timeline, in lines."""
    entries = (entry for entry in _entries(view) if entry.colour != OTHER_COLOUR)
    return "".join(_chip(one.colour, f"{one.name} {one.percent}".rstrip(), one.description) for one in entries)


def workers_key(view: TabView) -> str:
    """Colours of the workers' bars; empty for a spread, whose rows are named."""
    entries = () if too_many_workers(view) else _entries(view)
    spent = (entry for entry in entries if entry.percent and entry.colour != OTHER_COLOUR)
    return "".join(_chip(entry.colour, entry.name, entry.description) for entry in spent)


def prefixes_key(view: TabView) -> str:
    """Colours of the prefixes' bars."""
    seconds = view.last.prefixes.seconds
    buckets = [bucket for i, bucket in enumerate(TASK_BUCKETS) if seconds[:, i].any()]
    return "".join(_chip(COLOURS[bucket], str(bucket), BUCKET_DESCRIPTIONS[bucket]) for bucket in buckets) or NO_TASK


def gpu_key(_: TabView) -> str:
    """Colours of GPU activities."""
    return "".join(_chip(GPU_COLOURS[name], name, GPU_MEANINGS[name]) for name in GPU_ACTIVITIES)


def _entries(view: TabView) -> list[_Entry]:
    """Entries of the key: the activities in order, then the pie's collective wedge."""
    spent = with_work(view)
    percent = {wedge.label: percent_of(wedge) for wedge in wedges(spent, at_most=len(ACTIVITIES))}
    entries = []
    for bucket in map(Bucket, view.last.did):
        description = "\n".join(filter(None, (BUCKET_DESCRIPTIONS[bucket], causes_of(view, bucket))))
        entries.append(_Entry(COLOURS[bucket], str(bucket), percent.get(bucket, ""), description))
    folded = [wedge for wedge in wedges(spent) if wedge.label == OTHER]
    small = "what is too small for a wedge of its own"
    return entries + [_Entry(OTHER_COLOUR, "in the pie: other", percent_of(wedge), small) for wedge in folded]


def _chip(colour: str, text: str, description: str) -> str:
    return f'<span title="{escape(description)}" style="white-space:nowrap">{_mark(colour)}{text}</span>&emsp;<wbr>'


def _mark(colour: str) -> str:
    return f'<span style="display:inline-block;width:0.8em;height:0.8em;margin-right:0.5em;background:{colour}"></span>'


# -- stragglers ------------------------------------------------------------------------------


def straggler_table(view: TabView) -> str:
    """Current stragglers with their causes; empty if there are none."""
    rows = []
    for finding in view.stragglers[:FEW_ROWS]:
        who = f"worker {finding.worker}" if finding.worker else "all workers of"
        meaning = MEANINGS[finding.cause]
        age = f"for {time_span(max(1.0, view.now - finding.since))}" if view.now > finding.since else ""
        cells = (
            f"<b>{escape(name_of(who))}</b>",
            escape(name_of(finding.host)),
            f"takes {format_times(finding.effect)}" if finding.effect is not None else "takes longer",
            age,
            f'<span title="{escape(meaning.look)}">{finding.cause}: {escape(meaning.words)}</span>',
            f"{format_share(finding.confidence)} sure",
        )
        rows.append("<tr>" + "".join(f'<td style="padding-right:1.4em">{cell}</td>' for cell in cells) + "</tr>")
    if not rows:
        return ""
    more = len(view.stragglers) - len(rows)
    rest = f'<div style="color:#59636e">and {more} more</div>' if more else ""
    head = '<span style="color:#9a6700;font-weight:bold">Slow for the same work</span>'
    return f"{head}{_table(rows)}{rest}"
