"""Groups of ancestors are loaded from a compressed archive by the script, which gives them to tasks to be matched.

source: tskit-dev/tsinfer issue 837
date:   2023-06-18
seen:   the main process fetches the data from disk, and all workers are idle while it does.
cause:  reading and decompressing are done in the client, one group after the other, and the data is sent along with
        each task; tasks are done sooner than the next group is there.
cure:   load the data within the task.
"""

from __future__ import annotations

import lzma
import shutil

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
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

CLUSTER = TWO_BY_ONE
GROUPS, ANCESTORS, SITES = scaled(45), 150, 80_000

EXPECTED = Expected(
    cause="the client reads and decompresses each group itself, one after the other, before it submits the task; the"
    " workers wait for it",
    place="load, called in matched for each group (lzma's read of the file), in the client",
    cure="load within the task: submit the number of the group instead of its data",
    says=r"\bclient\b|main (program|thread|process)|\bscript|your (own )?(program|process)|\bidle|nothing to (do|run)"
    r"|(read|load|decompress|inflat)\w*\b.{0,60}\b(client|one after|in turn|serial)|(large|big)\b.{0,30}\b(graph"
    r"|argument"
    r"|object)",
    places=(*marked(__file__), function("load"), function("matched")),
    cures=r"(in|within|inside|into|on|by|to) (the |a |your )?(tasks?|workers?)|submit|move\b|client\.map|\bas tasks?"
    r"|(pass|send|give)\b.{0,40}\b(path|name|number|index|file)|delayed|from_delayed|scatter",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        PROCESSES: "those that there are wait for the client",
        HOLDS_GIL: "it is not in the tasks",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "there is enough",
    },
)


def prepare() -> None:
    haplotypes = (np.random.default_rng(1).random((ANCESTORS, SITES), dtype="f4") < 0.12).astype("i1")
    first = folder("ancestors") / "group-0.xz"
    first.write_bytes(lzma.compress(haplotypes.tobytes(), preset=1))
    for group in range(1, GROUPS):
        shutil.copy(first, folder("ancestors") / f"group-{group}.xz")


def load(group: int) -> np.ndarray:
    with lzma.open(folder("ancestors") / f"group-{group}.xz") as archive:
        return np.frombuffer(archive.read(), "i1").reshape(ANCESTORS, SITES)  # <- here


def match(haplotypes: np.ndarray) -> float:
    """Mean share of sites that neighbours in the group have in common."""
    return float((haplotypes[1:] == haplotypes[:-1]).mean())


def load_and_match(group: int) -> float:
    return match(load(group))


def matched(client: Client) -> list[float]:
    futures = []
    for group in range(GROUPS):
        haplotypes = load(group)  # <- here
        futures.append(client.submit(match, haplotypes))  # <- here
    return client.gather(futures)


def bad(client: Client) -> float:
    return sum(matched(client))


def good(client: Client) -> float:
    return sum(client.gather(client.map(load_and_match, range(GROUPS))))
