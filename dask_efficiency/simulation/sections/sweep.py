"""Document of a sweep: the makespan by number of workers or by their memory, and how much is enough."""

from __future__ import annotations

import math
from typing import Any

from dask_efficiency.show.columns import TypedColumn, as_records, as_table
from dask_efficiency.show.document import Curve, Document, Point, Section, Table, section, with_content
from dask_efficiency.show.figures import format_bytes, format_count, format_seconds, format_share, money_scale
from dask_efficiency.simulation.model.result import Prediction
from dask_efficiency.simulation.model.sweeps import MIN_SAVED, NEARLY, Sweep, worker_seconds
from dask_efficiency.simulation.sections.prediction import about_run, figures, how_sure, notes, recorded_in_words, title


def headline(sweep: Sweep) -> str:
    """Word which size is enough, without a full stop."""
    best, fastest = sweep.best, sweep.fastest
    if best is None:
        enough = format_bytes(max(one.runs.memory_needed for one in sweep.predictions))
        return f"None of these sizes lasts: workers would be killed; with {enough} each, none would spill"
    text = f"{_named(sweep, best)}: {format_seconds(best.makespan_seconds)}"
    if best is fastest:
        less = "smaller" if sweep.of_memory else "cheaper"
        return f"{text}, the least of all; none within {100 * NEARLY:.0f} % of it is {less}"
    least = f"{_named(sweep, fastest)}, {format_seconds(fastest.makespan_seconds)}"
    text = f"{text}, within {100 * NEARLY:.0f} % of the fastest ({least})"
    if sweep.of_memory:
        return text
    return f"{text}, at {format_share(worker_seconds(best) / worker_seconds(fastest))} of its cost"


def _named(sweep: Sweep, prediction: Prediction) -> str:
    size = sweep.size(prediction)
    return f"{format_bytes(size)} a worker" if sweep.of_memory else format_count(size, "worker")


def _by(sweep: Sweep) -> str:
    return "memory of each worker" if sweep.of_memory else "number of workers"


def document(sweep: Sweep) -> Document:
    """Make the document of a sweep, and its page."""
    runs = format_count(len(sweep.predictions[0].makespans), "simulated run")
    early = "; ended early" if sweep.not_simulated else ""
    context = f"{recorded_in_words(sweep.recorded)}; {runs} of each cluster{early}"
    sections = with_content(clusters(sweep), certainty(sweep), notes(sweep.notes))
    about = title(sweep.recorded), context, headline(sweep)
    return Document(*about, sections, stats=_stats(sweep), data=to_dict(sweep))


page = document


def in_report(sweep: Sweep) -> Section:
    """Section for a report's page."""
    parts = (clusters(sweep), certainty(sweep), notes(sweep.notes))
    return section(f"By {_by(sweep)}", f"{headline(sweep)}.", *(block for part in parts for block in part.blocks))


def _stats(sweep: Sweep) -> tuple[tuple[str, str], ...]:
    best = []
    if sweep.best is not None:
        with_or_on = f"{'with' if sweep.of_memory else 'on'} {_named(sweep, sweep.best)}"
        best = [(with_or_on, format_seconds(sweep.best.makespan_seconds))]
        if (money := sweep.money(sweep.best)) is not None:
            best.append(("its cost", money_scale(money).figure(money)))
    return (
        ("recorded", format_seconds(sweep.recorded.makespan_seconds)),
        *best,
        ("self replay", f"{100 * sweep.self_replay.error:+.1f} %"),
    )


def clusters(sweep: Sweep) -> Section:
    """Section with a plot and a row for each cluster."""
    return section(f"By {_by(sweep)}", curve(sweep), table(sweep), knee(sweep))


def curve(sweep: Sweep) -> Curve:
    """Plot the makespan by size with its interval, and a line for perfect scaling, or for enough memory."""
    first = sweep.predictions[0]
    points = []
    for prediction in sweep.predictions:
        size = sweep.size(prediction)
        low, high = (prediction.makespan_seconds if math.isnan(end) else end for end in prediction.interval)
        took, efficient = format_seconds(prediction.makespan_seconds), format_share(prediction.efficiency)
        hint = f"{_named(sweep, prediction)}: {took}, {efficient} efficient"
        label = format_bytes(size) if sweep.of_memory else str(size)
        ideal = first.makespan_seconds * sweep.size(first) / size
        ideal = sweep.fastest.makespan_seconds if sweep.of_memory else ideal
        points.append(Point(size, label, prediction.makespan_seconds, low, high, ideal, hint))
    return Curve(tuple(points), "memory" if sweep.of_memory else "workers", f"Simulated makespan by {_by(sweep)}")


def table(sweep: Sweep) -> Table:
    """Tabulate the clusters; the best one stands out."""
    heads = {"memory_limit": "memory"} if sweep.of_memory else {"workers": "workers"}
    heads |= {"makespan_seconds": "makespan", "interval": "90 of 100 runs"}
    heads |= {"speedup": "speedup", "efficiency": "efficient", "busy": "in tasks"}
    if sweep.of_memory:
        heads |= {"ideal_memory": "nothing spills with", "overfull": "too full"}
    else:
        heads |= {"worker_seconds": "worker-{}"} if sweep.price_per_worker_hour is None else {"money": "cost"}
    best = tuple(i for i, prediction in enumerate(sweep.predictions) if prediction is sweep.best)
    return as_table(columns(sweep), heads, bar="makespan_seconds", strong=best)


def columns(sweep: Sweep) -> dict[str, TypedColumn]:
    """Figures of each cluster."""
    prices = [sweep.money(prediction) for prediction in sweep.predictions]
    scale = money_scale(max((price for price in prices if price is not None), default=0.0))
    return figures(sweep.predictions) | {"money": TypedColumn(prices, scale.figure, float)}


def knee(sweep: Sweep) -> str:
    """Word up to which size more is worth it."""
    if len(sweep.predictions) < 2:
        return ""
    share, knee = f"{100 * MIN_SAVED:.0f} %", _named(sweep, sweep.knee)
    twice, saves = ("twice as much", "saves") if sweep.of_memory else ("twice as many", "save")
    if sweep.knee is sweep.predictions[-1]:
        more = "twice the memory saves" if sweep.of_memory else "twice as many workers save"
        return f"Up to the largest of these clusters, {more} at least {share} of the time."
    if sweep.knee is sweep.predictions[0]:
        return f"Already beyond {knee}, {twice} {saves} less than {share} of the time."
    return f"Up to {knee}, {twice} {saves} at least {share} of the time; beyond, less."


def certainty(sweep: Sweep) -> Section:
    """Section on the certainty of the predictions."""
    left_out = "What starting workers costs, and what they cost before and after the run, is not in it."
    return how_sure(sweep.self_replay, f"{sweep.self_replay.outcome}.", left_out)


def to_dict(sweep: Sweep) -> dict[str, Any]:
    """The sweep's figures, ready for JSON: a row for each cluster, and the numbers of workers that stand out."""
    return about_run(sweep.self_replay, sweep.notes) | {
        "clusters": as_records(columns(sweep)),
        **{
            f"{name}_{'memory_limit' if sweep.of_memory else 'workers'}": None if one is None else sweep.size(one)
            for name, one in {"best": sweep.best, "fastest": sweep.fastest, "knee": sweep.knee}.items()
        },
        "price_per_worker_hour": sweep.price_per_worker_hour,
        "not_simulated": list(sweep.not_simulated),
        "impossible": {str(size): why for size, why in sweep.impossible.items()},
    }
