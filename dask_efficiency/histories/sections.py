"""Document of a history: what got worse, since when and through what, and the runs of each name over time."""

from __future__ import annotations

from typing import Any

from dask_efficiency.accounts.intake import finite
from dask_efficiency.histories.history import FIGURES, Change, RunHistory, RunSeries, WorseRun
from dask_efficiency.histories.reasons import reasons
from dask_efficiency.histories.rows import columns, day
from dask_efficiency.report.comparison_findings import rise_size
from dask_efficiency.show.columns import as_records, as_table, names
from dask_efficiency.show.document import Aside, Block, Document, Section, Spark, Trend, section, with_content
from dask_efficiency.show.figures import format_bytes, format_count, format_seconds, name_of, named, sentence, shorten
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_SHOWN

FORMAT = "dask-efficiency-history"
#: Version of the data; grows when a reader of the old one would fail.
VERSION = 1
#: Names, runs of a name, and changes that a document lists. By eye.
MAX_LISTED = 15
#: Columns of a table of runs, with their heads.
HEADS = {
    "when": "run, UTC",
    "wall_clock_seconds": "wall clock",
    "efficiency": "efficiency",
    "worker_peak_bytes": "peak",
    "received_bytes": "received",
    "spilled_bytes": "spilled",
    "cost": "cost",
    "first_finding": "first finding",
}
#: What runs that take more or less of a figure are called.
_WORDS = {"wall_clock_seconds": ("slower", "faster"), "worker_peak_bytes": ("hungrier", "less hungry")}
_TEXTS = {"wall_clock_seconds": format_seconds, "worker_peak_bytes": format_bytes}


def what_changed(change: Change) -> str:
    """A change in a clause: name, size, run, and how many runs there are since, or were until it was mended."""
    first, rise = change.first.head, change.difference.rise
    word = _WORDS[change.figure][rise < 0]
    since = f"{format_count(change.since, 'run')} since"
    if change.is_worse and change.mended is not None:
        since = f"mended with the run of {day(change.mended.head.started)}"
    return f"{name_of(first.name)} got {rise_size(rise)} {word} with the run of {day(first.started)} ({since})"


def _sentences(change: Change) -> tuple[str, ...]:
    text = _TEXTS[change.figure]
    sizes = f"{text(change.difference.before)} -> {text(change.difference.after)}"
    why = "; ".join(reasons(change))
    return f"{what_changed(change)}: {sizes}", f"With it: {why}." if why else ""


def worse_clause(worse: WorseRun) -> str:
    """Latest run that is worse than those before it, as a clause of an error."""
    before, text = worse.difference, _TEXTS[worse.figure]
    more = f"{rise_size(before.rise)} more {FIGURES[worse.figure]}"
    than = f"{text(before.after)} after {text(before.before)} in {format_count(len(before.runs_before), 'run')}"
    return f"{name_of(worse.name)}, run of {day(worse.run.head.started)}: {more}, {than}"


def ended_clause(series: RunSeries) -> str:
    """Latest run that an error ended, as a clause of an error."""
    return f"{name_of(series.name)}, run of {day(series.runs[-1].head.started)}, ended by {name_of(series.ended_by)}"


def headline(history: RunHistory) -> str:
    """The latest change for the worse that lasts, or that there is none; at most 100 characters, no full stop."""
    worse = [change for change in history.changes if change.lasts]
    if worse:
        more = f"; {format_count(len(worse) - 1, 'change')} more for the worse" if worse[1:] else ""
        return shorten(f"{what_changed(worse[0])}{more}", MAX_HEADLINE)
    lasting = "lasting " if any(change.is_worse for change in history.changes) else ""
    return f"No {lasting}change for the worse in {format_count(len(history.runs), 'run')}"


def context(history: RunHistory) -> str:
    """Number of runs and names, and the time that they span."""
    first, last = history.runs[0].head, history.runs[-1].head
    runs, names = format_count(len(history.runs), "run"), format_count(len(history.series), "name")
    return f"{runs} of {names}, {day(first.started)} to {day(last.started)} UTC"


