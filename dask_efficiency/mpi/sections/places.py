"""Sections of a comparison of hosts for an MPI program: the best, by how much, and why."""

from __future__ import annotations

from typing import Any

from dask_efficiency.mpi.result import MpiPlacements
from dask_efficiency.mpi.sections.mpi import figures, links, title
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.show.document import Aside, Document, Section, Share, Table, section, with_content
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    format_times,
    name_of,
    shorten,
    time_scale,
)
from dask_efficiency.simulation.sections.places import MAX_NAME
from dask_efficiency.simulation.sections.prediction import SAME, notes


def headline(compared: MpiPlacements) -> str:
    """The best hosts and by how much, without a full stop."""
    best = compared.best
    first = f"{shorten(name_of(best.name), MAX_NAME)}: {format_seconds(best.makespan_seconds)}"
    if len(compared.ranked) == 1:
        return first
    other = compared.ranked[1]
    times = other.makespan_seconds / best.makespan_seconds if best.makespan_seconds else 1.0
    long = "as long" if times < 1 + SAME else f"{format_times(times)} as long"
    return f"{first}; {shorten(name_of(other.name), MAX_NAME)}, the next, takes {long}"


def document(compared: MpiPlacements) -> Document:
    """Document for a terminal, and for a page of its own."""
    best = compared.best
    early = "; ended early" if compared.not_simulated else ""
    about = f"{format_count(best.program.size, 'rank')}, MPICH {best.settings.version}{early}"
    sections = with_content(ranking(compared), links(best), notes(compared.notes))
    return Document(title(best), about, headline(compared), sections, data=to_dict(compared))


page = document


def ranking(compared: MpiPlacements) -> Section:
    """A row for each placement, and why the others are slower."""
    slowest = compared.ranked[-1].makespan_seconds
    scale = time_scale(slowest)
    rows = tuple(
        (
            name_of(one.name),
            str(len(set(one.hosts))),
            scale.figure(one.makespan_seconds),
            scale.figure(one.path_seconds[RankActivity.COMMUNICATION]),
            format_bytes(one.moved_bytes),
        )
        for one in compared.ranked
    )
    bars = tuple(Share(one.makespan_seconds / slowest if slowest else 0.0) for one in compared.ranked)
    heads = ("placement", "hosts", f"time, {scale.unit}", f"messages, {scale.unit}", "moved")
    means = "messages: on the critical path; moved: from one host to another."
    drawn = Table(heads, rows, strong=(0,), drawings=bars, drawn_behind=2)
    return section("Placements, the fastest first", drawn, Aside(means), *_reasons(compared))


def _reasons(compared: MpiPlacements) -> list[str]:
    best = compared.best
    found = []
    for one in compared.ranked[1:]:
        later = one.makespan_seconds - best.makespan_seconds
        if not later:
            continue
        longer = one.path_seconds[RankActivity.COMMUNICATION] - best.path_seconds[RankActivity.COMMUNICATION]
        reason = f"{name_of(one.name)} takes {format_seconds(later)} longer"
        if longer < later / 2:
            found.append(f"{reason}, mostly as its hosts compute more slowly or less evenly.")
            continue
        reason = f"{reason}: messages on its critical path take {format_seconds(longer)} longer"
        if one.links:
            share = format_share(one.links[0].seconds / one.makespan_seconds)
            reason = f"{reason}. The busiest link, {name_of(one.links[0].name)}, is busy for {share} of the time"
        found.append(f"{reason}.")
    return found


def to_dict(compared: MpiPlacements) -> dict[str, Any]:
    """Placements, the fastest first, ready for JSON."""
    return {
        "name": compared.best.program.name,
        "placements": [figures(run) for run in compared.ranked],
        "saved_seconds": compared.saved_seconds,
        "not_simulated": list(compared.not_simulated),
        "notes": list(compared.notes),
    }
