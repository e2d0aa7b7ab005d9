"""Photographic plates of an observatory are one array, of which each plate is read by an object of its own.

source: DKISTDC/dkist pull request 455
date:   2024-10-26
seen:   an array of many small files is computed more slowly with the distributed scheduler than without Dask, and twice
        as fast after one attribute of the objects that read a file was removed.
cause:  each of these objects keeps a reference to the collection that it belongs to, which knows all files. So all of
        that is pickled with each task, and unpickled by the worker.
cure:   give the object only what it needs: the name of its file, shape and type.
"""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LOCK, TWO_BY_TWO, WAITS_FOR_CORES, Expected, folder, marked, scaled

CLUSTER = TWO_BY_TWO
PLATES = scaled(220)
SHAPE = (120, 160)
STARS = ("Vega", "Mira", "Algol")

EXPECTED = Expected(
    cause="each task carries the whole catalogue, pickled with the object that reads a plate: about 1 MB",
    place="from_array of the reading object, the class Plate, or the compute()",
    cure="give the object only the name of its own file, without the catalogue",
    says=r"pickl|serializ|\bcarr(y|ies)\b|\b(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b[^.]{0,60}\b(tasks?"
    r"|functions?|objects?|graph)\b"
    r"|(tasks?|graph)\b[^.]{0,60}\b(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b",
    places=(*marked(__file__), r"\bPlate\b", r"\bsky\b", r"from_array"),
    cures=r"only what|smaller|scatter|without|by (its )?(name|path)|leave out|drop|as an argument"
    r"|read[^.]{0,30}in (the )?tasks?"
    r"|__(reduce|getstate)__|once (to|per|for) (each|every|all)",
    never={
        WAITS_FOR_CORES: "fewer threads have the same to unpickle",
        LOCK: "nobody waits for a lock of the program",
    },
)


def place_of(number: int) -> Path:
    return folder("plates_of_observatories") / f"plate-{number:04d}.npy"


def prepare() -> None:
    """Write the plates."""
    for number in range(PLATES):
        np.save(place_of(number), np.random.default_rng(number).poisson(40, SHAPE).astype("u2"))


class Catalogue:
    """What is known of all plates of the observatory: their files, and remarks on the nights."""

    def __init__(self, count: int) -> None:
        self.files = [str(place_of(number)) for number in range(count)]
        self.remarks = {
            f"night {i:05d}": [f"{star}-{i % 97}" for star in ("Vega", "Mira", "Algol")] for i in range(20_000)
        }

    def plates(self) -> list[Plate]:
        return [Plate(file, self) for file in self.files]


class Plate:
    """A plate that is read when it is indexed."""

    shape, dtype, ndim = SHAPE, np.dtype("u2"), 2

    def __init__(self, file: str, catalogue: Catalogue | None = None) -> None:
        self.file = file
        self.catalogue = catalogue  # <- here

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        return np.load(self.file)[index]


def sky(plates: list[Plate]) -> float:
    """Brightness of the sky over all plates."""
    blocks = []
    for one in plates:
        name = f"{Path(one.file).stem}-{one.catalogue is None}"
        blocks.append(da.from_array(one, chunks=SHAPE, name=name, meta=np.empty((0, 0), "u2")))  # <- here
    return float(da.stack(blocks).astype("f8").mean().compute())  # <- here


def bad(client: Client) -> float:
    return sky(Catalogue(PLATES).plates())


def good(client: Client) -> float:
    return sky([Plate(file) for file in Catalogue(PLATES).files])
