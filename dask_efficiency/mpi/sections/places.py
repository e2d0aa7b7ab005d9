"""Sections of a comparison of hosts for an MPI program: the best, by how much, and why."""

from __future__ import annotations

from typing import Any

from dask_efficiency.mpi.result import MpiPlacements
from dask_efficiency.mpi.sections.mpi import figures, links, title
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.show.columns import as_records, as_table, seconds
from dask_efficiency.show.document import Aside, Document, Section, section, with_content
from dask_efficiency.show.figures import (
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
    scale = time_scale(compared.ranked[-1].makespan_seconds)
    waits = seconds((run.path_seconds[RankActivity.COMMUNICATION] for run in compared.ranked), scale)
    heads = {"placement": "placement", "hosts": "hosts", "makespan_seconds": "time"}
    heads |= {"waits": "messages", "moved_bytes": "moved"}
    means = "messages: on the critical path; moved: from one host to another."
    drawn = as_table(figures(compared.ranked) | {"waits": waits}, heads, bar="makespan_seconds", strong=(0,))
    return section("Placements, the fastest first", drawn, Aside(means), *_reasons(compared))


def _reasons(compared: MpiPlacements) -> list[str]:
    best = compared.best
    sentences = []
    for run in compared.ranked[1:]:
        later = run.makespan_seconds - best.makespan_seconds
        if not later:
            continue
        longer = run.path_seconds[RankActivity.COMMUNICATION] - best.path_seconds[RankActivity.COMMUNICATION]
        reason = f"{name_of(run.name)} takes {format_seconds(later)} longer"
        if longer < later / 2:
            sentences.append(f"{reason}, mostly as its hosts compute more slowly or less evenly.")
            continue
        reason = f"{reason}: messages on its critical path take {format_seconds(longer)} longer"
        if run.links:
            share = format_share(run.links[0].seconds / run.makespan_seconds)
            reason = f"{reason}. The busiest link, {name_of(run.links[0].name)}, is busy for {share} of the time"
        sentences.append(f"{reason}.")
    return sentences


def to_dict(compared: MpiPlacements) -> dict[str, Any]:
    """Placements, the fastest first, ready for JSON."""
    return {
        "name": compared.best.program.name,
        "placements": as_records(figures(compared.ranked)),
        "saved_seconds": compared.saved_seconds,
        "not_simulated": list(compared.not_simulated),
        "notes": list(compared.notes),
    }
