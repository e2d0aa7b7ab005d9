"""LoopWatch: when an event loop was blocked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns, process_time_ns, thread_time_ns
from typing import Any, NamedTuple

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.plugin.patches import TICK, Replacements
from dask_efficiency.runs.recording.data_moves import DataMoves
from dask_efficiency.runs.trace.schema import BLOCKED_BY

#: How late a tick must be to be reported.
LATE_NS = 10_000_000


_COMPUTING, _CORE, _GIL, _CALL = map(BLOCKED_BY.index, ("computing", "core", "gil", "call"))


class _Used(NamedTuple):
    """CPU nanoseconds so far."""

    loop: int
    process: int


class LoopWatch:
    """Reports when a server's event loop was late for Dask's own tick, of every 20 ms, by another 10 ms.

    Where upstream has no such tick any more, nothing is reported and nothing breaks.

    Parameters
    ----------
    server
        A scheduler or a worker.
    blocked
        Called with the start and stop of the interval, nanoseconds of the monotonic clock; with how many of them were
        spent on moving data; and with what most of them were spent on, as an index of
        :data:`~dask_efficiency.runs.trace.schema.BLOCKED_BY`, or MISSING for data. The loop was blocked at some instant
        between its last tick and the one that was due: the middle is given as the start.
    """

    def __init__(self, server: Any, blocked: Callable[[int, int, int, int], object]) -> None:
        self._blocked = blocked
        self._last = monotonic_ns()
        self._used = _Used(thread_time_ns(), process_time_ns())
        self._schedstat = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._waited = self._core_wait()
        self._moves: DataMoves | None = None
        self._replacements = Replacements()
        tick = getattr(server, "periodic_callbacks", {}).get("tick")
        if tick is not None:
            self._interval = round(tick.callback_time * 1e6)
            if self._replacements.put(TICK, server, self._before):
                self._moves = DataMoves()

    def stop(self) -> None:
        """Stop watching."""
        self._replacements.put_back()
        moves, self._moves = self._moves, None
        if moves is not None:
            moves.close()

    def _before(self, callback: Callable[[], Any]) -> Callable[[], Any]:
        """What Dask's tick calls from now on."""

        def tick() -> Any:
            self._turn()
            return callback()

        return tick

    def _turn(self) -> None:
        now = monotonic_ns()
        used = _Used(thread_time_ns(), process_time_ns())
        moves = self._moves
        if moves is not None:
            moving = moves.turn(now - self._last)
            start = self._last + self._interval // 2
            if now - self._last - self._interval > LATE_NS:
                self._blocked(start, now, min(moving, now - start), self._cause(now - self._last, moving, used))
        self._last, self._used = now, used

    def _cause(self, took: int, moving: int, used: _Used) -> int:
        """What most of the time since the last tick was spent on.

        A loop that neither computed nor waited for a core waited for the GIL or in a call that blocks: where other
        threads of the process computed meanwhile, it is taken for the GIL.
        """
        before, self._waited = self._waited, self._core_wait()
        loop = used.loop - self._used.loop
        others = used.process - self._used.process - loop
        if 2 * moving > took:
            return MISSING
        core = self._waited - before
        rest = took - loop - core
        if rest >= max(loop, core):
            return _GIL if 2 * others > rest else _CALL
        return _COMPUTING if loop >= core else _CORE

    def _core_wait(self) -> int:
        """Nanoseconds that this thread has waited for a core; 0 where the system does not say.

        Read only when the loop was late, not at each tick: reading releases the GIL, which may block the loop itself.
        """
        try:
            with open(self._schedstat, "rb") as file:
                return int(file.read().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
