"""Trace files: saving, loading, and checks that positions and numbers of a trace are valid."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.archive import Archive, Format, read_archive, to_json, write_archive
from dask_efficiency.runs.trace.run_trace import (
    MAX_ALL_PROFILES_BYTES,
    MAX_PROFILE_BYTES,
    POINTS_INTO,
    TABLES,
    RunTrace,
    TaskProfile,
    WorkerSpec,
)

#: Longest run and duration in nanoseconds, a year and some days: sums of longer ones would not fit in 64 bits.
MAX_NS = 1 << 55
#: Largest number of bytes, and of anything else: sums of two still fit in 64 bits.
MAX_NUMBER = 1 << 62


def check_positions(trace: RunTrace) -> None:
    """Check that all parts of a trace fit each other; a position may be ``MISSING``."""
    starts, edges, tasks = trace.dependency_starts, trace.dependencies, len(trace.tasks)
    if len(trace.keys) != tasks:
        raise ValueError(f"there are {len(trace.keys)} keys; expected one for each of {tasks} tasks")
    if len(starts) != tasks + 1:
        raise ValueError(f"dependency_starts has {len(starts)} rows; expected {tasks + 1}, one more than tasks")
    if starts[0] != 0 or starts[-1] != len(edges) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"dependency_starts does not rise from 0 to the {len(edges)} dependencies")
    _check_range("dependencies", edges, tasks, "tasks", lowest=0)
    for table, columns in POINTS_INTO.items():
        for column, target in columns.items():
            size = len(getattr(trace, target) if isinstance(target, str) else target)
            name = target if isinstance(target, str | tuple) else target.__name__
            _check_range(f"{table}.{column}", getattr(getattr(trace, table), column), size, name)
    for profile in trace.profiles:
        if not 0 <= profile.run < len(trace.runs):
            raise ValueError(f"a profile is of run {profile.run}; expected 0 to {len(trace.runs) - 1}, as of runs")
    if trace.constraints and not 0 <= min(trace.constraints) <= max(trace.constraints) < tasks:
        raise ValueError(f"constraints name a task that is none of {tasks}")


def check_numbers(trace: RunTrace) -> None:
    """Check that sums and differences of a trace's numbers do not overflow.

    Instants lie at most :data:`MAX_NS` before or after the run; the run and all durations take no longer than that.
    Sizes and rates are at most :data:`MAX_NUMBER`. All of them may be ``MISSING``.
    """
    if not -MAX_NUMBER <= trace.start <= trace.stop <= min(trace.start + MAX_NS, MAX_NUMBER):
        raise ValueError(f"the run is from {trace.start} to {trace.stop}; expected nanoseconds, of {MAX_NS} at most")
    for table, kind in TABLES.items():
        for name, described in kind.schema().items():
            column = getattr(getattr(trace, table), name)
            if column.dtype != np.int64 or described.points_into is not None:
                continue
            lowest, highest = 0 if described.unit else -MAX_NUMBER, MAX_NS if described.unit == "ns" else MAX_NUMBER
            if described.clock is not None:
                lowest, highest = trace.start - MAX_NS, trace.stop + MAX_NS
            wrong = (column != MISSING) & ((column < lowest) | (column > highest))
            if wrong.any():
                row = int(wrong.argmax())
                raise ValueError(f"{table}.{name} is {column[row]} in row {row}; expected {lowest} to {highest}")


def _check_range(name: str, column: NDArray[Any], size: int, target: object, lowest: int = MISSING) -> None:
    if not len(column) or (column.min() >= lowest and column.max() < size):
        return
    row = int(((column < lowest) | (column >= size)).argmax())
    raise ValueError(f"{name} is {column[row]} in row {row}; expected {lowest} to {size - 1}, as of {target}")


#: Columns of the file that are not those of a table.
_ARRAYS: dict[str, dict[str, type[np.generic]]] = {
    "keys": {"block": np.uint8},
    "key_offsets": {"offsets": np.int64},
    "dependency_starts": {"starts": np.int64},
    "dependencies": {"tasks": np.int32},
    "constraints": {"task": np.int64, "constraint": np.int64},
}

#: Name of a profile in the archive, by its position.
_PROFILE = "profiles/{}.json.gz"
#: Fields of a profile in the description.
_OF_PROFILE = tuple(field.name for field in fields(TaskProfile) if field.name != "content")
#: Most threads of a worker in a file that is not refused as forged.
_MAX_THREADS = 1 << 20
_NAMES = ("prefixes", "spans", "clients", "stimulus_kinds", "notes")
_MAPPINGS = ("config", "versions", "dropped")
_WAITS = ("core_waits", "gil_waits")


class TraceFileError(ValueError):
    """The file is not a trace that this version understands."""


_FORM = Format("dask-efficiency-trace", 3, "trace.json", TraceFileError)


def save_trace(trace: RunTrace, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Save a trace, as :meth:`RunTrace.save <dask_efficiency.RunTrace.save>`, if its parts fit each other."""
    check_positions(trace)
    texts = [json.dumps(constraint, sort_keys=True, default=to_json) for constraint in trace.constraints.values()]
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    numbers = np.array([number[text] for text in texts], np.int64)
    columns = {name: getattr(trace, name).columns() for name in TABLES} | {
        "keys": {"block": trace.keys.block},
        "key_offsets": {"offsets": trace.keys.offsets},
        "dependency_starts": {"starts": trace.dependency_starts},
        "dependencies": {"tasks": trace.dependencies},
        "constraints": {"task": np.array(list(trace.constraints), np.int64), "constraint": numbers},
    }
    described = {
        **{name: getattr(trace, name) for name in ("name", "start", "stop")},
        **{name: list(getattr(trace, name)) for name in _NAMES},
        "workers": [asdict(worker) | {"resources": dict(worker.resources)} for worker in trace.workers],
        "constraints": [json.loads(text) for text in number],
        **{name: dict(getattr(trace, name)) for name in _MAPPINGS},
        **{name: dict(getattr(trace, name)) for name in _WAITS},
        "profiles": [{name: getattr(profile, name) for name in _OF_PROFILE} for profile in trace.profiles],
    }
    profiles = [(_PROFILE.format(i), profile.content) for i, profile in enumerate(trace.profiles)]
    write_archive(path, _FORM, described, columns.items(), profiles, **storage_options)


