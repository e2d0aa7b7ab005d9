"""Fireflies of a meadow: how many clusters there are, for several distances and sizes.

source: dask/dask-ml issue 451
date:   2019-05-09
seen:   fitting a clustering of fifteen hundred points within joblib's Dask backend took very much longer than without.
cause:  each fit takes some milliseconds: through the backend its parts become tasks, with their data, for which the
        client waits, fit by fit; that takes many times as long as the fit.
cure:   fit small data without the backend.
"""

from __future__ import annotations

import numpy as np
from distributed import Client
from joblib import parallel_config
from sklearn.cluster import DBSCAN
from sklearn.datasets import make_blobs

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("sklearn", "joblib")
CLUSTER = TWO_BY_TWO
DISTANCES = scaled(40)
SIZES = (5, 10, 20, 40)
POINTS = 1500

EXPECTED = Expected(
    cause="each fit is so small that sending its parts to workers and waiting for them takes longer than the fit",
    place="the line of fit_predict, or that of the backend",
    cure="fit without the Dask backend, or a whole fit (or several) in a task",
    says=r"overhead|(small|short|tiny|many|brief).{0,40}(tasks?|fits?|work|calls?|computations?|batch)"
    r"|tasks?.{0,40}(small|short|tiny|many|brief)|(one|each|every).{0,60}(at a time|after (another|the other)|in turn"
    r"|wait)|idle|latency|round.?trip|(client|script).{0,60}(busy|prepar|between|wait|alone)",
    places=(*marked(__file__), function("_tree_query_radius_parallel_helper"), function("clusters_of")),
    cures=r"without|n_jobs ?= ?1|sequential|locally|threading|one task|whole|batch|fewer|longer|larger|bigger|submit"
    r"|client\.map|at once|together|not .{0,30}(Dask|backend)|parallel_(config|backend)|more work",
    never={
        MORE_WORKERS: "the fits come one after the other",
        MORE_MEMORY: "there is little data",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def positions() -> np.ndarray:
    return make_blobs(n_samples=POINTS, n_features=2, centers=12, random_state=8)[0]


def clusters_of(places: np.ndarray, distance: float, size: int) -> int:
    labels = DBSCAN(eps=distance, min_samples=size).fit_predict(places)  # <- here
    return int(labels.max()) + 1


def all_clusters() -> float:
    places = positions()
    found = 0
    for distance in np.linspace(0.1, 1.0, DISTANCES):
        for size in SIZES:
            found += clusters_of(places, distance, size)  # <- here
    return float(found)


def bad(client: Client) -> float:
    with parallel_config(backend="dask"):  # <- here
        return all_clusters()  # <- here


def good(client: Client) -> float:
    return all_clusters()
