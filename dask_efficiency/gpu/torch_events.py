"""TorchEventMeter: an upper bound of each task's GPU time, where CUPTI is not available."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from dask_efficiency.gpu import libcuda
from dask_efficiency.gpu.meter import GpuBatch, GpuMeter, MeterRefused, TaskId

#: Tasks with pending events; beyond, further tasks are dropped, and counted.
MAX_PENDING = 10_000


class TorchEventMeter(GpuMeter):
    """Records an event on torch's current stream in the task's thread, before and after each task.

    The time between the two covers the task's kernels and copies on that stream and the waits between them: an upper
    bound if the task uses no other stream. It sees no kernels and no devices. With several task threads a stream has
    kernels of several tasks between two events, so it refuses, as it does without torch and its CUDA.
    """

    kind = "torch-events"

    def __init__(self, *, task_threads: int) -> None:
        if task_threads != 1:
            raise MeterRefused(f"torch's events need one task thread in a worker, and this one has {task_threads}")
        torch = sys.modules.get("torch")
        driver = libcuda.loaded_driver()
        if torch is None or driver is None or not torch.cuda.is_initialized():
            raise MeterRefused("torch has not initialised CUDA in this process")
        self._cuda: Any = torch.cuda
        self._driver = driver
        self._pending: deque[tuple[TaskId, Any, Any]] = deque()
        self._closed = False
        super().__init__(f"events of torch {torch.__version__}: an upper bound")

    def around(self, task: TaskId, key: Any = None) -> Callable[[], object]:
        """Record an event before a task, in its thread; returns the function to call there after it. Never raises."""
        start = self._record()
        if start is None:
            return lambda: None

        def after() -> None:
            stop = self._record()
            if stop is None or len(self._pending) >= MAX_PENDING:
                self.dropped += 1
            else:
                self._pending.append((task, start, stop))

        return after

    def flush(self) -> GpuBatch:
        """Bounds of the tasks whose work is done."""
        now = time.monotonic_ns()
        bounds: dict[TaskId, int] = {}
        while self._pending:
            task, start, stop = self._pending[0]
            try:
                if not stop.query():
                    return GpuBatch(bounds=bounds, known_until=task.start)
                bounds[task] = round(start.elapsed_time(stop) * 1e6)
            except RuntimeError:  # events of two devices, or a device that has failed
                self.dropped += 1
            self._pending.popleft()
        return GpuBatch(bounds=bounds, known_until=now)

    def close(self) -> GpuBatch:
        """Bounds of the tasks whose work is done; does not wait for the device."""
        self._closed = True
        batch = self.flush()
        self.dropped += len(self._pending)
        self._pending.clear()
        return batch

    def _record(self) -> Any:
        """Event on the current stream; None if that would make a context, or fails."""
        try:
            device = self._cuda.current_device()
            devices = libcuda.devices(self._driver)
            if self._closed or not any(known.active and known.number == device for known in devices):
                return None
            event = self._cuda.Event(enable_timing=True)
            event.record()
            return event
        except RuntimeError:
            return None
