"""Sections of a simulated MPI program: its makespan, critical path, ranks, links and algorithms."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.runs.sections.by_kind import along, largest_first, seconds_table, top
from dask_efficiency.show.columns import (
    TypedColumn,
    as_records,
    as_table,
    counts,
    names,
    nested,
    seconds,
    shares,
    sizes,
    words,
)
from dask_efficiency.show.document import (
    Along,
    Aside,
    Document,
    Label,
    Section,
    Slice,
    Stack,
    section,
    with_content,
)
from dask_efficiency.show.figures import format_count, format_seconds, format_share, name_of, time_scale
from dask_efficiency.simulation.sections.prediction import notes

#: Rows of a table: what fits on a screen.
MAX_ROWS = 12

#: Name, colour and meaning of each activity.
SPENT: dict[RankActivity, Label] = {
    RankActivity.COMPUTE: Label("compute", "#549857", "between two calls of MPI, and in reductions"),
    RankActivity.OVERHEAD: Label("overhead", "#8a8a8a", "the library's own work for messages and reductions"),
    RankActivity.COMMUNICATION: Label("communication", "#3f7fbf", "the bytes that it waits for are under way"),
    RankActivity.WAITING: Label("waiting", "#ff4508", "the other rank is not there yet"),
}

#: Steps of the drawing of a critical path: pixels of a narrow page.
_STEPS = 200


def title(run: MpiPrediction) -> str:
    """Title with the program's name."""
    return f"Simulation of {name_of(run.program.name) or 'an MPI program'}"


def context(run: MpiPrediction) -> str:
    """Messages, MPICH and placement."""
    placed = f"; {name_of(run.name)}" if run.name else ""
    return f"{format_count(run.messages, 'message')}, MPICH {run.settings.version}{placed}"


def headline(run: MpiPrediction) -> str:
    """The prediction in one sentence, without a full stop."""
    hosts = format_count(len(set(run.hosts)), "host")
    makespan = f"{format_count(run.program.size, 'rank')} on {hosts}: {format_seconds(run.makespan_seconds)}"
    shares = run.path_seconds
    total = sum(shares.values()) or 1.0
    largest = max(shares, key=lambda kind: shares[kind])
    part = f"the critical path {format_share(shares[largest] / total)} {SPENT[largest]}"
    return f"{makespan}; {format_share(run.efficiency)} computing, {part}"


def document(run: MpiPrediction) -> Document:
    """Document for a terminal."""
    sections = with_content(path(run), ranks(run), links(run), algorithms(run), notes(run.notes))
    return Document(title(run), context(run), headline(run), sections)


def page(run: MpiPrediction) -> Document:
    """Document for a page of its own."""
    stats = (
        ("predicted time", format_seconds(run.makespan_seconds)),
        ("ranks", str(run.program.size)),
        ("efficiency", format_share(run.efficiency)),
        ("messages", str(run.messages)),
    )
    return replace(document(run), stats=stats, data=to_dict(run))


def path(run: MpiPrediction) -> Section:
    """The critical path along the run, by activity, call and ranks."""
    if not run.path:
        return Section("")
    seconds = {str(SPENT[kind]): value for kind, value in run.path_seconds.items() if value}
    labels = {str(label): label for label in SPENT.values()}
    by_call: defaultdict[str, float] = defaultdict(float)
    by_rank: defaultdict[str, float] = defaultdict(float)
    for stretch in run.path:
        length = (stretch.end - stretch.start) / 1e9
        by_call[run.call_of(stretch.rank, stretch.action)] += length
        pair = sorted((stretch.rank, stretch.other))
        by_rank[f"{stretch.rank}" if stretch.other < 0 else f"{pair[0]} with {pair[1]}"] += length
    return section(
        "What the time is spent on: the critical path",
        _along(run),
        seconds_table("kind", largest_first(seconds), labels),
        seconds_table("call", top(largest_first(by_call), MAX_ROWS), {}),
        seconds_table("ranks", top(largest_first(by_rank), MAX_ROWS), {}),
    )


def _along(run: MpiPrediction) -> Along:
    """The activity that fills most of each step of the run."""
    kinds, starts, ends = (
        np.array(column) for column in zip(*((s.kind, s.start, s.end) for s in run.path), strict=True)
    )
    return along(kinds, starts, ends, (0, run.path[-1].end), [SPENT[kind] for kind in RankActivity], _STEPS)


