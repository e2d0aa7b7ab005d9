"""Columns: what each figure of the pages shows, as plain data by column, and the texts as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from dask_efficiency.buckets import Bucket
from dask_efficiency.cluster import ClusterLedger
from dask_efficiency.ledger import TASK_BUCKETS
from dask_efficiency.presence import ACTIVITIES, GPU_ACTIVITIES
from dask_efficiency.report import recent
from dask_efficiency.report.colours import COLOURS, GPU_COLOURS, OTHER_COLOUR, ink
from dask_efficiency.report.figures import format_share, format_times, name_of
from dask_efficiency.report.gpu import MEANINGS as GPU_MEANINGS
from dask_efficiency.report.pie import OTHER, Wedge, label_point, radians, wedges
from dask_efficiency.report.recent_gpus import FEW_GPUS, MANY_GPUS, Gpu, GpusMoment, gpus
from dask_efficiency.report.recent_prefixes import prefixes
from dask_efficiency.report.recent_workers import FEW_WORKERS, MANY_WORKERS, QUANTILES, WorkersMoment, spread, workers
from dask_efficiency.report.verdict import DESCRIPTIONS
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.wording import MEANINGS

#: Rows of the table of stragglers.
MAX_STRAGGLERS = 5

#: A narrower wedge has no room for its per cent, which the key has too.
LABELLED_SHARE = 0.07

NO_REPORT = "No worker has reported yet."
NO_TASK = "No task ended."
NO_GPU = "No GPU is measured."

PIE = ("label", "start", "stop", "colour", "x", "y", "percent", "text", "ink", "seconds")
TIMELINE = ("left", "right", "nthreads", *ACTIVITIES)
BARS = ("y", "name", "nthreads", *ACTIVITIES)
SPREAD = ("y", "name", "colour", "q0", "q10", "q50", "q90", "q100", "least", "most")
PREFIXES = ("y", "name", "total", *map(str, TASK_BUCKETS))

GPUS = ("y", "name", *GPU_ACTIVITIES)

#: Values by column, all of one length.
Columns = Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What the workers and the prefixes had done by an earlier instant."""

    at: int
    workers: WorkersMoment
    #: Nanoseconds by :data:`~dask_efficiency.ledger.TASK_BUCKETS`.
    prefixes: Mapping[str, Sequence[int]]
    gpus: GpusMoment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """The accounts at one look at them."""

    cluster: ClusterLedger
    #: Seconds since the epoch at which the accounts began.
    since: float
    #: The polls of the last minutes, one at least.
    moments: Sequence[recent.Moment]
    heartbeat_seconds: float
    #: Where the last minutes of the workers and of the prefixes begin.
    kept: Kept
    #: Who is slow now, and seconds since the epoch.
    stragglers: Sequence[Finding] = ()
    now: float = math.nan

    @property
    def at(self) -> int:
        """When it was taken, by the accounts' clock."""
        return self.moments[-1].at


