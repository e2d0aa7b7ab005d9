"""LoopThread: who kept an event loop from its turns, by what the kernel counts of the threads of its process.

A handler that is in the midst of a call may be innocent: its thread waits for a core on a crowded host, or for the GIL
that another thread holds in one long call. The time outside ``select`` alone tells neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from time import monotonic_ns

from dask_efficiency.plugin.loop_blocks import GIL_TURNS, LoopClocks, LoopLook
from dask_efficiency.plugin.thread_clocks import HeldReader, ThreadClocks, ThreadFiles, cpu_clock

#: Share of the time since the last look from which one thing explains it: half of it.
MOST = 0.5

#: CPU nanoseconds of a thread that is said to have held the GIL, half of the shortest block: on a crowded host it waits
#: for a core meanwhile.
MIN_HOLD_NS = 50_000_000
#: Beginnings of ``syscall`` of a thread in futex(2), on x86_64 and aarch64.
_IN_FUTEX = (b"202 ", b"98 ")

_NONE = ThreadClocks(0, 0, 0)


class LoopThread:
    """Watches the thread of an event loop from another one, which makes, uses and closes it.

    Where the kernel counts nothing (not Linux), the loop's own thread is never kept from its turn.
    """

    def __init__(self, ident: int, native_id: int, *, clock: Callable[[], int] = monotonic_ns) -> None:
        self._ident, self._clock = ident, clock
        self._opened = ExitStack()
        self._loop = self._caller = None
        try:
            reader = self._opened.enter_context(closing(HeldReader()))
            self._loop, self._caller = (
                self._opened.enter_context(closing(ThreadFiles(reader, each)))
                for each in (native_id, threading.get_native_id())
            )
        except (OSError, AttributeError, TypeError):
            self._opened.close()
        #: Nanoseconds, outside of ``select``, for which the thread was ready to run and waited for a core.
        self.core = 0
        self._at, self._waited = clock(), 0
        self._clocks, self._own, self._cpu = self._read()
        self._waits = LoopClocks(self._at, self._clocks)
        self._elapsed = 1
        #: Nanoseconds for which the caller was kept from the GIL since the look before.
        self.late = 0
        #: Since the look before: clocks of the loop's thread, and CPU of each thread.
        self._gained, self._used = _NONE, dict[int, int]()

    def close(self) -> None:
        """Close its files."""
        self._opened.close()

    def look(self, slept: int, waited: int) -> None:
        """Take note of the time since the last look.

        The caller meant to sleep for ``slept`` of it, nanoseconds; the loop has ``waited`` for messages for so many.
        """
        clocks, own, cpu = self._read()
        at = self._clock()
        self._elapsed, self._at = max(1, at - self._at), at
        self.late = self._elapsed - slept
        if own.turns - self._own.turns < GIL_TURNS:
            self.late -= own.core - self._own.core
        self._gained = ThreadClocks(*(max(0, b - a) for a, b in zip(self._clocks, clocks, strict=True)))
        self._used = {ident: ns - self._cpu[ident] for ident, ns in cpu.items() if ident in self._cpu}
        outside = self._elapsed - (waited - self._waited)
        # It also waits for a core to come back from `select`.
        self.core += min(self._gained.core, max(0, outside - self._gained.cpu))
        self._clocks, self._own, self._cpu, self._waited = clocks, own, cpu, waited
        self._waits.read(at, clocks)

    def waits(self) -> tuple[LoopLook, int | None]:
        """Use of the loop's thread since the last look, without its stack, and the thread that held the GIL.

        A thread that is not known to have computed meanwhile is not named: it may have waited for a core itself.
        """
        if self._loop is None:
            return LoopLook(), None
        state, late = self._loop.syscall(), self.late >= MOST * self._elapsed  # the caller was kept from the GIL, too
        core, rest, cpu = self._waits.core, self._waits.rest, self._waits.cpu
        others = {ident: used for ident, used in self._used.items() if ident != self._ident}
        computed, most = sum(others.values()), max(others, key=lambda ident: others[ident], default=None)
        is_ready = state.startswith(b"running")
        if late and most is not None and others[most] >= max(MOST * computed, MIN_HOLD_NS, cpu):
            # On a crowded host it waits for a core each time that it asks.
            return LoopLook(0, core + rest, cpu, is_ready), most
        # At a lock while others compute, it loses the GIL again and again.
        contends = state.startswith(_IN_FUTEX) and computed >= MOST * rest
        return LoopLook(core, max(0, rest) if late or contends else 0, cpu, is_ready), None

    def _read(self) -> tuple[ThreadClocks, ThreadClocks, dict[int, int]]:
        """Clocks of the loop's thread and of the caller, and CPU by thread."""
        if self._loop is None or self._caller is None:
            return _NONE, _NONE, {}
        own = self._caller.clocks() or _NONE
        cpu = {each.ident: cpu_clock(each.native_id) for each in threading.enumerate() if each.ident and each.native_id}
        return self._loop.clocks() or _NONE, own, cpu
