"""Table and Texts: columns of equal length, and a million strings in one block of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int16 = NDArray[np.int16]
Int8 = NDArray[np.int8]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: The type of a column, by the name of its annotation.
_DTYPES: dict[str, type[np.generic]] = {
    "Int64": np.int64,
    "Int32": np.int32,
    "Int16": np.int16,
    "Int8": np.int8,
    "Float64": np.float64,
    "Bool": np.bool_,
}

#: An instant, a number or a position that was not recorded. NaN in columns of floats.
MISSING = -1


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length; a subclass's annotations name them and their types.

    Raises
    ------
    ValueError
        If columns differ in length, or a value does not fit its column's type.
    """

    def __post_init__(self) -> None:
        length = None
        for name, dtype in self.dtypes().items():
            given = np.asarray(getattr(self, name))
            if given.ndim != 1:
                raise ValueError(f"{type(self).__name__}.{name} has shape {given.shape}; expected one dimension")
            if given.dtype != dtype:
                if given.size and not np.can_cast(given.dtype, dtype, "same_kind"):
                    raise ValueError(f"{type(self).__name__}.{name} holds {given.dtype}; expected {np.dtype(dtype)}")
                given = given.astype(dtype)
            if length is not None and len(given) != length:
                raise ValueError(f"{type(self).__name__}.{name} has {len(given)} rows; expected {length}")
            length = len(given)
            object.__setattr__(self, name, given)

    @classmethod
    def dtypes(cls) -> dict[str, type[np.generic]]:
        """The columns' types by name."""
        return {column.name: _DTYPES[str(column.type)] for column in fields(cls)}

    @classmethod
    def empty(cls) -> Self:
        """No rows."""
        return cls.from_columns({})

    @classmethod
    def from_columns(cls, columns: dict[str, Any]) -> Self:
        """From arrays or sequences by name; a column that is not given is :data:`MISSING` in every row."""
        length = max((len(column) for column in columns.values()), default=0)
        return cls(
            **{
                name: columns[name] if name in columns else np.full(length, _missing(dtype), dtype)
                for name, dtype in cls.dtypes().items()
            }
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in self.dtypes()}

    def __len__(self) -> int:
        first = fields(self)[0].name
        return len(getattr(self, first))

    def take(self, rows: NDArray[Any]) -> Self:
        """Rows by position or by mask."""
        return type(self)(**{name: column[rows] for name, column in self.columns().items()})

    def to_frame(self) -> pd.DataFrame:
        """The same as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.columns())


def _missing(dtype: type[np.generic]) -> Any:
    if dtype is np.float64:
        return np.nan
    return False if dtype is np.bool_ else MISSING


class Texts(Sequence[str]):
    """Immutable strings in one block of UTF-8, each decoded when it is asked for.

    Parameters
    ----------
    block
        All strings, one after the other; shape (bytes,), uint8.
    offsets
        Where each begins, and where the last one ends; shape (strings + 1,).
    """

    __slots__ = ("block", "offsets")

    def __init__(self, block: NDArray[np.uint8], offsets: Int64) -> None:
        self.block = block
        self.offsets = offsets

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """From strings; what cannot be encoded is replaced by a question mark."""
        encoded = [text.encode("utf-8", "replace") for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts.of([self[i] for i in range(*index.indices(len(self)))])
        if not -len(self) <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        if index < 0:
            index += len(self)
        return self.block[self.offsets[index] : self.offsets[index + 1]].tobytes().decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        whole = self.block.tobytes()
        ends = self.offsets.tolist()
        for start, stop in pairwise(ends):
            yield whole[start:stop].decode("utf-8", "replace")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Texts):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.block, other.block)

    __hash__ = None  # type: ignore[assignment]  # its arrays can be changed

    def __repr__(self) -> str:
        return f"<Texts: {len(self)}>"