def ranks(run: MpiPrediction) -> Section:
    """Time of each rank by activity; of many ranks, those that compute most and least."""
    spent = {rank: run.seconds(rank) for rank in range(run.program.size)}
    order = sorted(spent, key=lambda rank: (-spent[rank][RankActivity.COMPUTE], rank))
    shown = order if len(order) <= MAX_ROWS else order[: MAX_ROWS // 2] + order[-MAX_ROWS // 2 :]
    scale = time_scale(run.makespan_seconds)
    rows = [spent[rank] for rank in sorted(shown)]
    columns = {"rank": words(sorted(shown)), "host": names(run.hosts[rank] for rank in sorted(shown))}
    columns |= {str(SPENT[kind]): seconds((row[kind] for row in rows), scale) for kind in RankActivity}
    whole = round(1e9 * run.makespan_seconds)
    lengths = ({kind: round(1e9 * value) for kind, value in row.items()} for row in rows)
    bars = tuple(
        Stack(tuple(Slice(SPENT[kind], n, f"{100 * n / whole:.1f}") for kind, n in each.items() if n), whole)
        for each in lengths
    )
    left = len(order) - len(shown)
    aside = (Aside(f"Those that compute most and least; {left} more are between them."),) if left else ()
    return section("What each rank does", as_table(columns, drawings=bars, drawn_behind=1), *aside)


def links(run: MpiPrediction) -> Section:
    """The busiest links."""
    busiest = [link for link in run.links if link.seconds][:MAX_ROWS]
    if not busiest:
        return Section("")
    columns = {
        "link": names(link.name for link in busiest),
        "bytes": sizes(link.nbytes for link in busiest),
        "busy": shares(link.seconds / run.makespan_seconds for link in busiest),
    }
    means = "busy: share of the time for which its bytes would fill it, in its busier direction."
    return section("Links, the busiest first", as_table(columns, bar="busy"), Aside(means))


def algorithms(run: MpiPrediction) -> Section:
    """Algorithms of the collectives."""
    used = [(call, *each) for call, counted in run.algorithms.items() for each in Counter(counted).most_common()]
    columns = {
        "collective": words(call for call, _, _ in used),
        "algorithm": words(algorithm for _, algorithm, _ in used),
        "calls": counts(number for _, _, number in used),
    }
    return section("Algorithms of the collectives", as_table(columns))


def to_dict(run: MpiPrediction) -> dict[str, Any]:
    """Figures of a run, ready for JSON: seconds, bytes, and shares in [0, 1]."""
    return as_records(figures([run]))[0] | {
        "name": run.program.name,
        "ranks": [
            {"rank": rank, "host": run.hosts[rank], **_named(run.seconds(rank))} for rank in range(run.program.size)
        ],
        "critical_path": [
            {
                "start_seconds": stretch.start / 1e9,
                "seconds": (stretch.end - stretch.start) / 1e9,
                "kind": stretch.kind.name.lower(),
                "rank": stretch.rank,
                "other": None if stretch.other < 0 else stretch.other,
                "call": run.call_of(stretch.rank, stretch.action),
                "nbytes": stretch.nbytes,
            }
            for stretch in run.path
        ],
        "algorithms": {call: dict(used) for call, used in run.algorithms.items()},
        "notes": list(run.notes),
    }


def figures(runs: Sequence[MpiPrediction]) -> dict[str, TypedColumn]:
    """Figures that a run and a comparison of placements share, a row for each run."""
    scale = time_scale(max(run.makespan_seconds for run in runs))
    return {
        "placement": names(run.name for run in runs),
        "hosts": counts(len(set(run.hosts)) for run in runs),
        "mpich": names(run.settings.version for run in runs),
        "makespan_seconds": seconds((run.makespan_seconds for run in runs), scale),
        "efficiency": shares(run.efficiency for run in runs),
        "seconds_by_kind": nested(_named(run.breakdown) for run in runs),
        "path_seconds_by_kind": nested(_named(run.path_seconds) for run in runs),
        "messages": counts(run.messages for run in runs),
        "moved_bytes": sizes(run.moved_bytes for run in runs),
        "links": nested(
            [
                {"name": link.name, "nbytes": link.nbytes, "share": link.seconds / run.makespan_seconds}
                for link in run.links
            ]
            for run in runs
        ),
    }


def _named(seconds: dict[RankActivity, float]) -> dict[str, float]:
    return {kind.name.lower(): value for kind, value in seconds.items()}
