"""Reports in files: versioned JSON, exact to the nanosecond, never executable."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import IO, Any, TypeVar, get_args, get_origin, get_type_hints

from dask_efficiency.accounts.buckets import CAUSE_NAMES
from dask_efficiency.accounts.checks import MAX_FLOAT, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.memory_timeline import MemoryTimeline
from dask_efficiency.accounts.cluster.timeline import MAX_BINS, Timeline
from dask_efficiency.accounts.facts import Facts, check_views, facts_from_lists, facts_to_lists
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.intake import finite
from dask_efficiency.accounts.lines import Frame, Stack
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.wire.gpu import decode_gpu, encode_gpu
from dask_efficiency.files.storage import (
    ZIP,
    DamagedFileError,
    FileTooLargeError,
    Members,
    decompressed,
    stored,
    writing,
)
from dask_efficiency.report.head import RunHead, head_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.turnover import Arrival
from dask_efficiency.report.values import DASK_ACTIVITIES, OWN_ACTIVITIES, ClientRow

FORMAT = "dask-efficiency-report"
#: Version of the format; grows when a reader of the old one would fail.
VERSION = 1
#: Bytes of a head's line at most; in a file with a longer one, all is read. Ten findings and twenty labels take 20 kB.
MAX_HEAD = 1_000_000
#: Bytes at the start of a file in which its format stands, so that no timeline of gigabytes is read for its head.
_BEGINNING = 4096
#: The trace is not JSON, and has its own file.
_ELSEWHERE = "trace"
#: Fields that files of before them lack.
_ADDED = frozenset(
    {
        *(
            "failures",
            "unfinished",
            "stalls",
            "ended_by",
            "operators",
            "rounds",
            "client",
            "sent_by",
            "needs_last",
            "made",
            "doing",
            "lock_looks",
            "labels",
        ),
        *("of_prefix", "carries", "total_bytes", "median_bytes", "largest_bytes"),
        *("in_threads", "last_memory", "memory_limit", "memory_timeline"),
        *("held_for", "held_at_peaks", "cluster_peak", "working_count", "median_working", "p95_working", "max_working"),
        *("hungriest_key", "working_alone", "left_bytes", "in_a_group"),
    }
)


class ReportFileError(ValueError):
    """The content is not a report that this version understands."""


def to_dict(report: EfficiencyReport) -> dict[str, Any]:
    """Report as plain data, ready for JSON; numbers that are not finite are None.

    The facts are columns of whole numbers. :func:`from_dict` ignores the head, which is for :func:`read_head` and for
    readers with ``jq``.
    """
    data = _fields(report)
    del data[_ELSEWHERE]
    return {"format": FORMAT, "version": VERSION, "head": _plain(head_of(report)), "report": data}


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, SlowWorker):
        return value.to_dict()
    if isinstance(value, GpuTotals):
        return encode_gpu(value)
    if isinstance(value, Facts):
        return facts_to_lists(value)
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return finite(value) if isinstance(value, float) else value


def from_dict(data: Any) -> EfficiencyReport:
    """Report from the data of :func:`to_dict`; checks everything."""
    _check_format(data)
    report = data.get("report")
    if not isinstance(report, dict):
        raise ReportFileError(f"'report' is a {_kind(report)}; expected an object")
    return EfficiencyReport(**_read(report, "report", EfficiencyReport))


def _check_format(data: Any) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = f"format {data.get('format')!r:.80}" if isinstance(data, dict) else f"a {_kind(data)}"
        raise ReportFileError(f"found {found}; expected an object with format {FORMAT!r}")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise ReportFileError(
            f"found version {data.get('version')!r:.80} of {FORMAT!r}; expected {VERSION}: "
            "a newer dask-efficiency may have written it"
        )


def save(report: EfficiencyReport, path: str | os.PathLike[str], *, new: bool = False, **storage_options: Any) -> None:
    """Write the report as JSON to a local path or any fsspec URL; a name in ``.gz``, ``.bz2`` or ``.xz`` compresses it.

    A local file is replaced as a whole or not at all; with ``new``, none is, and FileExistsError says so. The first
    line ends after the head.
    """
    data = to_dict(report)
    rest = json.dumps({"report": data.pop("report")}, allow_nan=False)
    text = f"{json.dumps(data, allow_nan=False)[:-1]},\n{rest[1:]}\n"
    with writing(path, compression="infer", new=new, **storage_options) as file:
        file.write(text.encode("ascii"))


def load_report(path: str | os.PathLike[str], **storage_options: Any) -> EfficiencyReport:
    """Load a report from a local path or fsspec URL.

    Parameters
    ----------
    path
        As given to :meth:`EfficiencyReport.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    ReportFileError
        If the file is foreign, truncated, damaged or of a newer version.
    FileNotFoundError
        If the file does not exist.
    """
    target = os.fspath(path)
    return _named(target, from_dict, _whole_object(stored(target, **storage_options), target))


def read_head(file: IO[bytes], name: str) -> RunHead:
    """Read the head of a saved report from an open file: its first line, or all of it if the head is elsewhere.

    Raises
    ------
    ReportFileError
        If the file is no report.
    """
    with suppress(DamagedFileError, ValueError, RecursionError):
        line = decompressed(file, name).readline(MAX_HEAD)
        if line.endswith(b",\n"):
            return head_from_dict(json.loads(line[:-2].decode("utf-8") + "}", parse_constant=_no_constant))
    file.seek(0)
    with suppress(DamagedFileError):
        if FORMAT.encode() not in decompressed(file, name).read(_BEGINNING):
            raise ReportFileError(f"{name}: found no {FORMAT!r} file by its first {_BEGINNING} bytes")
    file.seek(0)
    return _named(name, head_from_dict, _whole_object(file.read(), name))


def head_from_dict(data: Any) -> RunHead:
    """Head from the data of :func:`to_dict`, whose report may be missing; checks everything."""
    _check_format(data)
    head: RunHead = _of_fields(RunHead)(data.get("head"), "head")
    return head


Found = TypeVar("Found")


def _named(target: str, read: Callable[[Any], Found], data: Any) -> Found:
    """Read the content of a file; errors name it."""
    try:
        return read(data)
    except ReportFileError as error:
        raise ReportFileError(f"{target}: {error}") from None


def _whole_object(content: bytes, target: str) -> Any:
    try:
        if content.startswith(ZIP):
            members = Members(content, target)
            content = b"".join(map(members.read, members.names[:1]))
        else:
            content = decompressed(io.BytesIO(content), target).read()
        return json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (DamagedFileError, zipfile.BadZipFile) as error:
        why = f"damaged or truncated ({error}); expected a compressed {FORMAT!r} file"
        raise ReportFileError(f"{target}: {why}") from error
    except FileTooLargeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportFileError(f"{target}: found no valid JSON ({error}); expected a whole {FORMAT!r} file") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _kind(value: Any) -> str:
    return {dict: "object", list: "list", str: "string", type(None): "null"}.get(type(value), type(value).__name__)


def _wrong(value: Any, where: str, expected: str) -> ReportFileError:
    return ReportFileError(f"{where!r} is {value!r:.80}; expected {expected}")


#: Checks a value and converts it; messages name the value by the second argument.
Reader = Callable[[Any, str], Any]


def _checked(is_right: Callable[[Any], bool], expected: str) -> Reader:
    def read_checked(value: Any, where: str) -> Any:
        if not is_right(value):
            raise _wrong(value, where, expected)
        return value

    return read_checked


_text = _checked(lambda value: isinstance(value, str), "a string")
_flag = _checked(lambda value: isinstance(value, bool), "true or false")
_whole = _checked(lambda value: type(value) is int and 0 <= value <= MAX_NANOSECONDS, "a whole number from 0 to 2**62")


def _real(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not -MAX_FLOAT <= value <= MAX_FLOAT:
        raise _wrong(value, where, f"a number from {-MAX_FLOAT:g} to {MAX_FLOAT:g}")
    return float(value)


def _stack(value: Any, where: str) -> Stack:
    if not isinstance(value, list) or not all(isinstance(frame, list) and len(frame) == 3 for frame in value):
        raise _wrong(value, where, "a list of functions with their files and lines")
    return tuple(Frame(_text(name, where), _text(file, where), _whole(line, where)) for name, file, line in value)


def _facts(value: Any, where: str) -> Facts:
    try:
        facts = facts_from_lists(value)
        check_views(facts)
    except RefusedPayload as refusal:
        raise ReportFileError(f"{where!r}: {refusal}") from None
    return facts


def _finding(value: Any, where: str) -> SlowWorker:
    try:
        return SlowWorker.from_dict(value)
    except ValueError as error:
        raise ReportFileError(f"{where!r}: {error}") from None


def _gpu(value: Any, where: str) -> GpuTotals:
    try:
        return decode_gpu(value, where)
    except RefusedPayload as refusal:
        raise ReportFileError(str(refusal)) from None


def _timeline(value: Any, where: str) -> Timeline:
    timeline: Timeline = _of_fields(Timeline)(value, where)
    if not timeline.bin_ns or timeline.bins > MAX_BINS:
        raise _wrong(timeline.bin_ns, f"{where}.bin_ns", f"a whole number that makes {MAX_BINS} bins at most")
    for kind, rows, known in (("activity", timeline.activity, ACTIVITIES), ("causes", timeline.causes, CAUSE_NAMES)):
        for name, row in rows.items():
            if name not in known:
                raise _wrong(name, f"{where}.{kind}", f"one of {', '.join(known)}")
            if len(row) != timeline.bins:
                raise ReportFileError(f"'{where}.{kind}.{name}' has {len(row)} bins; expected {timeline.bins}")
    return timeline


def _memory_timeline(value: Any, where: str) -> MemoryTimeline:
    found: MemoryTimeline = _of_fields(MemoryTimeline)(value, where)
    if not found.bin_ns or found.bins > MAX_BINS:
        raise _wrong(found.bin_ns, f"{where}.bin_ns", f"a whole number that makes {MAX_BINS} bins at most")
    for line in (found.cluster, *found.workers.values()):
        for row in (line.process, line.managed, line.spilled, *line.prefixes.values()):
            if len(row) != found.bins:
                raise ReportFileError(f"a row of {where!r} has {len(row)} bins; expected {found.bins}")
    return found


def _client_row(value: Any, where: str) -> ClientRow:
    row: ClientRow = _of_fields(ClientRow)(value, where)
    known = OWN_ACTIVITIES | DASK_ACTIVITIES
    if row.activity not in known:
        raise _wrong(row.activity, f"{where}.activity", f"one of {', '.join(known)}")
    for name in ("idle_ns", "held_ns"):
        if getattr(row, name) > row.ns:
            raise _wrong(getattr(row, name), f"{where}.{name}", f"at most its ns, {row.ns}")
    return row


#: Readers by type; other types are read by their fields.
_READERS: dict[Any, Reader] = {
    str: _text,
    bool: _flag,
    int: _whole,
    float: _real,
    Stack: _stack,
    Facts: _facts,
    SlowWorker: _finding,
    GpuTotals: _gpu,
    Timeline: _timeline,
    MemoryTimeline: _memory_timeline,
    ClientRow: _client_row,
}

#: Names of lists by the type of their items.
_LISTS: dict[Any, str] = {str: "a list of strings", int: "a list of whole numbers", SlowWorker: "a list of findings"}


def _read(value: Mapping[str, Any], where: str, kind: type, *, prefix: str = "") -> dict[str, Any]:
    readers = _readers(kind)
    without = {each.name for each in fields(kind) if each.default is each.default_factory is MISSING}
    missing = [name for name in readers if name not in value and (name not in _ADDED or name in without)]
    if missing:
        raise ReportFileError(f"{where!r} lacks {', '.join(map(repr, missing))}; expected all of its fields")
    return {name: read(value[name], prefix + name) for name, read in readers.items() if name in value}


@cache
def _readers(kind: type) -> dict[str, Reader]:
    hints = get_type_hints(kind)
    found = {field.name: _reader(hints[field.name]) for field in fields(kind) if field.name != _ELSEWHERE}
    if kind is Arrival:
        found |= {name: _or_unknown(read) for name, read in found.items() if read is _real}
    return found


def _or_unknown(read: Reader) -> Reader:
    return lambda value, where: math.nan if value is None else read(value, where)


def _reader(hint: Any) -> Reader:
    if hint in _READERS:
        return _READERS[hint]
    parts, origin = get_args(hint), get_origin(hint)
    if origin is UnionType:
        read = _reader(parts[0])
        return lambda value, where: None if value is None else read(value, where)
    if origin is Mapping:
        return _mapping(_reader(parts[1]))
    return _list(parts[0]) if origin is tuple else _of_fields(hint)


def _of_fields(kind: type) -> Reader:
    def read_fields(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, where, "an object")
        return kind(**_read(value, where, kind, prefix=f"{where}."))

    return read_fields


def _mapping(read: Reader) -> Callable[[Any, str], dict[str, Any]]:
    def read_mapping(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, where, "an object")
        return {_text(key, where): read(item, f"{where}.{key}") for key, item in value.items()}

    return read_mapping


def _list(kind: Any) -> Reader:
    read, expected = _reader(kind), _LISTS.get(kind, "a list of objects")

    def read_list(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or (kind not in _LISTS and not all(isinstance(item, dict) for item in value)):
            raise _wrong(value, where, expected)
        return tuple(read(item, where) for item in value)

    return read_list
