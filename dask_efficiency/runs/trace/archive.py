"""Archives: columns of integers, packed in a zip file with their description in JSON; never code."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int64, Texts
from dask_efficiency.files.storage import DamagedFileError, Members, stored, writing
from dask_efficiency.show.progress import progress

#: :attr:`Packing.against` of a column packed as differences from the row before.
ROW_BEFORE = "<"
#: Rows in the middle of a column that are packed on trial to choose what to take differences from.
_SAMPLE = 8192


@dataclass(frozen=True, slots=True)
class Packing:
    """Parameters with which a column's bytes are unpacked."""

    #: Subtracted from every value: nothing (empty), the row before (:data:`ROW_BEFORE`), or the column of this name.
    against: str
    #: True if the bytes begin with a bitmap of the rows that have a value; the others are ``MISSING``.
    gaps: bool
    #: Value of the first row, if the others are differences from the row before.
    first: int
    #: Smallest difference, which is added back to every one.
    lowest: int
    #: Bytes a difference, 1 to 8.
    width: int

    def nbytes(self, rows: int) -> int:
        """Bytes of a packed column."""
        return rows * self.width + (-(-rows // 8) if self.gaps else 0)


def pack(column: NDArray[Any], others: Mapping[str, Int64]) -> tuple[Packing, bytes, Int64]:
    """Pack a column of whole numbers, by itself or against others; also returns it with its gaps filled.

    Differences as in Parquet's delta encoding, planes of bytes as in Blosc's shuffle. We differ: no blocks, so that a
    column takes a few whole-array operations.
    """
    values = column.astype(np.int64)
    known = values != MISSING
    # Gaps are marked if the values are narrower without them.
    has_gaps = known.any() and not known.all() and _width_of(values[known]) < _width_of(values)
    present = known if has_gaps else None
    middle = max((len(values) - _SAMPLE) // 2, 0)
    part = slice(middle, middle + _SAMPLE)
    sample = (
        values[part],
        None if present is None else present[part],
        {name: other[part] for name, other in others.items()},
    )

    def size(against: str) -> int:
        return len(zlib.compress(_packed(*sample, against)[1], 1))

    return _packed(values, present, others, min(("", ROW_BEFORE, *others), key=size))


def _width_of(values: Int64) -> int:
    return _width(int(values.max()) - int(values.min()))


def _packed(
    values: Int64, present: NDArray[np.bool_] | None, others: Mapping[str, Int64], against: str
) -> tuple[Packing, bytes, Int64]:
    bits = b"" if present is None else np.packbits(present).tobytes()
    # Each gap is filled so that its difference is 0, and those before the first value with that.
    if present is not None and against in others:
        values = np.where(present, values, others[against])
    elif present is not None:
        source = np.maximum.accumulate(np.where(present, np.arange(len(values)), -1))
        values = values[np.where(source < 0, present.argmax(), source)]
    # Sums and differences wrap around, so that every number survives them.
    differences = values.view(np.uint64)
    first = 0
    if against == ROW_BEFORE and len(values):
        first = int(values[0])
        differences = np.diff(differences, prepend=differences[:1])
    elif against in others:
        differences = differences - others[against].view(np.uint64)
    lowest = int(differences.view(np.int64).min()) if len(values) else 0
    cut = differences - _unsigned(lowest)
    width = _width(int(cut.max(initial=0)))
    planes = cut.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return Packing(against, present is not None, first, lowest, width), bits + planes, values


def unpack(packing: Packing, content: bytes, rows: int, others: Mapping[str, Int64]) -> tuple[Int64, Int64]:
    """Unpack the bytes of :func:`pack`; also returns the column with its gaps filled."""
    if len(content) != packing.nbytes(rows):
        raise ValueError(f"has {len(content)} bytes; expected {packing.nbytes(rows)} for {rows} rows")
    planes = np.frombuffer(content, np.uint8)[len(content) - rows * packing.width :]
    cut = np.zeros((rows, 8), np.uint8)
    cut[:, : packing.width] = planes.reshape(packing.width, rows).T
    differences = cut.view("<u8").reshape(rows).astype(np.uint64, copy=False)
    differences += _unsigned(packing.lowest)
    if packing.against == ROW_BEFORE and rows:
        differences[0] = _unsigned(packing.first)
        np.cumsum(differences, out=differences)
    elif packing.against:
        differences += others[packing.against].view(np.uint64)
    filled = differences.view(np.int64)
    if not packing.gaps:
        return filled, filled
    present = np.unpackbits(np.frombuffer(content, np.uint8, -(-rows // 8)), count=rows).view(np.bool_)
    return np.where(present, filled, MISSING), filled


def _unsigned(value: int) -> np.uint64:
    return np.uint64(value % (1 << 64))


def _width(largest: int) -> int:
    return max((largest.bit_length() + 7) // 8, 1)


T = TypeVar("T")
#: Level of zlib's compression; higher ones take much longer for a few per cent.
_LEVEL = 3
#: Bytes that deflate can make of one, at most; a file that claims more is forged.
_MAX_OUT_OF_ONE = 1032
#: Floats are stored as the integers of the same bits.
_BITS: dict[type[np.generic], type[np.integer[Any]]] = {np.float64: np.int64, np.float32: np.int32}


@dataclass(frozen=True, slots=True)
class Format:
    """Name and version of a kind of file, and its error."""

    name: str
    version: int
    #: Member of the archive that describes the others.
    description: str
    #: Raised for a file that is foreign, damaged or newer.
    error: type[ValueError]


def write_archive(
    path: str | os.PathLike[str],
    form: Format,
    described: Mapping[str, Any],
    groups: Iterable[tuple[str, Mapping[str, NDArray[Any]]]],
    compressed: Iterable[tuple[str, bytes]] = (),
    **storage_options: Any,
) -> None:
    """Write a description, columns of equal length by group, and other members that are compressed already."""
    groups = list(groups)
    nbytes = sum(column.nbytes for _, columns in groups for column in columns.values())
    with (
        progress(f"saving {os.fspath(path)}", unit="MB", of=nbytes / 1e6) as report,
        writing(path, **storage_options) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        packed, done = {}, 0
        for group, columns in groups:
            others: dict[str, Int64] = {}
            packings = {}
            for name, column in columns.items():
                packing, content, filled = pack(column.view(_BITS.get(column.dtype.type, column.dtype)), others)
                packings[name], others = astuple(packing), {name: filled}
                archive.writestr(f"{group}/{name}", content)
                done += column.nbytes
                report(done / 1e6)
            packed[group] = {"rows": len(next(iter(columns.values()))), "columns": packings}
        for name, content in compressed:
            archive.writestr(name, content, zipfile.ZIP_STORED)
        whole = {"format": form.name, "version": form.version, **described, "columns": packed}
        archive.writestr(form.description, json.dumps(whole, default=to_json))


def to_json(value: Any) -> Any:
    """Convert what JSON does not know: a number of numpy's to a number, anything else to text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def read_archive(
    path: str | os.PathLike[str], form: Format, build: Callable[[Archive], T], **storage_options: Any
) -> T:
    """Read an archive, and build a value from it; the format's error names the path of a file that is none."""
    target = os.fspath(path)
    with progress(f"reading {target}", unit="MB") as report:
        content = stored(target, **storage_options)
        try:
            members = Members(content, target, lambda held, of: report(held / 1e6, of=of / 1e6))
            opened = Archive(members, form, _description(members, form))
            opened.field("columns", dict)
            return build(opened)
        except form.error as error:
            raise form.error(f"{target}: {error}") from error.__cause__
        except (zipfile.BadZipFile, DamagedFileError, NotImplementedError, RuntimeError, OSError) as error:
            problem = f"foreign, damaged or truncated ({error}); expected a {form.name!r} file"
            raise form.error(f"{target}: {problem}") from error


def _description(file: Members, form: Format) -> dict[str, Any]:
    if form.description not in file.names:
        raise form.error(f"is an archive without {form.description!r}; expected a {form.name!r} file")
    content = file.read(form.description)
    try:
        described = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise form.error(f"{form.description!r} is no valid JSON ({error})") from error
    name = described.get("format") if isinstance(described, dict) else described
    if not isinstance(described, dict) or name != form.name:
        raise form.error(f"found format {name!r:.80}; expected {form.name!r}")
    version = described.get("version")
    if version != form.version:
        expected = f"expected {form.version}: another dask-efficiency has written it"
        raise form.error(f"found version {version!r:.80} of {form.name!r}; {expected}")
    return described


@dataclass(frozen=True, slots=True)
class Archive:
    """Open archive with its description; anything invalid in it raises the format's error."""

    file: Members
    form: Format
    described: Mapping[str, Any]

    def field(self, name: str, kind: type[Any]) -> Any:
        """Get a part of the description, of this type."""
        return self.part(self.described, name, kind)

    def part(self, described: Mapping[str, Any], name: str, kind: type[Any], where: str = "") -> Any:
        """Get a part of a part of the description, of this type."""
        value = described.get(name)
        if type(value) is not kind:
            raise self.form.error(f"{f'{where}.{name}'.strip('.')!r} is {value!r:.80}; expected {kind.__name__}")
        return value

    def listed(self, name: str, kind: type[Any]) -> list[Any]:
        """Get a list from the description, whose items have this type."""
        return self.all_of(name, self.field(name, list), kind)

    def all_of(self, name: str, values: list[Any], kind: type[Any]) -> list[Any]:
        """Check that all items of a list have this type, and return it."""
        for value in values:
            if type(value) is not kind:
                raise self.form.error(f"{name!r} holds {value!r:.80}; expected {kind.__name__}")
        return values

    def columns(self, group: str, dtypes: Mapping[str, type[np.generic]]) -> dict[str, NDArray[Any]]:
        """Read the columns of a group."""
        described = self.part(self.field("columns", dict), group, dict, "columns")
        rows = self.part(described, "rows", int, group)
        packings = self.part(described, "columns", dict, group)
        if rows < 0 or set(packings) != set(dtypes):
            raise self.form.error(f"{group!r} has {rows} rows of {sorted(packings)!r:.200}; expected {sorted(dtypes)}")
        columns = {}
        others: dict[str, Int64] = {}
        for name, dtype in dtypes.items():
            where = f"{group}/{name}"
            packing = self._packing(packings[name], where, others)
            nbytes = packing.nbytes(rows)
            size, compressed = self._sizes(where, f"the column {where!r}; expected all of a {self.form.name!r} file")
            if size != nbytes or nbytes > _MAX_OUT_OF_ONE * compressed + _MAX_OUT_OF_ONE:
                raise self.form.error(f"{where!r} has {size} bytes in {compressed}; expected {nbytes}")
            column, filled = unpack(packing, self.file.read(where), rows, others)
            others = {name: filled}
            columns[name] = column.astype(_BITS.get(dtype, dtype), copy=False).view(dtype)
        return columns

    def content(self, name: str, max_bytes: int) -> bytes:
        """Read another member, of a number of bytes at most."""
        size, _ = self._sizes(name, f"{name!r}, which it describes")
        if size > max_bytes:
            raise self.form.error(f"{name!r} has {size} bytes; expected at most {max_bytes}")
        return self.file.read(name)

    def _sizes(self, name: str, lacked: str) -> tuple[int, int]:
        try:
            return self.file.sizes(name)
        except KeyError:
            raise self.form.error(f"lacks {lacked}") from None

    def _packing(self, value: Any, where: str, others: Mapping[str, Int64]) -> Packing:
        types = (str, bool, int, int, int)
        if not isinstance(value, list) or [type(item) for item in value] != [*types]:
            raise self.form.error(f"{where!r} is described by {value!r:.80}; expected {[t.__name__ for t in types]}")
        packing = Packing(*value)
        if packing.against not in ("", ROW_BEFORE, *others) or not 1 <= packing.width <= 8:
            raise self.form.error(f"{where!r} is packed as {value!r:.80}; expected 1 to 8 bytes against {[*others]!r}")
        return packing

    def texts(self, block: NDArray[np.uint8], offsets: Int64, named: str) -> Texts:
        """Make strings of a block if the offsets fit it; ``named`` is the name of the offsets in errors."""
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(block) or (offsets[1:] < offsets[:-1]).any():
            raise self.form.error(f"{named!r} do not rise from 0 to the {len(block)} bytes of keys")
        return Texts(block, offsets)
