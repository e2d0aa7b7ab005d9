"""Widths of tree rings go into a store of objects, which takes its list of objects along into every task.

source: pydata/xarray issue 1770; a like case: fsspec/gcsfs issue 181
date:   2017-12-08 (gcsfs 181: 2019-10-07)
seen:   writing a large array into a store on object storage takes very long before anything is written: the time goes
        into serializing; a file system that has listed its files pickles to 7 MB, and to 3 kB before that.
cause:  the target of the store is part of each task that writes, and is pickled and unpickled with each of them, with
        all that it has cached.
cure:   leave what is only cached out of the pickle (__getstate__), or hand the tasks a target that has not listed yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
TREES, YEARS, BLOCK = 6_000, 400, 25
#: Objects of other forests, which are in the store already.
LISTED = scaled(18_000)

EXPECTED = Expected(
    cause="the store which da.store() writes to is in every task, with a cached list of thousands of objects: pickling,"
    " sending and unpickling that some hundred times is nearly all of the time",
    place="the store() (or the line that lists the objects, or makes the store); tasks store-map",
    cure="do not pickle the list (__getstate__), or give the tasks a store without it; or scatter it once",
    says=r"pickl|seriali[sz]"
    r"|(large|big|heavy|huge) (\w+ ){0,2}(graph|tasks?|arguments?|objects?|closures?|definitions?)"
    r"|\bgraph\b.{0,40}(\bM?i?B\b|large|big|size|bytes)|(MiB|MB|kiB|bytes) (of|in|for|per) .{0,20}(graph|tasks?)"
    r"|(object|argument|target|store|value|data)\b.{0,40}(embedded|in (each|every|all)|with (each|every)|inside)"
    r"|(sent|shipped|copied|travels?|carr(y|ies|ied))\b.{0,30}(each|every|all|with) .{0,20}tasks?",
    places=(
        *marked(__file__),
        function("store"),
        function("written"),
        function("bad"),
        function("Forest"),
        r"store[-_](map|chunk)|load_store_chunk|__setitem__",
    ),
    cures=r"scatter|getstate|reduce__|smaller|without|(do not|don't|not|avoid|less|instead of)\b.{0,40}"
    r"(pickl|send|pass|embed|includ|captur|carry|seriali[sz])|leave .{0,30} out|drop|\bonce\b"
    r"|(inside|in|within) (the|each|a) (task|worker)"
    r"|on the workers?|lazily|delayed|path|open",
    never={
        MORE_WORKERS: "the workers wait for the scheduler, which sends them the tasks",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each block is made once",
        LOCK: "there is none",
    },
)


class Forest:
    """Objects in a folder, one for each block of trees."""

    shape, dtype = (TREES, YEARS), np.dtype("f8")

    def __init__(self, place: Path) -> None:
        self.place = place
        self.objects: dict[str, dict[str, Any]] = {}

    def list(self, names: Iterable[str]) -> None:
        """Remember size and time of objects."""
        for number, name in enumerate(names):
            changed = f"2021-03-04T05:06:{number % 60:02d}"
            self.objects[name] = {"size": 1000 + number, "changed": changed, "tag": name[::-1]}

    def __setitem__(self, where: tuple[slice, ...], widths: np.ndarray) -> None:
        np.save(self.place / f"trees-{where[0].start:06d}.npy", widths)

    def total(self) -> float:
        return float(sum(np.load(file).sum() for file in sorted(self.place.glob("trees-*.npy"))))


def rings(block_id=None) -> np.ndarray:
    rng = np.random.default_rng(block_id[0])
    return np.cumsum(rng.gamma(2.0, 0.4, (BLOCK, YEARS)), axis=1) % 7.0


def others() -> list[str]:
    return [f"archive/forests/plot-{number % 97:03d}/core-{number:07d}.npy" for number in range(LISTED)]


def written(forest: Forest) -> float:
    widths = da.map_blocks(rings, chunks=((BLOCK,) * (TREES // BLOCK), (YEARS,)), dtype="f8", meta=np.empty((0, 0)))
    da.store(widths, forest, lock=False)  # <- here
    return forest.total()


def bad(client: Client) -> float:
    forest = Forest(folder("rings-listed"))
    forest.list(others())  # <- here
    assert "trees-000000.npy" not in forest.objects
    return written(forest)  # <- here


def good(client: Client) -> float:
    forest = Forest(folder("rings"))
    listed = Forest(forest.place)
    listed.list(others())
    assert "trees-000000.npy" not in listed.objects
    return written(forest)