def load_trace(path: str | os.PathLike[str], **storage_options: Any) -> RunTrace:
    """Load a trace from a local path or fsspec URL.

    Parameters
    ----------
    path
        As given to :meth:`RunTrace.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    TraceFileError
        If the file is foreign, truncated, damaged, forged or of a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return read_archive(path, _FORM, _trace, **storage_options)


def _trace(archive: Archive) -> RunTrace:
    # Of any type: mypy cannot follow that each has the type of its name.
    names: dict[str, Any] = {name: tuple(archive.listed(name, str)) for name in _NAMES}
    mappings: dict[str, Any] = {name: archive.field(name, dict) for name in _MAPPINGS}
    tables: dict[str, Any] = {name: table(**archive.columns(name, table.dtypes())) for name, table in TABLES.items()}
    waits: dict[str, Any] = {name: _waits(archive, name) for name in _WAITS}
    arrays = {name: archive.columns(name, dtypes) for name, dtypes in _ARRAYS.items()}
    try:
        trace = RunTrace(
            name=archive.field("name", str),
            start=archive.field("start", int),
            stop=archive.field("stop", int),
            keys=archive.texts(arrays["keys"]["block"], arrays["key_offsets"]["offsets"], "key_offsets"),
            dependency_starts=arrays["dependency_starts"]["starts"],
            dependencies=arrays["dependencies"]["tasks"],
            constraints=_constraints(arrays["constraints"], archive.listed("constraints", dict)),
            workers=tuple(_worker(archive, worker) for worker in archive.listed("workers", dict)),
            profiles=tuple(_profiles(archive)),
            **names,
            **mappings,
            **waits,
            **tables,
        )
        check_positions(trace)
        check_numbers(trace)
    except TraceFileError:
        raise
    except ValueError as error:
        raise TraceFileError(f"its parts do not fit: {error}") from error
    return trace


def _constraints(columns: Mapping[str, NDArray[Any]], distinct: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    tasks, numbers = (columns[name].tolist() for name in ("task", "constraint"))
    if numbers and not 0 <= min(numbers) <= max(numbers) < len(distinct):
        raise TraceFileError(f"'constraints' has numbers up to {max(numbers)}; expected those of {len(distinct)}")
    return {task: distinct[number] for task, number in zip(tasks, numbers, strict=True)}


def _waits(archive: Archive, name: str) -> dict[str, float]:
    if name not in archive.described:  # as in older files
        return {}
    shares: dict[str, float] = archive.field(name, dict)
    for share in shares.values():
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise TraceFileError(f"{name!r} has {share!r:.80}; expected 0 to 1")
    return shares


def _profiles(archive: Archive) -> Iterator[TaskProfile]:
    room = MAX_ALL_PROFILES_BYTES
    for i, profile in enumerate(archive.listed("profiles", dict)):
        name = _PROFILE.format(i)
        numbers = {field: archive.part(profile, field, int, name) for field in _OF_PROFILE}
        for field, number in numbers.items():
            if not 0 <= number <= MAX_NUMBER:
                raise TraceFileError(f"{f'{name}.{field}'!r} is {number}; expected 0 to {MAX_NUMBER}")
        start, stop = numbers["start"], numbers["stop"]
        if stop < start:
            raise TraceFileError(f"{name!r} stops at {stop}; expected at least {start}, where it starts")
        content = archive.content(name, min(room, MAX_PROFILE_BYTES))
        room -= len(content)
        yield TaskProfile(content=content, **numbers)


def _worker(archive: Archive, described: dict[str, Any]) -> WorkerSpec:
    kinds = {"name": str, "address": str, "host": str, "resources": dict, "cores": float, "others": float}
    names = [field.name for field in fields(WorkerSpec) if field.name != "others" or "others" in described]
    values = {name: archive.part(described, name, kinds.get(name, int), "workers") for name in names}
    for name, value in values.items():
        lowest = -MAX_NUMBER if name == "clock_offset" else 0
        highest = {"nthreads": _MAX_THREADS, "resources": math.inf, "others": 1}.get(name, MAX_NUMBER)
        numbers = () if isinstance(value, str) else value.values() if isinstance(value, dict) else (value,)
        for number in numbers:
            if type(number) not in (int, float) or not lowest <= number <= highest:
                raise TraceFileError(f"'workers.{name}' has {number!r:.80}; expected {lowest} to {highest}")
    return WorkerSpec(**values)
