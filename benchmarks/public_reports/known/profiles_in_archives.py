"""Profiles of proteins are taken from compressed archives, in the order in which they are to be looked at.

source: huangnengCSU/compleasm issue 68 (the cause of its issue 66); like: thammegowda/mtdata issue 78
date:   2026-08-17 (issue 78: 2021-10-28)
seen:   an archive of 350 MB with thousands of profiles is unpacked by tar in 20 s, and not within hours by a program
        that goes through a set of their names.
cause:  a compressed archive can only be read from the start on: for each member that lies before the last one, all is
        decompressed again up to it.
cure:   take members in the order of the archive (or all of them, in one pass).
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
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
ARCHIVES, PROFILES, WANTED, COLUMNS = 4, 400, scaled(130), 2_500

EXPECTED = Expected(
    cause="members are taken out of order, so that the archive is decompressed from its start again for each of them",
    place="extractfile in scores, or the order of the names in ranked",
    cure="sort the members by their place in the archive, or read or unpack all of it in one pass",
    says=r"(seek|go(es|ing)?|jump|read|step)\w*\W+(\w+\W+){0,4}back\b|backwards?|rewind|from (the|its) (start"
    r"|beginning)"
    r"|(decompress|inflat|unpack|gzip)\w*\W+(\w+\W+){0,10}(again|repeatedly|several|many times|more than once|over and"
    r" over|each|every)|random (order|access)|out of order|order (of|in) the (archive|members|file)|not in order",
    places=(*marked(__file__), function("scores"), function("ranked")),
    cures=r"\border\b|\bsort|one pass|sequential|extractall|(extract|unpack|read)\w*\W+(\w+\W+){0,4}(all|once|first"
    r"|before)|\bzip\b|uncompressed|random access|\bstream|offset",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


def archive(number: int) -> Path:
    return folder("profiles_in_archives") / f"family-{number}.tar.gz"


def profile(rng: np.random.Generator) -> bytes:
    """A profile in text: four numbers for each column."""
    numbers = rng.integers(0, 900, (COLUMNS, 4))
    return "\n".join(" ".join(map(str, row)) for row in numbers.tolist()).encode()


def prepare() -> None:
    """One archive, under several names."""
    rng = np.random.default_rng(68)
    archive(0).unlink(missing_ok=True)
    with tarfile.open(archive(0), "w:gz", compresslevel=1) as bundle:
        for number in range(PROFILES):
            content = profile(rng)
            member = tarfile.TarInfo(f"profile-{number}.hmm")
            member.size = len(content)
            bundle.addfile(member, io.BytesIO(content))
    for number in range(1, ARCHIVES):
        archive(number).unlink(missing_ok=True)
        os.link(archive(0), archive(number))


def ranked(number: int) -> list[str]:
    """Names of the profiles to look at, the most promising first."""
    order = np.random.default_rng(number).permutation(PROFILES)[:WANTED]
    return [f"profile-{place}.hmm" for place in order]


def score(content: bytes) -> int:
    numbers = np.array([int(word) for word in content.split()])
    return int(numbers.reshape(COLUMNS, 4).max(axis=1).sum())


def scores(number: int, names: Iterable[str]) -> int:
    """Scores of some profiles of an archive, added up."""
    total = 0
    with tarfile.open(archive(number), "r:gz") as bundle:
        for name in names:
            member = bundle.extractfile(name)  # <- here
            assert member is not None
            total += score(member.read())  # <- here
    return total


def scores_as_ranked(number: int) -> int:
    return scores(number, ranked(number))  # <- here


def scores_as_stored(number: int) -> int:
    """The same profiles, in the order in which they are in the archive."""
    with tarfile.open(archive(number), "r:gz") as bundle:
        places = {member.name: member.offset for member in bundle}
    return scores(number, sorted(ranked(number), key=places.__getitem__))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(scores_as_ranked, range(ARCHIVES)))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(scores_as_stored, range(ARCHIVES)))))
