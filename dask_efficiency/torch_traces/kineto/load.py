"""Kineto's files, from wherever they are: each one read, and all of them checked to be the ranks of one job."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, Any, Self, TypeAlias

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.cli.inputs import HEAD, Input, InputKind, look_at, said_by
from dask_efficiency.files.storage import check_file, opened
from dask_efficiency.show.progress import progress
from dask_efficiency.torch_traces.kineto.columns import ColumnsBuilder
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError, RanksError
from dask_efficiency.torch_traces.kineto.execution import ExecutionTrace, read_execution
from dask_efficiency.torch_traces.kineto.numbers import MAX_INSTANT, MAX_RANKS, first_with, integers
from dask_efficiency.torch_traces.kineto.parse import BLOCK, JsonStream, texts
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, KinetoTrace, RankTrace

#: Seconds between the windows of two ranks from which on they belong to different runs. Clocks of one job's hosts are
#: closer, even if one has the wrong daylight saving time.
MAX_APART_SECONDS = 2 * 3600

#: Ranks that a message names: a line or two.
MAX_NAMED = 16

#: Words for what was expected in place of another file.
EXPECTED = "traces that torch.profiler wrote, or a path that --save wrote"
#: Endings of the files that ``torch.profiler.tensorboard_trace_handler`` writes. In a folder that has some, only these
#: are read; in any other, all JSON.
_HANDLER = (".pt.trace.json", ".pt.trace.json.gz")
_JSON = (".json", ".json.gz")
_Path = str | os.PathLike[str]
#: A file, folder or pattern, or several files.
Paths: TypeAlias = _Path | Sequence[_Path]


def read_rank(
    file: IO[bytes], path: str, *, block: int = BLOCK, report: Callable[[int], object] = lambda read: None
) -> RankTrace:
    """Read the trace of one process, as :func:`read_ranks`; of a file with several ranks, the first."""
    return read_ranks(file, path, block=block, report=report)[0]


def read_ranks(
    file: IO[bytes], path: str, *, block: int = BLOCK, report: Callable[[int], object] = lambda read: None
) -> tuple[RankTrace, ...]:
    """Read what ``torch.profiler`` wrote: JSON, perhaps in gzip; an object or a list of events.

    It is the trace of one process, or of several ranks that were merged into one file
    (:func:`~dask_efficiency.torch_traces.kineto.merged.merged` tells them apart). It is read block by block:
    only the events of one block are in memory as objects. After each block, ``report`` is called with the number of
    bytes read. KinetoFileError has file, position and reason. Source: "Trace Event Format", Chromium; Kineto's
    ``output_json.cpp``. Of events without a duration, only the names of threads are kept.
    """
    stream = JsonStream(_of_kineto(texts(file, path, block), path), path)
    columns = ColumnsBuilder()
    for batch in stream.batches():
        columns.add(batch)
        report(file.tell())
    job = _job(stream.about)
    given = stream.about.get("baseTimeNanoseconds", 0)
    base, rank, world_size = integers([given, job.get("rank", 0), job.get("world_size", 0)]).tolist()
    if not 0 <= base < MAX_INSTANT:
        raise KinetoFileError(f"{path}: baseTimeNanoseconds is {given!r}; expected nanoseconds since the epoch")
    if max(rank, world_size) > MAX_RANKS:
        raise KinetoFileError(f"{path}: it is of rank {rank} of {world_size}; expected {MAX_RANKS} ranks at most")
    tables, groups = columns.build(base), _groups(job.get("pg_config"), columns.groups)
    if stream.no_numbers:
        columns.left_out["numbers that are inf or nan"] += stream.no_numbers
    merged = None not in tables
    if merged and world_size <= max(number for number in tables if number is not None):
        world_size = 0  # that of another job, or of one of its parts
    return tuple(
        RankTrace(
            rank=max(rank, 0) if number is None else number,
            world_size=world_size if world_size > 0 else None,
            path=path,
            events=tables[number],
            names=columns.names,
            threads=columns.threads(number),
            groups=groups,
            about=stream.about,
            memory=columns.memory(number, base),
            left_out=dict(columns.left_out) if not position else {},
            notes=tuple(columns.notes) if not position else (),
        )
        for position, number in enumerate(tables)
    )


def _of_kineto(blocks: Iterator[str], path: str) -> Iterator[str]:
    """Blocks of a file's text, unless its first characters say that it is something else."""
    head = ""
    for block in blocks:
        head += block
        if len(head) >= HEAD:
            break
    kind = said_by(head[:HEAD].lstrip())
    if kind is not None:
        raise KinetoFileError(Input(path, kind, path).instead_of(EXPECTED))
    return chain([head], blocks)


