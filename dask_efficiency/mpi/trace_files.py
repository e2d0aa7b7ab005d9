"""load_trace: reads the time-independent trace of an MPI program, and joins the collectives of its ranks."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from math import gcd
from pathlib import Path

from dask_efficiency.files.storage import DamagedFileError, reading
from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.lines import WORLD, CollectiveOfRank, LineReader, SharedNumbers
from dask_efficiency.mpi.program import CollectiveCall, MpiTraceError, Op, Program
from dask_efficiency.show.progress import progress

#: ``0 send 1 0 100``: old traces have ``p0``.
_ACTION = re.compile(r"p?(\d{1,7})\s+([A-Za-z]\w*)\b")
#: In the first line of a trace with the speed of its machine.
_SPEED = re.compile(r"instructions_per_second=(\S+)")

#: Counters in a tracer's comments, such as ``# not traced: MPI_Put 12 MPI_Get 3``, and their words in notes.
_COUNTED = {
    "not traced": "calls that the trace does not have",
    "errors": "calls that returned an error",
    "as blocking where waited for": "collectives that did not block, taken as blocking where they were waited for",
    "not waited for": "requests that were begun and never waited for",
}
_COMMENT = re.compile(rf"#\s*(stopped|{'|'.join(_COUNTED)}):\s*(.*)")


class _Agreement:
    """Joins the collectives that ranks call into those of all ranks; ``files`` are for errors."""

    def __init__(
        self, readers: Sequence[LineReader], known: Mapping[CollectiveOfRank, int], files: Sequence[str]
    ) -> None:
        self._readers = readers
        self._made = list(known)
        self._files = files
        self._calls: dict[CollectiveCall, int] = {}
        #: Position of a call, by communicator and its ranks' collectives.
        self._joined: dict[tuple[str, tuple[int, ...]], int] = {}

    def calls(self) -> tuple[CollectiveCall, ...]:
        """Join the collectives, and put their positions into the ranks' actions; MpiTraceError if ranks disagree."""
        #: By rank and communicator: positions of collectives among the actions.
        positions: list[dict[str, array[int]]] = [defaultdict(lambda: array("L")) for _ in self._readers]
        members = {WORLD: tuple(range(len(self._readers)))}
        for rank, reader in enumerate(self._readers):
            for i, op in enumerate(reader.actions.ops):
                if op == Op.COLLECTIVE:
                    positions[rank][self._made[reader.actions.peers[i]].communicator].append(i)
            for name, ranks in reader.communicators.items():
                if members.setdefault(name, ranks) != ranks:
                    wrong = f"the communicator {name!r} has other ranks here than in {self._files[members[name][0]]}"
                    raise MpiTraceError(self._files[rank], wrong)
        for name, ranks in members.items():
            rows = [positions[rank][name] for rank in ranks]
            shared = min(map(len, rows))
            for k in range(shared):
                self._join(name, ranks, [row[k] for row in rows])
            if shared < max(map(len, rows)):
                raise self._missing(name, ranks, rows)
        return tuple(self._calls)

    def _join(self, communicator: str, ranks: tuple[int, ...], actions: list[int]) -> None:
        numbers = tuple(self._readers[rank].actions.peers[action] for rank, action in zip(ranks, actions, strict=True))
        position = self._joined.get((communicator, numbers))
        if position is None:
            made = [self._made[number] for number in numbers]
            for rank, action, called in zip(ranks, actions, made, strict=True):
                if (called.name, called.root) != (made[0].name, made[0].root):
                    expected = f"rank {ranks[0]} calls {_call_name(made[0])} ({self._place(ranks[0], actions[0])})"
                    wrong = f"rank {rank} calls {_call_name(called)} where {expected}; ranks must agree"
                    raise MpiTraceError(self._place(rank, action), wrong)
            call = CollectiveCall(ranks, _joined(made))
            position = self._calls.setdefault(call, len(self._calls))
            self._joined[communicator, numbers] = position
        for rank, action in zip(ranks, actions, strict=True):
            self._readers[rank].actions.peers[action] = position

    def _missing(self, name: str, ranks: tuple[int, ...], rows: list[array[int]]) -> MpiTraceError:
        counts = [len(row) for row in rows]
        fewest, most = counts.index(min(counts)), counts.index(max(counts))
        where = f" of the communicator {name!r}" if name else ""
        return MpiTraceError(
            self._place(ranks[most], rows[most][counts[fewest]]),
            f"rank {ranks[most]} calls {counts[fewest] + 1} collectives{where} or more, and rank {ranks[fewest]} "
            f"({self._files[ranks[fewest]]}) calls {counts[fewest]}: it would wait for ever",
        )

    def _place(self, rank: int, action: int) -> str:
        return f"{self._files[rank]}, line {self._readers[rank].actions.lines[action]}"


def _call_name(made: CollectiveOfRank) -> str:
    rooted = made.name in ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
    return f"{made.name} from root {made.root}" if rooted else made.name


def _joined(made: list[CollectiveOfRank]) -> Collective:
    """Join the calls of all ranks; sizes that only some of them have are taken from these."""
    name, root = made[0].name, made[0].root
    sizes = _sizes(name, root, [call.sends for call in made], [call.receives for call in made])
    # ranks with different datatypes share smaller elements, in the end bytes
    element = gcd(*sizes, max(call.element for call in made)) or 1
    return Collective(name, len(made), sizes, root, element=element)


