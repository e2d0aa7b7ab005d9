"""Sections of driftwood, scanned, smoothed in tiles.

source: dask/dask issue 5768
date:   2020-01-07
seen:   large pictures were cut into tiles by the script, each tile scattered, worked on by a task, and the result
        gathered: sending and gathering took far longer than the work, and longer than with multiprocessing.
cause:  all pixels go from the script to the workers and back again, one tile after the other, for little work.
cure:   let the tasks read their tiles from the file themselves, and give back what is needed only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
TILE = 1024
TILES = scaled(28)
PASSES = 14

EXPECTED = Expected(
    cause="the script sends all pixels to the workers, tile by tile, and gathers as many: moving them takes the time",
    place="the lines of scatter and of gather, or that of submit",
    cure="read the tiles in the tasks, and keep results on the workers, or reduce them there",
    says=r"scatter|gather|(send|sent|sending|mov|transfer|ship|download|upload|fetch|collect|receiv)\w*"
    r".{0,60}(data|bytes|MB|MiB|GB|GiB|arrays?|results?|client|script|workers?)|seriali[sz]|transfer",
    places=(*marked(__file__),),
    cures=r"(load|read|open|make)\w* .{0,50}(task|worker)|(in|inside|on) (the |a )?(tasks?|workers?)|less (data|to)"
    r"|smaller|reduc|(keep|leave)\w* .{0,40}(worker|cluster)|dask\.array|only what"
    r"|(write|sav|stor)\w* .{0,40}(task|worker|file)",
    never={
        COMPUTED_AGAIN: "each tile is smoothed once",
        LOCK: "no lock is used",
        LONGER_TASKS: "there are few tasks, each of some megabytes",
        MORE_WORKERS: "the workers wait for the script",
    },
)


@dataclass
class Tile:
    number: int
    pixels: np.ndarray


def scan_file():
    return folder("driftwood") / "section.npy"


def prepare() -> None:
    scan = np.lib.format.open_memmap(scan_file(), mode="w+", dtype="f4", shape=(TILES * TILE, TILE))
    for number in range(TILES):
        scan[number * TILE : (number + 1) * TILE] = np.random.default_rng(number).random((TILE, TILE), dtype="f4")
    scan.flush()


def smoothed(pixels: np.ndarray) -> np.ndarray:
    return (pixels + np.roll(pixels, 1, axis=0) + np.roll(pixels, 1, axis=1)) / 3


def clean(tile: Tile, cut: int) -> Tile:
    return Tile(tile.number, np.clip(smoothed(tile.pixels), 0.05 * cut, 1))


def wood(pixels: np.ndarray) -> float:
    """How much of a tile is wood."""
    return float(pixels.mean(dtype="f8"))


def wood_of_tile(file: str, number: int, cut: int) -> float:
    pixels = np.array(np.load(file, mmap_mode="r")[number * TILE : (number + 1) * TILE])
    return wood(clean(Tile(number, pixels), cut).pixels)


def cut_into_tiles() -> list[Tile]:
    scan = np.load(scan_file())
    return [Tile(number, scan[number * TILE : (number + 1) * TILE]) for number in range(TILES)]


def bad(client: Client) -> float:
    total = 0.0
    for cut in range(PASSES):
        cleaned = []
        for tile in cut_into_tiles():
            remote = client.scatter(tile)  # <- here
            cleaned.append(client.submit(clean, remote, cut))
        total += sum(wood(tile.pixels) for tile in client.gather(cleaned))  # <- here
    return total


def good(client: Client) -> float:
    total = 0.0
    for cut in range(PASSES):
        shares = client.map(wood_of_tile, [str(scan_file())] * TILES, range(TILES), [cut] * TILES)
        total += sum(client.gather(shares))
    return total