def document(history: RunHistory) -> Document:
    """Document of a history, for a terminal."""
    return _document(history, drawn=False)


def page(history: RunHistory) -> Document:
    """Document for a page, whose plots are drawn."""
    return _document(history, drawn=True)


def _document(history: RunHistory, *, drawn: bool) -> Document:
    found = tuple(tuple(filter(None, _sentences(change))) for change in history.changes[:MAX_SHOWN])
    shown = (_series(one, drawn=drawn) for one in history.series[:MAX_LISTED])
    parts = with_content(*shown, _more(history), _not_read(history))
    title = f"History of {name_of(history.where)}"
    return Document(title, context(history), headline(history), parts, findings=found)


def _series(series: RunSeries, *, drawn: bool) -> Section:
    blocks: list[Block] = []
    for figure, what in FIGURES.items():
        if runs := series.known(figure):
            blocks.append(_over_time(series, figure, what, drawn=drawn))
        if figure == "wall_clock_seconds" and len(runs) < len(series.runs):
            blocks.append(Aside(f"{format_count(len(series.runs) - len(runs), 'run')} ended early, or did nothing"))
    shown = series.runs[-MAX_LISTED:]
    known = {**columns(shown), "first_finding": names(run.head.first_finding.partition(":")[0] for run in shown)}
    heads = {name: head for name, head in HEADS.items() if any(known[name].values)}
    if rest := len(series.runs) - len(shown):
        blocks.append(Aside(f"the last {len(shown)} runs; {rest} earlier ones are not listed"))
    return section(name_of(series.name), *blocks, as_table({name: known[name] for name in heads}, heads))


def _over_time(series: RunSeries, figure: str, what: str, *, drawn: bool) -> Block:
    runs, text = series.known(figure), _TEXTS[figure]
    values = [getattr(run.head, figure) for run in runs]
    most = max(values)
    label = f"{what}, {text(values[0])} to {text(values[-1])}, at most {text(most)}"
    if not drawn:
        return Spark(label, tuple(value / most for value in values))
    changes = sorted((one for one in series.changes if one.figure == figure), key=lambda one: one.first.head.started)
    starts = [0, *(len(runs) - change.since for change in changes), len(runs)]
    medians = [change.difference.before for change in changes[:1]] + [change.difference.after for change in changes]
    return Trend(
        tuple(
            (value / most, f"{day(run.head.started)}: {text(value)}") for run, value in zip(runs, values, strict=True)
        ),
        tuple((a, b, median / most) for a, b, median in zip(starts, starts[1:], medians, strict=False)),
        text(most),
        label,
    )


def _more(history: RunHistory) -> Section:
    rest = [one.name for one in history.series[MAX_LISTED:]]
    return section("More names", f"not shown: {named(rest)}" if rest else "")


def _not_read(history: RunHistory) -> Section:
    files = [f"{name_of(path)}: {sentence(why.removeprefix(f'{path}: '))}" for path, why in history.not_read.items()]
    more = f"and {len(files) - MAX_SHOWN} more" if files[MAX_SHOWN:] else ""
    return section("Files that were not read", *files[:MAX_SHOWN], more, caveat=True)


def to_dict(history: RunHistory) -> dict[str, Any]:
    """History as plain data, ready for JSON."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "headline": headline(history),
        "runs": as_records(columns(history.runs)),
        "changes": [_plain(change) for change in history.changes[:MAX_LISTED]],
        "not_read": dict(history.not_read),
    }


def _plain(change: Change) -> dict[str, Any]:
    return {
        "name": change.first.head.name,
        "figure": change.figure,
        "before": change.difference.before,
        "after": change.difference.after,
        "rise": finite(change.difference.rise),
        "run": change.first.path,
        "started": change.first.head.started,
        "runs_since": change.since,
        "reasons": list(reasons(change)),
    }
