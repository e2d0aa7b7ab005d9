"""Rates: by how much counters grow in a second, over resets and wraps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)

#: A counter of 32 bits begins anew beyond this. A value that shrank is taken for such a one where it was in the last
#: sixteenth of the range before, and is in the first one now; else the counter was reset.
WRAP = 1 << 32
_NEAR = WRAP // 16


class Rates(Generic[Name]):
    """Counters of several devices, as they were when they were read last.

    What is new, was reset, or was not read the time before has no rate: so a device that comes or goes makes none jump.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._last: Mapping[Name, float] = {}

    def take(self, counters: Mapping[Name, float], *, at: float) -> dict[Name, float]:
        """How fast each counter grew since it was read last, in units a second.

        Parameters
        ----------
        counters
            By name; each of them only grows, until it wraps or is reset.
        at
            Seconds of a clock that is never set.
        """
        last, self._last = self._last, counters
        before, self._at = self._at, at
        if before is None or at <= before:
            return {}
        seconds = at - before
        grown = ((name, _grown(last[name], now)) for name, now in counters.items() if name in last)
        return {name: more / seconds for name, more in grown if more is not None}


def _grown(then: float, now: float) -> float | None:
    """By how much a counter grew; None where it was reset."""
    if now >= then:
        return now - then
    if WRAP - _NEAR <= then < WRAP and now < _NEAR:
        return now + WRAP - then
    return None
