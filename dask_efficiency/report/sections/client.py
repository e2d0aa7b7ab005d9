"""Section on the client: what its thread did, and at which lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dask_efficiency.accounts.lines import Frame, blamed, place_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import DASK_ACTIVITIES, OWN_ACTIVITIES
from dask_efficiency.report.wall_clock import MANY_GRAPHS
from dask_efficiency.show.columns import as_table, names, seconds
from dask_efficiency.show.document import SCREEN, Aside, Extent, Section, section
from dask_efficiency.show.figures import (
    ROWS_ON_A_SCREEN,
    SENTENCES_BESIDE,
    Scale,
    apportion,
    format_seconds,
    name_of,
    time_scale,
)

#: Rows on a page; the rest is one row. By eye.
MAX_LINES = 50


def client(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Wall clock of the client by activity and line, and the lines that waited for many computations."""
    times, idle = Counter[tuple[str, Frame]](), Counter[tuple[str, Frame]]()
    for row in report.client:
        key = row.activity, blamed(row.stack)
        times[key] += row.ns
        idle[key] += row.idle_ns
    if not times:
        return Section("Client")
    ranked = times.most_common(MAX_LINES if extent.drawn else ROWS_ON_A_SCREEN)
    shown: list[tuple[str, Frame | None, int, int]] = [
        (in_words(activity), place, ns, idle[activity, place]) for (activity, place), ns in ranked
    ]
    rest, rest_idle = times.total() - sum(ns for _, ns in ranked), idle.total() - sum(row[3] for row in shown)
    shown += [("others", None, rest, rest_idle)] if rest else []
    shown.append(("sum", None, times.total(), idle.total()))
    scale = time_scale(times.total() / 1e9)
    columns = {
        "what": names(words for words, *_ in shown),
        "time": seconds(_rounded([ns for _, _, ns, _ in shown], scale), scale),
        "no work": seconds(_rounded([ns for *_, ns in shown], scale), scale),
        "line": names(place_of(place) or None if place else None for _, place, *_ in shown),
        "in": names(place.function.rpartition(".")[2] or None if place else None for _, place, *_ in shown),
    }
    senders = sorted(report.sent_by.items(), key=lambda item: -item[1].rounds)[:SENTENCES_BESIDE]
    waited = (
        f"{name_of(line)} sent {sent.graphs} computations, {sent.rounds} of them when nothing was outstanding"
        for line, sent in senders
        if sent.rounds >= MANY_GRAPHS
    )
    held = sum(row.held_ns for row in report.client) / 1e9
    kept = f"it kept the GIL from all other threads for {format_seconds(held)}, in long calls" if held else ""
    text = (
        "The script's main thread, or else the thread or asyncio task that opened the block, sampled. Its time is the "
        "wall clock, some of it with no work on the cluster."
    )
    return section("Client", Aside(text), as_table(columns, sums=(len(shown) - 1,)), *waited, kept)


def _rounded(column: Sequence[int], scale: Scale) -> list[float]:
    """Seconds as shown, so that those of the rows add up to the last one, their sum."""
    *parts, whole = column
    last = scale.steps(whole / 1e9)
    return [steps * scale.size / 10**scale.decimals for steps in (*apportion(parts, last), last)]


def in_words(activity: str) -> str:
    """Activity of a client in words."""
    if activity in DASK_ACTIVITIES:
        return DASK_ACTIVITIES[activity]
    return f"own code, {OWN_ACTIVITIES.get(activity, activity)}".rstrip(", ")
