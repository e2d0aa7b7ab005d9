"""Typed columns: a table written once, as cells on a screen, as records for JSON and as a frame of pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dask_efficiency.accounts.intake import finite
from dask_efficiency.accounts.tables import needs_pandas
from dask_efficiency.show.document import Cell, Share, Table
from dask_efficiency.show.figures import Scale, format_bytes, format_seconds, format_share, format_times, name_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """Values of one kind of quantity, and how they are written.

    Parameters
    ----------
    values
        A value for each row, as JSON has it: seconds, bytes, shares in [0, 1]; None where nothing was measured. Kept
        as a tuple, with None for a number that is not finite.
    text
        Writes a value that is known on a screen.
    dtype
        Type in a frame; None keeps the column out of it, as a frame has no room for lists and mappings.
    unit
        Unit of all cells, for the head; empty where a cell has its own or none.
    words
        True if cells are words, which are aligned at the left.
    unknown
        Cell of a value that is None.
    """

    values: Iterable[Any]
    text: Callable[[Any], Cell] = str
    dtype: Any = object
    unit: str = ""
    words: bool = False
    unknown: str = "-"

    def __post_init__(self) -> None:
        values = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values
        plain = tuple(finite(value) if isinstance(value, float) else value for value in values)
        object.__setattr__(self, "values", plain)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cell of each row on a screen."""
        return tuple(self.unknown if value is None else self.text(value) for value in self.values)


Columns: TypeAlias = Mapping[str, TypedColumn]

#: Names of others, which are made harmless and short on a screen; words that are; counts; sizes in bytes; shares in
#: [0, 1]; ratios.
names = partial(TypedColumn, text=name_of, words=True)
words = partial(TypedColumn, words=True)
counts = partial(TypedColumn, dtype=int)
sizes = partial(TypedColumn, text=format_bytes, dtype=int)
shares = partial(TypedColumn, text=format_share, dtype=float)
multiples = partial(TypedColumn, text=format_times, dtype=float)
#: Lists and mappings.
nested = partial(TypedColumn, dtype=None)


def seconds(values: Iterable[float | None], scale: Scale | None = None, unknown: str = "-") -> TypedColumn:
    """Durations: all in the unit of a scale, or each in its own."""
    text, unit = (format_seconds, "") if scale is None else (scale.figure, scale.unit)
    return TypedColumn(values, text, float, unit, unknown=unknown)


def as_table(columns: Columns, heads: Mapping[str, str] | None = None, *, bar: str = "", **layout: Any) -> Table:
    """Table for a section, with units in its heads.

    Parameters
    ----------
    columns
        Of equal length.
    heads
        By name of each column that is shown, in their order; by default the names of all. A unit takes the place of
        braces in a head, or else follows it.
    bar
        Name of the column behind which its values are drawn, as shares of the largest.
    **layout
        More fields of a :class:`~dask_efficiency.show.document.Table`.
    """
    heads = dict(zip(columns, columns, strict=True)) if heads is None else heads
    shown = {name: columns[name] for name in heads}
    if bar:
        layout = {"drawings": bars(columns[bar].values), "drawn_behind": [*heads].index(bar)} | layout
    return Table(
        tuple(_with_unit(head, shown[name].unit) for name, head in heads.items()),
        tuple(zip(*(column.cells for column in shown.values()), strict=True)),
        words=tuple(position for position, column in enumerate(shown.values()) if column.words),
        **layout,
    )


def _with_unit(head: str, unit: str) -> str:
    return head.format(unit) if "{}" in head or not unit else f"{head}, {unit}"


def bars(values: Iterable[float]) -> tuple[Share, ...]:
    """Bars of shares of the largest value."""
    known = tuple(values)
    largest = max(known, default=0.0)
    return tuple(Share(value / largest if largest else 0.0) for value in known)


def as_records(columns: Columns) -> list[dict[str, Any]]:
    """Rows for JSON: each value by the name of its column."""
    rows = zip(*(column.values for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def as_frame(columns: Columns, index: str = "") -> pd.DataFrame:
    """Frame of pandas, NaN where nothing was measured; ``index`` is the name of its index among the columns."""
    with needs_pandas():
        import pandas as pd

    typed = {name: column for name, column in columns.items() if column.dtype is not None}
    frame = pd.DataFrame({name: pd.Series(column.values, dtype=column.dtype) for name, column in typed.items()})
    return frame.set_index(index) if index else frame
