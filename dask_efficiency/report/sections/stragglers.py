"""Stragglers: of a report, and as judged from a recorded run."""

from __future__ import annotations

import math

from dask_efficiency.accounts.slow_worker import Evidence, SlowWorker
from dask_efficiency.report.clauses import long_task
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.runs.stragglers.offline import Judgement
from dask_efficiency.show.document import Aside, Document, Peers, Section, Table, section, with_content
from dask_efficiency.show.extent import SCREEN, Extent
from dask_efficiency.show.figures import NAME_LENGTH, format_seconds, format_share, format_times, name_of, named
from dask_efficiency.straggler.signals import LIVE, SIGNALS, Unit
from dask_efficiency.straggler.wording import MEANINGS

#: Findings in full; of the rest the number is given.
MAX_STRAGGLERS = 20

#: Long tasks that are named.
MAX_LONG_TASKS = 5

#: Signals of a finding that are drawn, on a page.
MAX_EVIDENCE = 4

#: Findings of a judgement whose signals are shown one by one.
WITH_SIGNALS = 3

#: What a signal is called for people; one that is not here keeps its name.
SIGNAL_NAMES = {name: signal.live.words if signal.live else signal.words for name, signal in SIGNALS.items()}

#: Signals that are shares; the others are multiples of the peers' median.
SHARES = frozenset(name for name, signal in LIVE.items() if signal.unit is Unit.SHARE)


