"""A film of many images, stacked from delayed loads, is gone through image by image.

source: dask/dask issue 5913
date:   2020-02-17
seen:   30,000 images, each loaded by a delayed function, are made into one array with from_delayed and stack. Taking
        the images out of it again costs 30 ms each, 15 minutes for all, although nothing is computed; with an array of
        the same shape that was not made from delayed pieces it was 9 s.
cause:  each delayed piece is a layer of its own in the graph, and every indexing (and every compute of such a slice)
        handles all layers of the whole array: the time grows with images times layers, and it is spent in the client.
cure:   do not iterate over a large array; write the work as one operation on the whole array, and make the array from
        one function with map_blocks (one layer), not from thousands of delayed ones.

The workers have little to do; they wait for the client.
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
FRAMES = scaled(220)
SIDE = 96

EXPECTED = Expected(
    cause="the client is the bottleneck: it builds and submits one graph per image, and each time it goes through the"
    " layers of the whole stacked array (slicing, culling, optimizing); the workers are idle nearly all the time",
    place="the loop in bad() that takes each image out of the stack and computes it (the slicing of the array and"
    " client.compute); behind it the da.stack of from_delayed pieces in film_of_pieces()",
    cure="one expression over the whole array and one compute (film.mean(axis=(1, 2))); build the array with map_blocks"
    " instead of stacking hundreds of delayed pieces",
    says=r"client.{0,60}\b(busy|bottleneck|build|slow|work|optimi|submit|prepar|cpu|spen[dt]|held|python)|graph"
    r"|slic(e|ing)"
    r"|optimi[sz]|\blayers?\b|(many|hundreds of|each|separate|one) (comput(e|es|ations?)|submissions?)\b"
    r"|one (by one|at a time)|(for|per) (each|every|one) (image|frame|slice)|waiting for the client",
    places=(*marked(__file__), function("film_of_pieces"), r"da\.stack|from_delayed"),
    cures=r"one (expression|compute|call|graph|computation|operation)|at once|together|whole array|map_blocks|single"
    r"|(not|avoid|instead of) .{0,20}(iterat|loop)|batch|fewer|larger|vectori[sz]|dask\.compute|in one\b",
    never={
        rf"{LONGER_TASKS}|tasks are too short": "it is the client's work on graphs that takes the time",
        MORE_WORKERS: "they wait for the client",
        r"(?i)scheduler is (busy|overloaded|the bottleneck)": "it waits for the client",
    },
)


def image(number: int) -> np.ndarray:
    """Image as a camera would give it."""
    rng = np.random.default_rng(number)
    return rng.integers(0, 4096, (SIDE, SIDE)).astype("float64")


def images(block_info: Any) -> np.ndarray:
    begin, end = block_info[None]["array-location"][0]
    return np.stack([image(number) for number in range(begin, end)])


def film_of_pieces() -> da.Array:
    load = dask.delayed(image)
    return da.stack([da.from_delayed(load(number), (SIDE, SIDE), "float64") for number in range(FRAMES)])


def film_of_blocks() -> da.Array:
    return da.map_blocks(images, chunks=((1,) * FRAMES, (SIDE,), (SIDE,)), dtype="float64", meta=np.empty((0, 0, 0)))


def bad(client: Client) -> float:
    film = film_of_pieces()
    brightness = [client.compute(frame.mean()) for frame in film]  # <- here
    return float(sum(client.gather(brightness)))


def good(client: Client) -> float:
    film = film_of_blocks()
    return float(film.mean(axis=(1, 2)).compute().sum())
