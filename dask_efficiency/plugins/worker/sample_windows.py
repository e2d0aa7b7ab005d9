"""SampleWindows: what was sampled while each window was open."""

from __future__ import annotations

from typing import Any, NamedTuple

from dask_efficiency.profile import HolderRow, Stack, StackRow, StackTable

#: The longest of so many are kept of each window.
MAX_BLOCKS = 50

#: Windows kept at once, as in the ledger; the oldest goes when one more is opened.
MAX_WINDOWS = 64


class Block(NamedTuple):
    """One time for which somebody kept the others from going on."""

    seconds: float
    #: The prefix of a task; in parentheses, what is no task.
    who: str
    stack: Stack


class _Window:
    def __init__(self) -> None:
        self.profile: StackTable[StackRow] = StackTable()
        self.holders: StackTable[HolderRow] = StackTable()
        self.holds: list[Block] = []
        self.loop_blocks: list[Block] = []


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

    def close(self, window_id: str) -> dict[str, list[Any]] | None:
        """End a window.

        Returns
        -------
        dict or None
            None if no such window is open. Else plain data: ``profile``, of (bucket, cause, prefix, stack, ns), the
            largest first; ``holders`` of the GIL, of (prefix that waited, stack of the holder, prefix of the holder,
            ns); ``holds`` of the GIL of more than 100 ms, of (seconds, who, stack); ``loop_blocks``, times for which
            the event loop was blocked, of (seconds, stack). A stack is a tuple of (function, file, line), outermost
            first.
        """
        window = self._windows.pop(window_id, None)
        if window is None:
            return None
        return {
            "profile": [(*row[:3], _plain(row.stack), ns) for row, ns in window.profile.rows()],
            "holders": [(row.waiting, _plain(row.stack), row.holder, ns) for row, ns in window.holders.rows()],
            "holds": [(block.seconds, block.who, _plain(block.stack)) for block in window.holds],
            "loop_blocks": [(block.seconds, _plain(block.stack)) for block in window.loop_blocks],
        }

    def add(self, sampled: tuple[StackRow | HolderRow, int]) -> None:
        """Add nanoseconds to a row of each window."""
        row, ns = sampled
        for window in self._windows.values():
            if isinstance(row, StackRow):
                window.profile.add(row, ns)
            else:
                window.holders.add(row, ns)

    def hold(self, block: Block) -> None:
        """Somebody held the GIL for long."""
        for window in self._windows.values():
            _note(window.holds, block)

    def loop_block(self, block: Block) -> None:
        """The event loop was blocked for long."""
        for window in self._windows.values():
            _note(window.loop_blocks, block)


def _note(blocks: list[Block], block: Block) -> None:
    blocks.append(block)
    if len(blocks) > MAX_BLOCKS:
        blocks.remove(min(blocks, key=lambda block: block.seconds))


def _plain(stack: Stack) -> tuple[tuple[str, str, int], ...]:
    return tuple(map(tuple, stack))  # type: ignore[arg-type]  # of three
