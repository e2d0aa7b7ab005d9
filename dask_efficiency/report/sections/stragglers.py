"""Sections on slow workers, long tasks and uneven prefixes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import Evidence, SlowWorker
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import long_tasks, longest, recorded_tasks, uneven_sizes, uneven_times
from dask_efficiency.runs.stragglers.offline import Judgement
from dask_efficiency.show.columns import as_table, multiples, names, seconds, shares, words
from dask_efficiency.show.document import (
    MAX_ROWS,
    SCREEN,
    Aside,
    Document,
    Extent,
    Peers,
    Section,
    Table,
    section,
    with_content,
)
from dask_efficiency.show.figures import (
    NAME_LENGTH,
    SENTENCES_BESIDE,
    format_bytes,
    format_number,
    format_seconds,
    format_share,
    format_times,
    name_of,
    workers_named,
)
from dask_efficiency.show.finding import MAX_SHOWN, Finding
from dask_efficiency.straggler.causes import MEANINGS
from dask_efficiency.straggler.signals import FINISHED, LIVE, Unit
from dask_efficiency.straggler.wording import how_many

#: Stragglers listed; of the rest only the number is given. By eye.
MAX_STRAGGLERS = 20
#: Long tasks listed. By eye.
MAX_LONG_TASKS = 5
#: Signals drawn per straggler, on a page. By eye.
MAX_EVIDENCE = 4
#: Stragglers of a judgement whose signals are listed. By eye.
WITH_SIGNALS = 3
#: Names of signals in words.
SIGNAL_NAMES = {name: signal.words for table in (FINISHED, LIVE) for name, signal in table.items()}
#: Signals that are shares; the others are multiples of the peers' median.
SHARES = frozenset(name for name, signal in LIVE.items() if signal.unit is Unit.SHARE)


def stragglers(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Stragglers with causes and effects, the meaning of each cause, and on a page the signals."""
    slow = report.stragglers
    shown = slow[:MAX_STRAGGLERS]
    columns = {
        "worker": names((one.worker or None for one in shown), unknown="(all of the host)"),
        "host": names(one.host or None for one in shown),
        "cause": words(one.cause for one in shown),
        "takes": multiples(one.effect for one in shown),
        "since": words(_since(one, report.started) for one in shown),
        "sure": shares(one.confidence for one in shown),
    }
    causes = dict.fromkeys(found.cause for found in slow)
    lines = [f"{cause}: {MEANINGS[cause].words}. {MEANINGS[cause].look}" for cause in causes]
    if len(slow) > MAX_STRAGGLERS:
        lines.append(f"the {MAX_STRAGGLERS} most certain of {len(slow)}:")
    table = as_table(columns, sortable=extent.drawn)
    evidence = _evidence(shown) if extent.drawn else section("")
    return section("Stragglers: slow for the same work", *lines, table, evidence)


def _since(finding: SlowWorker, started: float) -> str:
    seconds = finding.since - started
    if math.isnan(seconds):
        return "-"
    return f"after {format_seconds(seconds)}" if seconds > 0 else "the beginning"


def _evidence(findings: tuple[SlowWorker, ...]) -> Section:
    rows, drawings = [], []
    for finding in findings:
        who = workers_named([finding.worker]) if finding.worker else f"host {name_of(finding.host)}"
        for position, item in enumerate(finding.evidence[:MAX_EVIDENCE]):
            name = SIGNAL_NAMES.get(item.signal) or name_of(item.signal)
            rows.append(("" if position else who, name, _figure(item, item.value), _figure(item, item.peers)))
            drawings.append(_beside_peers(item))
    heads = ("", "signal", "it", "peers")
    table = Table(heads, tuple(rows), words=(0, 1), drawings=tuple(drawings), drawn_behind=1)
    text = "Dot: the worker. Bar: its peers, from the least to the most, and their median. To the right is more."
    return section("", table, Aside(text)) if rows else section("")


def _figure(evidence: Evidence, value: float) -> str:
    if evidence.signal not in SIGNAL_NAMES:  # a metric, in a unit that is not known
        return format_number(value)
    return format_share(value) if evidence.signal in SHARES and 0 <= value <= 1 else format_times(value)


def _beside_peers(evidence: Evidence) -> Peers | None:
    if not all(map(math.isfinite, (evidence.value, evidence.peers, evidence.low, evidence.high))):
        return None
    own, least, most = (_figure(evidence, each) for each in (evidence.value, evidence.low, evidence.high))
    hint = f"{own}; peers {least} to {most}"
    return Peers(evidence.value, evidence.peers, evidence.low, evidence.high, hint)


