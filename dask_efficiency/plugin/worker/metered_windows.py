"""MeteredWindows: what was counted by label while windows were open."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dask_efficiency.accounts.metered import BYTES, COUNT, Metered
from dask_efficiency.accounts.worker.slot_windows import MAX_WINDOWS


class MeteredWindows:
    """Differences of totals, from the opening to the closing of each window.

    Parameters
    ----------
    *sources
        Each gives its totals so far, under names of its own.
    levels
        Gives what goes up and down; of a window, the highest that was sampled is told.
    """

    def __init__(
        self,
        *sources: Callable[[], Mapping[Metered, int]],
        levels: Callable[[], Mapping[Metered, int]] = dict,
    ) -> None:
        self._sources, self._levels = sources, levels
        self._opened: dict[str, dict[Metered, int]] = {}
        self._peaks: dict[str, dict[Metered, int]] = {}

    def totals(self) -> dict[Metered, int]:
        """All that was counted so far."""
        found: dict[Metered, int] = {}
        for source in self._sources:
            found |= source()
        return found

    def amounts(self) -> dict[str, int]:
        """Bytes and counts so far that went each of the ways, by ``way/unit``."""
        found: dict[str, int] = {}
        for metered, value in self.totals().items():
            if metered.unit in (BYTES, COUNT) and (way := metered.way):
                name = f"{way}/{metered.unit}"
                found[name] = found.get(name, 0) + value
        return found

    def sample(self) -> None:
        """Look at the levels, where a window is open."""
        if self._peaks:
            levels = self._levels()
            for peaks in self._peaks.values():
                for metered, level in levels.items():
                    peaks[metered] = max(level, peaks.get(metered, 0))

    def open_window(self, window: str) -> None:
        """Begin a window, or begin it anew; of too many, the oldest goes."""
        self._opened.pop(window, None)
        while len(self._opened) >= MAX_WINDOWS:
            oldest = next(iter(self._opened))
            del self._opened[oldest], self._peaks[oldest]
        self._opened[window], self._peaks[window] = self.totals(), {}

    def close_window(self, window: str) -> dict[Metered, int]:
        """What was counted since it was opened, and the peaks; nothing where no such window is open."""
        self.sample()
        then, peaks = self._opened.pop(window, None), self._peaks.pop(window, {})
        if then is None:
            return {}
        gained = {metered: value - then.get(metered, 0) for metered, value in self.totals().items()}
        return {metered: value for metered, value in (gained | peaks).items() if value > 0}
