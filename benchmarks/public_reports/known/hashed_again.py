"""The graph is built with pure calls on an object that holds a whole file, and each call hashes the file.

source: limix/pandas-plink issue 35 (cure: pull request 36); also issues 38 and 39 there
date:   2024-02-22 (again 2025-04-10)
seen:   opening a genotype file of 850 MB took hours after an update of Dask, half an hour for another user: nothing was
        computed yet, the time went by while the thousands of lazy pieces were made.
cause:  each lazy call asks for a deterministic name (pure), so Dask hashes its arguments; one of them is the buffer
        with the whole file, which takes up to a second each time.
cure:   the thread: pure=False for that call (or a name that does not need the content).

The file travels as a path, not as data.
"""

from __future__ import annotations

import dataclasses
import functools
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PIECES = scaled(120)
BYTES = 60_000_000

EXPECTED = Expected(
    cause="the client spends the time hashing: each call of the pure delayed function tokenizes its arguments, among"
    " them"
    " the 60 MB buffer in Genotypes, again and again, before any task is sent",
    place="total(): delayed(decode, pure=True) and the list of its calls; argument genotypes; dask tokenize on the"
    " client",
    cure="do not hash: pure=False (or pass dask_key_name / give Genotypes a cheap __dask_tokenize__, or wrap it in"
    " delayed once)",
    says=r"hash|toke?ni[sz]|tokens?\b|\bpure\b|deterministic",
    places=(
        *marked(__file__),
        function("total"),
        function("decode"),
        function("genotypes"),
        function("Genotypes"),
        r"tokenize|normalize_token",
    ),
    cures=r"\bpure\b|hash|tokeni[sz]|\bkeys?\b|key_name|\bnames?\b|wrap|delayed|\bonce\b",
    never={
        LONGER_TASKS: "the tasks have nothing to do with it",
        HOLDS_GIL: "the workers wait for the client",
        MORE_WORKERS: "the workers wait for the client",
        r"(?i)(sen[dt]s?|travels?|shipped|embedded) (along )?(with|in) (each|every|the) (task|graph)": "as a path",
        r"(?i)disk is slow|slow disk|faster disk|scheduler('s)? overhead": "it is the client's time",
    },
)


def path() -> Path:
    return folder("genotypes") / "genotypes.bin"


def prepare() -> None:
    np.random.default_rng(4).integers(0, 256, BYTES, dtype=np.uint8).tofile(path())


@dataclasses.dataclass
class Genotypes:
    """File with its content."""

    path: Path
    buffer: np.ndarray

    def __reduce__(self) -> tuple[Any, ...]:
        return open_genotypes, (self.path,)


@functools.cache
def open_genotypes(path: Path) -> Genotypes:
    """Once for each process."""
    return Genotypes(path, np.fromfile(path, dtype=np.uint8))


def decode(genotypes: Genotypes, start: int, stop: int) -> int:
    compute_for(0.02)
    return int(np.bitwise_and(genotypes.buffer[start:stop], 3).sum())


def total(client: Client, pure: bool) -> float:
    genotypes = open_genotypes(path())
    edges = [BYTES * piece // PIECES for piece in range(PIECES + 1)]
    decode_lazily = delayed(decode, pure=pure)  # <- here
    parts = [decode_lazily(genotypes, *edge) for edge in pairwise(edges)]  # <- here
    return client.compute(delayed(sum)(parts)).result()


def bad(client: Client) -> float:
    return total(client, pure=True)


def good(client: Client) -> float:
    return total(client, pure=False)
