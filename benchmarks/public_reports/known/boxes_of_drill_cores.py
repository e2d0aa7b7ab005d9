"""Photographs of drill cores are read by small objects, one for each, which are put into one array.

source: DKISTDC/dkist pull request 455
date:   2024-10-26
seen:   a sum over frames of a telescope takes longer on eight worker processes than one after the other in a loop, and
        nearly ten times as long as in a plain pool of processes.
cause:  the object that reads a frame refers to the container of all frames. As it is pickled with each task, the whole
        container travels with each of them, and is built anew in the worker.
cure:   the object holds nothing but what it needs to read its own file.

Here frames are photographs of boxes with cores, and the container is the store's register.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
BOXES, NOTES = scaled(500), 50
SHAPE = (48, 160)

EXPECTED = Expected(
    cause="each object that reads a photograph refers to the register of all of them, which is pickled with each task",
    place="register= of Photograph, from_array, its tasks, or the computation",
    cure="leave the register out of what is sent: the path is enough",
    says=r"pickl|seriali[sz]|(large|big|heavy|huge) (\w+ )?(graphs?|objects?|arguments?|functions?|inputs?|messages?"
    r"|tasks?\b(?! stream))|graph.{0,60}(large|big|\bMB\b|\bMiB\b|\bGB\b|megabytes|bytes|size)|(each|every|all) tasks?"
    r" (\w+ ){0,3}(carr|hold|bring|refer|contain|includ|ship)|(travel|sent|shipped|copied|moved) (\w+ ){0,4}(with|in"
    r"|for|to) (each|every|all)|(size|bytes) (of|in) (the )?(graph|tasks)|refers? to|references?\b",
    places=(*marked(__file__), function("Photograph"), function("store_room"), r"(?i)from_array|original|getter|stack"),
    cures=r"scatter|referen|smaller|only what|path|file ?name|leave|without|__getstate__|__reduce__"
    r"|(inside|in|within|by) (the|each) (task|worker)|on the workers?|pickl|once (per|for each|on each|to each) worker"
    r"|keep .{0,40}out|don't (send|put|carry)|not (send|put|carry)|send .{0,20}once|names? of",
    never={
        r"(?i)(faster|slow|busy) (disk|storage)": "files are small, and in memory",
        MORE_WORKERS: "the scheduler packs, and workers unpack",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each photograph is read once",
        LOCK: "there is none",
    },
)


def path_of(number: int) -> str:
    return str(folder("boxes_of_drill_cores") / f"box-{number}.npy")


def prepare() -> None:
    for number in range(BOXES):
        np.save(path_of(number), np.random.default_rng(number).random(SHAPE))


@dataclass
class Register:
    """What is known of each box of the store room."""

    boxes: list[dict[str, object]] = field(default_factory=list)

    def fill(self) -> Register:
        for number in range(BOXES):
            notes = {f"note {row} of box {number}": f"depth {number * 3 + row / NOTES:.2f} m" for row in range(NOTES)}
            self.boxes.append({"path": path_of(number), **notes})
        return self


class Photograph:
    """One box, read when it is needed."""

    shape, dtype, ndim = SHAPE, np.dtype(float), 2

    def __init__(self, path: str, register: Register | None = None) -> None:
        self.path = path
        self.register = register  # <- here

    def __getitem__(self, part: tuple[slice, ...]) -> np.ndarray:
        return np.asarray(np.load(self.path)[part])


def store_room(register: Register, with_register: bool) -> Any:
    """All photographs, one chunk for each."""
    parts = []
    for number, box in enumerate(register.boxes):
        photograph = Photograph(str(box["path"]), register if with_register else None)  # <- here
        parts.append(da.from_array(photograph, chunks=SHAPE, name=f"box-{with_register}-{number}"))  # <- here
    return da.stack(parts)


def bad(client: Client) -> float:
    photographs = store_room(Register().fill(), with_register=True)  # <- here
    return float(photographs.sum(axis=2).max().compute())  # <- here


def good(client: Client) -> float:
    photographs = store_room(Register().fill(), with_register=False)
    return float(photographs.sum(axis=2).max().compute())
