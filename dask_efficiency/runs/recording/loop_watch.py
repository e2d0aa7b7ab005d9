"""LoopWatch: reports when an event loop was blocked, and how much of that time it moved data.

The recorded transfers alone do not show the latter: a loop that waits for the GIL in the middle of a transfer, because
a task holds it, would look like one that moves data.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, get_ident
from time import monotonic_ns, process_time_ns, thread_time_ns
from types import FunctionType
from typing import Any, cast

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.plugin.patches import OF_LOADS, OFFLOAD, READ, SERIALIZE, TICK, WRITE, Replacements
from dask_efficiency.runs.trace.schema import BLOCKED_BY

#: Nanoseconds of a call from which the thread may have waited for the GIL.
_LONG_NS = 1_000_000
#: Nanoseconds of (de)serialising below which a message has no data: it takes 20 us in the median of no-op tasks.
_MIN_NS = 100_000
#: Bytes up to which a read or write is not timed, as it takes microseconds: Tornado's own chunk.
_MIN_BYTES = 65_536
#: Arguments of Dask's ``dumps``.
_OF_DUMPS = ("msg", "serializers", "on_error", "context", "frame_split_size")


class _SchedStat:
    """File in which Linux counts this thread's time on a core and waiting for one; both are 0 elsewhere."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> tuple[int, int]:
        """Nanoseconds that the thread ran, up to some milliseconds ago, and waited for a core; on any thread."""
        file = self._file
        if file is not None:
            with suppress(OSError, ValueError):  # no reason to fail a message
                ran, waited, _ = os.pread(file, 100, 0).split()
                return int(ran), int(waited)
        return 0, 0

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class DataMoves:
    """Adds up the time in which an event loop's thread moves data, or waits for a thread that does.

    To be made on the event loop's thread. Large reads and writes of Tornado's streams are timed, and calls of Dask's
    protocol; small ones, of which there are many for every task, do not count. Sampling the loop's stack from another
    thread would cost a thread, and on Python 3.11 it can lock up the process: Dask does not do it there either. Comms
    that do not use Tornado's streams are not counted.
    """

    def __init__(self) -> None:
        self._long_ns = 0
        self._thread = get_ident()
        self._schedstat = _SchedStat()
        self._ran_ns = self._turned_ns = self._ran()
        with _lock:
            if not _loops:
                for patch, wrap in _PATCHES:
                    _replacements.put(patch, None, wrap)
            loop = _loops.setdefault(self._thread, _Loop())
            loop.users.append(self)
        self._short_ns = loop.short_ns
        self._elsewhere_ns = _elsewhere()

    def close(self) -> None:
        """Stop; to be called once."""
        with _lock:
            loop = _loops[self._thread]
            loop.users.remove(self)
            if not loop.users:
                del _loops[self._thread]
            if not _loops:
                _replacements.put_back()
                while _others:
                    _others.popitem()[1].schedstat.close()
        self._schedstat.close()

    def turn(self, took_ns: int) -> int:
        """Nanoseconds of the event loop's last turn, of ``took_ns``, that went to data.

        That is the loop's own calls, without its sleep in them, which is mostly waiting for the GIL; and its sleep
        while another thread (de)serialised.
        """
        before, self._turned_ns = self._turned_ns, self._ran()
        self._ran_ns = self._turned_ns
        slept = max(0, took_ns - (self._turned_ns - before))
        elsewhere, self._elsewhere_ns = self._elsewhere_ns, _elsewhere()
        before, self._short_ns = self._short_ns, _loops[self._thread].short_ns
        moved, self._long_ns = self._short_ns - before + self._long_ns, 0
        return min(took_ns, moved + max(0, min(slept, self._elsewhere_ns - elsewhere)))

    def add_long(self, took_ns: int) -> None:
        """Count a long call on the loop's own thread, which has returned."""
        before, self._ran_ns = self._ran_ns, self._ran()
        self._long_ns += max(0, min(took_ns, self._ran_ns - before))

    def waited_ns(self) -> int:
        """Time in which the thread has waited for a core."""
        return self._schedstat.read()[1]

    def _ran(self) -> int:
        return thread_time_ns() + self.waited_ns()


class _Loop:
    """Thread of an event loop: its users, one for each server that runs on it, and nanoseconds of all short calls."""

    def __init__(self) -> None:
        self.users: list[DataMoves] = []
        self.short_ns = 0


