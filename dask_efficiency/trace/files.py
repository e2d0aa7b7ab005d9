"""Traces in files: columns packed in a zip archive beside their description in JSON, and never a program."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.storage import writing
from dask_efficiency.trace.packing import ROW_BEFORE, Packing, pack, unpack
from dask_efficiency.trace.positions import check_positions
from dask_efficiency.trace.profiles import MAX_PROFILE_BYTES, Profile
from dask_efficiency.trace.run_trace import TABLES, TraceTables, WorkerSpec
from dask_efficiency.trace.tables import MISSING, Int64, Texts

FORMAT = "dask-efficiency-trace"
VERSION = 2

#: Versions that can be read: the first one has no profiles.
_KNOWN = (1, VERSION)

#: Member of the archive that describes the others.
_DESCRIPTION = "trace.json"

#: zlib's; higher ones take much longer for a few per cent.
_LEVEL = 3

#: What deflate can make of a byte, at most; a file that claims more is forged.
_MAX_OUT_OF_ONE = 1032

#: Columns that older files lack, by table.
_ADDED = {
    table: frozenset(name for name, column in kind.schema().items() if column.added_later)
    for table, kind in TABLES.items()
}

#: What else is kept as columns.
_ARRAYS: dict[str, dict[str, type[np.generic]]] = {
    "keys": {"block": np.uint8},
    "key_offsets": {"offsets": np.int64},
    "dependency_starts": {"starts": np.int64},
    "dependencies": {"tasks": np.int32},
    "constraints": {"task": np.int64, "constraint": np.int64},
}

#: Where the profiles stand in the archive, by their positions.
_PROFILE = "profiles/{}.json.gz"

#: What is said of a profile in the description.
_OF_PROFILE = tuple(field.name for field in fields(Profile) if field.name != "content")

_NAMES = ("prefixes", "spans", "clients", "stimulus_kinds", "notes")


class TraceFileError(ValueError):
    """What was read is not a trace that this version understands."""


def save_trace(trace: TraceTables, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write a trace; what :meth:`RunTrace.save <dask_efficiency.RunTrace.save>` does.

    Parameters
    ----------
    path
        A local path or any fsspec URL; ``.trace`` is a good ending. A local file is replaced as a
        whole or not at all.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    ValueError
        If the parts of the trace do not fit each other, as :func:`check_positions` says.
    """
    check_positions(trace)
    with (
        writing(path, **storage_options) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        groups = {}
        for group, columns in _columns(trace):
            others: dict[str, Int64] = {}
            packings = {}
            for name, column in columns.items():
                packings[name], content, filled = pack(_as_integers(column), others)
                others = {name: filled}
                archive.writestr(f"{group}/{name}", content)
            rows = len(next(iter(columns.values())))
            groups[group] = {"rows": rows, "columns": {name: astuple(p) for name, p in packings.items()}}
        for i, profile in enumerate(trace.profiles):  # compressed already
            archive.writestr(_PROFILE.format(i), profile.content, zipfile.ZIP_STORED)
        archive.writestr(_DESCRIPTION, json.dumps(_description(trace) | {"columns": groups}, default=_plain))


def _columns(trace: TraceTables) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    yield from ((name, getattr(trace, name).columns()) for name in TABLES)
    yield "keys", {"block": trace.keys.block}
    yield "key_offsets", {"offsets": trace.keys.offsets}
    yield "dependency_starts", {"starts": trace.dependency_starts}
    yield "dependencies", {"tasks": trace.dependencies}
    distinct = _distinct(trace)
    tasks = [(task, distinct[_text(constraint)]) for task, constraint in trace.constraints.items()]
    rows = np.array(tasks, np.int64).reshape(len(tasks), 2)
    yield "constraints", {"task": rows[:, 0], "constraint": rows[:, 1]}


def _distinct(trace: TraceTables) -> dict[str, int]:
    """The constraints that tasks have, as JSON, numbered."""
    return {text: i for i, text in enumerate(dict.fromkeys(map(_text, trace.constraints.values())))}


def _text(constraint: Mapping[str, Any]) -> str:
    return json.dumps(constraint, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """A setting that JSON does not know: a number of numpy's as it is, anything else as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _as_integers(column: NDArray[Any]) -> NDArray[Any]:
    return column.view(np.int64) if column.dtype == np.float64 else column


def _description(trace: TraceTables) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": trace.name,
        "start": trace.start,
        "stop": trace.stop,
        **{name: list(getattr(trace, name)) for name in _NAMES},
        "workers": [asdict(worker) | {"resources": dict(worker.resources)} for worker in trace.workers],
        "constraints": [json.loads(text) for text in _distinct(trace)],
        "config": dict(trace.config),
        "versions": dict(trace.versions),
        "dropped": dict(trace.dropped),
        "profiles": [{name: getattr(profile, name) for name in _OF_PROFILE} for profile in trace.profiles],
    }


def read_trace(path: str | os.PathLike[str], **storage_options: Any) -> TraceTables:
    """The tables of a saved trace; :func:`~dask_efficiency.load_trace` says more.

    Raises
    ------
    TraceFileError
        If the file is foreign, truncated, damaged, forged or of a newer version.
    """
    import fsspec

    target = os.fspath(path)
    with fsspec.open(target, "rb", compression=None, **storage_options) as file:
        content = file.read()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _trace(archive)
    except TraceFileError as error:
        raise TraceFileError(f"{target}: {error}") from error.__cause__
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise TraceFileError(
            f"{target}: foreign, damaged or truncated ({error}); expected a {FORMAT!r} file"
        ) from error


def _trace(archive: zipfile.ZipFile) -> TraceTables:
    described = _described(archive)
    groups = _field(described, "columns", dict)
    # of any type: mypy cannot follow that each has the type of its name
    names: dict[str, Any] = {name: tuple(_listed(described, name, str)) for name in _NAMES}
    tables: dict[str, Any] = {
        name: table(**_unpacked(archive, groups, name, table.dtypes())) for name, table in TABLES.items()
    }
    arrays = {name: _unpacked(archive, groups, name, dtypes) for name, dtypes in _ARRAYS.items()}
    try:
        trace = TraceTables(
            name=_field(described, "name", str),
            start=_field(described, "start", int),
            stop=_field(described, "stop", int),
            keys=_texts(arrays["keys"]["block"], arrays["key_offsets"]["offsets"]),
            dependency_starts=arrays["dependency_starts"]["starts"],
            dependencies=arrays["dependencies"]["tasks"],
            constraints=_constraints(arrays["constraints"], _listed(described, "constraints", dict)),
            workers=tuple(_worker(worker) for worker in _listed(described, "workers", dict)),
            config=_field(described, "config", dict),
            versions=_field(described, "versions", dict),
            dropped=_field(described, "dropped", dict),
            profiles=tuple(_profiles(archive, described)),
            **names,
            **tables,
        )
        check_positions(trace)
    except TraceFileError:
        raise
    except ValueError as error:
        raise TraceFileError(f"its parts do not fit: {error}") from error
    return trace


def _described(archive: zipfile.ZipFile) -> dict[str, Any]:
    try:
        described = json.loads(archive.read(_DESCRIPTION))
    except KeyError:
        raise TraceFileError(f"is an archive without {_DESCRIPTION!r}; expected a {FORMAT!r} file") from None
    except (ValueError, RecursionError) as error:
        raise TraceFileError(f"{_DESCRIPTION!r} is no valid JSON ({error})") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        found = described.get("format") if isinstance(described, dict) else described
        raise TraceFileError(f"found format {found!r:.80}; expected {FORMAT!r}")
    if described.get("version") not in _KNOWN:
        raise TraceFileError(
            f"found version {described.get('version')!r:.80} of {FORMAT!r}; expected at most {VERSION}: "
            "a newer dask-efficiency may have written it"
        )
    return described


def _unpacked(
    archive: zipfile.ZipFile, groups: dict[str, Any], group: str, dtypes: Mapping[str, type[np.generic]]
) -> dict[str, NDArray[Any]]:
    described = _field(groups, group, dict, "columns")
    rows = _field(described, "rows", int, group)
    packings = _field(described, "columns", dict, group)
    older = _ADDED.get(group, frozenset()) - set(packings)
    if rows < 0 or set(packings) | older != set(dtypes):
        raise TraceFileError(f"{group!r} has {rows} rows of {sorted(packings)!r:.200}; expected {sorted(dtypes)}")
    columns = {}
    others: dict[str, Int64] = {}
    for name, dtype in dtypes.items():
        if name in older:
            columns[name] = np.full(rows, MISSING, dtype)
            continue
        where = f"{group}/{name}"
        packing = _packing(packings[name], where, others)
        content = _member(archive, where, packing.nbytes(rows))
        column, filled = unpack(packing, content, rows, others)
        others = {name: filled}
        columns[name] = column.view(np.float64) if dtype is np.float64 else column.astype(dtype, copy=False)
    return columns


def _packing(value: Any, where: str, others: Mapping[str, Int64]) -> Packing:
    types = (str, bool, int, int, int)
    if not isinstance(value, list) or [type(item) for item in value] != [*types]:
        raise TraceFileError(f"{where!r} is described by {value!r:.80}; expected {[t.__name__ for t in types]}")
    packing = Packing(*value)
    if packing.against not in ("", ROW_BEFORE, *others) or not 1 <= packing.width <= 8:
        raise TraceFileError(f"{where!r} is packed as {value!r:.80}; expected 1 to 8 bytes against {[*others]!r}")
    return packing


def _member(archive: zipfile.ZipFile, name: str, nbytes: int) -> bytes:
    try:
        member = archive.getinfo(name)
    except KeyError:
        raise TraceFileError(f"lacks the column {name!r}; expected all of a {FORMAT!r} file") from None
    if member.file_size != nbytes or nbytes > _MAX_OUT_OF_ONE * member.compress_size + _MAX_OUT_OF_ONE:
        raise TraceFileError(f"{name!r} has {member.file_size} bytes in {member.compress_size}; expected {nbytes}")
    return archive.read(member)


def _profiles(archive: zipfile.ZipFile, described: dict[str, Any]) -> Iterator[Profile]:
    if described["version"] == 1:
        return
    for i, profile in enumerate(_listed(described, "profiles", dict)):
        name = _PROFILE.format(i)
        numbers = {field: _field(profile, field, int, name) for field in _OF_PROFILE}
        try:
            size = archive.getinfo(name).file_size
        except KeyError:
            raise TraceFileError(f"lacks the profile {name!r}, which it describes") from None
        if size > MAX_PROFILE_BYTES:
            raise TraceFileError(f"{name!r} has {size} bytes; expected at most {MAX_PROFILE_BYTES}")
        yield Profile(content=archive.read(name), **numbers)


def _texts(block: NDArray[np.uint8], offsets: Int64) -> Texts:
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(block) or (offsets[1:] < offsets[:-1]).any():
        raise TraceFileError(f"'key_offsets' do not rise from 0 to the {len(block)} bytes of keys")
    return Texts(block, offsets)


def _constraints(columns: Mapping[str, NDArray[Any]], distinct: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    tasks, numbers = columns["task"].tolist(), columns["constraint"].tolist()
    if numbers and not 0 <= min(numbers) <= max(numbers) < len(distinct):
        raise TraceFileError(f"'constraints' has numbers up to {max(numbers)}; expected those of {len(distinct)}")
    return {task: distinct[number] for task, number in zip(tasks, numbers, strict=True)}


def _worker(described: dict[str, Any]) -> WorkerSpec:
    kinds = {"name": str, "address": str, "host": str, "resources": dict}
    return WorkerSpec(**{name: _field(described, name, kinds.get(name, int), "workers") for name in _SPEC})


_SPEC = tuple(field.name for field in fields(WorkerSpec))


def _field(described: dict[str, Any], name: str, kind: type[Any], where: str = "") -> Any:
    value = described.get(name)
    if type(value) is not kind:
        raise TraceFileError(f"{f'{where}.{name}'.strip('.')!r} is {value!r:.80}; expected {kind.__name__}")
    return value


def _listed(described: dict[str, Any], name: str, kind: type[Any]) -> list[Any]:
    values: list[Any] = _field(described, name, list)
    for value in values:
        if type(value) is not kind:
            raise TraceFileError(f"{name!r} holds {value!r:.80}; expected {kind.__name__}")
    return values
