"""Scans of heads, a gzip file for each, are looked at slice by slice.

source: nipy/nibabel issue 1058; of the same kind: brainiak/rt-cloud issue 44, kaiko-ai/eva pull request 705
date:   2021-09-26 (issue 44: 2021-04-13; pull request 705: 2024-11-12)
seen:   slices of a compressed scan take longer the deeper they are, and all of them together the square of their
        number; uncompressed before, they are read at once.
cause:  a gzip stream can be read from its start only: each task opens the file and decompresses all that comes before
        its slice.
cure:   read a file once, from its start to its end, in one task (or decompress the files beforehand).
"""

from __future__ import annotations

import gzip
from pathlib import Path

import dask
import numpy as np
from distributed import Client
from scipy import ndimage

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
SCANS, SLICES, SIDE = scaled(4), 56, 640
BYTES_A_SLICE = SIDE * SIDE * 2

EXPECTED = Expected(
    cause="to get to its slice, each task decompresses its gzip file from the start, so the same bytes are decompressed"
    " dozens of times",
    place="the seek or read in slice_of, called from contrast_of_slice",
    cure="one task for a file, which reads its slices in order; or files that are not compressed, or in chunks",
    says=r"decompress|inflat\w+|unpack|unzip|compressed (file|stream|data)|from (the|its) (start|beginning)"
    r"|(read|opened?)\W+(\w+\W+){0,4}(again|repeatedly|anew|many times|\d+ times|more than once|over and over)"
    r"|same (file|bytes|data)\W+(\w+\W+){0,4}(again|times|each|every)",
    places=(*marked(__file__), function("slice_of"), function("contrast_of_slice")),
    cures=r"once|in one task|(whole|entire) (file|scan)|in order|uncompress|decompress|not compress|without compress"
    r"|other (file )?format|chunk|index|keep (it|the file) open|sequential|beforehand|share|cache|reuse",
    never={
        HOLDS_GIL: "zlib releases it, and there is one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy, for nothing",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def file_of(scan: int) -> Path:
    return folder("slices_of_head_scans") / f"scan-{scan}.raw.gz"


def prepare() -> None:
    for scan in range(SCANS):
        rng = np.random.default_rng(scan)
        head = np.hypot(*np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j])
        with gzip.open(file_of(scan), "wb", compresslevel=1) as out:
            for _ in range(SLICES):
                noise = rng.integers(0, 6, (SIDE, SIDE))
                out.write(((head < rng.uniform(0.6, 0.9)) * 500 + noise).astype("<i2").tobytes())


def contrast(pixels: np.ndarray) -> float:
    """How sharp the edges in a slice are."""
    return float(np.abs(ndimage.sobel(pixels.astype(np.float32))).mean())


def slice_of(scan: int, number: int) -> np.ndarray:
    with gzip.open(file_of(scan), "rb") as stream:
        stream.seek(number * BYTES_A_SLICE)  # <- here
        content = stream.read(BYTES_A_SLICE)  # <- here
    return np.frombuffer(content, "<i2").reshape(SIDE, SIDE)


def contrast_of_slice(scan: int, number: int) -> float:
    return contrast(slice_of(scan, number))  # <- here


def contrast_of_scan(scan: int) -> float:
    total = 0.0
    with gzip.open(file_of(scan), "rb") as stream:
        for _ in range(SLICES):
            content = stream.read(BYTES_A_SLICE)
            total += contrast(np.frombuffer(content, "<i2").reshape(SIDE, SIDE))
    return total


def bad(client: Client) -> float:
    look = dask.delayed(contrast_of_slice)
    return sum(dask.compute(*[look(scan, number) for scan in range(SCANS) for number in range(SLICES)]))


def good(client: Client) -> float:
    look = dask.delayed(contrast_of_scan)
    return sum(dask.compute(*[look(scan) for scan in range(SCANS)]))