def _sizes(name: str, root: int, sends: list[tuple[int, ...]], receives: list[tuple[int, ...]]) -> tuple[int, ...]:
    match name:
        case "barrier":
            return ()
        case "bcast":
            return (sends[root][0],)
        case "scatter":
            return (max(row[0] for row in receives),)
        case "gatherv":
            # a root with its part in place sends 0
            return tuple(max(sent[0], taken) for sent, taken in zip(sends, receives[root], strict=True))
        case "scatterv":
            return tuple(max(row[0], given) for row, given in zip(receives, sends[root], strict=True))
        case "allgatherv" | "reduce_scatter":
            return receives[0]
        case "alltoallv":
            ranks = range(len(sends))
            return tuple(
                max(sends[sender][receiver], receives[receiver][sender]) for sender in ranks for receiver in ranks
            )
        case _:
            return (max(row[0] for row in sends),)


def load_trace(path: str | os.PathLike[str]) -> Program:
    """Read a recorded MPI program.

    Parameters
    ----------
    path
        A list of files, one for each rank, as ``smpirun -trace-ti`` and ``dask-efficiency mpi record`` write it; a
        folder of such files; or one file with the lines of all ranks. Each may be compressed by gzip.

    Returns
    -------
    Program
        Its actions by rank.

    Raises
    ------
    MpiTraceError
        With file, line and the expected content.
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
    known = SharedNumbers()
    readers = [LineReader(rank, len(by_rank), known) for rank in range(len(by_rank))]
    comments = _Comments()
    with progress(f"reading {path}", unit="lines") as report:
        read = 0
        for file in dict.fromkeys(by_rank):
            read = _read(file, readers, [by_rank[rank] == file for rank in range(len(by_rank))], comments, read, report)
    names = [str(file) for file in by_rank]
    calls = _Agreement(readers, known.collectives, names).calls()
    return Program(path.name, [reader.actions for reader in readers], calls, names, comments.speed, comments.notes)


def _listed(path: Path) -> list[Path]:
    """Files that a file lists; none if it has actions itself."""
    files: list[Path] = []
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        if _ACTION.match(line) and not files:
            return []
        named = Path(line)
        # traces are moved with their folder; paths in SimGrid's examples are relative to its working folder
        candidates = [folder / named for folder in (path.parent, Path(), path.parent.parent)]
        file = next((candidate for candidate in candidates if candidate.is_file()), None)
        if file is None:
            raise MpiTraceError(f"{path}, line {number}", f"expected a rank's file, and there is no {line[:200]!r}")
        files.append(file)
    if not files:
        raise MpiTraceError(str(path), "expected actions, or files with the actions of a rank each; it is empty")
    return files


def _files_of_ranks(files: Sequence[Path]) -> list[Path]:
    """File of each rank."""
    by_rank: dict[int, Path] = {}
    for file in files:
        # a single file may have all ranks; of several, the first action has the rank
        for number, line in _lines(file):
            if line.startswith("#"):
                continue
            rank, _ = _action(file, number, line)
            if by_rank.setdefault(rank, file) != file:
                raise MpiTraceError(str(file), f"rank {rank} is in {by_rank[rank]} as well")
            if len(files) > 1:
                break
    if not by_rank:
        raise MpiTraceError(str(files[0]) if files else "the folder", "expected the actions of ranks, got none")
    if missing := sorted(set(range(len(by_rank))) - set(by_rank)):
        present = f"{len(by_rank)} up to {max(by_rank)}"
        raise MpiTraceError(str(files[0]), f"expected rank {missing[0]}, as there are {present}")
    return [by_rank[rank] for rank in range(len(by_rank))]


@dataclass(slots=True)
class _Comments:
    """A tracer's comments."""

    #: Instructions a second.
    speed: float = 0.0
    #: By counter and name.
    counted: dict[str, Counter[str]] = field(default_factory=dict)
    #: Notes about traces that stop before their ranks did.
    stopped: list[str] = field(default_factory=list)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [
            f"{words}: {', '.join(f'{name} {count}' for name, count in self.counted[what].most_common())}"
            for what, words in _COUNTED.items()
            if what in self.counted
        ]
        return tuple(notes + self.stopped)

    def take(self, file: Path, line: str) -> None:
        if parsed := _SPEED.search(line):
            self.speed = max(self.speed, float(parsed[1]))
        elif parsed := _COMMENT.match(line):
            if parsed[1] == "stopped":
                self.stopped.append(f"{file.name} stops before its rank did: {parsed[2]}")
            else:
                counts = self.counted.setdefault(parsed[1], Counter())
                for name, count in zip(*[iter(parsed[2].split())] * 2, strict=False):
                    counts[name] += int(count)


def _read(
    file: Path,
    readers: Sequence[LineReader],
    here: Sequence[bool],
    comments: _Comments,
    before: int,
    report: Callable[[int], object],
) -> int:
    """Read a file into the readers of its ranks; returns the number of lines read so far."""
    alone = sum(here) == 1
    number = 0
    for number, line in _lines(file):
        report(before + number)
        try:
            if line.startswith("#"):
                if line.startswith("#comm ") and alone:
                    readers[here.index(True)].group(line.split()[1:])
                else:
                    comments.take(file, line)
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
    parsed = _ACTION.match(line)
    if parsed is None:
        raise MpiTraceError(
            f"{file}, line {number}", f"expected a rank and an action such as '0 send 1 0 100', got {line[:80]!r}"
        )
    return int(parsed[1]), parsed[2]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    with reading(file) as content:
        try:
            for number, line in enumerate(TextIOWrapper(content, encoding="utf-8"), 1):
                if text := line.strip():
                    yield number, text
        except (UnicodeDecodeError, DamagedFileError) as error:
            raise MpiTraceError(str(file), f"expected text, also compressed by gzip: {error}") from error
