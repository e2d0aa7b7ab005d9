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
    """

    def __init__(self, *sources: Callable[[], Mapping[Metered, int]]) -> None:
        self._sources = sources
        self._opened: dict[str, dict[Metered, int]] = {}

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

    def open_window(self, window: str) -> None:
        """Begin a window, or begin it anew; of too many, the oldest goes."""
        self._opened.pop(window, None)
        while len(self._opened) >= MAX_WINDOWS:
            del self._opened[next(iter(self._opened))]
        self._opened[window] = self.totals()

    def close_window(self, window: str) -> dict[Metered, int]:
        """What was counted since it was opened; nothing where no such window is open."""
        then = self._opened.pop(window, None)
        if then is None:
            return {}
        gained = {metered: value - then.get(metered, 0) for metered, value in self.totals().items()}
        return {metered: value for metered, value in gained.items() if value > 0}
