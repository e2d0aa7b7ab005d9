"""Engravings, scanned in large tiles: even out the paper and find the lines.

source: dask/dask issue 5768
date:   2020-01-07
seen:   tiles of a large image were scattered one by one, a list of functions was run on each, and the results were
        fetched: slower than without Dask.
cause:  all pixels go from the client to the workers and back again, which takes longer than what is done with them.
cure:   let the tasks load their tile themselves and leave the results with the workers (or use threads in one process).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from distributed import Client, as_completed

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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
SHEETS = 6
TILES = scaled(12)
SIDE = 2000

EXPECTED = Expected(
    cause="all tiles are sent from the client to the workers, and the results back: transfer takes the time",
    place="the lines that scatter, submit and fetch",
    cure="load (and save) the tiles in the tasks",
    says=r"scatter\w*|transfer\w*|(send|sent|fetch|gather|mov|ship|copy|copi)\w* .{0,60}(data|results?|bytes|MB|MiB"
    r"|GB|GiB|client"
    r"|workers)|communicat\w*|seriali[sz]\w*|(through|from|to|by) the client",
    places=(*marked(__file__), r"\bscatter\b", r"\bgather\b"),
    cures=r"(load|read|open|creat|make|mak)\w* .{0,50}(workers?|tasks?)|leave .{0,40}(workers?|cluster)|on the workers?"
    r"|smaller results?|less data|only (a |the )?(sum|number|small|summary|what)|reduc\w*|processes=False"
    r"|in (the )?tasks?"
    r"|fewer (processes|transfers)",
    never={
        COMPUTED_AGAIN: "each tile is worked on once",
        LONGER_TASKS: "a task has megabytes to work on",
        MORE_WORKERS: "the client would be as busy",
    },
)


@dataclass
class Tile:
    """A part of a scanned sheet."""

    number: int
    pixels: np.ndarray


def prepare() -> None:
    place = folder("engravings")
    rng = np.random.default_rng(40)
    paper = rng.integers(150, 255, (SIDE, SIDE), dtype="uint8")
    for number in range(TILES):
        np.save(place / f"tile-{number:02d}.npy", np.roll(paper, 37 * number, axis=number % 2))


def tile_of(sheet: int, number: int) -> Tile:
    """Tile as numbers from 0 to 1, a bit darker on each sheet."""
    pixels = np.load(folder("engravings") / f"tile-{number:02d}.npy").astype("float64")
    return Tile(number, pixels / (255 + sheet))


def even_out(pixels: np.ndarray) -> np.ndarray:
    return pixels - pixels.mean(axis=0) + 0.5


def lines(pixels: np.ndarray) -> np.ndarray:
    return np.clip(pixels, 0.4, 0.6)


STEPS = (even_out, lines)


def process(steps: tuple[Callable[[np.ndarray], np.ndarray], ...], tile: Tile) -> Tile:
    for step in steps:
        tile = replace(tile, pixels=step(tile.pixels))
    return tile


def save(tile: Tile, place: Path) -> float:
    """Save the tile in bytes, and return its brightness."""
    np.save(place / f"done-{tile.number:02d}.npy", (tile.pixels * 255).astype("uint8"))
    return float(tile.pixels[::4, ::4].mean())


def bad(client: Client) -> float:
    place = folder("engravings")
    brightness = 0.0
    for sheet in range(SHEETS):
        futures = []
        for number in range(TILES):
            tile = client.scatter(tile_of(sheet, number))  # <- here
            futures.append(client.submit(process, STEPS, tile))  # <- here
        for _, tile in as_completed(futures, with_results=True):  # <- here
            brightness += save(tile, place)
    return brightness


def process_file(sheet: int, number: int, place: Path) -> float:
    return save(process(STEPS, tile_of(sheet, number)), place)


def good(client: Client) -> float:
    place = folder("engravings")
    brightness = 0.0
    for sheet in range(SHEETS):
        futures = [client.submit(process_file, sheet, number, place) for number in range(TILES)]
        brightness += sum(client.gather(futures))
    return brightness
