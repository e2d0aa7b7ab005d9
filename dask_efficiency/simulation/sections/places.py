"""Document of placements: the fastest, by how much, and why."""

from __future__ import annotations

from typing import Any

from dask_efficiency.show.columns import TypedColumn, as_records, as_table, names, nested, seconds, sizes
from dask_efficiency.show.document import Aside, Document, Section, section, with_content
from dask_efficiency.show.figures import (
    Scale,
    format_count,
    format_seconds,
    format_share,
    name_of,
    shorten,
    time_scale,
)
from dask_efficiency.simulation.model.placements import Placement, Placements
from dask_efficiency.simulation.sections.prediction import (
    about_run,
    cluster_size,
    figures,
    how_sure,
    intervals,
    notes,
    recorded_in_words,
    title,
)

#: Characters of a placement's name in a headline: two fit in 100.
MAX_NAME = 24


def headline(placements: Placements) -> str:
    """Word the fastest placement, and by how much; without a full stop."""
    best = placements.best
    first = f"{shorten(name_of(best.name), MAX_NAME)}: {format_seconds(best.makespan_seconds)}"
    if len(placements.ranked) == 1:
        return first
    other = placements.ranked[1]
    name = shorten(name_of(other.name), MAX_NAME)
    share = placements.saved_seconds / other.makespan_seconds if other.makespan_seconds else 0.0
    if not placements.is_clear:
        return f"{first}, but {name} may be as fast: runs differ by more"
    return f"{first}, {format_share(share)} less than {name}, more than runs differ"


def document(placements: Placements) -> Document:
    """Make the document of placements, the fastest first, and its page."""
    prediction = placements.best.prediction
    runs = format_count(len(prediction.makespans), "simulated run")
    early = "; ended early" if placements.not_simulated else ""
    context = f"{recorded_in_words(prediction.recorded)}; {runs} of each placement{early}"
    sections = with_content(ranking(placements), certainty(placements), notes(placements.notes))
    return Document(title(prediction.recorded), context, headline(placements), sections, data=to_dict(placements))


page = document


def ranking(placements: Placements) -> Section:
    """Section with a row for each placement, the fastest first, and reasons why the others are slower."""
    spreads = intervals((placement.prediction.runs.spread for placement in placements.ranked), _scale(placements))
    heads = {"placement": "placement", "workers": "workers", "makespan_seconds": "time", "spread": "runs"}
    heads |= {"moving_seconds": "waits", "moved_bytes": "moved", "fullest_link": "fullest link"}
    drawn = as_table(columns(placements) | {"spread": spreads}, heads, bar="makespan_seconds", strong=(0,))
    reasons = (reason(placements, placement) for placement in placements.ranked[1:])
    means = (
        "runs: within which 90 of 100 are; waits: for inputs from other workers, on the critical path; moved: from one "
        "host to another; fullest link: the one that moves bytes for the largest share of the time, and that share."
    )
    return section("Placements, the fastest first", drawn, Aside(means), *reasons)


def reason(placements: Placements, placement: Placement) -> str:
    """Explain why a placement is slower than the best; empty if it is not clearly slower."""
    if not placements.is_clearly_slower(placement):
        return ""
    best = placements.best
    later = placement.makespan_seconds - best.makespan_seconds
    moving = placement.moving_seconds - best.moving_seconds
    text = f"{name_of(placement.name)} takes {format_seconds(later)} longer"
    if placement.prediction.cluster.nthreads < best.prediction.cluster.nthreads:
        fewer, more = (cluster_size(placed.prediction.cluster) for placed in (placement, best))
        return f"{text}, as it is smaller: {fewer}, where {name_of(best.name)} has {more}."
    if moving < later / 2:
        waits = f"{format_seconds(moving)} longer" if moving > 0 else "no longer"
        return f"{text}, mostly not because inputs move: its critical path waits for them {waits}."
    text = f"{text}: its critical path waits {format_seconds(moving)} longer for inputs from other workers."
    if placement.fullest_link is None:
        return text
    link, share = placement.fullest_link
    return f"{text} The fullest link, {name_of(link)}, moves bytes for {format_share(share)} of the time."


def certainty(placements: Placements) -> Section:
    """Section on the certainty of the ranking."""
    judged = placements.best.prediction.self_replay
    return how_sure(judged, f"{judged.outcome}; that is common to all placements.")


def columns(placements: Placements) -> dict[str, TypedColumn]:
    """Figures of each placement, the fastest first."""
    ranked, links = placements.ranked, [placement.fullest_link for placement in placements.ranked]
    return {
        "placement": names(placement.name for placement in ranked),
        **figures([placement.prediction for placement in ranked]),
        "moving_seconds": seconds((placement.moving_seconds for placement in ranked), _scale(placements)),
        "moved_bytes": sizes(placement.moved_bytes for placement in ranked),
        "fullest_link": nested(
            (link and {"name": link[0], "share": link[1]} for link in links),
            text=lambda link: f"{name_of(link['name'])}, {format_share(link['share'])}",
        ),
        "clearly_slower": TypedColumn((placements.is_clearly_slower(placement) for placement in ranked), dtype=bool),
    }


def _scale(placements: Placements) -> Scale:
    return time_scale(placements.ranked[-1].makespan_seconds)


def to_dict(placements: Placements) -> dict[str, Any]:
    """Placements, the fastest first, ready for JSON."""
    return about_run(placements.best.prediction.self_replay, placements.notes) | {
        "placements": as_records(columns(placements)),
        "saved_seconds": placements.saved_seconds,
        "is_clear": placements.is_clear,
        "not_simulated": list(placements.not_simulated),
    }
