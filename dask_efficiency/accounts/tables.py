"""Columns of equal length, and Texts: a million strings in one block of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int16 = NDArray[np.int16]
Int8 = NDArray[np.int8]
Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Bool = NDArray[np.bool_]
#: An instant, a number or a position that was not recorded. NaN in columns of floats.
MISSING = -1


@contextmanager
def needs_pandas() -> Iterator[None]:
    """Say what to install where an import of pandas fails."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"tables need pandas: pip install 'dask-efficiency[report]' ({error})") from error


def frame_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Table of pandas with these columns."""
    with needs_pandas():
        import pandas as pd

    return pd.DataFrame(columns)


class Clock(Enum):
    """Which clock an instant was read from, before it was put on the scheduler's."""

    SCHEDULER = "scheduler"
    #: The monotonic clock of the worker that reports the row.
    WORKER = "worker"
    #: The clock of the day of the process that made the row's stimulus.
    DAY = "day"


@dataclass(frozen=True, slots=True)
class Column:
    """Description of a column in a table's annotation: ``Annotated[Int64, Column(unit="bytes")]``."""

    unit: str = ""
    #: For an instant; in a trace all of them are nanoseconds since the epoch, on the scheduler's clock.
    clock: Clock | None = None
    #: Field of the trace, or enumeration, in which its numbers are positions.
    points_into: str | tuple[str, ...] | type[Enum] | None = None
    #: Value in a row without data; by default MISSING, NaN or False, by type.
    missing: float | None = None
    #: True if workers report it in their batches, in which all columns are whole numbers.
    from_worker: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class ColumnTable:
    """Columns of equal length, or ValueError; a subclass's annotations name them, their types and what they mean."""

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
    def dtypes(cls) -> Mapping[str, type[np.generic]]:
        """The columns' types by name."""
        return cls._annotated()[0]

    @classmethod
    def schema(cls) -> Mapping[str, Column]:
        """Descriptions of the columns by name."""
        return cls._annotated()[1]

    @classmethod
    @cache
    def _annotated(cls) -> tuple[Mapping[str, type[np.generic]], Mapping[str, Column]]:
        dtypes, schema = {}, {}
        for name, annotation in get_type_hints(cls, include_extras=True).items():
            array, *described = get_args(annotation) if hasattr(annotation, "__metadata__") else (annotation,)
            # NDArray[np.int64] is ndarray[shape, dtype[int64]]; from numpy 2.5 on it is an alias of its own.
            *_, dtype = get_args(array)
            dtypes[name] = get_args(dtype)[0] if get_args(dtype) else dtype
            schema[name] = described[0] if described else Column()
        return MappingProxyType(dtypes), MappingProxyType(schema)

    @classmethod
    def missing(cls) -> Mapping[str, Any]:
        """Value of each column in a row without data."""
        return {name: _missing(dtype, cls.schema()[name]) for name, dtype in cls.dtypes().items()}

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls.from_columns({})

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Self:
        """Build from arrays or sequences by name; a column that is not given has its missing value in every row."""
        length = max((len(column) for column in columns.values()), default=0)
        return cls(
            **{
                name: columns[name] if name in columns else np.full(length, missing, cls.dtypes()[name])
                for name, missing in cls.missing().items()
            }
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in self.dtypes()}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} rows of {', '.join(self.dtypes())}>"

    def __len__(self) -> int:
        first = fields(self)[0].name
        return len(getattr(self, first))

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Select rows by position, mask or slice."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)  # once for all columns
        return type(self)(**{name: column[rows] for name, column in self.columns().items()})

    def to_frame(self) -> pd.DataFrame:
        """The columns as a pandas DataFrame."""
        return frame_of(self.columns())


def _missing(dtype: type[np.generic], column: Column) -> Any:
    if column.missing is not None:
        return column.missing
    if dtype in (np.float64, np.float32):
        return np.nan
    return False if dtype is np.bool_ else MISSING


class Texts(Sequence[str]):
    """Immutable strings in one block of UTF-8, decoded one by one; ``offsets`` are where each begins, and the end."""

    __slots__ = ("block", "offsets")

    def __init__(self, block: NDArray[np.uint8], offsets: Int64) -> None:
        self.block = block
        self.offsets = offsets

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Build from strings; what cannot be encoded becomes a question mark."""
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
