"""Spectra of a mass spectrometer are read by small readers, each of which knows the catalogue it came from.

source: DKISTDC/dkist pull request 455
date:   2024-10-26
seen:   a sum over one axis of a dataset of many files takes 1 min 53 s in a plain loop, 16 s with multiprocessing on
        eight cores, and 2 min 33 s with the distributed scheduler: workers wait for their tasks most of the time.
cause:  the loader of each file has a reference to the container of all loaders, so that each task travels with the
        whole container, which is pickled for each task, sent, and unpickled.
cure:   readers without that reference: each holds what it needs itself, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SPECTRA = scaled(700)
LENGTH = 30_000

EXPECTED = Expected(
    cause="each task carries the catalogue of all spectra, which is pickled, sent and unpickled again for every task",
    place="the readers that are made with the catalogue, or the compute() that sends them",
    cure="let a reader hold only its own entry; or scatter the catalogue once",
    says=r"pickl|seriali[sz]|large (graph|task|argument|object)|(graph|tasks?|arguments?|functions?|closures?|objects?)"
    r"\b.{0,50}(large|big|heavy|MiB|MB|kB|KiB|carr|travel|contain|embed|hold|refer|sent|send)"
    r"|(sent|sends?|send|ship|carr(y|ies)|travel|transfer|embed)\w*.{0,40}(with )?(each|every|all|per) (task|call)"
    r"|(each|every|all|per) (task|call|reader)s?\b.{0,50}(sent|send|carr|travel|contain|embed|hold|refer|copy)",
    places=(*marked(__file__), function("Reader"), function("highest"), function("catalogue_of_all")),
    cures=r"scatter|only (what|its|the)|smaller|less|without|not (hold|carry|send|refer|pass)|once\b|on the workers?"
    r"|__getstate__|__reduce__|leave out|drop|path|by (key|name|number)|in the task",
    never={
        MORE_WORKERS: "one more gets its tasks from the same scheduler",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


@dataclass(frozen=True)
class Entry:
    """What a catalogue has of a spectrum."""

    number: int
    substance: str
    settings: dict[str, float]


@dataclass(frozen=True)
class Reader:
    """Reads a spectrum, with the help of a catalogue."""

    catalogue: list[Entry]
    number: int

    def highest(self) -> float:
        return highest_peak(self.catalogue[self.number])


def catalogue_of_all() -> list[Entry]:
    names = [f"voltage of lens {i}" for i in range(24)]
    return [
        Entry(number, f"substance {number % 91}", {name: number * 0.5 + i for i, name in enumerate(names)})
        for number in range(SPECTRA)
    ]


def highest_peak(entry: Entry) -> float:
    """Highest peak of a spectrum, smoothed."""
    masses = np.linspace(0, 60, LENGTH)
    signal = np.sin(masses * (1 + entry.number % 17)) + np.cos(masses * masses) * entry.settings["voltage of lens 3"]
    return float(np.convolve(signal, np.hanning(31), mode="valid").max())


def bad(client: Client) -> float:
    catalogue = catalogue_of_all()
    readers = [Reader(catalogue, number) for number in range(SPECTRA)]  # <- here
    peaks = [dask.delayed(reader.highest)() for reader in readers]  # <- here
    return float(sum(dask.compute(*peaks)))  # <- here


def good(client: Client) -> float:
    peaks = [dask.delayed(highest_peak)(entry) for entry in catalogue_of_all()]
    return float(sum(dask.compute(*peaks)))
