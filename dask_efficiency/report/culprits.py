"""Culprits: the lines of code that lost time is put down to."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.report.model import ReportValues


@dataclass(frozen=True, slots=True)
class Culprit:
    """A line of code, and what was lost there for one reason."""

    bucket: str
    cause: str
    prefix: str
    line: str
    function: str
    seconds: float
    held_by: str
    advice: str


def find_culprits(report: ReportValues) -> tuple[Culprit, ...]:
    """The most costly first."""
    return ()
