"""Blocks of a large picture of fields, packed in one file, are read by the threads of a worker.

source: corteva/rioxarray issue 214
date:   2021-01-26
seen:   blocks of a picture are to be read by several threads, but each waits for the others: only one reads at a time.
cause:  all threads of a process share one open file, which is not safe for that. So a lock is held for a whole read, in
        which most of the time goes into unpacking the block.
cure:   no lock (``lock=False``): each thread or task opens the file for itself.

It is about threads of one process, so there is one worker.
"""

from __future__ import annotations

import lzma
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from dask import compute, delayed
from dask.utils import SerializableLock
from distributed import Client

from benchmarks.public_reports.programs import HOLDS_GIL, LONGER_TASKS, Expected, folder, marked, scaled

CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
BLOCKS = scaled(80)
SHAPE = (2000, 3000)
TURN = SerializableLock("picture")

EXPECTED = Expected(
    cause="threads wait for the lock that is held while a block is read and unpacked",
    place="`with turn:` in block_of",
    cure="no lock: each task opens the file for itself; or unpack after the lock is released",
    says=r"\block(s|ed)?\b|one (thread|task) at a time",
    places=(*marked(__file__), r"\bblock_of\b", r"\bpacked_block\b"),
    cures=r"(without|no|avoid|drop|remove|lock=False)[^.]{0,30}lock|hold\w*[^.]{0,40}(short|less|only)|shorter"
    r"|out(side)? (of )?(the|it)|process(es)?\b|own (file|handle|copy)|(each|every) (task"
    r"|thread)[^.]{0,40}(file|own|open)"
    r"|after (the lock|releasing)|lock=False",
    never={
        LONGER_TASKS: "tasks of some tenths of a second are long enough",
        HOLDS_GIL: "lzma unpacks without the GIL",
    },
)


def picture() -> Path:
    return folder("fields_from_planes") / "picture.bin"


def sizes_file() -> Path:
    return folder("fields_from_planes") / "sizes.npy"


def prepare() -> None:
    """Write the blocks, packed, one after the other, and their sizes."""
    steps = np.random.default_rng(5).integers(0, 6, SHAPE, dtype="u1")
    packed = [lzma.compress(np.roll(steps, 31 * number) + np.uint8(number), preset=0) for number in range(4)]
    with picture().open("wb") as out:
        sizes = [out.write(packed[number % len(packed)]) for number in range(BLOCKS)]
    np.save(sizes_file(), np.array(sizes))


@lru_cache
def opened(path: Path) -> BinaryIO:
    """The file, opened once in a process."""
    return path.open("rb")


def packed_block(file: BinaryIO, start: int, size: int) -> np.ndarray:
    file.seek(start)
    return np.frombuffer(lzma.decompress(file.read(size)), "u1")


def block_of(path: Path, start: int, size: int, turn: SerializableLock | None) -> float:
    """Mean of a block, at a coarse grid."""
    if turn is None:
        with path.open("rb") as file:
            values = packed_block(file, start, size)
    else:
        with turn:  # <- here
            values = packed_block(opened(path), start, size)  # <- here
    return float(values[::16].mean())


def mean_of(turn: SerializableLock | None) -> float:
    sizes = np.load(sizes_file())
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    read = delayed(block_of)
    blocks = [read(picture(), int(start), int(size), turn) for start, size in zip(starts, sizes, strict=True)]
    return float(np.mean(compute(*blocks)))


def bad(client: Client) -> float:
    return mean_of(TURN)


def good(client: Client) -> float:
    return mean_of(None)
