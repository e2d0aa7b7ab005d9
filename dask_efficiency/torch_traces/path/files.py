"""Critical paths of torch traces in files: columns of the trace, the graphs and the walk, and their description."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, ColumnTable, Texts
from dask_efficiency.runs.path.kinds import KINDS
from dask_efficiency.runs.trace.archive import Archive, Format, read_archive, write_archive
from dask_efficiency.torch_traces.kineto.execution import DataDependencies, ExecutionNodes, ExecutionTrace
from dask_efficiency.torch_traces.kineto.numbers import MAX_INSTANT, MAX_RANKS
from dask_efficiency.torch_traces.kineto.trace import Category, Events, KinetoTrace, MemoryEvents, RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes, Region, TorchGraph
from dask_efficiency.torch_traces.path.longest import path_edges
from dask_efficiency.torch_traces.path.path import TorchCriticalPath
from dask_efficiency.torch_traces.path.ranks import job_ranks
from dask_efficiency.torch_traces.path.region import TorchQuestion
from dask_efficiency.torch_traces.path.stretches import TorchStretches

AnyTable = TypeVar("AnyTable", bound=ColumnTable)

#: Name and version of the format.
FORMAT, VERSION = "dask-efficiency-torch-path", 1


class PathFileError(ValueError):
    """Not a torch trace's critical path that this version can read."""


_FORM = Format(FORMAT, VERSION, "path.json", PathFileError)


