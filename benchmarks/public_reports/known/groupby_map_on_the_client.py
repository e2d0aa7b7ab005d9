"""A function is mapped over the groups of an xarray dataset that is not chunked.

source: pydata/xarray issue 3762
date:   2020-02-07
seen:   interpolating the depths of each ping of a sonar, with groupby and map, takes 5 ms for each; a cluster is there,
        and the work is not distributed. Chunked, with groupby as before, it is 70 ms for each, with a core at 10 %.
cause:  the data are a numpy array, so map runs at once, in the client, and workers have nothing to do.
cure:   chunk the data, and apply_ufunc over the chunks, with dask="parallelized".
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)

CLUSTER = TWO_BY_ONE
PINGS, BINS = scaled(4_000), 200

EXPECTED = Expected(
    cause="the client computes, and the workers have nothing to do",
    place="the map() over groups, or its function",
    cure="chunk the data, and map over the chunks with Dask",
    says=r"\bclient\b|\bidle|nothing to (do|run)|no tasks?|not (distributed|chunked|lazy)|main (program|process|thread)"
    r"|between (computations|tasks)|outside (of )?(the )?(tasks|workers|Dask|cluster)",
    places=(*marked(__file__), function("regular"), function("regular_pings")),
    cures=r"chunk|apply_ufunc|map_blocks|(on|to) the (workers|cluster)|(in|into|as) tasks|delayed|submit"
    r"|with Dask|distribut",
    never={
        MORE_WORKERS: "those there have nothing to do",
        LONGER_TASKS: "there are no tasks",
    },
)


def sonar() -> xr.Dataset:
    rng = np.random.default_rng(5)
    depth = np.sort(rng.uniform(0, 90, (PINGS, BINS)), axis=1)
    return xr.Dataset(
        {"depth": (("ping", "bin"), depth), "echo": (("ping", "bin"), rng.integers(0, 99, (PINGS, BINS)).astype("f8"))},
        coords={"ping": np.arange(PINGS)},
    )


LEVELS = np.linspace(0.0, 90.0, 2 * BINS)


def at_levels(depth: np.ndarray, echo: np.ndarray) -> np.ndarray:
    return np.interp(LEVELS, depth, echo)


def regular(ping: xr.Dataset) -> xr.DataArray:
    values = at_levels(ping["depth"].values.ravel(), ping["echo"].values.ravel())  # <- here
    return xr.DataArray(values, dims="level", coords={"level": LEVELS})


def regular_pings(pings: xr.Dataset) -> xr.DataArray:
    return pings.groupby("ping").map(regular)  # <- here


def bad(client: Client) -> float:
    return float(regular_pings(sonar()).sum().compute().round(3))  # <- here


def good(client: Client) -> float:
    pings = sonar().chunk(ping=500)
    echo = xr.apply_ufunc(
        at_levels,
        pings["depth"],
        pings["echo"],
        input_core_dims=[["bin"], ["bin"]],
        output_core_dims=[["level"]],
        vectorize=True,
        dask="parallelized",
        dask_gufunc_kwargs={"output_sizes": {"level": LEVELS.size}},
        output_dtypes=["f8"],
    )
    return float(echo.sum().compute().round(3))