def _job(about: Mapping[str, Any]) -> dict[str, Any]:
    job = about.get("distributedInfo")
    return job if isinstance(job, dict) else {}


def _groups(configured: Any, in_events: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Members of process groups by name, from the description of the job, or else from its collectives."""
    ranks_of = dict(in_events)
    for group in configured if isinstance(configured, list) else []:
        if isinstance(group, dict) and "pg_name" in group:
            ranks_of[str(group["pg_name"])] = group.get("ranks")
    return {name: members for name, ranks in ranks_of.items() if (members := _members(ranks))}


def _members(ranks: Any) -> tuple[int, ...]:
    """Members from a list or from its text; empty where Kineto has cut the text, as it does for large groups."""
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank < MAX_RANKS for rank in ranks):
        return ()
    return tuple(ranks)


@dataclass(frozen=True, slots=True)
class JobRank:
    """A rank's place in a job, by its file."""

    rank: int
    #: Number of ranks in the job; None where the file has none.
    world_size: int | None
    path: str
    #: ``rank``, ``world_size`` and ``backend``, where the file says them.
    said: Mapping[str, Any]
    #: First start and last end of its events; None without events.
    window: tuple[int, int] | None

    @classmethod
    def of(cls, trace: RankTrace) -> Self:
        """Place of a trace."""
        events, job = trace.events, _job(trace.about)
        window = (int(events.start.min()), int(events.stop.max())) if len(events) else None
        said = {name: job[name] for name in ("rank", "world_size", "backend") if job.get(name) is not None}
        return cls(trace.rank, trace.world_size, trace.path, said, window)


def check_one_job(ranks: Sequence[JobRank], *, whole: bool) -> None:
    """Raise :class:`RanksError` for a rank that is there twice, for files of different jobs, and for a missing rank.

    Ranks may be missing unless they are the ``whole`` of a folder or a pattern.
    """
    files = defaultdict(list)
    for rank in ranks:
        files[rank.rank].append(rank)
    for number, several in files.items():
        if len(several) > 1:
            without_rank = any("rank" not in rank.said for rank in several)
            raise RanksError(
                f"rank {number} is there {len(several)} times: {', '.join(rank.path for rank in several)}"
                + (" (a file that does not say its rank is rank 0)" if without_rank else "")
            )
    for name in ("world_size", "backend"):
        values = [(rank.path, rank.said[name]) for rank in ranks if name in rank.said]
        for path, value in values:
            first, its = values[0]
            if value != its:
                raise RanksError(f"files of different jobs: {first} has {name} {its!r}, {path} has {value!r}")
    for rank in ranks:
        if rank.world_size is not None and rank.rank >= rank.world_size:
            raise RanksError(f"{rank.path} is of rank {rank.rank} in a job of {rank.world_size}")
    _check_one_run(ranks)
    world_size = max((rank.world_size for rank in ranks if rank.world_size is not None), default=0)
    there = sorted(rank.rank for rank in ranks)
    if whole and (missing := sorted(set(range(world_size)) - set(there))):
        raise RanksError(
            f"of a job of {world_size} ranks, {_listed(missing)} missing, and {_listed(there)} there; "
            "give a list of files to read only these"
        )


def _check_one_run(ranks: Sequence[JobRank]) -> None:
    """Raise :class:`RanksError` if windows do not lie together, but for clocks that differ."""
    reached, before = 0, ""
    for (start, stop), path in sorted((rank.window, rank.path) for rank in ranks if rank.window is not None):
        apart = (start - reached) / 1e9
        if before and apart > MAX_APART_SECONDS:
            raise RanksError(f"files of different runs: {path} begins {apart:.0f} s after the end of {before}")
        if stop > reached:
            reached, before = stop, path


def _listed(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:MAX_NAMED])) + (", ..." if len(ranks) > MAX_NAMED else "")
    return f"rank {named} is" if len(ranks) == 1 else f"{len(ranks)} ranks ({named}) are"


