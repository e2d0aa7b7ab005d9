"""Measurements of fixed stations are put on a grid, hour by hour.

source: Ouranosinc/xscen issue 411; a like case: NCAS-CMS/cf-python issue 222
date:   2024-05-30 (issue 222: 2021-05-27)
seen:   regridding a second data set between the same grids takes nearly as long as the first one, though the weights
        should be used again; with the mistake mended it is three times as fast.
cause:  weights depend on the two grids only, and are made anew for each field.
cure:   make them once, and apply them to all fields.
"""

from __future__ import annotations

import numpy as np
from distributed import Client
from scipy.interpolate import LinearNDInterpolator, griddata
from scipy.spatial import Delaunay

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
STATIONS = 25_000
DAYS, HOURS = scaled(9), 4
SIDE = 60

EXPECTED = Expected(
    cause="the triangulation of the same stations is made again for each field",
    place="on_grid, where griddata is called",
    cure="triangulate once, and use that for all fields",
    says=r"again|repeat|(same|equal|identical) (work|triangulation|weights|points|stations|input|argument|call|result)"
    r"|(each|every) (time|field|hour|call|step)|once (for|per) (each|every)|re-?(use|comput|build|creat)|over and over"
    r"|triangulat|weights|set-?up|precomput|many (times|calls)|twice",
    places=(*marked(__file__), function("on_grid"), function("daily"), r"griddata|_ndgriddata|Delaunay|qhull|interpnd"),
    cures=r"\bonce\b|re-?use|cache|precomput|keep|share|beforehand|outside (of )?(the )?(loop|task)|before the loop"
    r"|weights|Delaunay|scatter|LinearNDInterpolator|only (one|a single)|memo",
    never={
        LONGER_TASKS: "a task takes a second",
        MORE_WORKERS: "most of the work is for nothing",
        MORE_MEMORY: "all of it is small",
    },
)


def stations() -> np.ndarray:
    return np.random.default_rng(4).random((STATIONS, 2))


def grid() -> np.ndarray:
    line = np.linspace(0.05, 0.95, SIDE)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def readings(day: int) -> np.ndarray:
    """Rain at each station, by hour."""
    return np.random.default_rng(100 + day).gamma(0.5, 2.0, (HOURS, STATIONS))


def on_grid(points: np.ndarray, rain: np.ndarray) -> np.ndarray:
    return griddata(points, rain, grid(), method="linear")  # <- here


def daily(day: int, points: np.ndarray) -> float:
    """Mean of the highest hourly rain of a day."""
    fields = [on_grid(points, rain) for rain in readings(day)]  # <- here
    return float(np.nanmean(np.max(fields, axis=0)))


def daily_from_triangles(day: int, triangles: Delaunay) -> float:
    fields = [LinearNDInterpolator(triangles, rain)(grid()) for rain in readings(day)]
    return float(np.nanmean(np.max(fields, axis=0)))


def bad(client: Client) -> float:
    points = client.scatter(stations(), broadcast=True)
    return sum(client.gather(client.map(daily, range(DAYS), points=points)))  # <- here


def good(client: Client) -> float:
    triangles = client.submit(Delaunay, stations())
    return sum(client.gather(client.map(daily_from_triangles, range(DAYS), triangles=triangles)))