def long_tail(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Tasks that took far longer than the others of their prefix."""
    return _long_tail(recorded_tasks(report))


def _long_tail(found: Sequence[Finding]) -> Section:
    return section("Long tail", *(one.where for one in found[:MAX_LONG_TASKS]))


def document(found: Judgement, name: str) -> Document:
    """Document on the stragglers of a recorded run."""
    first = tuple(one.lines for one in found.findings[:MAX_SHOWN])
    return Document(f"Stragglers of {name_of(name) or 'a run'}", "", headline(found), _sections(found), findings=first)


def headline(found: Judgement) -> str:
    """Number of slow workers, and the largest saving."""
    slow = how_many(found.slow_workers, found.workers)
    if not found.slow_workers:
        return f"{slow}; one task takes far longer than its like" if found.long_tasks else slow
    saves = max(one.seconds_lost or 0.0 for one in found.slow_workers)
    return f"{slow}; {format_seconds(saves)} can be saved" if saves else slow


def to_dict(found: Judgement) -> dict[str, Any]:
    """Plain data, ready for JSON."""
    return {
        "headline": headline(found),
        "findings": [one.to_dict() for one in found.findings],
        "slow_workers": [one.to_dict() for one in found.slow_workers],
    }


def _sections(found: Judgement) -> tuple[Section, ...]:
    beyond = found.findings[MAX_SHOWN:]
    return with_content(
        _slow_worker_table(found),
        section("More to do", *dict.fromkeys(one.advice for one in beyond)),
        *map(_signals, found.slow_workers[:WITH_SIGNALS]),
        _long_tail([one for one in beyond if one.kind == "long-task"]),
        _notes(found),
    )


def _slow_worker_table(found: Judgement) -> Section:
    shown = found.slow_workers[:MAX_STRAGGLERS]
    rest = len(found.slow_workers) - len(shown)
    columns = {
        "worker": words(map(_worker_or_host, shown)),
        "host": names(one.host for one in shown),
        "cause": words(one.cause for one in shown),
        "takes": multiples((one.effect for one in shown), text="{:.2f} x".format),
        "costs": seconds(one.seconds_lost for one in shown),
        "sure": shares(one.confidence for one in shown),
    }
    return section("Slow workers", f"{rest} more are not shown." if rest else "", as_table(columns))


def _signals(one: SlowWorker) -> Section:
    def row(item: Evidence) -> tuple[str, ...]:
        figures = (item.value, item.peers, item.low, item.high)
        signal = FINISHED.get(item.signal) or LIVE.get(item.signal)
        words, write = (name_of(item.signal), format_number) if signal is None else (signal.words, "{:.2f} x".format)
        return words, *[write(figure) if math.isfinite(figure) else "-" for figure in figures], str(item.tasks)

    heads = ("signal", "its own", "peers", "from", "to", "readings")
    heading = f"How {_worker_or_host(one)} compares with its peers"
    return section(heading, Table(heads, tuple(map(row, one.evidence))))


def _notes(found: Judgement) -> Section:
    lines = list(found.notes)
    if found.insufficient:
        lines.append(f"Too little to judge by: {workers_named(found.insufficient)}.")
    if any(one.seconds_lost is not None for one in found.slow_workers):
        lines.append("What a straggler costs comes from a replay of the run with it as fast as its peers.")
    return section("Notes", *lines, caveat=True)


def _worker_or_host(one: SlowWorker) -> str:
    return name_of(one.worker) if one.worker else name_of(f"all of {one.host[:NAME_LENGTH]}")


def skew(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Prefixes whose tasks or results differ much; on a page all prefixes, folded."""
    sentences = [longest(report, prefix).where for prefix in long_tasks(report)]
    found = section(
        "Skew",
        *sentences[:SENTENCES_BESIDE],
        _skew_times(uneven_times(report), extent.prefixes),
        _skew_sizes(uneven_sizes(report), extent.prefixes),
    )
    if not extent.drawn or not report.skew:
        return found
    ranked = dict(sorted(report.skew.items(), key=lambda item: -item[1].max_seconds))
    number = len(ranked)
    heading = "Tasks by prefix" if number <= MAX_ROWS else f"Tasks of {MAX_ROWS} of {number} prefixes"
    everything = section(heading, _skew_times(ranked, MAX_ROWS), _skew_sizes(ranked, MAX_ROWS), folded=True)
    return section("Skew", *found.blocks, everything)


def _skew_times(skews: Mapping[str, Skew], at_most: int) -> Table:
    def row(one: Skew) -> tuple[str, ...]:
        seconds = map(format_seconds, (one.median_seconds, one.p95_seconds, one.max_seconds))
        return (*seconds, format_times(one.times_longer), name_of(one.longest_key))

    return _skew_table(skews, at_most, "longest task", row)


def _skew_sizes(skews: Mapping[str, Skew], at_most: int) -> Table:
    def row(one: Skew) -> tuple[str, ...]:
        sizes = map(format_bytes, (one.median_bytes, one.p95_bytes, one.max_bytes))
        return (*sizes, format_times(one.times_larger), name_of(one.largest_key))

    known = {prefix: one for prefix, one in skews.items() if one.largest_key}
    return _skew_table(known, at_most, "largest result", row)


def _skew_table(skews: Mapping[str, Skew], at_most: int, most: str, row: Callable[[Skew], tuple[str, ...]]) -> Table:
    """One row per prefix: median, 95 %, maximum, its ratio to the median, and its task."""
    heads = ("prefix", "tasks", "median", "95 %", "max", "times", most)
    shown = [*skews.items()][:at_most]
    rows = tuple((name_of(prefix) or "(no prefix)", str(one.count), *row(one)) for prefix, one in shown)
    return Table(heads, rows, words=(0, 6))
