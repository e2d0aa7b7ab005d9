"""Tiles of an aerial scene are smoothed, evened out and searched for seams, one stage after the other.

source: dask/dask issue 5768
date:   2020-01-07
seen:   tiles of 4096 x 4096 pixels are given to ``submit`` and gathered again; that takes much longer than the work on
        them, and longer than the same functions in a loop without Dask.
cause:  all tiles travel with the calls from the client to the workers and back, in each stage, through the client and
        the scheduler, which pickle and copy them.
cure:   read the tiles in tasks, leave what stages make on the workers, as futures, and gather only the small results.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
TILES = scaled(48)
SIDE = 1200

EXPECTED = Expected(
    cause="the client sends every tile to the cluster, and gathers it again, in each stage: 10 MB with each task",
    place="submit() of functions with the tiles as arguments, or the gather() after each stage",
    cure="leave the tiles on the workers: pass futures to the next stage, read tiles in tasks, or scatter them",
    says=r"(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b[^.]{0,60}\b(graph|tasks?|arguments?|calls?|client|gather"
    r"|result)"
    r"|(gather|result)\w*[^.]{0,80}(large|big|\d+(\.\d+)? [kMG]i?B|client|stage)|\bcarr(y|ies)\b|pickl|serializ"
    r"|through the client"
    r"|(to|from) the client|back and forth|sent? (to|with|by)",
    places=(*marked(__file__), r"\bstage\b", r"\bgather\b"),
    cures=r"scatter|futures?|leave[^.]{0,40}(workers?|cluster)|on the (workers?|cluster)|(read"
    r"|load)\w*[^.]{0,40}(tasks?|workers?)"
    r"|(chain|only|just)[^.]{0,60}(small|results?|gather)|submit[^.]{0,40}(future|result)",
    never={
        LONGER_TASKS: "tasks of some hundredths of a second on 10 MB are long enough; larger tiles travel as long",
        MORE_WORKERS: "workers wait for the client",
        LOCK: "nobody waits for a lock of the program",
    },
)


def scene() -> str:
    return str(folder("seams_of_mosaics") / "scene.npy")


def prepare() -> None:
    """Write the scene, tile by tile."""
    tiles = np.lib.format.open_memmap(scene(), mode="w+", dtype="f8", shape=(TILES, SIDE, SIDE))
    for number in range(TILES):
        tiles[number] = np.random.default_rng(number).normal(100 + number % 7, 9, (SIDE, SIDE))


def tile_of(path: str, number: int) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[number])


def smoothed(tile: np.ndarray) -> np.ndarray:
    return (tile + np.roll(tile, 1, 0) + np.roll(tile, 1, 1)) / 3


def evened(tile: np.ndarray) -> np.ndarray:
    return tile - tile.mean(axis=1, keepdims=True)


def seam(tile: np.ndarray) -> float:
    return float(np.abs(np.diff(tile[:, ::8], axis=0)).max(axis=0).mean())


def stage(client: Client, work, tiles: list) -> list:
    futures = [client.submit(work, tile, pure=False) for tile in tiles]  # <- here
    return client.gather(futures)  # <- here


def bad(client: Client) -> float:
    tiles = [tile_of(scene(), number) for number in range(TILES)]
    tiles = stage(client, smoothed, tiles)  # <- here
    tiles = stage(client, evened, tiles)  # <- here
    return sum(stage(client, seam, tiles))  # <- here


def good(client: Client) -> float:
    tiles = client.map(tile_of, [scene()] * TILES, range(TILES), pure=False)
    for work in (smoothed, evened, seam):
        tiles = client.map(work, tiles, pure=False)
    return sum(client.gather(tiles))
