"""Difference of a quantity before and after a change, measured in one run or in several per side.

Runs differ without any change, and now and then one is far off: another job took the cores, or a file system hung. So
the middle of a side is the median, and a change of the medians counts only if it passes two tests, of which neither is
fooled by one odd run in five:

- it exceeds the spread, two standard errors of the difference of two medians, with the median absolute deviation (MAD)
  for the standard deviation;
- in four of five pairs of a run before and a run after, the one after has more, or in four of five less. That is the
  statistic of Mann and Whitney's test; it keeps out quantities that jump, such as spilling in one run of three.

The range of the runs, which is simpler, grows with every run: one odd run hides any change, and more runs make it less
likely to be found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dask_efficiency.straggler.peers import MAD_TO_DEVIATION

Number = TypeVar("Number", int, float)

#: Standard errors that a change of the medians has to exceed: without any change, less than one in twenty does, of two
#: to twenty runs a side, normal or with one odd run in ten (20,000 draws each, together with :data:`SAME_WAY`).
STANDARD_ERRORS = 2.0
#: Share of the pairs of a run before and one after that have to differ in the direction of the change: with five runs a
#: side, one may be odd.
SAME_WAY = 0.8
#: Standard error of a median of normal values, over that of their mean.
_MEDIAN_TO_MEAN = math.sqrt(math.pi / 2)
#: By number of values: what makes the MAD of so few unbiased, and from ten on ``n / (n - 0.8)`` (Croux and Rousseeuw,
#: Time-efficient algorithms for two highly robust estimators of scale, 1992).
_OF_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


@dataclass(frozen=True, slots=True)
class Difference(Generic[Number]):
    """A quantity before and after: integers for nanoseconds and counts, floats otherwise."""

    #: Values by run; never empty.
    runs_before: tuple[Number, ...]
    runs_after: tuple[Number, ...]

    @property
    def before(self) -> Number:
        """Median of the runs before."""
        return _median(self.runs_before)

    @property
    def after(self) -> Number:
        """Median of the runs after."""
        return _median(self.runs_after)

    @property
    def change(self) -> Number:
        """After minus before, of the medians."""
        return self.after - self.before

    @property
    def rise(self) -> float:
        """Relative change: 0.0 if both are 0, infinite if only before is."""
        if self.before:
            return self.change / self.before
        return math.copysign(math.inf, self.change) if self.change else 0.0

    @property
    def spread(self) -> Number | None:
        """Two standard errors of the change, by the side that varies more; None with one run per side."""
        sides = (self.runs_before, self.runs_after)
        deviations = [_deviation(runs) for runs in sides if len(runs) > 1]
        if not deviations:
            return None
        error = _MEDIAN_TO_MEAN * max(deviations) * math.sqrt(sum(1 / len(runs) for runs in sides))
        spread = STANDARD_ERRORS * error
        return round(spread) if isinstance(self.change, int) else spread

    @property
    def occurs(self) -> bool:
        """True if any run has it."""
        return any((*self.runs_before, *self.runs_after))

    @property
    def within_spread(self) -> bool:
        """True if runs without any change may differ as much; never with one run per side."""
        if self.spread is None or math.isnan(self.spread) or math.isnan(self.change):
            return False
        return abs(self.change) <= self.spread or not self._same_way()

    def _same_way(self) -> bool:
        """Check if most pairs of a run before and one after differ in the direction of the change."""
        sign = 1 if self.change > 0 else -1
        pairs = [sign * (after - before) for before in self.runs_before for after in self.runs_after]
        more, equal = sum(pair > 0 for pair in pairs), sum(pair == 0 for pair in pairs)
        return more + equal / 2 >= SAME_WAY * len(pairs)


def _median(values: Sequence[Number]) -> Number:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    # nanoseconds stay integers
    return (low + high) // 2 if isinstance(low, int) and isinstance(high, int) else (low + high) / 2


def _deviation(runs: Sequence[float]) -> float:
    """Standard deviation of several runs by their MAD; of runs of which most are equal, by their mean deviation."""
    middle, n = _median(runs), len(runs)
    off = [abs(value - middle) for value in runs]
    if mad := _median(off):
        return MAD_TO_DEVIATION * _OF_FEW.get(n, n / (n - 0.8)) * mad
    return _MEDIAN_TO_MEAN * math.fsum(off) / n


def finite_or_nan(numbers: Iterable[float]) -> tuple[float, ...]:
    """The numbers of which something is known; one NaN if there is none."""
    return tuple(filter(math.isfinite, numbers)) or (math.nan,)
