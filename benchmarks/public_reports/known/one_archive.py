"""Every task opens the same output file under a distributed lock, compresses its piece into it and closes it.

source: dask/distributed issue 2163
date:   2018-08-06
seen:   many tasks write the pieces of one dataset into few files; with the distributed scheduler this is much slower
        than without it.
cause:  each write task waits for a lock that all share, opens and closes the file for its one piece (as costly as the
        writing itself), and nothing else may write meanwhile.
cure:   the thread: bring all writes to one file together at one worker, so that it is opened once and needs no lock;
        related threads: let each task prepare its piece outside of the lock, or write files of its own.

The pieces are compressed; in ``bad`` that is done while the lock is held.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
from distributed import Client, Lock

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
TILES = scaled(96)
EDGE = 200

EXPECTED = Expected(
    cause="the write tasks run one after the other: all wait for one distributed Lock, which is held while the piece is"
    " compressed and while the archive is opened, appended to and closed; most worker threads only wait",
    place='write_tile: the `with Lock("archive")` block (and the ZipFile opened inside it for each tile)',
    cure="hold the lock only for the append, compress before; better: compress in the tasks and let a single task write"
    " the archive, opening it once (or one file per task)",
    says=r"\block(s|ed|ing)?\b|mutex|semaphore|serial|one (after|at a time|task at|thread at|writer)|in turn|exclusiv"
    r"|wait\w* (for|on) (each other|one another)",
    places=(*marked(__file__), function("write_tile"), r"\barchive\b", r"\bLock\b"),
    cures=r"short|outside|before|out of|(only|just) (for|while|around|the|what)|less (time|long|work)|\bno lock"
    r"|without .{0,20}lock|(single|one|own|separate|several|different) (task|writer|file|archive|lock|worker)s?|once\b"
    r"|(file|archive|lock)s? (per|for each|for every|each|of (its|their) own)|fewer|batch|gather|rarely|finer",
    never={
        HOLDS_GIL: "compressing releases it",
        PROCESSES: "they would wait for the same lock",
        MORE_WORKERS: "they would wait for the same lock",
        r"(?i)disk is slow|slow disk|faster disk": "it is hardly used",
        r"(?i)too much (data )?(is )?transfer|tasks are too (small|short)": "they wait for the lock",
    },
)


def render(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 50, (EDGE, EDGE)).astype(np.int16)


def compress(tile: np.ndarray) -> bytes:
    compute_for(0.08)
    return zlib.compress(tile.tobytes(), 1)


def write_tile(number: int, tile: np.ndarray, path: str) -> None:
    with Lock("archive"):  # noqa: SIM117  # <- here
        with zipfile.ZipFile(path, "a") as archive:  # <- here
            archive.writestr(f"{number:04d}", compress(tile))


def write_all(members: list[bytes], path: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for number, member in enumerate(members):
            archive.writestr(f"{number:04d}", member)


def bad(client: Client) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tiles.zip")
        tiles = client.map(render, range(TILES))
        client.gather(client.map(write_tile, range(TILES), tiles, path=path))
        return os.path.getsize(path)


def good(client: Client) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tiles.zip")
        tiles = client.map(render, range(TILES))
        client.submit(write_all, client.map(compress, tiles), path).result()
        return os.path.getsize(path)
