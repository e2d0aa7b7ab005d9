"""SpillWatch: when a worker's event loop moves data between memory and disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from threading import get_ident
from time import monotonic_ns
from typing import Any

from zict import Buffer

#: Times that are remembered; of a task that began before the first of them, some spilling may be missed.
MAX_TIMES = 20_000


class SpillWatch:
    """Notes from when to when a worker's event loop spills, reads back, or evicts.

    The data of a worker is a buffer of zict's, or has such buffers within it as that of dask-cuda has; what these call
    to move an item to the slower memory and back is timed, on this one worker, and so is the eviction that the
    memory manager asks for. Where the data is something else nothing is noted and nothing breaks.

    Parameters
    ----------
    data
        The worker's data.
    spilled
        Called on the event loop after each time, with its start and stop, nanoseconds of the monotonic clock, and
        whether the memory manager asked for it. May not raise.
    """

    def __init__(self, data: Any, spilled: Callable[[int, int, bool], object]) -> None:
        self._data = data
        self._spilled = spilled
        self._loop = 0
        #: Sorted and disjoint: starts, stops, and nanoseconds of all times before each.
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._before: list[int] = []
        #: Whether there is anything to time.
        self.watching = False
        #: When the last one ended; 0 if there was none.
        self.last = 0
        #: Told of each stretch at the disk: start, stop, and whether it read.
        self.on_stretch: Callable[[int, int, bool], object] | None = None
        self._since = 0
        #: Whether each of the calls that go on reads; calls may be nested.
        self._reading: list[bool] = []
        #: Where each wrapper stands: in the attributes of an object, by name, or in a list; and what stood there.
        self._placed: list[tuple[Any, Any, Any, Any]] = []

    # -- coming and going --------------------------------------------------------------------

    def start(self) -> None:
        """Note what this thread does from now on, which is the event loop's."""
        self._loop = get_ident()
        for buffer in _buffers(self._data):
            self._time(vars(buffer), "slow_to_fast", buffer.slow_to_fast, reading=True)
            for i, call in enumerate(buffer.fast.on_evict):
                self._time(buffer.fast.on_evict, i, call, reading=False)
        if self._placed and hasattr(self._data, "evict"):
            self._time(vars(self._data), "evict", self._data.evict, reading=False, asked=True)
        self.watching = bool(self._placed)

    def stop(self) -> None:
        """Put everything back."""
        self.watching = False
        while self._placed:
            owner, name, wrapper, original = self._placed.pop()
            if _get(owner, name) is not wrapper:  # somebody wrapped it after us
                continue
            if original is None:
                del owner[name]
            else:
                owner[name] = original

    def _time(self, owner: Any, name: Any, call: Callable[..., Any], *, reading: bool, asked: bool = False) -> None:
        """Time what is called by this name, in the attributes of an object or in a list of callbacks."""
        wrapper = self._timed(call, reading=reading, asked=asked)
        self._placed.append((owner, name, wrapper, _get(owner, name)))
        owner[name] = wrapper

    # -- what is noted -----------------------------------------------------------------------

    def between(self, start: int, stop: int) -> int:
        """Nanoseconds of spilling and reading back from one instant to another, up to now."""
        return max(0, self._until(stop) - self._until(start))

    def _until(self, at: int) -> int:
        i = bisect_right(self._starts, at) - 1
        if i < 0:
            return self._before[0] if self._before else 0
        return self._before[i] + min(at, self._stops[i]) - self._starts[i]

    def _timed(self, call: Callable[..., Any], *, reading: bool, asked: bool = False) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != self._loop:
                return call(*args, **kwargs)
            start = monotonic_ns()
            self._begin(start, reading)
            try:
                return call(*args, **kwargs)
            finally:
                stop = monotonic_ns()
                self._end(stop)
                if not self._reading:
                    self._note(start, stop)
                    self._spilled(start, stop, asked)

        return timed

    def _begin(self, at: int, reading: bool) -> None:
        """A call begins; the one that it is nested in goes on after it."""
        if self._reading:
            self._tell(at)
        self._since = at
        self._reading.append(reading)

    def _end(self, at: int) -> None:
        self._tell(at)
        self._since = at
        self._reading.pop()

    def _tell(self, at: int) -> None:
        if self.on_stretch is not None and at > self._since:
            self.on_stretch(self._since, at, self._reading[-1])

    def _note(self, start: int, stop: int) -> None:
        before = self._before[-1] + self._stops[-1] - self._starts[-1] if self._starts else 0
        self._starts.append(start)
        self._stops.append(stop)
        self._before.append(before)
        self.last = stop
        if len(self._starts) > MAX_TIMES:
            for times in (self._starts, self._stops, self._before):
                del times[: MAX_TIMES // 2]


def _buffers(data: Any) -> Iterator[Any]:
    """The data itself, or what it is made of."""
    for candidate in (data, *getattr(data, "__dict__", {}).values()):
        if isinstance(candidate, Buffer):
            yield candidate


def _get(owner: Any, name: Any) -> Any:
    """What stands in a dictionary or a list; None where nothing does."""
    try:
        return owner[name]
    except LookupError:
        return None
