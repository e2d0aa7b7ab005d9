"""Each task finds the files of its scan by a pattern, in a folder with those of all scans.

source: milesial/Pytorch-UNet issue 449; of the same kind: dask/dask issue 2746
date:   2023-07-04 (issue 2746: 2017-10-05)
seen:   to open a file of a folder with very many, all of their names are looked up; on a shared file system that is
        what takes time.
cause:  a pattern is matched by listing the folders, which is done anew for each scan.
cure:   list once, and give each task the names of its files.
"""

from __future__ import annotations

from pathlib import Path

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

CLUSTER = TWO_BY_ONE
SUBJECTS, CHANNELS = 160, ("t1", "t2", "flair")
VISITS = 24
TASKS = scaled(220)

EXPECTED = Expected(
    cause="each task lists all folders, to find its few files",
    place="files_of, where it looks for files by a pattern",
    cure="list once, and pass the names on",
    says=r"\bglob|\blist(s|ed|ing)?\b|director(y|ies)|folders?\b|scandir|\bwalk|(look|search|find)\w* .{0,30}files?"
    r"|\bfile ?names?\b|\bpatterns?\b|file ?system|metadata of files|\bstat\b",
    places=(*marked(__file__), function("files_of"), function("volume"), r"\bglob\b|_glob|pathlib|scandir|fnmatch"),
    cures=r"\bonce\b|cache|index|(pass|give|send)\w* .{0,30}(names?|paths?|files?|list)|before (the|submitting)"
    r"|beforehand"
    r"|outside|in the client|direct(ly)?\b|re-?use|without (the )?(listing|searching|looking)|fewer|full path|narrow",
    never={
        LONGER_TASKS: "a task takes tenths of a second",
        MORE_WORKERS: "all of them would list the same folders",
        MORE_MEMORY: "files are tiny",
        HOLDS_GIL: "a worker has one thread",
    },
)


def name_of(subject: int, visit: int, channel: str) -> str:
    return f"sub-{subject:03d}_ses-{visit:02d}_{channel}.txt"


def prepare() -> None:
    for subject in range(SUBJECTS):
        for visit in range(VISITS):
            session = folder("study") / f"site-{subject % 8}" / f"sub-{subject:03d}"
            session.mkdir(parents=True, exist_ok=True)
            for number, channel in enumerate(CHANNELS):
                (session / name_of(subject, visit, channel)).write_text(str(subject + visit + number))


def scans() -> list[tuple[int, int]]:
    draw = np.random.default_rng(2)
    return list(zip(draw.integers(0, SUBJECTS, TASKS).tolist(), draw.integers(0, VISITS, TASKS).tolist(), strict=True))


def files_of(root: Path, subject: int, visit: int) -> list[Path]:
    """Files of a scan, wherever in the study they are."""
    found = [root.rglob(name_of(subject, visit, channel)) for channel in CHANNELS]  # <- here
    return sorted(path for paths in found for path in paths)  # <- here


def volume_of(files: list[Path]) -> float:
    return sum(float(file.read_text()) for file in files)


def volume(scan: tuple[int, int], root: Path) -> float:
    return volume_of(files_of(root, *scan))  # <- here


def bad(client: Client) -> float:
    return sum(client.gather(client.map(volume, scans(), root=folder("study"), pure=False)))  # <- here


def good(client: Client) -> float:
    known = {path.name: path for path in folder("study").rglob("*.txt")}
    files = [[known[name_of(*scan, channel)] for channel in CHANNELS] for scan in scans()]
    return sum(client.gather(client.map(volume_of, files, pure=False)))
