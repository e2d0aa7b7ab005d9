"""Sections of a simulated MPI program: its makespan, critical path, ranks, links and algorithms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.runs.sections.by_kind import seconds_table, top
from dask_efficiency.show.columns import TypedColumn, as_records, counts, names, nested, seconds, shares, sizes
from dask_efficiency.show.document import (
    Along,
    Aside,
    Document,
    Label,
    Section,
    Share,
    Slice,
    Stack,
    Table,
    section,
    with_content,
)
from dask_efficiency.show.figures import format_bytes, format_count, format_seconds, format_share, name_of, time_scale
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
        seconds_table("kind", _largest(seconds), labels),
        seconds_table("call", top(_largest(by_call), MAX_ROWS), {}),
        seconds_table("ranks", top(_largest(by_rank), MAX_ROWS), {}),
    )


def _largest(seconds: dict[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _along(run: MpiPrediction) -> Along:
    """The activity that fills most of each step of the run."""
    end = run.path[-1].end
    shares: list[dict[RankActivity, int]] = [{} for _ in range(_STEPS)]
    for stretch in run.path:
        first, last = stretch.start * _STEPS // end, min(stretch.end * _STEPS // end, _STEPS - 1)
        for step in range(first, last + 1):
            begin, stop = max(stretch.start, step * end // _STEPS), min(stretch.end, (step + 1) * end // _STEPS)
            shares[step][stretch.kind] = shares[step].get(stretch.kind, 0) + max(stop - begin, 0)
    kinds = [max(share, key=lambda kind: share[kind]) if share else RankActivity.COMPUTE for share in shares]
    stretches: list[tuple[Label, int, int]] = []
    for step, kind in enumerate(kinds):
        if stretches and stretches[-1][0] is SPENT[kind]:
            stretches[-1] = (SPENT[kind], stretches[-1][1], step + 1)
        else:
            stretches.append((SPENT[kind], step, step + 1))
    return Along(tuple(stretches), _STEPS, format_seconds(end / 1e9))


def ranks(run: MpiPrediction) -> Section:
    """Time of each rank by activity; of many ranks, those that compute most and least."""
    spent = {rank: run.seconds(rank) for rank in range(run.program.size)}
    order = sorted(spent, key=lambda rank: (-spent[rank][RankActivity.COMPUTE], rank))
    shown = order if len(order) <= MAX_ROWS else order[: MAX_ROWS // 2] + order[-MAX_ROWS // 2 :]
    scale = time_scale(run.makespan_seconds)
    rows = tuple(
        (str(rank), name_of(run.hosts[rank]), *(scale.figure(spent[rank][kind]) for kind in RankActivity))
        for rank in sorted(shown)
    )
    whole = round(1e9 * run.makespan_seconds)
    sizes = [{kind: round(1e9 * seconds) for kind, seconds in spent[rank].items()} for rank in sorted(shown)]
    bars = tuple(
        Stack(tuple(Slice(SPENT[kind], n, f"{100 * n / whole:.1f}") for kind, n in spent.items() if n), whole)
        for spent in sizes
    )
    heads = ("rank", "host", *(f"{SPENT[kind]}, {scale.unit}" for kind in RankActivity))
    left = len(order) - len(shown)
    aside = (Aside(f"Those that compute most and least; {left} more are between them."),) if left else ()
    return section("What each rank does", Table(heads, rows, words=(0, 1), drawings=bars, drawn_behind=1), *aside)


def links(run: MpiPrediction) -> Section:
    """The busiest links."""
    busiest = [link for link in run.links if link.seconds][:MAX_ROWS]
    if not busiest:
        return Section("")
    rows = tuple(
        (name_of(link.name), format_bytes(link.nbytes), format_share(link.seconds / run.makespan_seconds))
        for link in busiest
    )
    bars = tuple(Share(link.seconds / busiest[0].seconds) for link in busiest)
    means = "busy: share of the time for which its bytes would fill it, in its busier direction."
    drawn = Table(("link", "bytes", "busy"), rows, drawings=bars, drawn_behind=2)
    return section("Links, the busiest first", drawn, Aside(means))


def algorithms(run: MpiPrediction) -> Section:
    """Algorithms of the collectives."""
    rows = tuple(
        (call, algorithm, str(count))
        for call, used in run.algorithms.items()
        for algorithm, count in sorted(used.items(), key=lambda item: -item[1])
    )
    if not rows:
        return Section("")
    return section("Algorithms of the collectives", Table(("collective", "algorithm", "calls"), rows, words=(0, 1)))


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
