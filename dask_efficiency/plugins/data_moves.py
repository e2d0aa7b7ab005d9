"""DataMoves: how long an event loop itself reads, writes and (de)serialises messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import Lock, get_ident
from time import monotonic_ns, thread_time_ns
from typing import Any

from distributed import protocol
from tornado.iostream import IOStream, SSLIOStream

#: What moves data. Comms call the two of the protocol through its module.
_CALLS: tuple[tuple[Any, str], ...] = (
    (IOStream, "read_from_fd"),
    (IOStream, "write_to_fd"),
    (SSLIOStream, "read_from_fd"),
    (SSLIOStream, "write_to_fd"),
    (protocol, "dumps"),
    (protocol, "loads"),
)

#: In a call that is longer, the thread may have waited for the GIL.
_LONG_NS = 1_000_000


class DataMoves:
    """Adds up how long the thread that makes it moves data, until :meth:`close`.

    Calls of Tornado's streams and of Dask's protocol are timed. To look at the loop's stack from another thread
    would cost a thread, and on Python 3.11 it can lock the process up: Dask does not do it there either. What other
    threads serialise does not count, nor do comms that are not made of Tornado's streams.

    Attributes
    ----------
    total_ns
        Nanoseconds, less what the thread slept in them: as a rule, for the GIL that a task held.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._thread = get_ident()
        self._schedstat = _open_schedstat()
        self._ran_ns = self._ran()
        with _lock:
            if not _moves:
                _install()
            _moves.setdefault(self._thread, []).append(self)

    def close(self) -> None:
        """Add up no more; to be called once."""
        with _lock:
            mine = _moves[self._thread]
            mine.remove(self)
            if not mine:
                del _moves[self._thread]
            if not _moves:
                _uninstall()
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    def turn(self) -> None:
        """Keep the figures for long calls fresh: the loop turned."""
        self._ran_ns = self._ran()

    def add(self, took_ns: int) -> None:
        """A call that moved data is over."""
        if took_ns > _LONG_NS:
            before = self._ran_ns
            self.turn()
            took_ns = max(0, min(took_ns, self._ran_ns - before))
        self.total_ns += took_ns

    def _ran(self) -> int:
        """How long the thread ran, or would have if it had had a core."""
        return thread_time_ns() + _waited(self._schedstat)


#: By thread: several servers may share an event loop.
_moves: dict[int, list[DataMoves]] = {}
_lock = Lock()
_installed: list[tuple[Any, str, Any, Any]] = []


def _timed(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        mine = _moves.get(get_ident())
        if mine is None:
            return call(*args, **kwargs)
        start = monotonic_ns()
        try:
            return call(*args, **kwargs)
        finally:
            took = monotonic_ns() - start
            for moves in mine:
                moves.add(took)

    return timed


def _install() -> None:
    for owner, name in _CALLS:
        original = vars(owner).get(name)
        if original is None:  # upstream renamed it: its time does not count, and nothing breaks
            continue
        wrapper = _timed(original)
        setattr(owner, name, wrapper)
        _installed.append((owner, name, wrapper, original))


def _uninstall() -> None:
    for owner, name, wrapper, original in _installed:
        if getattr(owner, name, None) is wrapper:
            setattr(owner, name, original)
    _installed.clear()


def _open_schedstat() -> int | None:
    """Where Linux tells how long this thread waited for a core; None elsewhere."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _waited(schedstat: int | None) -> int:
    """Nanoseconds that a thread waited for a core in all; 0 where nobody tells."""
    if schedstat is None:
        return 0
    try:
        return int(os.pread(schedstat, 100, 0).split()[1])
    except (OSError, ValueError, IndexError):  # no reason to fail a message
        return 0
