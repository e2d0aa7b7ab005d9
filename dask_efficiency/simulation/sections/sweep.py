"""Document of a sweep: the makespan by number of workers, and how many are enough."""

from __future__ import annotations

import math
from typing import Any

from dask_efficiency.show.columns import TypedColumn, as_records, as_table
from dask_efficiency.show.document import Curve, Document, Point, Section, Table, section, with_content
from dask_efficiency.show.figures import format_count, format_seconds, format_share, money_scale
from dask_efficiency.simulation.model.result import Prediction
from dask_efficiency.simulation.model.sweeps import MIN_SAVED, NEARLY, Sweep, worker_seconds
from dask_efficiency.simulation.sections.prediction import about_run, figures, how_sure, notes, recorded_in_words, title


def headline(sweep: Sweep) -> str:
    """Word how many workers are enough, without a full stop."""
    best, fastest = sweep.best, sweep.fastest
    text = f"{_workers(best)}: {format_seconds(best.makespan_seconds)}"
    if best is fastest:
        return f"{text}, the least of all; none within {100 * NEARLY:.0f} % of it is cheaper"
    cost = worker_seconds(best) / worker_seconds(fastest)
    least = f"{_workers(fastest)}, {format_seconds(fastest.makespan_seconds)}"
    return f"{text}, within {100 * NEARLY:.0f} % of the fastest ({least}), at {format_share(cost)} of its cost"


def _workers(prediction: Prediction) -> str:
    return format_count(len(prediction.cluster.workers), "worker")


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
    return section("By number of workers", f"{headline(sweep)}.", *(block for part in parts for block in part.blocks))


def _stats(sweep: Sweep) -> tuple[tuple[str, str], ...]:
    money = sweep.money(sweep.best)
    return (
        ("recorded", format_seconds(sweep.recorded.makespan_seconds)),
        (f"on {_workers(sweep.best)}", format_seconds(sweep.best.makespan_seconds)),
        *([] if money is None else [("its cost", money_scale(money).figure(money))]),
        ("self replay", f"{100 * sweep.self_replay.error:+.1f} %"),
    )


def clusters(sweep: Sweep) -> Section:
    """Section with a plot and a row for each cluster."""
    return section("By number of workers", curve(sweep), table(sweep), knee(sweep))


def curve(sweep: Sweep) -> Curve:
    """Plot the makespan by number of workers with its interval, and a line for perfect scaling."""
    first = sweep.predictions[0]
    points = []
    for prediction in sweep.predictions:
        workers = len(prediction.cluster.workers)
        low, high = (prediction.makespan_seconds if math.isnan(end) else end for end in prediction.interval)
        took, efficient = format_seconds(prediction.makespan_seconds), format_share(prediction.efficiency)
        hint = f"{_workers(prediction)}: {took}, {efficient} efficient"
        linear = first.makespan_seconds * len(first.cluster.workers) / workers
        points.append(Point(workers, str(workers), prediction.makespan_seconds, low, high, linear, hint))
    return Curve(tuple(points), "workers", "Simulated makespan by number of workers")


def table(sweep: Sweep) -> Table:
    """Tabulate the clusters; the best one stands out."""
    heads = {"workers": "workers", "makespan_seconds": "makespan", "interval": "90 of 100 runs"}
    heads |= {"speedup": "speedup", "efficiency": "efficient", "busy": "in tasks"}
    heads |= {"worker_seconds": "worker-{}"} if sweep.price_per_worker_hour is None else {"money": "cost"}
    best = next(i for i, prediction in enumerate(sweep.predictions) if prediction is sweep.best)
    return as_table(columns(sweep), heads, bar="makespan_seconds", strong=(best,))


def columns(sweep: Sweep) -> dict[str, TypedColumn]:
    """Figures of each cluster."""
    prices = [sweep.money(prediction) for prediction in sweep.predictions]
    scale = money_scale(max((price for price in prices if price is not None), default=0.0))
    return figures(sweep.predictions) | {"money": TypedColumn(prices, scale.figure, float)}


def knee(sweep: Sweep) -> str:
    """Word up to which number of workers more are worth it."""
    if len(sweep.predictions) < 2:
        return ""
    share = f"{100 * MIN_SAVED:.0f} %"
    if sweep.knee is sweep.predictions[-1]:
        return f"Up to the largest of these clusters, twice as many workers save at least {share} of the time."
    if sweep.knee is sweep.predictions[0]:
        return f"Already beyond {_workers(sweep.knee)}, twice as many save less than {share} of the time."
    return f"Up to {_workers(sweep.knee)}, twice as many save at least {share} of the time; beyond, less."


def certainty(sweep: Sweep) -> Section:
    """Section on the certainty of the predictions."""
    left_out = "What starting workers costs, and what they cost before and after the run, is not in it."
    return how_sure(sweep.self_replay, f"{sweep.self_replay.outcome}.", left_out)


def to_dict(sweep: Sweep) -> dict[str, Any]:
    """The sweep's figures, ready for JSON: a row for each cluster, and the numbers of workers that stand out."""
    return about_run(sweep.self_replay, sweep.notes) | {
        "clusters": as_records(columns(sweep)),
        "best_workers": len(sweep.best.cluster.workers),
        "fastest_workers": len(sweep.fastest.cluster.workers),
        "knee_workers": len(sweep.knee.cluster.workers),
        "price_per_worker_hour": sweep.price_per_worker_hour,
        "not_simulated": list(sweep.not_simulated),
    }
