"""What a preflight found, as a result that shows itself."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from dask_efficiency.preflights import sections
from dask_efficiency.preflights.judge.result import PreflightValues
from dask_efficiency.show.shown import Printed, fields_of


class PreflightResult(Printed, PreflightValues):  # noqa: D101  # the values say it
    __doc__ = PreflightValues.__doc__

    _said_by: ClassVar[Any] = sections

    @classmethod
    def of(cls, values: PreflightValues) -> Self:
        """The same as a result."""
        return cls(**fields_of(values))