class _Elsewhere:
    """Time in which a thread other than an event loop's (de)serialised: Dask has one for large messages."""

    def __init__(self) -> None:
        self.schedstat = _SchedStat()
        self._total_ns = 0
        self._since: int | None = None

    def timed(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._since = sum(self.schedstat.read())
        try:
            return call(*args, **kwargs)
        finally:
            self._total_ns, self._since = self.total_ns(), None

    def total_ns(self) -> int:
        """Total with the call that goes on; may be read on any thread."""
        total, since = self._total_ns, self._since
        return total if since is None else total + max(0, sum(self.schedstat.read()) - since)


#: By thread.
_loops: dict[int, _Loop] = {}
_others: dict[int, _Elsewhere] = {}
_lock = Lock()
_replacements = Replacements()
#: Most threads other than event loops' that are timed: far more than Dask has.
_MAX_OTHERS = 16


def _elsewhere() -> int:
    return sum(other.total_ns() for other in list(_others.values()))


def _serializing(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Dask's ``dumps`` or ``loads``, which are called several times for every task."""
    try:
        parameters = tuple(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        parameters = ()
    wrap = {_OF_DUMPS: _dumping, OF_LOADS: _loading}.get(parameters)
    if wrap is None:
        return lambda *args, **kwargs: _timed(call, *args, **kwargs)
    timed = wrap(call)
    timed.__defaults__ = call.__defaults__
    return timed


def _dumping(dumps: Callable[..., Any]) -> FunctionType:
    # Passing arguments by name takes three times as many instructions as all else here.
    def timed(msg: Any, serializers: Any, on_error: Any, context: Any, frame_split_size: Any) -> Any:
        start = monotonic_ns()
        try:
            return dumps(msg, serializers, on_error, context, frame_split_size)
        finally:
            if (took := monotonic_ns() - start) > _MIN_NS:
                _count(took)

    return cast(FunctionType, timed)


def _loading(loads: Callable[..., Any]) -> FunctionType:
    def timed(frames: Any, deserialize: Any, deserializers: Any) -> Any:
        start = monotonic_ns()
        try:
            return loads(frames, deserialize, deserializers)
        finally:
            if (took := monotonic_ns() - start) > _MIN_NS:
                _count(took)

    return cast(FunctionType, timed)


def _offloading(offload: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, *args, **kwargs: offload(_timed_elsewhere, call, *args, **kwargs)


def _streaming(call: Callable[..., Any]) -> Callable[..., Any]:
    def timed(stream: Any, data: Any) -> Any:
        return call(stream, data) if len(data) <= _MIN_BYTES else _timed(call, stream, data)

    return timed


_PATCHES = ((SERIALIZE, _serializing), (OFFLOAD, _offloading), (READ, _streaming), (WRITE, _streaming))


def _timed(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    start = monotonic_ns()
    try:
        return call(*args, **kwargs)
    finally:
        _count(monotonic_ns() - start)


def _count(took: int) -> None:
    loop = _loops.get(get_ident())
    if loop is None:
        return
    if took <= _LONG_NS:
        loop.short_ns += took
        return
    for moves in loop.users:
        moves.add_long(took)


def _timed_elsewhere(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    thread = get_ident()
    other = _others.get(thread)
    if other is None:
        if not _loops or len(_others) >= _MAX_OTHERS:
            return call(*args, **kwargs)
        other = _others.setdefault(thread, _Elsewhere())
    return other.timed(call, *args, **kwargs)


#: Nanoseconds by which a tick must be late to be reported: half of Dask's own interval.
LATE_NS = 10_000_000
_COMPUTING, _CORE, _GIL, _CALL = map(BLOCKED_BY.index, ("computing", "core", "gil", "call"))


class LoopWatch:
    """Reports when a server's event loop was late by 10 ms for Dask's own tick, which comes every 20 ms.

    Where upstream has no such tick, nothing is reported. ``blocked`` is called with the start and stop of the interval,
    nanoseconds of the monotonic clock; the nanoseconds of it that moved data; and the cause of most of it, a position
    in :data:`~dask_efficiency.runs.trace.schema.BLOCKED_BY`, or MISSING for data. The start is the middle between the
    last tick and the one that was due.
    """

    def __init__(self, server: Any, blocked: Callable[[int, int, int, int], object]) -> None:
        self._blocked = blocked
        self._last = monotonic_ns()
        #: CPU nanoseconds of the loop's thread and of the process.
        self._used = thread_time_ns(), process_time_ns()
        #: Time that the thread had waited for a core, when the loop was late for the last time.
        self._waited = 0
        self._moves: DataMoves | None = None
        self._replacements = Replacements()
        tick = getattr(server, "periodic_callbacks", {}).get("tick")
        if tick is not None:
            self._interval = round(tick.callback_time * 1e6)
            if self._replacements.put(TICK, server, self._before):
                self._moves = DataMoves()
                self._waited = self._moves.waited_ns()

    def stop(self) -> None:
        """Stop watching."""
        self._replacements.put_back()
        moves, self._moves = self._moves, None
        if moves is not None:
            moves.close()

    def _before(self, callback: Callable[[], Any]) -> Callable[[], Any]:
        def tick() -> Any:
            self._turn()
            return callback()

        return tick

    def _turn(self) -> None:
        now, used = monotonic_ns(), (thread_time_ns(), process_time_ns())
        took, moves = now - self._last, self._moves
        if moves is not None:
            moving = moves.turn(took)
            if took - self._interval > LATE_NS:
                before, self._waited = self._waited, moves.waited_ns()
                loop, process = (since - until for since, until in zip(used, self._used, strict=True))
                cause = MISSING if 2 * moving > took else cause_of_block(took, loop, process, self._waited - before)
                start = self._last + self._interval // 2
                self._blocked(start, now, min(moving, now - start), cause)
        self._last, self._used = now, used


def cause_of_block(took: int, loop: int, process: int, core: int) -> int:
    """Find the cause of most of the time since the last tick, from the CPU times of the loop's thread and the process.

    A loop that neither computed nor waited for a ``core`` waited for the GIL or in a call that blocks: where other
    threads of the process computed meanwhile, it is taken for the GIL.
    """
    rest = took - loop - core
    if rest >= max(loop, core):
        return _GIL if 2 * (process - loop) > rest else _CALL
    return _COMPUTING if loop >= core else _CORE
