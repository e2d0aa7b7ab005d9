"""SampleWindows: what was sampled while each window was open."""

from __future__ import annotations

from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.profile import Hold, Holder, Place, StackTable
from dask_efficiency.accounts.worker.slot_windows import MAX_WINDOWS

#: The longest of so many are kept of each window.
MAX_HOLDS = 50


class _Window:
    def __init__(self) -> None:
        self.profile: StackTable[Place] = StackTable()
        self.holders: StackTable[Holder] = StackTable()
        self.holds: list[Hold] = []
        self.loop_blocks: list[Hold] = []


class SampleWindows:
    """What was sampled while each window was open, in bounded memory."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def __bool__(self) -> bool:
        return bool(self._windows)

    def open(self, window_id: str) -> None:
        """Begin a window; one that is open under this id begins anew."""
        self._windows.pop(window_id, None)
        while len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[window_id] = _Window()

    def close(self, window_id: str) -> WindowDetails | None:
        """End a window, and give what was sampled in it; None if no such window is open."""
        window = self._windows.pop(window_id, None)
        if window is None:
            return None
        return WindowDetails(
            profile=window.profile.rows(),
            holders=window.holders.rows(),
            gil_holds=tuple(window.holds),
            loop_blocks=tuple(window.loop_blocks),
        )

    def add(self, sampled: tuple[Place | Holder, int]) -> None:
        """Add nanoseconds to a row of each window."""
        row, ns = sampled
        for window in self._windows.values():
            if isinstance(row, Place):
                window.profile.add(row, ns)
            else:
                window.holders.add(row, ns)

    def hold(self, hold: Hold) -> None:
        """Somebody held the GIL for long."""
        for window in self._windows.values():
            _note(window.holds, hold)

    def loop_block(self, block: Hold) -> None:
        """The event loop was blocked for long."""
        for window in self._windows.values():
            _note(window.loop_blocks, block)


def _note(holds: list[Hold], hold: Hold) -> None:
    holds.append(hold)
    if len(holds) > MAX_HOLDS:
        holds.remove(min(holds))
