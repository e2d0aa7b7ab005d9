"""LoopBlocks: times for which the event loop of a worker or scheduler was blocked, and at what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from distributed.metrics import time

from dask_efficiency.accounts.profile import EVENT_LOOP, Hold, Stack

#: Seconds for which a blocked loop is reported.
MIN_SECONDS = 0.1


class LoopBlocks:
    """Sees when Dask's own tick of the event loop, of every 20 ms, is missing.

    Where upstream has no such tick any more, nothing is reported.

    Parameters
    ----------
    server
        A worker or scheduler.
    stack
        What the loop is at; None where it is at no work of its own.
    blocked
        Called with each block that is over.
    """

    def __init__(self, server: Any, stack: Callable[[], Stack | None], blocked: Callable[[Hold], object]) -> None:
        self._server = server
        self._stack = stack
        self._blocked = blocked
        self._seen: Counter[Stack] = Counter()
        self._since: float | None = None
        callback = getattr(server, "periodic_callbacks", {}).get("tick")
        self._interval = callback.callback_time / 1e3 if callback is not None else None

    def look(self, wanted: bool) -> None:
        """Look at the loop; ``wanted`` is whether anybody wants to know."""
        last = getattr(self._server, "_last_tick", None)
        if last is None or self._interval is None or not wanted:
            return
        if self._since is not None and last != self._since:
            seconds = last - self._since - self._interval
            stack = next((stack for stack, _ in self._seen.most_common(1)), ())
            self._since = None
            self._seen.clear()
            if seconds > MIN_SECONDS:
                self._blocked(Hold(round(seconds * 1e9), EVENT_LOOP, stack))
        if time() - last - self._interval > MIN_SECONDS / 2:
            self._since = last
            stack_now = self._stack()
            if stack_now is not None:
                self._seen[stack_now] += 1
