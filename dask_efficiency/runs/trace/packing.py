"""Columns of whole numbers as bytes that compress well and unpack fast: differences, cut short, in planes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int64

#: :attr:`Packing.against` of a column whose rows are given as differences from the row before.
ROW_BEFORE = "<"

#: Rows that are packed on trial to choose what to take differences from.
_SAMPLE = 8192


@dataclass(frozen=True, slots=True)
class Packing:
    """What must be known beside a column's bytes to unpack it."""

    #: Taken off every value: nothing (empty), the value of the row before (:data:`ROW_BEFORE`), or of this column.
    against: str
    #: Whether the bytes begin with a bit a row that says where there is a value; elsewhere it is ``MISSING``.
    gaps: bool
    #: The value of the first row, where the others are differences from the row before.
    first: int
    #: Added to every difference.
    lowest: int
    #: Bytes a difference, 1 to 8.
    width: int

    def nbytes(self, rows: int) -> int:
        """Bytes of a packed column."""
        return rows * self.width + (-(-rows // 8) if self.gaps else 0)


def pack(column: NDArray[Any], others: Mapping[str, Int64]) -> tuple[Packing, bytes, Int64]:
    """Pack a column of whole numbers.

    Parameters
    ----------
    column
        Of any integer type; shape (rows,).
    others
        Columns that it may be packed against, as an earlier call returned them: without gaps.

    Returns
    -------
    packing, bytes, array
        The array is the column with its gaps filled.

    References
    ----------
    Differences as in Parquet's delta encoding, planes of bytes as in Blosc's shuffle. We differ: no
    blocks, so that a column is a few whole-array operations.
    """
    values = column.astype(np.int64)
    there = _where_there(values)
    middle = max((len(values) - _SAMPLE) // 2, 0)
    part = slice(middle, middle + _SAMPLE)
    sample = {name: other[part] for name, other in others.items()}
    there_in_part = None if there is None else there[part]
    against = min(
        ("", ROW_BEFORE, *others),
        key=lambda name: len(zlib.compress(_packed(values[part], there_in_part, name, sample)[1], 1)),
    )
    packing, planes, filled = _packed(values, there, against, others)
    bits = b"" if there is None else np.packbits(there).tobytes()
    return packing, bits + planes, filled


def _where_there(values: Int64) -> NDArray[np.bool_] | None:
    """Where there is a value, if the others are few bytes wide only without those that are not there."""
    there = values != MISSING
    if there.all() or not there.any():
        return None
    present = values[there]
    return there if _width(_spread(present)) < _width(_spread(values)) else None


def _packed(
    values: Int64, there: NDArray[np.bool_] | None, against: str, others: Mapping[str, Int64]
) -> tuple[Packing, bytes, Int64]:
    if there is not None:
        values = _filled(values, there, others.get(against))
    # sums and differences wrap around, so that every number survives them
    differences = values.view(np.uint64)
    first = 0
    if against == ROW_BEFORE and len(values):
        first = int(values[0])
        differences = np.diff(differences, prepend=differences[:1])
    elif against in others:
        differences = differences - others[against].view(np.uint64)
    lowest = int(differences.view(np.int64).min()) if len(values) else 0
    cut = differences - _unsigned(lowest)
    width = _width(int(cut.max()) if len(cut) else 0)
    planes = cut.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return Packing(against, there is not None, first, lowest, width), planes, values


def unpack(packing: Packing, content: bytes, rows: int, others: Mapping[str, Int64]) -> tuple[Int64, Int64]:
    """The column that :func:`pack` made the bytes from.

    Parameters
    ----------
    others
        The columns that it may be packed against, as an earlier call returned them: without gaps.

    Returns
    -------
    column, array
        The array is the column with its gaps filled.

    Raises
    ------
    ValueError
        If there are more or fewer bytes than the packing says.
    """
    if len(content) != packing.nbytes(rows):
        raise ValueError(f"has {len(content)} bytes; expected {packing.nbytes(rows)} for {rows} rows")
    bits, planes = content[: len(content) - rows * packing.width], content[len(content) - rows * packing.width :]
    cut = np.zeros((rows, 8), np.uint8)
    for plane in range(packing.width):
        cut[:, plane] = np.frombuffer(planes, np.uint8, rows, plane * rows)
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
    there = np.unpackbits(np.frombuffer(bits, np.uint8), count=rows).view(np.bool_)
    return np.where(there, filled, MISSING), filled


def _filled(values: Int64, there: NDArray[np.bool_], other: Int64 | None) -> Int64:
    """The values with each gap filled so that its difference is 0."""
    if other is not None:
        return np.where(there, values, other)
    source = np.maximum.accumulate(np.where(there, np.arange(len(values)), -1))
    # gaps before the first value are filled with it
    return values[np.where(source < 0, there.argmax(), source)]


def _unsigned(value: int) -> np.uint64:
    return np.uint64(value % (1 << 64))


def _spread(values: Int64) -> int:
    return int(values.max()) - int(values.min())


def _width(largest: int) -> int:
    return max((largest.bit_length() + 7) // 8, 1)
