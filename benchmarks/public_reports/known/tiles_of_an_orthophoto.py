"""An orthophoto is cut into tiles, which are denoised, sharpened and measured, step by step.

source: dask/dask issue 5768
date:   2020-01-01
seen:   the image is cut into arrays of 4096 x 4096 by the client, which are submitted to a function, gathered, and
        submitted to the next. That is far slower than to do the work itself.
cause:  all tiles travel from the client by the scheduler to a worker and back again at each step.
cure:   leave the tiles on the workers: pass futures from step to step (or load tiles within a task), and gather just
        what is small.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
TILES = scaled(24)
SIDE = 1_600

EXPECTED = Expected(
    cause="tiles of 20 MB are gathered to the client and sent again with the tasks of each step",
    place="the submit() of whole tiles, or the gather() of them",
    cure="pass the futures to the next step, so that tiles stay on the workers; gather just the measures",
    says=r"pickl|serializ|\bcarr(y|ies|ied)\b|embed|hash(es|ed|ing)|tokeni[sz]|in (the|its) graph|(large|big) graph"
    r"|\b(large|big|heavy|\d+ [kMG]i?B)\b.{0,50}\b(tasks?|objects?|graph|arrays?|arguments?|results?)\b"
    r"|(to|from|through|by) the client|gather\w*|round trip|sen[dt]s?\b.{0,40}(each|every|again|graph|scheduler)",
    places=(*marked(__file__), function("step")),
    cures=r"pass .{0,20}futures?|futures? .{0,40}(argument|next|pass|instead|directly)|on the workers?|scatter"
    r"|(read|open|load|make)\w* .{0,40}(tasks?|workers?)|gather (only|just|less|fewer)"
    r"|(don't|do not|without|avoid) gather"
    r"|persist|keep|once",
    never={
        LONGER_TASKS: "it is the bytes that take the time",
        COMPUTED_AGAIN: "nothing is computed twice",
        MORE_WORKERS: "the client is busy, not the workers",
        MORE_MEMORY: "the data would fit",
    },
)


def tile(number: int) -> np.ndarray:
    along = np.arange(SIDE)
    return np.add.outer(along * (number + 3) % 251, along * 7 % 241).astype(float)


def denoised(pixels: np.ndarray) -> np.ndarray:
    return (pixels + np.roll(pixels, 1, axis=0) + np.roll(pixels, -1, axis=0)) / 3


def sharpened(pixels: np.ndarray) -> np.ndarray:
    return 2 * pixels - (np.roll(pixels, 1, axis=1) + np.roll(pixels, -1, axis=1)) / 2


def roughness(pixels: np.ndarray) -> float:
    return float(np.abs(np.diff(pixels, axis=0)).mean())


def step(client: Client, function, tiles: list[np.ndarray]) -> list:
    futures = [client.submit(function, pixels) for pixels in tiles]  # <- here
    return client.gather(futures)  # <- here


def bad(client: Client) -> float:
    tiles = [tile(number) for number in range(TILES)]
    for function_of_step in (denoised, sharpened, denoised, sharpened):
        tiles = step(client, function_of_step, tiles)  # <- here
    return sum(step(client, roughness, tiles))  # <- here


def good(client: Client) -> float:
    tiles = client.map(tile, range(TILES))
    for function_of_step in (denoised, sharpened, denoised, sharpened):
        tiles = client.map(function_of_step, tiles)
    return sum(client.gather(client.map(roughness, tiles)))
