"""Kineto's files, of one rank or of many, from wherever they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.show.progress import progress
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.kineto.execution import read_execution
from dask_efficiency.torch_traces.kineto.ranks import check_all_there, check_one_job
from dask_efficiency.torch_traces.kineto.read import read_rank
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace

#: Endings of the files that ``torch.profiler.tensorboard_trace_handler`` writes; a folder that has such is read for
#: these alone, and any other for all its JSON.
_HANDLER = (".pt.trace.json", ".pt.trace.json.gz")
_JSON = (".json", ".json.gz")

_Path = str | os.PathLike[str]


def load_kineto(
    paths: _Path | Sequence[_Path],
    *,
    execution_trace: _Path | Mapping[int, _Path] | None = None,
    **storage_options: Any,
) -> KinetoTrace:
    """Read what ``torch.profiler`` wrote, of one process or of all of a job.

    Parameters
    ----------
    paths
        A file, JSON or JSON in gzip; or a folder or a pattern (``*``), which are to hold every rank of a job once; or
        a list of files, which may be some of its ranks only. Local paths or fsspec URLs.
    execution_trace
        What ``torch.profiler.ExecutionTraceObserver`` recorded beside the only rank, or Chakra's JSON of it; of several
        ranks, the files by rank.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Returns
    -------
    KinetoTrace
        The ranks in the order of their numbers. A file that does not say a rank is rank 0.

    Raises
    ------
    KinetoFileError
        If a file is no trace of Kineto's, is damaged, or ends early (which, what, and where), or there is none.
    RanksError
        If a rank is there twice, or files are of different jobs; or, of a folder or a pattern, a rank is missing.
    UnknownRankError
        If there is an execution trace of a rank that is not there.
    ValueError
        If there is one execution trace for several ranks.
    """
    if isinstance(paths, str | os.PathLike):
        whole, files = _expanded(os.fspath(paths), storage_options)
    else:
        whole = False
        files = [file for path in paths for file in _expanded(os.fspath(path), storage_options)[1]]
    if not files:
        raise KinetoFileError("no files were given")
    trace = KinetoTrace(tuple(sorted(_all_read(files), key=lambda rank: rank.rank)))
    check_one_job(trace)
    if whole:
        check_all_there(trace)
    if execution_trace is None:
        return trace
    if not isinstance(execution_trace, Mapping):
        if len(trace.ranks) > 1:
            raise ValueError(f"one execution_trace for ranks {trace.numbers}; give a mapping from the rank to its file")
        execution_trace = {trace.numbers[0]: execution_trace}
    return _with_executions(trace, execution_trace, storage_options)


def _with_executions(trace: KinetoTrace, paths: Mapping[int, _Path], storage_options: Mapping[str, Any]) -> KinetoTrace:
    import fsspec

    changed = {}
    for number, path in paths.items():
        rank = trace.rank(number)
        with fsspec.open(os.fspath(path), "rb", compression=None, **storage_options) as file:
            execution = read_execution(file, os.fspath(path))
        both = np.intersect1d(execution.nodes.record_function, rank.events.record_function)
        if not (both > 0).any() and (execution.nodes.duration == MISSING).all():
            raise KinetoFileError(f"{os.fspath(path)}: none of its operators is in {rank.path}, by record function")
        changed[number] = replace(rank, execution=execution)
    return KinetoTrace(tuple(changed.get(rank.rank, rank) for rank in trace.ranks))


def _all_read(files: Sequence[tuple[Any, str, str]]) -> list[RankTrace]:
    what = files[0][2] if len(files) == 1 else f"{len(files)} files"
    sizes = [file_system.size(path) for file_system, path, _ in files]
    found: list[RankTrace] = []
    with progress(f"reading {what}", unit="MB", of=sum(sizes) / 1e6 if all(sizes) else None) as report:
        before = 0
        for file_system, path, shown in files:
            with file_system.open(path, "rb") as file:
                found.append(read_rank(file, shown, report=lambda read: report((before + read) / 1e6)))  # noqa: B023
                before += file.tell()
    return found


def _expanded(given: str, storage_options: dict[str, Any]) -> tuple[bool, list[tuple[Any, str, str]]]:
    """Whether a path stands for many files, and these: file system, path in it, and path as people know it."""
    import fsspec

    file_system, path = fsspec.core.url_to_fs(given, **storage_options)
    # a web server would be asked for the whole file, were it asked whether that is a folder
    if path.endswith(_JSON):
        found = [path] if not _is_pattern(path) or file_system.exists(path) else sorted(file_system.glob(path))
    elif _is_pattern(path) and not file_system.exists(path):
        found = sorted(file_system.glob(path))
    elif file_system.isdir(path):
        inside = sorted(file_system.ls(path, detail=False))
        found = [file for file in inside if file.endswith(_HANDLER)]
        found = found or [file for file in inside if file.endswith(_JSON)]
    else:
        found = [path]
    if not found:
        raise KinetoFileError(f"{given}: there is no trace of Kineto's (*.json, *.json.gz)")
    if found == [path]:
        return False, [(file_system, path, given)]
    local = "file" in file_system.protocol
    return True, [(file_system, file, file if local else file_system.unstrip_protocol(file)) for file in found]


def _is_pattern(path: str) -> bool:
    return any(character in path for character in "*?[")
