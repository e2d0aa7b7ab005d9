"""load_trace: reads the time-independent trace of an MPI program."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path

from dask_efficiency.files.storage import DamagedFileError, reading
from dask_efficiency.mpi.agreement import Agreement
from dask_efficiency.mpi.errors import MpiTraceError
from dask_efficiency.mpi.lines import Known, LineReader
from dask_efficiency.mpi.program import Program
from dask_efficiency.show.progress import progress

#: ``0 send 1 0 100``: old traces have ``p0``.
_ACTION = re.compile(r"p?(\d{1,7})\s+([A-Za-z]\w*)\b")

#: Of the first line of a trace that knows what its amounts are of.
_SPEED = re.compile(r"instructions_per_second=(\S+)")

#: What a tracer counts in comments such as ``# not traced: MPI_Put 12 MPI_Get 3``, and how a reader is told.
_COUNTED = {
    "not traced": "calls that the trace does not have",
    "errors": "calls that returned an error",
    "as blocking where waited for": "collectives that did not block, taken as blocking where they were waited for",
    "not waited for": "what was begun and never waited for",
}
_COMMENT = re.compile(rf"#\s*(stopped|{'|'.join(_COUNTED)}):\s*(.*)")

#: A trace has a file for each rank; more than this is another thing.
MAX_RANKS = 100_000

#: Lines between two reports of how many were read.
_LINES = 10_000


def load_trace(path: str | os.PathLike[str]) -> Program:
    """Read a recorded MPI program.

    Parameters
    ----------
    path
        A list of files, a rank's each, as ``smpirun -trace-ti`` and ``dask-efficiency mpi record`` write it; a folder
        of such files; or one file with the lines of all ranks. Each may be compressed by gzip.

    Returns
    -------
    Program
        What each rank does.

    Raises
    ------
    MpiTraceError
        With file, line and what was expected.
    OSError
        If a file cannot be read.

    References
    ----------
    Desprez, Markomanolis, Quinson, Suter: Assessing the Performance of MPI Applications Through Time-Independent Trace
    Replay, PSTI 2011.
    """
    path = Path(path)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if path.is_file() and (listed := _listed(path)):
        files = listed
    by_rank = _files_of_ranks(files)
    known = Known()
    readers = [LineReader(rank, len(by_rank), known) for rank in range(len(by_rank))]
    said = _Said()
    with progress(f"reading {path}", unit="lines") as report:
        read = 0
        for file in dict.fromkeys(by_rank):
            read = _read(file, readers, [by_rank[rank] == file for rank in range(len(by_rank))], said, read, report)
    names = [str(file) for file in by_rank]
    calls = Agreement(readers, known.collectives, names).calls()
    return Program(path.name, [reader.actions for reader in readers], calls, names, said.speed, said.notes)


def _listed(path: Path) -> list[Path]:
    """The files that a file lists; none if it has actions itself."""
    found: list[Path] = []
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        if _ACTION.match(line) and not found:
            return []
        named = Path(line)
        # Traces are moved with their folder, and SimGrid's examples count from where it was started.
        candidates = [folder / named for folder in (path.parent, Path(), path.parent.parent)]
        file = next((candidate for candidate in candidates if candidate.is_file()), None)
        if file is None:
            raise MpiTraceError(f"{path}, line {number}", f"expected a rank's file, and there is no {line[:200]!r}")
        found.append(file)
        if len(found) > MAX_RANKS:
            raise MpiTraceError(str(path), f"expected at most {MAX_RANKS} files")
    if not found:
        raise MpiTraceError(str(path), "expected actions, or files with the actions of a rank each; it is empty")
    return found


def _files_of_ranks(files: Sequence[Path]) -> list[Path]:
    """By rank: the file with its actions."""
    found: dict[int, Path] = {}
    for file in files:
        # One file of all ranks is read to its end; of a rank's own, the first action says whose it is.
        for number, line in _lines(file):
            if line.startswith("#"):
                continue
            rank, _ = _action(file, number, line)
            if found.setdefault(rank, file) != file:
                raise MpiTraceError(str(file), f"rank {rank} is in {found[rank]} as well")
            if len(files) > 1:
                break
    if not found:
        raise MpiTraceError(str(files[0]) if files else "the folder", "expected the actions of ranks, got none")
    for rank in range(len(found)):
        if rank not in found:
            highest = max(found)
            raise MpiTraceError(str(files[0]), f"expected rank {rank}, as there are {len(found)} up to {highest}")
    return [found[rank] for rank in range(len(found))]


@dataclass(slots=True)
class _Said:
    """What the comments of a tracer say."""

    #: Instructions a second.
    speed: float = 0.0
    #: How often, by what is counted and by name.
    counted: dict[str, Counter[str]] = field(default_factory=dict)
    #: Traces that stop before their ranks did, and why.
    stopped: list[str] = field(default_factory=list)

    @property
    def notes(self) -> tuple[str, ...]:
        found = [
            f"{said}: {_listed_counts(self.counted[what])}" for what, said in _COUNTED.items() if what in self.counted
        ]
        return tuple(found + self.stopped)

    def take(self, file: Path, line: str) -> None:
        if found := _SPEED.search(line):
            self.speed = max(self.speed, float(found[1]))
        elif found := _COMMENT.match(line):
            if found[1] == "stopped":
                self.stopped.append(f"{file.name} stops before its rank did: {found[2]}")
            else:
                counts = self.counted.setdefault(found[1], Counter())
                for name, count in zip(*[iter(found[2].split())] * 2, strict=False):
                    counts[name] += int(count)


def _listed_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _read(
    file: Path,
    readers: Sequence[LineReader],
    here: Sequence[bool],
    said: _Said,
    before: int,
    report: Callable[[int], object],
) -> int:
    """Read a file into the readers of its ranks; how many lines were read with it and before it."""
    alone = sum(here) == 1
    number = 0
    for number, line in _lines(file):
        if not number % _LINES:
            report(before + number)
        try:
            if line.startswith("#"):
                if line.startswith("#comm ") and alone:
                    readers[here.index(True)].group(line.split()[1:])
                else:
                    said.take(file, line)
                continue
            rank, name = _action(file, number, line)
            if not here[rank]:
                raise ValueError(f"expected actions of rank {here.index(True)}, got one of rank {rank}")
            readers[rank].read(number, name, line.split()[2:])
        except MpiTraceError:
            raise
        except (ValueError, OverflowError) as error:
            raise MpiTraceError(f"{file}, line {number}", str(error)) from error
        except IndexError as error:
            raise MpiTraceError(f"{file}, line {number}", f"there are ranks 0 to {len(here) - 1}") from error
    report(before + number)
    return before + number


def _action(file: Path, number: int, line: str) -> tuple[int, str]:
    found = _ACTION.match(line)
    if found is None:
        raise MpiTraceError(
            f"{file}, line {number}", f"expected a rank and an action such as '0 send 1 0 100', got {line[:80]!r}"
        )
    return int(found[1]), found[2]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    with reading(file) as content:
        try:
            for number, line in enumerate(TextIOWrapper(content, encoding="utf-8"), 1):
                if text := line.strip():
                    yield number, text
        except (UnicodeDecodeError, DamagedFileError) as error:
            raise MpiTraceError(str(file), f"expected text, also compressed by gzip: {error}") from error
