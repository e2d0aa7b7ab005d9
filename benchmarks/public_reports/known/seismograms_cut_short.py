"""Spectra of a seismometer's hours are computed file by file; some of the files were cut short when the power failed.

source: dask/distributed issue 852; of the same kind: scikit-hep/coffea pull request 338
date:   2017-02-03 (pull request 338: 2020-08-25)
seen:   with retries, which are there for failures that pass, a run with some defective inputs takes many times as long.
cause:  retries=N runs a task again whatever its exception was: also one whose input is bad for good, and which finds
        that out at its end, after all of its work.
cure:   retries only for what may pass: catch the error that stays within the task and return that there is no result
        (or check the input first).
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
HOURS, BLOCKS, VALUES = 24, scaled(40), 100_000
#: One file in so many was cut short.
EACH = 4
RETRIES = 10

EXPECTED = Expected(
    cause="tasks whose files are defective fail and are run again, up to ten times, all for nothing",
    place="the map with retries, or the function spectrum, which raises",
    cure="no retries for errors that do not pass: catch them in the task, check files first, or fewer retries",
    says=r"retr(y|ies|ied)|fail(s|ed|ing|ures?)?\b|\berr(ed|ors?|oneous)\b|exceptions?\b|rais(e|es|ed|ing)\b|ValueError"
    r"|attempts?\b|(run|ran|runs|executed|computed|tried) (again|anew|\d+ times|several times|repeatedly)",
    places=(*marked(__file__), function("spectrum")),
    cures=r"retr(y|ies)|\bcatch|\bexcept\b|\btry\b|handle|check|validat|fail (early|fast|first)|skip|exclude|remove the"
    r"|(return|mark)[^\n]{0,30}(None|nothing|missing)|fix (the|what)|repair|prevent",
    never={
        MORE_WORKERS: "both cores are busy",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "tasks are long enough",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    """Files of blocks, with a sum of all values at the end, which is wrong in some."""
    place = folder("seismograms_cut_short")
    for hour in range(HOURS):
        rng = np.random.default_rng(hour)
        total = 0.0
        with (place / f"hour{hour:02}.bin").open("wb") as file:
            for _ in range(BLOCKS):
                values = np.cumsum(rng.integers(-3, 4, VALUES)).astype("int32")
                total += float(values.sum())
                packed = zlib.compress(values.tobytes(), 1)
                file.write(struct.pack("<i", len(packed)) + packed)
            file.write(struct.pack("<id", 0, total + (1.0 if hour % EACH == 1 else 0.0)))


def spectrum(path: Path) -> float:
    """Strength of the spectrum of an hour.

    Raises
    ------
    ValueError
        If the file is not as it was written.
    """
    total, strength = 0.0, 0.0
    with path.open("rb") as file:
        while size := struct.unpack("<i", file.read(4))[0]:
            values = np.frombuffer(zlib.decompress(file.read(size)), "int32")
            total += float(values.sum())
            strength += float(np.log1p(np.abs(np.fft.rfft(values - values.mean()))).mean())
        if total != struct.unpack("<d", file.read(8))[0]:
            raise ValueError(f"{path.name} is defective")  # <- here
    return strength


def spectrum_or_nothing(path: Path) -> float | None:
    """The same, or nothing for a file that is defective: that does not pass."""
    try:
        return spectrum(path)
    except ValueError:
        return None


def files() -> list[Path]:
    """Files of all hours."""
    return sorted(folder("seismograms_cut_short").glob("*.bin"))


def bad(client: Client) -> float:
    futures = client.map(spectrum, files(), retries=RETRIES)  # <- here
    return float(sum(client.gather(futures, errors="skip")))


def good(client: Client) -> float:
    futures = client.map(spectrum_or_nothing, files(), retries=RETRIES)
    return float(sum(strength for strength in client.gather(futures) if strength is not None))