def load_kineto(
    paths: Paths,
    *,
    execution_trace: _Path | Mapping[int, _Path] | None = None,
    **storage_options: Any,
) -> KinetoTrace:
    """Read what ``torch.profiler`` wrote, of one process or of all of a job.

    Parameters
    ----------
    paths
        A file, JSON or JSON in gzip; or a folder or a pattern (``*``), which must hold every rank of a job once; or a
        list of files, which may be only some of its ranks. Local paths or fsspec URLs.
    execution_trace
        File that ``torch.profiler.ExecutionTraceObserver`` recorded together with the only rank, or Chakra's JSON; for
        several ranks, files by rank.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Returns
    -------
    KinetoTrace
        Ranks in the order of their numbers. A file without a rank is rank 0.

    Raises
    ------
    KinetoFileError
        If a file is no trace of Kineto's, is damaged, or ends early (file, reason, position), or there is none.
    RanksError
        If a rank is there twice, or files belong to different jobs, or a folder or pattern lacks a rank.
    UnknownRankError
        If an execution trace is given for a rank that is not there.
    ValueError
        If one execution trace is given for several ranks.
    """
    whole, files = kineto_files(paths, storage_options)
    trace = KinetoTrace(tuple(sorted(_all_read(files), key=lambda rank: rank.rank)))
    check_one_job([JobRank.of(rank) for rank in trace.ranks], whole=whole)
    if execution_trace is None:
        return trace
    if not isinstance(execution_trace, Mapping):
        if len(trace.ranks) > 1:
            raise ValueError(f"one execution_trace for ranks {trace.numbers}; give a mapping from the rank to its file")
        execution_trace = {trace.numbers[0]: execution_trace}
    return _with_executions(trace, execution_trace, storage_options)


def _with_executions(trace: KinetoTrace, paths: Mapping[int, _Path], storage_options: Mapping[str, Any]) -> KinetoTrace:

    changed = {}
    for number, path in paths.items():
        rank = trace.rank(number)
        with opened(path, **storage_options) as file:
            execution = read_execution(file, os.fspath(path))
        if not _share_operators(rank.events.record_function, execution):
            rank = _by_external(rank, execution)
        if not _share_operators(rank.events.record_function, execution) and (execution.nodes.duration == MISSING).all():
            raise KinetoFileError(
                f"{os.fspath(path)}: none of its operators is in {rank.path}, by record function or external id"
            )
        changed[number] = replace(rank, execution=execution)
    return KinetoTrace(tuple(changed.get(rank.rank, rank) for rank in trace.ranks))


def _share_operators(record_function: Int64, execution: ExecutionTrace) -> bool:
    both = np.intersect1d(execution.nodes.record_function, record_function)
    return bool((both > 0).any())


def _by_external(rank: RankTrace, execution: ExecutionTrace) -> RankTrace:
    """Number a rank's operators by "External id", which old versions have in common with an execution trace.

    Both count operators, so they agree by chance: only those of equal names are numbered, if these are most.
    """
    events = rank.events
    rows = np.flatnonzero(np.isin(events.category, NAMED_BY_PROGRAMS) & (events.external > 0))
    place = first_with(execution.nodes.record_function, events.external[rows])
    rows, place = rows[place != MISSING], place[place != MISSING]
    names = zip(events.name[rows].tolist(), execution.nodes.name[place].tolist(), strict=True)
    alike = np.array([rank.names[own] == execution.names[its] for own, its in names], np.bool_)
    if 2 * np.count_nonzero(alike) <= len(alike):
        return rank
    numbers = np.full(len(events), MISSING, np.int64)
    numbers[rows[alike]] = events.external[rows[alike]]
    return replace(rank, events=replace(events, record_function=numbers))


