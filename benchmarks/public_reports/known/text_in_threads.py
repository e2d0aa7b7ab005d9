"""Records of text are taken apart by Python functions in the threads of one process.

source: dask/dask-tutorial issue 136 (text that is read in threads is slower than one after the other; the answer: text
        is often bound by the GIL, try processes)
date:   2019-11-12
seen:   with as many threads as there are cores, a job that parses text is no quicker than without Dask, and slower at
        times; one core is busy.
cause:  the functions run in Python and hold the GIL, so that one thread runs at a time.
cure:   as many processes with one thread each.
"""

from __future__ import annotations

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = {"n_workers": 2, "threads_per_worker": 1}
FILES, LINES = 12, scaled(230_000)
WORDS = ["river", "stone", "lamp", "paper", "winter", "engine", "copper", "garden", "letter", "harbour", "meadow"]

EXPECTED = Expected(
    cause="the tasks hold the GIL: the threads of the one process wait for each other, and one core is busy",
    place="the functions weight (and words), in threads of one process",
    cure="processes with one thread each instead of threads (LocalCluster(n_workers=2, threads_per_worker=1))",
    says=r"\bGIL\b|interpreter lock|pure python|threads? (of|in) (one|a|the same|each) (process|worker)|one"
    r" (core|thread) at a time",
    places=(*marked(__file__), function("weight"), function("scores"), r"\bmap\b|read_text|file_to_blocks|decode|sum"),
    cures=r"process|threads_per_worker|n_workers|one thread|fewer threads|vectori[sz]|release",
    never={
        LONGER_TASKS: "a task takes half a second",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each file is read once",
        r"(?im)(^|[.:;])\s*(add|use|start|try) (more |further )?threads": "one of the two waits as it is",
        r"(?i)slow disk|disk is slow|faster disk": "the files are in the page cache",
    },
)


def prepare() -> None:
    for number in range(FILES):
        rng = np.random.default_rng(number)
        chosen = rng.integers(0, len(WORDS), (LINES, 6)).tolist()
        lines = (" ".join(WORDS[word] for word in line) for line in chosen)
        (folder("letters") / f"{number:02d}.txt").write_text("\n".join(lines) + "\n")


def weight(line: str) -> int:  # <- here
    """Number of vowels in words that do not begin with one, and of the different words."""
    words = line.split()
    vowels = 0
    for word in words:
        if word[0] not in "aeiou":
            vowels += sum(letter in "aeiou" for letter in word)
    return vowels * len(set(words))


def scores() -> float:
    lines = db.read_text(str(folder("letters") / "*.txt"))
    return float(lines.map(weight).sum().compute())  # <- here


def bad(client: Client) -> float:
    return scores()


def good(client: Client) -> float:
    return scores()
