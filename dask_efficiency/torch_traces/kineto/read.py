"""One rank's file: from its bytes to a RankTrace."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import IO, Any

from dask_efficiency.torch_traces.kineto.columns import ColumnsBuilder
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.kineto.numbers import MAX_INSTANT, MAX_RANKS, integers
from dask_efficiency.torch_traces.kineto.parse import Pieces
from dask_efficiency.torch_traces.kineto.text import BLOCK, texts
from dask_efficiency.torch_traces.kineto.trace import RankTrace


def read_rank(
    file: IO[bytes], path: str, *, block: int = BLOCK, report: Callable[[int], object] = lambda read: None
) -> RankTrace:
    """Read what ``torch.profiler`` wrote in one process.

    The file is read block by block; no more than the events of one block are in memory as objects.

    Parameters
    ----------
    file
        Binary, at its beginning; JSON, or JSON in gzip, which its first bytes tell. Either an object with
        ``traceEvents`` in it, or only the list of events.
    path
        Where it is, for messages and :attr:`RankTrace.path <dask_efficiency.torch_traces.kineto.trace.RankTrace.path>`.
    block
        Bytes that are read at a time.
    report
        Is called after each block, with the bytes of the file that were read.

    Raises
    ------
    KinetoFileError
        If it is no such file, is damaged, or ends early; it says which file, what is wrong, and where.

    References
    ----------
    "Trace Event Format", Chromium; Kineto's ``output_json.cpp`` for what it adds to it. We differ from readers of the
    former: events without a duration, but for the names of threads, are not kept.
    """
    pieces = Pieces(texts(file, path, block), path)
    columns = ColumnsBuilder()
    for batch in pieces.batches():
        columns.add(batch)
        report(file.tell())
    about = pieces.about
    base = _base(about, path)
    events = columns.build(base)
    job = about.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    rank, world_size = integers([job.get("rank", 0), job.get("world_size", 0)]).tolist()
    if max(rank, world_size) > MAX_RANKS:
        raise KinetoFileError(f"{path}: it is of rank {rank} of {world_size}; expected {MAX_RANKS} ranks at most")
    return RankTrace(
        rank=max(rank, 0),
        world_size=world_size if world_size > 0 else None,
        path=path,
        events=events,
        names=columns.names,
        threads=columns.threads,
        groups=_groups(job.get("pg_config"), columns.groups),
        about=about,
        left_out=dict(columns.left_out),
    )


def _base(about: Mapping[str, Any], path: str) -> int:
    """What is to be added to every instant, nanoseconds."""
    given = about.get("baseTimeNanoseconds", 0)
    base = int(integers([given])[0])
    if not 0 <= base < MAX_INSTANT:
        raise KinetoFileError(f"{path}: baseTimeNanoseconds is {given!r}; expected nanoseconds since the epoch")
    return base


def _groups(configured: Any, in_events: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Members of process groups by name: what the file says of the job, and else what its collectives say."""
    said = dict(in_events)
    for group in configured if isinstance(configured, list) else []:
        if isinstance(group, dict) and "pg_name" in group:
            said[str(group["pg_name"])] = group.get("ranks")
    return {name: members for name, ranks in said.items() if (members := _members(ranks))}


def _members(ranks: Any) -> tuple[int, ...]:
    """Of a list, or of its text, in which Kineto leaves out members of large groups: such a one is not known."""
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank < MAX_RANKS for rank in ranks):
        return ()
    return tuple(ranks)
