"""GpuWatch: a thread that meters the GPUs of this process once a task uses one."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dask.utils import key_split

from dask_efficiency.accounts.gpu import GpuTotals, GpuUse
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.gpu import libcuda
from dask_efficiency.gpu.cupti import CuptiMeter
from dask_efficiency.gpu.ledger import GpuLedger
from dask_efficiency.gpu.meter import GpuBatch, GpuMeter, MeterRefused, TaskId
from dask_efficiency.gpu.nvml import Nvml
from dask_efficiency.gpu.profilers import PROFILERS
from dask_efficiency.gpu.torch_events import TorchEventMeter
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.show.log import logger

#: Seconds between two flushes, and between two looks for a framework.
INTERVAL_SECONDS = 0.5
#: Seconds between two readings of the sensors.
READING_SECONDS = 1.0
#: Modules that bring CUDA into a process; without one of them, nothing else is checked.
FRAMEWORKS = ("torch", "cupy_backends", "numba.cuda.cudadrv.driver", "cuda.bindings.driver", "pycuda")
#: Ended tasks whose GPU use was not asked for; beyond, the oldest are dropped.
MAX_TASKS = 20_000

_NO_USE = GpuUse()


class GpuWatch:
    """Picks the best available meter once a framework has initialised CUDA, flushes it, and keeps the accounts.

    With the option ``auto`` that is CUPTI, else events of torch, else nothing, with the reasons; ``cupti`` and
    ``torch-events`` are that one or nothing, ``off`` is nothing.

    Until then its thread wakes up twice a second and looks for a module. Other threads read values that the watch's
    thread has published, so nobody waits for it. A failure ends the metering, is logged once and is in :meth:`totals`.
    Of several watches in one process the first meters, as there is one CUPTI.
    """

    _owner: GpuWatch | None = None
    _owning = threading.Lock()

    def __init__(
        self, option: str, threads: TaskThreads, *, not_tasks: Callable[[], Collection[int]], task_threads: int
    ) -> None:
        self._option, self._threads, self._task_threads = option, threads, task_threads
        self._not_tasks = not_tasks
        self._meter: GpuMeter | None = None
        self._ledger: GpuLedger | None = None
        self._nvml: Nvml | None = None
        self._read_at = 0
        self._readings: Mapping[str, Mapping[str, float]] = {}
        self._uncertain = 0
        #: From the event loop to the watch's thread.
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        #: From the watch's thread to the event loop: use of tasks that used a GPU; the range of ends of tasks for which
        #: it is known, and the tasks that had not ended by the last flush.
        self._uses: dict[TaskId, GpuUse] = {}
        self._known: tuple[int, int, Collection[TaskId]] = -1, -1, ()
        self._totals = GpuTotals()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="dask-efficiency-gpu", daemon=True)
        if option != "off":
            self._owns()
            self._thread.start()

    @property
    def armed(self) -> bool:
        """True while something is metered."""
        return self._totals.meter != "none"

    def use(self, task: TaskId, stop: int) -> GpuUse | None:
        """GPU use of a task that ended at ``stop``, given once; None until known, or if nobody read windows then."""
        since, until, running = self._known
        if not since < stop <= until or task in running:
            return None
        return self._uses.pop(task, _NO_USE)

    def totals(self) -> GpuTotals:
        """Accounts by the last flush; of meter ``none``, without a description, while nothing uses a GPU."""
        owner = GpuWatch._owner
        if owner is not self and owner is not None and owner.armed:
            return GpuTotals(description="another worker of this process meters its GPUs")
        return self._totals

    async def catch_up(self, seconds: float = 1.0) -> None:
        """Wait for a flush that begins after this call, at most this long; not at all if nothing is metered."""
        if not self.armed or not self._thread.is_alive():
            return
        loop = asyncio.get_running_loop()
        flushed = loop.create_future()
        self._waiting.append((loop, flushed))
        self._wake.set()
        await asyncio.wait([flushed], timeout=seconds)

    def close(self, seconds: float = 2.0) -> None:
        """Flush for the last time and end, within this time. Safe to call twice."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _watch(self) -> None:
        try:
            while not self._closing:
                self._wake.wait(INTERVAL_SECONDS)
                self._wake.clear()
                if self._owns() and not self._turn():
                    break
            if self._owns():
                self._turn(final=True)
        except Exception as error:
            logger.exception("dask_efficiency no longer meters GPUs")
            reason = f"failed: {type(error).__name__}: {error}"[:500]
            self._totals = replace(self._totals, meter="none", description=reason)
        finally:
            self._end()

    def _owns(self) -> bool:
        """Own this process's GPUs, unless another watch does: it may still be closing, or be of another worker."""
        with GpuWatch._owning:
            GpuWatch._owner = GpuWatch._owner or self
            return GpuWatch._owner is self

    def _turn(self, final: bool = False) -> bool:
        """Arm, or flush; False if nothing is left to watch."""
        asked = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            if self._meter is None:
                # CUPTI refuses a second client for good: a profile of ours must end first.
                with PROFILERS.resting() as resting:
                    if resting and not final and _cuda_in_use():
                        self._arm()
            else:
                self._take(self._meter.close() if final else self._meter.flush(), final=final)
                self._publish()
        except MeterRefused as refusal:
            self._replace_meter(str(refusal))
        finally:
            for loop, flushed in asked:
                _resolve(loop, flushed)
        return self._meter is None or self._meter.kind != "none" or self._nvml is not None

    def _arm(self) -> None:
        driver = libcuda.loaded_driver()
        uuids = [device.uuid for device in libcuda.devices(driver)] if driver is not None else []
        try:
            self._nvml = Nvml(uuids)
        except (ImportError, RuntimeError) as error:
            logger.info("no readings of GPU sensors: %s", error)
        meter = self._meter = self._best_meter()
        # The worker may have forgotten a task by the time of its GPU work.
        self._ledger = GpuLedger(time.monotonic_ns(), lambda key: prefix_of(key_split(key)))
        if meter.kind == "none":
            logger.info("GPU time is not metered: %s", meter.description)
        else:
            if isinstance(meter, TorchEventMeter):
                self._threads.surround("gpu", meter.around)
            # From here on windows are noted, also of running tasks.
            self._take(meter.flush())
        self._publish()

    def _best_meter(self) -> GpuMeter:
        reasons: list[str] = []
        meters: dict[str, Callable[[], GpuMeter]] = {
            CuptiMeter.kind: CuptiMeter,
            TorchEventMeter.kind: partial(TorchEventMeter, task_threads=self._task_threads),
        }
        for kind in meters if self._option == "auto" else meters.keys() & {self._option}:
            try:
                meter = meters[kind]()
            except MeterRefused as refusal:
                reasons.append(str(refusal))
                continue
            if reasons:
                meter.description += f"; CUPTI cannot be used: {reasons[0]}"
                logger.info("GPU time is an upper bound: %s", meter.description)
            return meter
        return GpuMeter("; ".join(reasons) or f"no meter is called {self._option!r}")

    def _take(self, batch: GpuBatch, *, final: bool = False) -> None:
        """Add a batch to the accounts, with the tasks that were at work."""
        assert self._meter is not None
        assert self._ledger is not None
        if self._meter.kind == "none":
            return
        uncertain = self._meter.dropped + self._meter.gaps
        windows = self._threads.windows()
        since = self._known[0] if self._known[0] >= 0 else time.monotonic_ns()
        devices, lost = self._meter.devices, uncertain > self._uncertain
        self._ledger.add(batch, windows, devices=devices, not_tasks=self._not_tasks(), lost=lost, final=final)
        self._uncertain = uncertain
        self._uses.update(self._ledger.uses())
        running = {task for task, stop, _ in windows if stop < 0}
        ended = {task for task, stop, _ in windows if stop >= 0}
        self._known = since, self._ledger.known_until, running - ended
        for task in list(self._uses)[: max(0, len(self._uses) - MAX_TASKS)]:
            self._uses.pop(task, None)

    def _publish(self) -> None:
        assert self._meter is not None
        assert self._ledger is not None
        now = time.monotonic_ns()
        if self._nvml is not None and now - self._read_at >= READING_SECONDS * 1e9:
            self._read_at = now
            self._readings = self._nvml.read()
        self._totals = replace(
            self._ledger.totals(),
            meter=self._meter.kind,
            description=self._meter.description,
            dropped=self._meter.dropped,
            gaps=self._meter.gaps,
            cost=time.thread_time_ns(),
            readings=self._readings,
        )

    def _replace_meter(self, reason: str) -> None:
        """Stop metering; the accounts stay."""
        logger.info("GPU time is not metered any more: %s", reason)
        former, self._meter = self._meter, GpuMeter(reason)
        if former is not None:
            _close_quietly(former)
        self._threads.surround("gpu", None)
        self._totals = replace(self._totals, meter="none", description=reason)

    def _end(self) -> None:
        """Clean up, even after a failure."""
        self._threads.surround("gpu", None)
        for used in (self._meter, self._nvml):
            if used is not None:
                _close_quietly(used)
        with GpuWatch._owning:
            if GpuWatch._owner is self:
                GpuWatch._owner = None
        while self._waiting:
            _resolve(*self._waiting.popleft())


def _cuda_in_use() -> bool:
    """True if this process has a CUDA context; nothing is imported, loaded or initialised to find out."""
    if not any(name in sys.modules for name in FRAMEWORKS):
        return False
    driver = libcuda.loaded_driver()
    return driver is not None and libcuda.in_use(driver)


def _close_quietly(used: GpuMeter | Nvml) -> None:
    """Close something that may have failed already."""
    try:
        used.close()
    except Exception:
        logger.debug("while the GPU watch ended", exc_info=True)


def _resolve(loop: asyncio.AbstractEventLoop, flushed: asyncio.Future[None]) -> None:
    """Resolve a future; its event loop may have been closed in the meantime."""

    def go_on() -> None:
        if not flushed.done():
            flushed.set_result(None)

    with suppress(RuntimeError):
        loop.call_soon_threadsafe(go_on)
