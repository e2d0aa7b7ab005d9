"""Sections of a preflight: slow workers, measurements, and who was not tested."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask_efficiency.preflights.judge.readings import Component
from dask_efficiency.preflights.judge.result import PATHS, PreflightResult
from dask_efficiency.show.columns import as_table, multiples, names, shares, words
from dask_efficiency.show.document import Aside, Document, Section, Table, section, with_content
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_seconds,
    name_of,
    named,
    shorten,
)
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_SHOWN
from dask_efficiency.straggler.wording import how_many

#: Most rows of a table; the number of the others is given.
MAX_ROWS = 20


def document(result: PreflightResult) -> Document:
    """Document of a preflight."""
    context = (
        "" if result.reason else f"{format_count(len(result.subjects), 'worker')}, {format_seconds(result.seconds)}"
    )
    beyond = result.findings[MAX_SHOWN:MAX_ROWS]
    sections = with_content(
        _slow(result),
        section("Slow paths", *(finding.where for finding in beyond if finding.kind in PATHS)),
        section("More to do", *dict.fromkeys(finding.advice for finding in beyond)),
        _measured(result),
        _not_tested(result),
        _notes(result),
    )
    first = tuple(finding.lines for finding in result.findings[:MAX_SHOWN])
    return Document("Preflight", context, headline(result), sections, findings=first)


def headline(result: PreflightResult) -> str:
    """Number of slow workers and paths, or why nothing was tested; no full stop."""
    if result.reason or not (result.tested or result.findings):
        return shorten(f"Nothing was tested{f': {result.reason}' if result.reason else ''}", MAX_HEADLINE)
    slow = how_many(result.slow_workers, len(result.subjects) - len(result.not_tested))
    return f"{slow}; {format_count(len(result.paths), 'slow path')} between hosts" if result.paths else slow


def _slow(result: PreflightResult) -> Section:
    shown = result.slow_workers[:MAX_ROWS]
    columns = {
        "worker": names(slow.worker or f"all of {slow.host}" for slow in shown),
        "host": names(slow.host for slow in shown),
        "cause": words(slow.cause for slow in shown),
        "slow in": words(", ".join(Component(item.signal).head for item in slow.evidence) or None for slow in shown),
        "takes": multiples((slow.effect for slow in shown), text="{:.2f} x".format),
        "sure": shares(slow.confidence for slow in shown),
    }
    return section("Slow", _rest(result.slow_workers), as_table(columns))


def _measured(result: PreflightResult) -> Section:
    """Ratio of each worker's time to the reference, the slowest worker first."""
    ratios = result.ratios
    components = [component for component in Component if any(component in of_worker for of_worker in ratios.values())]
    if not components:
        return section("")
    measured = [subject for subject in result.subjects if ratios[subject.name]]
    worst = sorted(measured, key=lambda subject: -max(ratios[subject.name].values()))
    best = ("the best", *(_reading(component, result) for component in components))
    rows = tuple(
        (name_of(subject.name), *(_times(ratios[subject.name].get(component)) for component in components))
        for subject in worst[:MAX_ROWS]
    )
    legend = "Times as long as the median of the fastest half: " + "; ".join(
        f"{component.head}, {component.words}" for component in components
    )
    heads = ("", *(component.head for component in components))
    return section("Measured", _rest(measured), Table(heads, (*rows, best), words=(0,)), Aside(f"{legend}."))


def _reading(component: Component, result: PreflightResult) -> str:
    known = [
        value for subject in result.subjects if math.isfinite(value := result.reading(subject, component)) and value > 0
    ]
    if not known:
        return "-"
    if component.unit == "s":
        return format_seconds(min(known))
    if component.unit == "B/s":
        return f"{format_bytes(max(known))}/s"
    return f"{max(known) / 1e9:.1f} GF/s" if component.unit == "FLOP/s" else f"{max(known) / 1e6:.1f} M/s"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f} x" if math.isfinite(ratio) else "failed"


def _not_tested(result: PreflightResult) -> Section:
    rows = [(name_of(name), "all", name_of_reason(why)) for name, why in result.not_tested.items()]
    rows += [
        (name_of(subject.name), "all", name_of_reason(subject.broken)) for subject in result.subjects if subject.broken
    ]
    common = _missing_everywhere(result)
    rows += [
        (name_of(subject.name), component.head, name_of_reason(why))
        for subject in result.subjects
        for component, why in subject.missing.items()
        if component not in common
    ]
    heads = ("worker", "what", "why")
    return section("Not tested", _rest(rows), Table(heads, tuple(rows[:MAX_ROWS]), words=(0, 1, 2)), caveat=True)


def name_of_reason(why: str) -> str:
    """Reason in a table, made harmless."""
    return name_of(why) if len(why) <= 80 else name_of(f"{why[:77]}...")


def _missing_everywhere(result: PreflightResult) -> dict[Component, str]:
    """Components measured on no worker, with the first reason."""
    reasons: dict[Component, str] = {}
    for subject in result.subjects:
        for component, why in subject.missing.items():
            reasons.setdefault(component, why)
    return {
        component: why
        for component, why in reasons.items()
        if not any(component in subject.readings and component not in subject.missing for subject in result.subjects)
    }


def _notes(result: PreflightResult) -> Section:
    lines = [f"{note}." for note in result.notes]
    lines += [
        f"Measured nowhere: {component.head}: {name_of_reason(why)}."
        for component, why in _missing_everywhere(result).items()
    ]
    for few in result.too_few:
        lines.append(
            f"Too few to tell who is slow: {named(few)}. Only workers with as many threads, as much memory and the "
            "same resources are compared, at least three of them."
        )
    if result.retired:
        lines.append(f"Retired: {named(result.retired)}.")
    if result.kept:
        lines.append(
            f"Kept, though slow: {named(result.kept)}. Of {len(result.subjects)} workers "
            f"{len(result.slow) - len(result.kept)} may be retired: --retire-share allows more, and two always stay."
        )
    return section("Notes", *lines, caveat=True)


def _rest(rows: Sequence[object]) -> str:
    rest = len(rows) - MAX_ROWS
    return f"{rest} more are not shown." if rest > 0 else ""
