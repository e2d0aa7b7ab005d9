"""Limits of a test, as its marker gives them, and what a report has beyond them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from dask.utils import parse_bytes, parse_timedelta

from dask_efficiency.accounts.buckets import CAUSE_NAMES, Bucket
from dask_efficiency.files.text_files import known_names
from dask_efficiency.report.head import worker_peak
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import format_bytes, format_seconds, format_share


@dataclass(frozen=True, slots=True)
class EfficiencyLimits:
    """Limits of a test's report; None or empty for no limit.

    Parameters
    ----------
    max_seconds
        Wall clock from the first look at the client to its end, or a length of time such as ``"2 min"``.
    min_efficiency
        Useful share of the thread time, in [0, 1].
    max_memory
        Most process memory of one worker: bytes, or a size such as ``"2 GiB"``.
    no
        Buckets, such as ``"spill"``, and causes, such as ``"thread-noncpu/gil"``, of which there may be no time.

    Raises
    ------
    ValueError
        If a limit is none.
    """

    max_seconds: float | str | None = None
    min_efficiency: float | None = None
    max_memory: float | str | None = None
    no: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, read in (("max_seconds", parse_timedelta), ("min_efficiency", float), ("max_memory", parse_bytes)):
            given = getattr(self, name)
            try:
                value = None if given is None else float(read(given))
            except (AttributeError, TypeError, ValueError, KeyError, IndexError):  # as Dask raises them
                raise ValueError(
                    f"efficiency({name}={given!r:.80}): expected a number with a unit, or without"
                ) from None
            object.__setattr__(self, name, value)
        if not isinstance(self.no, (str, Iterable, NoneType)):
            raise ValueError(f"efficiency(no={self.no!r:.80}): expected names of buckets and causes")
        names = (self.no,) if isinstance(self.no, str) else tuple(self.no or ())
        for name in names:
            if name not in (*Bucket, *CAUSE_NAMES):
                raise ValueError(f"efficiency(no={name!r:.80}): {known_names(str(name), (*Bucket, *CAUSE_NAMES))}")
        object.__setattr__(self, "no", names)

    @classmethod
    def of(cls, given: dict[str, Any]) -> EfficiencyLimits:
        """Limits by name; ValueError for a name that is none."""
        if unknown := given.keys() - {*cls.__slots__}:
            raise ValueError(f"efficiency({min(unknown)}=...) is unknown; {known_names(min(unknown), cls.__slots__)}")
        return cls(**given)

    def broken(self, report: EfficiencyReport) -> Iterator[str]:
        """Limits that a report does not keep, a clause each."""
        seconds, peak, efficiency = report.wall_clock_seconds, worker_peak(report), report.efficiency
        # comparisons with NaN, of what is not known, are False
        if self.max_seconds is not None and seconds > float(self.max_seconds):
            yield f"{format_seconds(seconds)} of wall clock; max_seconds is {format_seconds(float(self.max_seconds))}"
        if self.min_efficiency is not None and efficiency < self.min_efficiency:
            least = format_share(self.min_efficiency)
            yield f"an efficiency of {format_share(efficiency)}; min_efficiency is {least}"
        if self.max_memory is not None and peak > float(self.max_memory):
            yield f"{format_bytes(peak)} in one worker's process; max_memory is {format_bytes(float(self.max_memory))}"
        for name in self.no:
            bucket, _, cause = name.partition("/")
            ns = report.causes_ns(Bucket(bucket)).get(cause, 0) if cause else report.breakdown.ns(Bucket(bucket))
            if ns:
                yield f"{format_seconds(ns / 1e9)} of thread time in {name}, and there may be none"
