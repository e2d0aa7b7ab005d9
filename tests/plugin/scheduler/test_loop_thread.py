import threading
from types import SimpleNamespace
from typing import Self

import pytest

from dask_efficiency.plugin.loop_blocks import LoopLook
from dask_efficiency.plugin.scheduler.loop_thread import LoopThread
from dask_efficiency.plugin.thread_clocks import ThreadClocks

LOOP, OTHER = 1, 2
MS = 1_000_000
SLEPT, LATE = 50, 1_000


class Thread(LoopThread):
    """A loop's thread that is looked at every 50 ms, by what a kernel would count."""

    def __init__(self, state: bytes = b"running") -> None:
        self.now, self.counts = 0, (NONE, NONE, {LOOP: 0, OTHER: 0})
        super().__init__(LOOP, threading.get_native_id(), clock=lambda: self.now)
        self._loop = SimpleNamespace(syscall=lambda: state, clocks=lambda: None)  # type: ignore[assignment]

    def _read(self) -> tuple[ThreadClocks, ThreadClocks, dict[int, int]]:
        return self.counts

    def after(
        self, cpu: int = 0, core: int = 0, *, took: int = SLEPT, own_core: int = 0, turns: int = 1, other: int = 0
    ) -> Self:
        """One look, so many milliseconds later."""
        self.now += took * MS
        own = ThreadClocks(0, own_core * MS, turns)
        self.counts = ThreadClocks(cpu * MS, core * MS, 0), own, {LOOP: cpu * MS, OTHER: other * MS}
        self.look(SLEPT * MS, waited=0)
        return self


NONE = ThreadClocks(0, 0, 0)
LOCK, CALL = b"202 0x1", b"230 0x1"


@pytest.mark.parametrize(
    ("thread", "core", "gil", "holder"),
    [
        (Thread().after(cpu=40), 0, 0, None),
        (Thread(CALL).after(cpu=1), 0, 0, None),
        (Thread(CALL).after(cpu=10, core=30), 30, 0, None),
        (Thread().after(cpu=1), 0, 0, None),
        (Thread(LOCK).after(cpu=1, took=LATE, other=990), 0, 999, OTHER),
        (Thread(LOCK).after(cpu=900, took=LATE, other=90), 0, 100, None),
        (Thread(LOCK).after(cpu=1, core=900, took=LATE, own_core=940, turns=20, other=60), 0, 999, OTHER),
        (Thread(LOCK).after(cpu=1, took=LATE, other=20), 0, 999, None),
        (Thread(CALL).after(cpu=1, took=LATE, own_core=LATE - SLEPT), 0, 0, None),
        (Thread(LOCK).after(cpu=1, core=9, other=45), 9, 40, None),
        (Thread(LOCK).after(cpu=1, core=9, other=5), 9, 0, None),
    ],
    ids=[
        *("it computes", "it sleeps in a call", "it waited for a core", "it is ready, or runs"),
        *("another thread had the GIL", "it had the GIL itself", "a thread had the GIL on a crowded host"),
        *("nobody computed who had the GIL", "only the watcher waited for a core"),
        *("the GIL goes from hand to hand", "it waits at a lock of its own"),
    ],
)
def test_the_kernels_counts_tell_what_kept_a_loop_from_its_turn(
    thread: Thread, core: int, gil: int, holder: int | None
) -> None:
    found, held_by = thread.waits()
    assert (found.core, found.gil, held_by) == (core * MS, gil * MS, holder)


def test_waits_for_a_core_count_where_the_loop_was_busy() -> None:
    thread = Thread()
    thread.after(cpu=20, core=30)
    assert thread.core == 30 * MS
    thread.after(cpu=60, core=90)  # 20 of these 60 outside of `select`, or fewer
    assert thread.core == 40 * MS
    thread.now += 50 * MS
    thread.counts = ThreadClocks(60 * MS, 140 * MS, 0), NONE, {}
    thread.look(SLEPT * MS, waited=50 * MS)
    assert thread.core == 40 * MS


def test_where_the_kernel_counts_nothing_nothing_kept_the_loop() -> None:
    thread = LoopThread(LOOP, native_id=0)
    thread.look(SLEPT, 0)
    assert thread.waits() == (LoopLook(), None)
    assert thread.core == 0
    thread.close()


def test_a_real_thread_that_computes_is_counted() -> None:
    thread = LoopThread(threading.get_ident(), threading.get_native_id())
    while not thread._gained.cpu:
        thread.look(0, 0)
    assert thread._used[threading.get_ident()] > 0
    thread.close()
