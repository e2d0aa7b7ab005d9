"""TorchEventMeter: at most how long the GPU worked for each task, where CUPTI cannot be had."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from dask_efficiency.gpu import libcuda
from dask_efficiency.gpu.meter import Batch, Device, TaskId

#: Tasks whose events are out; beyond, the oldest are dropped, and counted.
MAX_PENDING = 10_000


class TorchEventsRefused(RuntimeError):
    """Events of torch cannot tell anything in this process; the text says why, for a report."""


class TorchEventMeter:
    """Puts an event on the stream that torch uses in the task's thread, before and after each task.

    The time between the two is that of the task's kernels and copies on that stream and of the waits between them: an
    upper bound, as far as the task uses no other stream. It knows no kernels, and no devices. With several task threads
    a stream has several tasks' kernels between two events, so it refuses.

    Parameters
    ----------
    task_threads
        How many threads of this process run tasks.

    Raises
    ------
    TorchEventsRefused
        With more than one task thread, or without torch and its CUDA.
    """

    kind = "torch-events"
    gaps = 0

    def __init__(self, *, task_threads: int) -> None:
        if task_threads != 1:
            raise TorchEventsRefused(
                f"torch's events need one task thread in a worker, and this one has {task_threads}"
            )
        torch = sys.modules.get("torch")
        driver = libcuda.loaded_driver()
        if torch is None or driver is None or not torch.cuda.is_initialized():
            raise TorchEventsRefused("torch has not initialised CUDA in this process")
        self._cuda: Any = torch.cuda
        self._driver = driver
        self._pending: deque[tuple[TaskId, Any, Any]] = deque()
        self._dropped = 0
        self._closed = False
        self.description = f"events of torch {torch.__version__}: an upper bound"

    @property
    def devices(self) -> Mapping[int, Device]:
        """None: events tell nothing of a device as a whole."""
        return {}

    @property
    def dropped(self) -> int:
        """Tasks whose events did not tell."""
        return self._dropped

    def around(self, task: TaskId, key: Any = None) -> Callable[[], object]:
        """Called in a task's thread before the task; what it returns is to be called there after it. Never raises."""
        start = self._record()
        if start is None:
            return _nothing

        def after() -> None:
            stop = self._record()
            if stop is None or len(self._pending) >= MAX_PENDING:
                self._dropped += 1
            else:
                self._pending.append((task, start, stop))

        return after

    def flush(self) -> Batch:
        """Bounds of the tasks whose work is done."""
        now = time.monotonic_ns()
        bounds: dict[TaskId, int] = {}
        while self._pending:
            task, start, stop = self._pending[0]
            try:
                if not stop.query():
                    return Batch(bounds=bounds, known_until=task.start)
                bounds[task] = round(start.elapsed_time(stop) * 1e6)
            except RuntimeError:  # events of two devices, or a device that has failed
                self._dropped += 1
            self._pending.popleft()
        return Batch(bounds=bounds, known_until=now)

    def close(self) -> Batch:
        """What is done by now; nothing waits for the device."""
        self._closed = True
        batch = self.flush()
        self._dropped += len(self._pending)
        self._pending.clear()
        return batch

    def _record(self) -> Any:
        """An event on the present stream; None where that would make a context, or fails."""
        try:
            device = self._cuda.current_device()
            if self._closed or not any(found.number == device for found in self._active()):
                return None
            event = self._cuda.Event(enable_timing=True)
            event.record()
            return event
        except RuntimeError:
            return None

    def _active(self) -> list[libcuda.CudaDevice]:
        return [device for device in libcuda.devices(self._driver) if device.active]


def _nothing() -> None:
    pass
