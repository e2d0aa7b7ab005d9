"""Samples around the events of a recording are read from HDF5 files by lists of their numbers.

source: NeurodataWithoutBorders/pynwb issue 1276; of the same kind: h5py/h5py issues 293, 368 and 2536
date:   2020-09-02 (issue 2536: 2024-12-05)
seen:   ten thousand of ten million samples take 14 s to read, all of them take hundredths of a second.
cause:  a list of positions becomes as many selections in the HDF5 library, which are put together one by one before
        anything is read.
cure:   read the range as a whole (or a mask), and pick the samples in memory.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_ONE
SESSIONS = scaled(30)
SAMPLES, CHANNELS = 400_000, 4
EVENTS, WIDTH = 7500, 50

EXPECTED = Expected(
    cause="a file is read by a long list of positions, which HDF5 puts together one by one",
    place="around_events, where it reads the samples",
    cure="read a whole range, and pick in memory",
    says=r"index(es|ing|ed)?\b|\bindices\b|\blists?\b.{0,40}(position|row|sample|number)|fancy|selection"
    r"|(scattered|single|individual|separate|many) (reads|rows|positions|samples|elements|values|pieces|points"
    r"|accesses)"
    r"|small reads|row by row|one by one|(rows|samples|values) are selected",
    places=(
        *marked(__file__),
        function("around_events"),
        function("response"),
        r"dataset\.py|selections\.py|_selector",
    ),
    cures=r"whole|contiguous|slices?\b|range|block|in memory|at once|larger (reads|pieces)"
    r"|fewer,? (larger )?(reads|pieces)"
    r"|mask|then (pick|index|select)|numpy|one read|sequential",
    never={
        LONGER_TASKS: "a task takes a second",
        MORE_WORKERS: "the cores are busy",
        MORE_MEMORY: "a session has some megabytes",
        HOLDS_GIL: "a worker has one thread",
    },
)


def prepare() -> None:
    for session in range(SESSIONS):
        rng = np.random.default_rng(session)
        with h5py.File(folder("sessions") / f"{session}.nwb", "w") as file:
            file["voltage"] = rng.normal(size=(SAMPLES, CHANNELS)).astype("f4")
            file["events"] = np.sort(rng.choice(SAMPLES // WIDTH - 2, EVENTS, replace=False) + 1) * WIDTH


def of_trials(events: np.ndarray) -> np.ndarray:
    """Numbers of the samples of all trials: every other one after an event."""
    return (events[:, np.newaxis] + np.arange(0, WIDTH, 2)).ravel()


def around_events(file: h5py.File) -> np.ndarray:
    return file["voltage"][of_trials(file["events"][:])]  # <- here


def around_events_in_memory(file: h5py.File) -> np.ndarray:
    return file["voltage"][:][of_trials(file["events"][:])]


def strength(trials: np.ndarray) -> float:
    """Size of the mean response of a session."""
    mean = trials.reshape(EVENTS, -1, CHANNELS).mean(axis=0, dtype=float)
    return float(np.abs(np.fft.rfft(mean, axis=0)).sum())


def response(path: Path) -> float:
    with h5py.File(path) as file:
        return strength(around_events(file))  # <- here


def response_in_memory(path: Path) -> float:
    with h5py.File(path) as file:
        return strength(around_events_in_memory(file))


def sessions() -> list[Path]:
    return [folder("sessions") / f"{session}.nwb" for session in range(SESSIONS)]


def bad(client: Client) -> float:
    return sum(client.gather(client.map(response, sessions())))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(response_in_memory, sessions())))