def save_path(path: TorchCriticalPath, target: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write a path, for :meth:`TorchCriticalPath.save <dask_efficiency.torch_traces.TorchCriticalPath.save>`."""
    write_archive(target, _FORM, _description(path), _columns(path), **storage_options)


def load_critical_path(path: str | os.PathLike[str], **storage_options: Any) -> TorchCriticalPath:
    """Read the critical path of a torch trace that was saved to a local path or fsspec URL.

    Parameters
    ----------
    path
        As given to :meth:`TorchCriticalPath.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    PathFileError
        If the file is foreign, truncated, damaged, forged or of a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return read_archive(path, _FORM, _path, **storage_options)


def _columns(path: TorchCriticalPath) -> Iterator[tuple[str, Mapping[str, NDArray[Any]]]]:
    for number, rank in enumerate(path.trace.ranks):
        names = Texts.of(rank.names)
        yield f"ranks/{number}/events", rank.events.columns()
        yield f"ranks/{number}/names", {"block": names.block}
        yield f"ranks/{number}/name_offsets", {"offsets": names.offsets}
        if len(rank.memory):
            yield f"ranks/{number}/memory", rank.memory.columns()
        if rank.execution is not None:
            yield f"executions/{number}/nodes", rank.execution.nodes.columns()
            yield f"executions/{number}/dependencies", rank.execution.dependencies.columns()
    for number, graph in enumerate(path.graphs):
        yield f"graphs/{number}/nodes", graph.nodes.columns()
        yield f"graphs/{number}/edges", graph.edges.columns()
        yield f"graphs/{number}/region", {"rows": graph.region.rows}
    yield "longest", {"nodes": path.longest}
    yield "stretches", path.stretches.columns()


def _description(path: TorchCriticalPath) -> dict[str, Any]:
    return {
        "question": asdict(path.question) | {"data_loading": list(path.question.data_loading)},
        "chosen": path.chosen,
        "changes": list(path.changes),
        "ranks": [
            {
                "rank": rank.rank,
                "world_size": rank.world_size,
                "path": rank.path,
                "threads": [[process, thread, name] for (process, thread), name in rank.threads.items()],
                "groups": {name: list(members) for name, members in rank.groups.items()},
                "about": dict(rank.about),
                "left_out": dict(rank.left_out),
                "notes": list(rank.notes),
                "has_memory": bool(len(rank.memory)),
                "execution": rank.execution and {"path": rank.execution.path, "names": list(rank.execution.names)},
            }
            for rank in path.trace.ranks
        ],
        "graphs": [
            {
                "rank": graph.trace.rank,
                "start": graph.region.start,
                "stop": graph.region.stop,
                "description": graph.region.description,
                "data_loading": list(graph.data_loading),
            }
            for graph in path.graphs
        ],
    }


def _path(archive: Archive) -> TorchCriticalPath:
    trace = KinetoTrace(tuple(_rank(archive, *described) for described in enumerate(archive.listed("ranks", dict))))
    graphs = tuple(
        _graph(archive, number, described, trace) for number, described in enumerate(archive.listed("graphs", dict))
    )
    chosen = archive.field("chosen", int)
    if not 0 <= chosen < len(graphs):
        raise PathFileError(f"'chosen' is {chosen}; expected the position of one of {len(graphs)} graphs")
    longest = archive.columns("longest", {"nodes": np.int32})["nodes"]
    _check("longest/nodes", longest, len(graphs[chosen].nodes))
    try:
        path_edges(graphs[chosen], longest)
    except ValueError as error:
        raise PathFileError(f"'longest/nodes' are no path: {error}") from error
    stretches = _table(archive, "stretches", TorchStretches, {"kind": len(KINDS)}, {"rank": len(trace.ranks)})
    if (stretches.start > stretches.stop).any() or (stretches.start[1:] != stretches.stop[:-1]).any():
        raise PathFileError(
            "'stretches' do not follow one another; expected each to begin where the one before it ends"
        )
    for position, rank in enumerate(trace.ranks):
        _check("stretches/event", stretches.event[stretches.rank == position], len(rank.events), MISSING)
    question = _question(archive, archive.field("question", dict))
    job = job_ranks(trace, data_loading=question.data_loading)
    changes = tuple(archive.listed("changes", str))
    return TorchCriticalPath(trace, question, graphs, chosen, longest, stretches, job, changes)


def _question(archive: Archive, described: Mapping[str, Any]) -> TorchQuestion:
    instance, rank = described.get("instance"), described.get("rank")
    if isinstance(instance, list) and [type(number) for number in instance] == [int, int]:
        instance = (instance[0], instance[1])
    elif instance is not None and type(instance) is not int:
        raise PathFileError(f"'question.instance' is {instance!r:.80}; expected a number, two, or none")
    if type(rank) not in (int, type(None)):
        raise PathFileError(f"'question.rank' is {rank!r:.80}; expected a number or none")
    patterns = archive.all_of("data_loading", archive.part(described, "data_loading", list, "question"), str)
    return TorchQuestion(archive.part(described, "annotation", str, "question"), instance, rank, tuple(patterns))


def _rank(archive: Archive, number: int, described: Mapping[str, Any]) -> RankTrace:
    where = f"ranks/{number}"
    block = archive.columns(f"{where}/names", {"block": np.uint8})["block"]
    offsets = archive.columns(f"{where}/name_offsets", {"offsets": np.int64})["offsets"]
    names = tuple(archive.texts(block, offsets, f"{where}/name_offsets"))
    events = _table(
        archive,
        f"{where}/events",
        Events,
        {"category": len(Category), "name": len(names)},
        dict.fromkeys(("collective", "group", "element_type"), len(names)),
    )
    _check(f"{where}/events/call", events.call, len(events), MISSING)
    world_size = described.get("world_size")
    if world_size is not None and not (type(world_size) is int and 0 < world_size <= MAX_RANKS):
        raise PathFileError(f"'ranks.world_size' is {world_size!r:.80}; expected a number to {MAX_RANKS}, or none")
    rank = archive.part(described, "rank", int, "ranks")
    if not 0 <= rank <= MAX_RANKS:
        raise PathFileError(f"'ranks.rank' is {rank!r:.80}; expected 0 to {MAX_RANKS}")
    notes = archive.part({"notes": [], **described}, "notes", list, "ranks")  # later than version 1
    return RankTrace(
        rank=rank,
        world_size=world_size,
        path=archive.part(described, "path", str, "ranks"),
        events=events,
        names=names,
        threads=_threads(archive.part(described, "threads", list, "ranks")),
        groups=_groups(archive, archive.part(described, "groups", dict, "ranks")),
        about=archive.part(described, "about", dict, "ranks"),
        left_out=archive.part(described, "left_out", dict, "ranks"),
        notes=tuple(archive.all_of("ranks.notes", notes, str)),
        execution=_execution(archive, number, described.get("execution")),
        memory=_table(archive, f"{where}/memory", MemoryEvents)
        if described.get("has_memory") is True  # later than version 1
        else MemoryEvents.empty(),
    )


def _execution(archive: Archive, number: int, described: Any) -> ExecutionTrace | None:
    if described is None:
        return None
    if not isinstance(described, dict):
        raise PathFileError(f"'ranks.execution' is {described!r:.80}; expected dict or none")
    where = f"executions/{number}"
    names = archive.all_of("ranks.execution.names", archive.part(described, "names", list, "ranks.execution"), str)
    nodes = _table(archive, f"{where}/nodes", ExecutionNodes, {"name": len(names)})
    _check(f"{where}/nodes/parent", nodes.parent, len(nodes), MISSING)
    rows = dict.fromkeys(("producer", "reader"), len(nodes))
    dependencies = _table(archive, f"{where}/dependencies", DataDependencies, rows)
    path = archive.part(described, "path", str, "ranks.execution")
    return ExecutionTrace(path, nodes, dependencies, tuple(names))


def _threads(listed: list[Any]) -> dict[tuple[int, int], str]:
    threads = {}
    for described in listed:
        if not isinstance(described, list) or [type(item) for item in described] != [int, int, str]:
            raise PathFileError(f"'ranks.threads' holds {described!r:.80}; expected a process, a thread and a name")
        threads[described[0], described[1]] = described[2]
    return threads


def _groups(archive: Archive, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    where = "ranks.groups"
    listed = {name: archive.part(described, name, list, where) for name in described}
    return {name: tuple(archive.all_of(where, members, int)) for name, members in listed.items()}


def _graph(archive: Archive, number: int, described: Mapping[str, Any], trace: KinetoTrace) -> TorchGraph:
    where = f"graphs/{number}"
    of_rank = archive.part(described, "rank", int, "graphs")
    rank = next((rank for rank in trace.ranks if rank.rank == of_rank), None)
    if rank is None:
        raise PathFileError(f"'graphs.rank' is {of_rank}; expected {', '.join(str(rank.rank) for rank in trace.ranks)}")
    nodes = _table(archive, f"{where}/nodes", Nodes, {"event": len(rank.events)})
    ends = {"source": len(nodes), "target": len(nodes), "kind": len(EdgeKind)}
    edges = _table(archive, f"{where}/edges", Edges, ends, {"event": len(rank.events)})
    rows = archive.columns(f"{where}/region", {"rows": np.int32})["rows"]
    _check(f"{where}/region/rows", rows, len(rank.events))
    start, stop = (archive.part(described, name, int, "graphs") for name in ("start", "stop"))
    if not -MAX_INSTANT <= start <= stop <= MAX_INSTANT:
        given = f"{start!r:.80} and {stop!r:.80}"
        raise PathFileError(f"'graphs.start' and 'graphs.stop' are {given}; expected nanoseconds")
    region = Region(start, stop, rows, archive.part(described, "description", str, "graphs"))
    patterns = archive.all_of("data_loading", archive.part(described, "data_loading", list, "graphs"), str)
    return TorchGraph(rank, region, nodes, edges, tuple(patterns))


def _table(
    archive: Archive,
    where: str,
    kind: type[AnyTable],
    positions: Mapping[str, int] = {},
    or_missing: Mapping[str, int] = {},
) -> AnyTable:
    """Read a table. Its nanoseconds and bytes must be small enough to be added, and positions below these lengths."""
    columns = archive.columns(where, kind.dtypes())
    for name, described in kind.schema().items():
        column = columns[name]
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if described.unit and not -MAX_INSTANT <= low <= high <= MAX_INSTANT:
            raise PathFileError(f"'{where}/{name}' has {low} to {high}; expected numbers to {MAX_INSTANT}")
    for least, lengths in ((0, positions), (MISSING, or_missing)):
        for name, length in lengths.items():
            _check(f"{where}/{name}", columns[name], length, least)
    return kind(**columns)


def _check(where: str, positions: NDArray[Any], length: int, least: int = 0) -> None:
    """Raise if a column has a number that is no position in its target."""
    if len(positions) and not least <= int(positions.min()) <= int(positions.max()) < length:
        given = f"{int(positions.min())} to {int(positions.max())}"
        raise PathFileError(f"{where!r} has {given}; expected {least} to {length - 1}")