@dataclass(frozen=True, slots=True)
class KinetoFile:
    """A file to read: its file system, its path there, and the path to show."""

    file_system: Any
    path: str
    shown: str

    @property
    def nbytes(self) -> int | None:
        """Its size; None where the file system does not say."""
        found: int | None = self.file_system.size(self.path)
        return found

    def read(self, report: Callable[[int], object] = lambda read: None) -> tuple[RankTrace, ...]:
        """Ranks in it; :class:`KinetoFileError` says what it is instead, where that is known."""
        with self.file_system.open(self.path, "rb") as file:
            try:
                return read_ranks(file, self.shown, report=report)
            except KinetoFileError as error:
                raise _what_else(self.shown) or error from None


def kineto_files(paths: Paths, storage_options: dict[str, Any]) -> tuple[bool, list[KinetoFile]]:
    """Files of a path or of several, and True if these must be all ranks of a job; KinetoFileError without any."""
    if isinstance(paths, str | os.PathLike):
        whole, files = _expanded(os.fspath(paths), storage_options)
    else:
        whole = False
        files = [file for path in paths for file in _expanded(os.fspath(path), storage_options)[1]]
    if not files:
        raise KinetoFileError("no files were given")
    return whole, files


def _all_read(files: Sequence[KinetoFile]) -> list[RankTrace]:
    sizes = [file.nbytes for file in files]
    ranks: list[RankTrace] = []
    with progress(reading(files), unit="MB", of=sum(filter(None, sizes)) / 1e6 if all(sizes) else None) as report:
        before = 0
        for file in files:
            reached = before
            ranks += file.read(lambda read: report((reached + read) / 1e6))  # noqa: B023
            before += file.nbytes or 0
    return ranks


def reading(files: Sequence[KinetoFile]) -> str:
    """Words for what is read."""
    return f"reading {files[0].shown}" if len(files) == 1 else f"reading {len(files)} files"


def _what_else(shown: str) -> KinetoFileError | None:
    """Error that says what a file is that is no trace of Kineto's; None if that is not known."""
    with suppress(OSError, ValueError, ImportError):
        given = look_at(shown)
        if given.kind not in (InputKind.KINETO, InputKind.CHROME, InputKind.OTHER, InputKind.SCHEDULER):
            return KinetoFileError(given.instead_of(EXPECTED))
    return None


def _expanded(given: str, storage_options: dict[str, Any]) -> tuple[bool, list[KinetoFile]]:
    """Files of a path, and True if it can be many files."""
    import fsspec

    file_system, path = fsspec.core.url_to_fs(given, **storage_options)
    if any(character in path for character in "*?[") and not file_system.exists(path):
        names = sorted(file_system.glob(path))
    # to find out whether a URL is a folder, fsspec would download it
    elif not path.endswith(_JSON) and file_system.isdir(path):
        inside = sorted(file_system.ls(path, detail=False))
        names = [file for file in inside if file.endswith(_HANDLER)]
        names = names or [file for file in inside if file.endswith(_JSON)]
    else:
        names = [path]
    if not names:
        raise KinetoFileError(f"{given}: there is no trace of Kineto's (*.json, *.json.gz)")
    if names == [path]:
        check_file(given)
        return False, [KinetoFile(file_system, path, given)]
    local = "file" in file_system.protocol
    shown = (file if local else file_system.unstrip_protocol(file) for file in names)
    return True, [KinetoFile(file_system, file, each) for file, each in zip(names, shown, strict=True)]
