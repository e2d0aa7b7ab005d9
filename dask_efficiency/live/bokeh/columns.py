"""Data of the pages' figures, by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSES, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.last_seconds import causes_text
from dask_efficiency.live.tab_view import TabView
from dask_efficiency.live.times import QUANTILES, gpu_label, spread
from dask_efficiency.show.drawn_buckets import COLOURS, LABELLED_SHARE, Wedge, ink, label_point, radians, wedges
from dask_efficiency.show.figures import label

#: Workers shown on a page with other figures, the least useful first. By eye.
FEW_WORKERS = 20
#: GPUs shown on a page with other figures, the most idle first. By eye.
FEW_GPUS = 16
#: Workers, or GPUs, that have a bar each on their own page; with more workers, it shows their spread. By eye.
MANY = 100

PIE = ("label", "start", "stop", "colour", "x", "y", "percent", "text", "ink", "seconds", "causes")
TIMELINE = ("left", "right", "nthreads", *ACTIVITIES)
WORKERS = ("y", "name", "nthreads", *ACTIVITIES)
SPREAD = ("y", "name", "colour", "q0", "q10", "q50", "q90", "q100", "least", "most")
PREFIXES = ("y", "name", "total", *map(str, TASK_BUCKETS))
GPUS = ("y", "name", *GPU_ACTIVITIES)
#: Values by column, all of equal length.
Columns = Mapping[str, list[Any]]


def empty(names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns without rows."""
    return {name: [] for name in names}


def with_work(view: TabView) -> dict[str, int]:
    """Nanoseconds of all threads by activity while there was work."""
    return {name: ns for name, ns in view.last.did.to_nanoseconds().items() if name != Bucket.NO_WORK}


def percent_of(wedge: Wedge) -> str:
    """Per cent of a wedge, for display."""
    return f"{'<0.1' if wedge.percent == '0.0' else wedge.percent} %"


def causes_of(view: TabView, name: str) -> str:
    """Causes of an activity with their shares, in a line; empty if none is known."""
    return causes_text(view.last.cause_shares.get(Bucket(name), ())) if name in set(map(str, CAUSES)) else ""


def pie(view: TabView) -> Columns:
    """One row per wedge; columns :data:`PIE`."""
    rows = []
    for wedge in wedges(with_work(view)):
        (x, y), percent = label_point(wedge, 0.68), percent_of(wedge)
        place = (wedge.label, radians(wedge.start), radians(wedge.stop), wedge.colour, x, -y)
        text = percent if wedge.share >= LABELLED_SHARE else ""
        rows.append((*place, percent, text, ink(wedge.colour), wedge.nanoseconds / 1e9, causes_of(view, wedge.label)))
    return {name: [row[i] for row in rows] for i, name in enumerate(PIE)}


def timeline(view: TabView) -> Columns:
    """One row per bin, in milliseconds since the epoch; columns :data:`TIMELINE`."""
    bins, offset = view.bins, view.clock_offset * 1e3
    return {
        "left": (bins.start / 1e6 + offset).tolist(),
        "right": (bins.stop / 1e6 + offset).tolist(),
        "nthreads": bins.nthreads.tolist(),
        **{name: bins.threads[:, i].tolist() for i, name in enumerate(ACTIVITIES)},
    }


def _workers(view: TabView, at_most: int) -> Columns:
    workers = view.last.workers
    shown = workers.shown(at_most)
    names = [label(workers.names[worker]) for worker in shown]
    return _rows(names, ACTIVITIES, workers.shares[shown], nthreads=[workers.nthreads[worker] for worker in shown])


#: One row for each of the least useful workers; columns :data:`WORKERS`.
few_workers = partial(_workers, at_most=FEW_WORKERS)


def all_workers(view: TabView) -> Columns:
    """One row per worker, or none if there are too many for a bar each; columns :data:`WORKERS`."""
    return empty(WORKERS) if too_many_workers(view) else _workers(view, MANY)


def too_many_workers(view: TabView) -> bool:
    """True if there are more than :data:`MANY`."""
    return len(view.last.workers.names) > MANY


def _rows(names: Sequence[str], columns: Sequence[str], values: NDArray[np.float64], **more: list[Any]) -> Columns:
    """Named rows of values by column, and more columns before these."""
    by_column = {name: values[:, i].tolist() for i, name in enumerate(columns)}
    return {"y": list(range(len(names))), "name": list(names), **more, **by_column}


def worker_spread(view: TabView) -> Columns:
    """One row per activity if there are too many workers for a bar each; columns :data:`SPREAD`."""
    if not too_many_workers(view):
        return empty(SPREAD)
    found = spread(view.last.workers)
    colours = [COLOURS[Bucket(name)] for name in found.activities]
    columns = [f"q{quantile:.0%}".rstrip("%") for quantile in QUANTILES]
    rows = _rows(found.activities, columns, found.quantiles, colour=colours)
    return {**rows, "least": list(found.least), "most": list(found.most)}


def _gpus(view: TabView, at_most: int) -> Columns:
    gpus = view.last.gpus
    shown = gpus.shown(at_most)
    names = [gpu_label(gpus.gpus[gpu]) + " (shared)" * gpus.shared[gpu] for gpu in shown]
    return _rows(names, GPU_ACTIVITIES, gpus.shares[shown])


#: One row for each of the most idle GPUs; columns :data:`GPUS`.
few_gpus, all_gpus = partial(_gpus, at_most=FEW_GPUS), partial(_gpus, at_most=MANY)


def prefixes(view: TabView) -> Columns:
    """One row for each prefix with most thread time, in thread-seconds; columns :data:`PREFIXES`."""
    names, seconds = view.last.prefixes.names, view.last.prefixes.seconds
    return _rows(names, [*map(str, TASK_BUCKETS)], seconds, total=seconds.sum(axis=1).tolist())