def stragglers(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Who was slow, why, and how much longer it took; what each cause means; and the signals, drawn."""
    findings = report.stragglers
    shown = findings[:MAX_STRAGGLERS]
    rows = tuple(
        (
            name_of(finding.worker) if finding.worker else "(all of the host)",
            name_of(finding.host) or "-",
            str(finding.cause),
            format_times(finding.effect),
            _since(finding, report.started),
            format_share(finding.confidence),
        )
        for finding in shown
    )
    lines = [f"{cause}: {'; '.join(MEANINGS[cause])}" for cause in dict.fromkeys(found.cause for found in findings)]
    if len(findings) > MAX_STRAGGLERS:
        lines.append(f"the {MAX_STRAGGLERS} most certain of {len(findings)}:")
    heads = ("worker", "host", "cause", "takes", "since", "sure")
    table = Table(heads, rows, words=(0, 1, 2, 4), sortable=extent.drawn)
    evidence = _evidence(shown) if extent.drawn else section("")
    return section("Stragglers: slow for the same work", *lines, table, evidence)


def _since(finding: SlowWorker, started: float) -> str:
    seconds = finding.since - started
    if math.isnan(seconds):
        return "-"
    return f"after {format_seconds(seconds)}" if seconds > 0 else "the beginning"


def _evidence(findings: tuple[SlowWorker, ...]) -> Section:
    """Each signal drawn beside that of the peers."""
    rows = []
    drawings = []
    for finding in findings:
        who = name_of(finding.worker) if finding.worker else f"host {name_of(finding.host)}"
        for position, item in enumerate(finding.evidence[:MAX_EVIDENCE]):
            name = SIGNAL_NAMES.get(item.signal) or name_of(item.signal)
            rows.append(("" if position else who, name, _figure(item, item.value), _figure(item, item.peers)))
            drawings.append(_beside_peers(item))
    heads = ("", "signal", "it", "peers")
    table = Table(heads, tuple(rows), words=(0, 1), drawings=tuple(drawings), drawn_behind=1)
    said = "Dot: the worker. Bar: its peers, from the least to the most, and their median. To the right is more."
    return section("", table, Aside(said)) if rows else section("")


def _figure(evidence: Evidence, value: float) -> str:
    """A value of a signal in its unit."""
    return format_share(value) if evidence.signal in SHARES and 0 <= value <= 1 else format_times(value)


def _beside_peers(evidence: Evidence) -> Peers | None:
    if not all(map(math.isfinite, (evidence.value, evidence.peers, evidence.low, evidence.high))):
        return None
    own, least, most = (_figure(evidence, each) for each in (evidence.value, evidence.low, evidence.high))
    hint = f"{own}; peers {least} to {most}"
    return Peers(evidence.value, evidence.peers, evidence.low, evidence.high, hint)


def long_tail(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """The tasks that took far longer than the others of their prefix."""
    shown = report.long_tail[:MAX_LONG_TASKS]
    return section("Long tail", *(long_task(one, report.skew.get(one.prefix)) for one in shown))


def document(found: Judgement, name: str) -> Document:
    """The stragglers of a run that is over.

    Parameters
    ----------
    found
        What is to be shown.
    name
        Of the run.
    """
    return Document(f"Stragglers of {name_of(name) or 'a run'}", "", headline(found), sections(found))


def headline(found: Judgement) -> str:
    """All of it in one sentence, without a full stop."""
    of = f"{found.workers} worker{'' if found.workers == 1 else 's'}"
    if not found.findings:
        long = f". No worker is slow: {long_task(found.long_tasks[0])}" if found.long_tasks else ""
        return f"None among {of}{long}"
    first = found.findings[0]
    many = f", and {len(found.findings) - 1} more" if len(found.findings) > 1 else ""
    lost = (
        "" if first.seconds_lost is None else f"; without that the run is {format_seconds(first.seconds_lost)} shorter"
    )
    meaning, _ = MEANINGS[first.cause]
    return f"Of {of}, {_who(first)} takes {_times(first)} for the same work: {meaning}{lost}{many}"


def _times(finding: SlowWorker) -> str:
    return "longer" if finding.effect is None else f"{finding.effect:.2f} times as long"


def sections(found: Judgement) -> tuple[Section, ...]:
    """Every section of a judgement that has something to say."""
    shown = found.findings[:MAX_STRAGGLERS]
    return with_content(_table(found), _advice(shown), *map(_signals, shown[:WITH_SIGNALS]), _notes(found))


def _table(found: Judgement) -> Section:
    shown = found.findings[:MAX_STRAGGLERS]
    rest = len(found.findings) - len(shown)
    rows = tuple(
        (
            _who(one),
            name_of(one.host),
            str(one.cause),
            "-" if one.effect is None else f"{one.effect:.2f} x",
            "-" if one.seconds_lost is None else format_seconds(one.seconds_lost),
            format_share(one.confidence),
        )
        for one in shown
    )
    heads = ("worker", "host", "cause", "takes", "costs", "sure")
    return section("Slow workers", f"{rest} more are not shown." if rest else "", Table(heads, rows, words=(0, 1, 2)))


def _advice(shown: tuple[SlowWorker, ...]) -> Section:
    causes = dict.fromkeys(one.cause for one in shown)
    return section("What to do", *(f"{cause}: {MEANINGS[cause][1]}" for cause in causes))


def _signals(one: SlowWorker) -> Section:
    heads = ("signal", "its own", "peers", "from", "to", "readings")
    return section(f"How {_who(one)} compares with its peers", Table(heads, tuple(map(_row, one.evidence))))


def _row(item: Evidence) -> tuple[str, ...]:
    figures = (item.value, item.peers, item.low, item.high)
    shown = [f"{figure:.2f} x" if math.isfinite(figure) else "-" for figure in figures]
    words = SIGNALS[item.signal].words if item.signal in SIGNALS else name_of(item.signal)
    return (words, *shown, str(item.tasks))


def _notes(found: Judgement) -> Section:
    lines = list(found.notes)
    in_verdict = 0 if found.findings else 1
    lines += [f"A long tail: {long_task(long)}." for long in found.long_tasks[in_verdict:MAX_LONG_TASKS]]
    if found.insufficient:
        lines.append(f"Too little to judge by: {named(found.insufficient)}.")
    if any(one.seconds_lost is not None for one in found.findings):
        lines.append("What a straggler costs comes from a replay of the run with it as fast as its peers.")
    return section("Notes", *lines, caveat=True)


def _who(one: SlowWorker) -> str:
    return name_of(one.worker) if one.worker else name_of(f"all of {one.host[:NAME_LENGTH]}")
