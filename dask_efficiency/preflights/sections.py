"""Sections of a preflight: slow workers, measurements, and who was not tested."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask_efficiency.preflights.judge.readings import Component
from dask_efficiency.preflights.judge.result import PATHS, PreflightResult
from dask_efficiency.show.document import Aside, Document, Section, Table, section, with_content
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    name_of,
    named,
    shorten,
)
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_SHOWN
from dask_efficiency.straggler.wording import how_many

#: Most rows of a table; the number of the others is given.
MAX_ROWS = 20


def document(found: PreflightResult) -> Document:
    """Document of a preflight."""
    context = "" if found.reason else f"{format_count(len(found.subjects), 'worker')}, {format_seconds(found.seconds)}"
    beyond = found.findings[MAX_SHOWN:MAX_ROWS]
    sections = with_content(
        _slow(found),
        section("Slow paths", *(one.where for one in beyond if one.kind in PATHS)),
        section("More to do", *dict.fromkeys(one.advice for one in beyond)),
        _measured(found),
        _not_tested(found),
        _notes(found),
    )
    first = tuple(one.lines for one in found.findings[:MAX_SHOWN])
    return Document("Preflight", context, headline(found), sections, findings=first)


def headline(found: PreflightResult) -> str:
    """Number of slow workers and paths, or why nothing was tested; no full stop."""
    if found.reason or not (found.tested or found.findings):
        return shorten(f"Nothing was tested{f': {found.reason}' if found.reason else ''}", MAX_HEADLINE)
    slow = how_many(found.slow_workers, len(found.subjects) - len(found.not_tested))
    return f"{slow}; {format_count(len(found.paths), 'slow path')} between hosts" if found.paths else slow


def _slow(found: PreflightResult) -> Section:
    rows = tuple(
        (
            name_of(one.worker or f"all of {one.host}"),
            name_of(one.host),
            str(one.cause),
            ", ".join(Component(item.signal).head for item in one.evidence) or "-",
            "-" if one.effect is None else f"{one.effect:.2f} x",
            format_share(one.confidence),
        )
        for one in found.slow_workers[:MAX_ROWS]
    )
    heads = ("worker", "host", "cause", "slow in", "takes", "sure")
    return section("Slow", _rest(found.slow_workers), Table(heads, rows, words=(0, 1, 2, 3)))


def _measured(found: PreflightResult) -> Section:
    """Ratio of each worker's time to the reference, the slowest worker first."""
    ratios = found.ratios
    components = [one for one in Component if any(one in of_worker for of_worker in ratios.values())]
    if not components:
        return section("")
    measured = [one for one in found.subjects if ratios[one.name]]
    worst = sorted(measured, key=lambda one: -max(ratios[one.name].values()))
    best = ("the best", *(_reading(component, found) for component in components))
    rows = tuple(
        (name_of(one.name), *(_times(ratios[one.name].get(component)) for component in components))
        for one in worst[:MAX_ROWS]
    )
    legend = "Times as long as the median of the fastest half: " + "; ".join(
        f"{component.head}, {component.words}" for component in components
    )
    heads = ("", *(component.head for component in components))
    return section("Measured", _rest(measured), Table(heads, (*rows, best), words=(0,)), Aside(f"{legend}."))


def _reading(component: Component, found: PreflightResult) -> str:
    known = [value for one in found.subjects if math.isfinite(value := found.reading(one, component)) and value > 0]
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


def _not_tested(found: PreflightResult) -> Section:
    rows = [(name_of(name), "all", name_of_reason(why)) for name, why in found.not_tested.items()]
    rows += [(name_of(one.name), "all", name_of_reason(one.broken)) for one in found.subjects if one.broken]
    common = _missing_everywhere(found)
    rows += [
        (name_of(one.name), component.head, name_of_reason(why))
        for one in found.subjects
        for component, why in one.missing.items()
        if component not in common
    ]
    heads = ("worker", "what", "why")
    return section("Not tested", _rest(rows), Table(heads, tuple(rows[:MAX_ROWS]), words=(0, 1, 2)), caveat=True)


def name_of_reason(why: str) -> str:
    """Reason in a table, made harmless."""
    return name_of(why) if len(why) <= 80 else name_of(f"{why[:77]}...")


def _missing_everywhere(found: PreflightResult) -> dict[Component, str]:
    """Components measured on no worker, with the first reason."""
    reasons: dict[Component, str] = {}
    for one in found.subjects:
        for component, why in one.missing.items():
            reasons.setdefault(component, why)
    return {
        component: why
        for component, why in reasons.items()
        if not any(component in one.readings and component not in one.missing for one in found.subjects)
    }


def _notes(found: PreflightResult) -> Section:
    lines = [f"{note}." for note in found.notes]
    lines += [
        f"Measured nowhere: {one.head}: {name_of_reason(why)}." for one, why in _missing_everywhere(found).items()
    ]
    for names in found.too_few:
        lines.append(
            f"Too few to tell who is slow: {named(names)}. Only workers with as many threads, as much memory and the "
            "same resources are compared, at least three of them."
        )
    if found.retired:
        lines.append(f"Retired: {named(found.retired)}.")
    if found.kept:
        lines.append(
            f"Kept, though slow: {named(found.kept)}. Of {len(found.subjects)} workers "
            f"{len(found.slow) - len(found.kept)} may be retired: --retire-share allows more, and two always stay."
        )
    return section("Notes", *lines, caveat=True)


def _rest(rows: Sequence[object]) -> str:
    rest = len(rows) - MAX_ROWS
    return f"{rest} more are not shown." if rest > 0 else ""
