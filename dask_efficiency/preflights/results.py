"""What a preflight found, as a result that shows itself."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Self

from dask_efficiency.preflights.judge.result import PreflightValues
from dask_efficiency.show.shown import Printed


class PreflightResult(Printed, PreflightValues):  # noqa: D101  # the values say it
    __doc__ = PreflightValues.__doc__

    _said_by: ClassVar[str] = "dask_efficiency.preflights.sections"

    @classmethod
    def of(cls, values: PreflightValues) -> Self:
        """The same as a result."""
        return cls(**{field.name: getattr(values, field.name) for field in fields(values)})