def empty(names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns without rows."""
    return {name: [] for name in names}


# -- texts -----------------------------------------------------------------------------------


def verdict(reading: Reading) -> str:
    """How far the view looks back, what was useful, and the largest loss."""
    gained = recent.gained(reading.moments)
    text = escape(recent.sentence(gained, reading.cluster.reasons)) if gained else NO_REPORT
    return _since(reading, reading.moments[0].at, text)


def timeline_title(reading: Reading) -> str:
    """What the timeline shows."""
    return _since(reading, reading.moments[0].at, "Threads by what they were doing")


def workers_title(reading: Reading) -> str:
    """What the bars of :func:`all_workers` or the spread of :func:`worker_spread` show."""
    number = len(reading.cluster.present)
    text = f"{number} workers: share of their thread time while there was work"
    if number > MANY_WORKERS:
        text += " (tick: median, box: 8 of 10 workers, line: all)"
    return _since(reading, reading.kept.at, text)


def prefixes_title(reading: Reading) -> str:
    """What the bars of :func:`by_prefix` show."""
    return _since(reading, reading.kept.at, "Thread time of the tasks that ended, by prefix")


def gpus_title(reading: Reading) -> str:
    """What the bars of :func:`all_gpus` show."""
    found = gpus(reading.cluster.present.values(), reading.kept.gpus, at_most=MANY_GPUS)
    return _since(reading, reading.kept.at, escape(found.title) if found.number else NO_GPU)


def gpu_key(_: Reading) -> str:
    """The colours of what GPUs do."""
    return "".join(_chip(GPU_COLOURS[name], name, GPU_MEANINGS[name]) for name in GPU_ACTIVITIES)


def _since(reading: Reading, then: int, text: str) -> str:
    ago = recent.span_of((reading.at - then) / 1e9)
    return f'<span style="color:#59636e">Last {ago}</span>&ensp;{text}'


def straggler_table(reading: Reading) -> str:
    """Who is slow now and why; empty if nobody is."""
    rows = []
    for finding in reading.stragglers[:MAX_STRAGGLERS]:
        who = f"worker {finding.worker}" if finding.worker else "all workers of"
        meaning, look = MEANINGS[finding.cause]
        age = f"for {recent.span_of(max(1.0, reading.now - finding.since))}" if reading.now > finding.since else ""
        cells = (
            f"<b>{escape(name_of(who))}</b>",
            escape(name_of(finding.host)),
            f"takes {format_times(finding.effect)}" if finding.effect is not None else "takes longer",
            age,
            f'<span title="{escape(look)}">{finding.cause}: {escape(meaning)}</span>',
            f"{format_share(finding.confidence)} sure",
        )
        rows.append("<tr>" + "".join(f'<td style="padding-right:1.4em">{cell}</td>' for cell in cells) + "</tr>")
    if not rows:
        return ""
    more = len(reading.stragglers) - len(rows)
    rest = f'<div style="color:#59636e">and {more} more</div>' if more else ""
    head = '<span style="color:#9a6700;font-weight:bold">Slow for the same work</span>'
    return f'{head}<table style="border-spacing:0 0.2em;font-size:inherit">{"".join(rows)}</table>{rest}'


def key_table(reading: Reading) -> str:
    """Every activity's colour, and its per cent of the time while there was work, as a table beside the pie."""
    rows = [
        f'<tr title="{escape(entry.description)}"><td style="white-space:nowrap">{_mark(entry.colour)}{entry.name}</td>'
        f'<td style="text-align:right;padding-left:12px;font-variant-numeric:tabular-nums">{entry.percent}</td></tr>'
        for entry in _key(reading)
    ]
    return f'<table style="border-spacing:0 0.2em;font-size:inherit">{"".join(rows)}</table>'


def timeline_key(reading: Reading) -> str:
    """The same in lines above the timeline, without the wedge that is no activity."""
    entries = [entry for entry in _key(reading) if entry.colour != OTHER_COLOUR]
    return "".join(
        _chip(entry.colour, f"{entry.name} {entry.percent}".rstrip(), entry.description) for entry in entries
    )


def workers_key(reading: Reading) -> str:
    """The colours of :func:`all_workers`; the rows of :func:`worker_spread` have their names beside them."""
    if len(reading.cluster.present) > MANY_WORKERS:
        return ""
    entries = [entry for entry in _key(reading) if entry.percent and entry.colour != OTHER_COLOUR]
    return "".join(_chip(entry.colour, entry.name, entry.description) for entry in entries)


@dataclass(frozen=True, slots=True)
class _Entry:
    colour: str
    name: str
    percent: str
    description: str


def _key(reading: Reading) -> list[_Entry]:
    gained = recent.gained(reading.moments)
    working = {name: ns for name, ns in gained.items() if name != Bucket.NO_WORK}
    percent = {wedge.label: _percent(wedge) for wedge in wedges(working, at_most=len(ACTIVITIES))}
    entries = [
        _Entry(COLOURS[Bucket(name)], name, percent.get(name, ""), DESCRIPTIONS[Bucket(name)])
        for name in ACTIVITIES
        if name in gained
    ]
    folded = [wedge for wedge in wedges(working) if wedge.label == OTHER]
    small = "what is too small for a wedge of its own"
    return entries + [_Entry(OTHER_COLOUR, "in the pie: other", _percent(wedge), small) for wedge in folded]


def _chip(colour: str, text: str, description: str) -> str:
    return f'<span title="{escape(description)}" style="white-space:nowrap">{_mark(colour)}{text}</span>&emsp;<wbr>'


def _mark(colour: str) -> str:
    return f'<span style="display:inline-block;width:0.8em;height:0.8em;margin-right:0.5em;background:{colour}"></span>'


def _percent(wedge: Wedge) -> str:
    return f"{'<0.1' if wedge.percent == '0.0' else wedge.percent} %"


# -- figures ---------------------------------------------------------------------------------


def pie(reading: Reading) -> Columns:
    """A wedge a row; columns :data:`PIE`."""
    gained = recent.gained(reading.moments)
    slices = wedges({name: ns for name, ns in gained.items() if name != Bucket.NO_WORK})
    points = [label_point(wedge, 0.68) for wedge in slices]
    return {
        "label": [wedge.label for wedge in slices],
        "start": [radians(wedge.start) for wedge in slices],
        "stop": [radians(wedge.stop) for wedge in slices],
        "colour": [wedge.colour for wedge in slices],
        "x": [x for x, _ in points],
        "y": [-y for _, y in points],
        "percent": [_percent(wedge) for wedge in slices],
        "text": [_percent(wedge) if wedge.share >= LABELLED_SHARE else "" for wedge in slices],
        "ink": [ink(wedge.colour) for wedge in slices],
        "seconds": [wedge.nanoseconds / 1e9 for wedge in slices],
    }


def timeline(reading: Reading) -> Columns:
    """A bin a row, from left to right in milliseconds since the epoch; columns :data:`TIMELINE`."""
    binned = recent.timeline(reading.moments, width=recent.bin_width(reading.heartbeat_seconds))
    epoch = reading.since * 1e3 - reading.cluster.started / 1e6
    return {
        "left": (binned.start / 1e6 + epoch).tolist(),
        "right": (binned.stop / 1e6 + epoch).tolist(),
        "nthreads": binned.nthreads.tolist(),
        **{name: binned.threads[:, i].tolist() for i, name in enumerate(ACTIVITIES)},
    }


@dataclass(frozen=True, slots=True)
class Bars:
    """A worker a row, columns :data:`BARS`; and which workers these are, as HTML."""

    columns: Columns
    title: str


def few_workers(reading: Reading) -> Bars:
    """So many workers as there is room for beside other figures."""
    return _bars(reading, FEW_WORKERS)


def all_workers(reading: Reading) -> Bars:
    """All workers, and none where there are too many for a bar each."""
    return _bars(reading, MANY_WORKERS) if len(reading.cluster.present) <= MANY_WORKERS else Bars(empty(BARS), "")


def _bars(reading: Reading, at_most: int) -> Bars:
    found = workers(reading.cluster.present.values(), reading.kept.workers, at_most=at_most)
    columns = {
        "y": list(range(len(found.names))),
        "name": list(found.names),
        "nthreads": list(found.nthreads),
        **{name: found.shares[:, i].tolist() for i, name in enumerate(ACTIVITIES)},
    }
    return Bars(columns, escape(f"{found.title}: share of their thread time while there was work"))


def worker_spread(reading: Reading) -> Columns:
    """An activity a row, where there are too many workers for a bar each; columns :data:`SPREAD`."""
    if len(reading.cluster.present) <= MANY_WORKERS:
        return empty(SPREAD)
    found = spread(reading.cluster.present.values(), reading.kept.workers)
    return {
        "y": list(range(len(found.activities))),
        "name": list(found.activities),
        "colour": [COLOURS[Bucket(name)] for name in found.activities],
        **{f"q{quantile:.0%}".rstrip("%"): found.quantiles[:, i].tolist() for i, quantile in enumerate(QUANTILES)},
        "least": list(found.least),
        "most": list(found.most),
    }


def few_gpus(reading: Reading) -> Bars:
    """So many GPUs as there is room for beside other figures, columns :data:`GPUS`; no title without any."""
    found = gpus(reading.cluster.present.values(), reading.kept.gpus, at_most=FEW_GPUS)
    if not found.rows:
        return Bars(empty(GPUS), "")
    return Bars(_gpu_columns(found.rows), f"{escape(found.title)}&emsp;{gpu_key(reading)}")


def all_gpus(reading: Reading) -> Columns:
    """All GPUs that there is room for on a page of their own; columns :data:`GPUS`."""
    return _gpu_columns(gpus(reading.cluster.present.values(), reading.kept.gpus, at_most=MANY_GPUS).rows)


def _gpu_columns(rows: Sequence[Gpu]) -> Columns:
    return {
        "y": list(range(len(rows))),
        "name": [row.name + " (shared)" * row.shared for row in rows],
        **{name: [row.shares[i] for row in rows] for i, name in enumerate(GPU_ACTIVITIES)},
    }


@dataclass(frozen=True, slots=True)
class ByPrefix:
    """A prefix a row, in thread-seconds, columns :data:`PREFIXES`; and the colours in it, as HTML."""

    columns: Columns
    key: str


def by_prefix(reading: Reading) -> ByPrefix:
    """The prefixes that took most time, by what became of it."""
    found = prefixes(reading.cluster.settled_by_prefix(), reading.kept.prefixes)
    by_bucket = {str(bucket): found.seconds[:, i].tolist() for i, bucket in enumerate(TASK_BUCKETS)}
    total = found.seconds.sum(axis=1).tolist()
    columns = {"y": list(range(len(found.names))), "name": list(found.names), "total": total, **by_bucket}
    chips = [_chip(COLOURS[b], str(b), DESCRIPTIONS[b]) for b in TASK_BUCKETS if any(by_bucket[b])]
    return ByPrefix(columns, "".join(chips) or NO_TASK)
