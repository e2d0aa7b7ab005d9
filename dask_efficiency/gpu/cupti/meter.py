"""CuptiMeter: measures every kernel, copy and blocking call of this process, exact to the nanosecond."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu import libcuda
from dask_efficiency.gpu.calls import DRIVER_CALLS, RUNTIME_CALLS
from dask_efficiency.gpu.cupti import decode as records
from dask_efficiency.gpu.cupti import library
from dask_efficiency.gpu.cupti.callbacks import BufferPool
from dask_efficiency.gpu.cupti.library import ClockPair, Cupti, CuptiError, RecordClock
from dask_efficiency.gpu.meter import BLOCKS, SPINS, Device, GpuBatch, GpuMeter, MeterRefused
from dask_efficiency.show.log import logger

#: Functions that ``torch.autograd.profiler`` calls before a trace begins and when it ends. The first registers Kineto's
#: buffers with CUPTI, which serves one client at a time.
_PREPARE, _DISABLE = "_prepare_profiler", "_disable_profiler"
#: Second way of ``torch.profiler`` to watch CUDA, with its own buffers and clock.
_MONITOR = "torch.profiler._cupti_monitor"


class KinetoWatch:
    """Calls a function before Kineto takes over CUPTI, in the thread that starts the profiler; logs its exceptions.

    It replaces two functions in torch's module; :meth:`close` puts them back.
    """

    def __init__(self, about_to: Callable[[], object]) -> None:
        self._about_to = about_to
        self._prepared = False
        #: True while a profile without CUDA runs: then torch's flag does not mean that Kineto uses CUPTI.
        self._harmless = False
        self._module: Any = sys.modules.get("torch.autograd.profiler")
        self._originals: dict[str, Any] = {name: getattr(self._module, name, None) for name in (_PREPARE, _DISABLE)}
        self._wrappers = {_PREPARE: self._prepare, _DISABLE: self._disable}
        for name, original in self._originals.items():
            if original is not None:
                setattr(self._module, name, self._wrappers[name])

    @property
    def running(self) -> bool:
        """True while Kineto has CUPTI, or is about to."""
        enabled = bool(getattr(self._module, "_is_profiler_enabled", False)) and not self._harmless
        return self._prepared or enabled

    @property
    def monitored(self) -> bool:
        """True while torch's own CUPTI monitor runs."""
        monitor = getattr(sys.modules.get(_MONITOR), "get_monitor", None)
        return monitor is not None and monitor() is not None

    def close(self) -> None:
        """Put torch's functions back, unless somebody has replaced them since."""
        for name, original in self._originals.items():
            if original is not None and getattr(self._module, name, None) == self._wrappers[name]:
                setattr(self._module, name, original)

    def _prepare(self, config: Any, activities: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            self._harmless = not _uses_cuda(activities)
            if not self._harmless:
                self._prepared = True
                self._about_to()
        except Exception:
            logger.exception("the GPU meter could not give way to torch.profiler")
        return self._originals[_PREPARE](config, activities, *args, **kwargs)

    def _disable(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._originals[_DISABLE](*args, **kwargs)
        finally:
            self._prepared = self._harmless = False


def _uses_cuda(activities: Any) -> bool:
    """True if the activities of a profile include CUDA, or cannot be read."""
    try:
        return any("CUDA" in str(activity).upper() for activity in activities)
    except TypeError:
        return True


#: Kinds of records besides calls. Never KERNEL (3), which keeps kernels from running concurrently.
_KINDS = (records.CONCURRENT_KERNEL, records.MEMCPY, records.MEMSET)
_CALLS = {records.RUNTIME: RUNTIME_CALLS, records.DRIVER: DRIVER_CALLS}
#: A record that ends this long after its flush, nanoseconds, was misread.
_FUTURE_NS = 1_000_000_000


class OnePool:
    """Pool of this process: CUPTI serves one client at a time, and may call it until the process ends."""

    pool: BufferPool | None = None
    #: Held while functions of CUPTI change what it records.
    lock = threading.Lock()

    @classmethod
    def get(cls) -> BufferPool:
        """Pool of this process, made at the first call."""
        if cls.pool is None:
            cls.pool = BufferPool()
        return cls.pool


class CuptiMeter(GpuMeter):
    """Measures every kernel, copy and blocking call of this process, from CUPTI's activity records.

    It begins at once, and ends with :meth:`close` or with the process. While a ``torch.profiler`` uses CUDA, it
    measures nothing and :attr:`gaps` grows. It raises MeterRefused if CUDA has no context yet, libcupti is missing or
    of an unknown version, the callbacks have not been compiled, or another profiler runs.
    """

    kind = "cupti"

    def __init__(self) -> None:
        driver = libcuda.loaded_driver()
        devices = libcuda.devices(driver) if driver is not None else []
        if driver is None or not any(device.active for device in devices):
            raise MeterRefused("nothing has initialised CUDA in this process")
        path = library.find(libcuda.driver_major(driver))
        if path is None:
            raise MeterRefused(f"no libcupti found: install nvidia-cuda-cupti, or set {library.VARIABLE}")
        self.devices = {device.number: Device(device.uuid, device.name) for device in devices}
        self._waiting = SPINS if any(device.spins for device in devices if device.active) else BLOCKS
        self._names, self._lock = records.KernelNames(), OnePool.lock
        self._gaps = self._known_until = 0
        self._sizes: dict[int, int] = {}
        #: Instant at which Kineto took CUPTI, monotonic nanoseconds; None while this meter has it.
        self._away_since: int | None = None
        self._closed = False
        self._process = os.getpid()
        try:
            self._cupti = Cupti(path)
            version = self._cupti.version
            layout = records.layout_for(version)
            if layout is None:
                raise MeterRefused(f"CUPTI {version} is not known to this version of dask-efficiency")
            self._layout = layout
            self._pool = OnePool.get()
            self._kineto = KinetoWatch(self.give_way)
        except (OSError, AttributeError) as error:
            raise MeterRefused(str(error)) from error
        try:
            if self._kineto.running or self._kineto.monitored:
                raise MeterRefused("a torch.profiler is running")
            with self._lock:
                self._cupti.probe()
                self._begin()
        except (CuptiError, MeterRefused) as error:
            self._kineto.close()
            raise MeterRefused(str(error)) from error
        self._at_exit = atexit.register(self.close)
        how = "chosen calls" if self._filtered else "all calls"
        super().__init__(f"CUPTI {version}, {layout.kernel_record}, {how}")

    @property
    def gaps(self) -> int:
        """Nanoseconds without records, because Kineto had CUPTI or the wall clock was set."""
        away = time.monotonic_ns() - self._away_since if self._away_since is not None else 0
        return self._gaps + away

    def flush(self) -> GpuBatch:
        """Batch of what became known since the last flush; MeterRefused if it can measure no longer.

        Takes CUPTI back if a torch.profiler has ended.
        """
        with self._lock:
            if self._closed:
                return GpuBatch(known_until=self._known_until)
            if self._kineto.monitored:
                self._leave()
                raise MeterRefused("torch.profiler's CUPTI monitor has begun, and CUPTI serves one client")
            try:
                if not self._kineto.running:
                    return self._flush() if self._away_since is None else self._return()
                if self._away_since is None:
                    # It began without being noticed before. What CUPTI holds goes to Kineto, which ignores it.
                    self._leave()
                return self._collect(self._known_until)
            except CuptiError as error:
                raise MeterRefused(str(error)) from error

    def give_way(self) -> None:
        """Leave CUPTI to another client; safe to call from any thread.

        CUPTI returns all buffers first, so that the other client never gets one of ours.
        """
        with self._lock:
            if not self._closed and self._away_since is None:
                self._end()
                self._leave()

    def close(self) -> GpuBatch:
        """Stop recording, and return what is known."""
        # A forked child lacks CUPTI's threads, and its lock may never be released. Its exit must not take long.
        if os.getpid() != self._process or not self._lock.acquire(timeout=5):
            return GpuBatch(known_until=self._known_until)
        try:
            if self._closed:
                return GpuBatch(known_until=self._known_until)
            self._closed = True
            self._kineto.close()
            atexit.unregister(self._at_exit)
            now = time.monotonic_ns()
            if self._away_since is not None:
                self._gaps += now - self._away_since
                self._away_since = None
                return self._collect(self._known_until)
            try:
                self._read_clock(now)
            finally:
                self._end()
            return self._collect(now)
        except CuptiError:
            return GpuBatch(known_until=self._known_until)
        finally:
            self._lock.release()

    def _begin(self) -> None:
        """Let CUPTI record into our buffers; if that fails, nothing is recorded."""
        self._cupti.register(*self._pool.callbacks())
        self._clock = RecordClock(self._read_both_clocks(), wall=time.time_ns())
        self._last_flush = time.monotonic_ns()
        #: Instant at which each buffer was last seen free: its records began later.
        self._free_at = np.full(len(self._pool.free()), self._last_flush, np.int64)
        try:
            for kind in _KINDS:
                self._cupti.enable(kind)
            self._filtered = self._enable_calls()
            self._cupti.dropped()
        except CuptiError:
            self._end()
            raise

    def _enable_calls(self) -> bool:
        """Record the listed calls; False if all are recorded: before CUDA 12.5 it is all or none."""
        accepted = [[self._cupti.enable_call(api, number) for number in numbers] for api, numbers in _CALLS.items()]
        # A version refuses numbers that were added after it, and the first number of a list is an old one.
        filtered = all(results[0] for results in accepted)
        if not filtered:
            for api in _CALLS:
                self._cupti.enable(api)
        return filtered

    def _end(self) -> None:
        """Stop recording, and make CUPTI return all buffers."""
        for api, numbers in _CALLS.items():
            for number in numbers:
                self._cupti.enable_call(api, number, on=False)
        for kind in (*_KINDS, *_CALLS):
            with suppress(CuptiError):
                self._cupti.disable(kind)
        with suppress(CuptiError):
            self._cupti.flush(forced=True)

    def _leave(self) -> None:
        self._away_since = time.monotonic_ns()
        self._pool.write_off()

    def _return(self) -> GpuBatch:
        """Take CUPTI back after Kineto, which may have changed its clock."""
        batch = self._collect(self._known_until)
        self._begin()
        assert self._away_since is not None
        self._gaps += self._last_flush - self._away_since
        self._away_since = None
        return batch

    def _flush(self) -> GpuBatch:
        begin = time.monotonic_ns()
        self._free_at[self._pool.free()] = begin
        self._read_clock(begin)
        self._cupti.flush()
        return self._collect(begin)

    def _collect(self, begin: int) -> GpuBatch:
        """Decode the buffers that CUPTI returned; ``begin`` is the start of the flush that should return them."""
        filled = self._pool.filled()
        # Decoded as one, since each call of the decoder has a cost.
        content = np.concatenate([np.empty(0, np.uint8), *(content for _, content in filled)])
        if filled and not self._sizes:
            self._sizes = self._cupti.sizes(content.ctypes.data, len(content))
        for number, _ in filled:
            self._pool.release(number)
            self._free_at[number] = begin
        with_records = self._pool.lent()
        known = min(begin, int(self._free_at[with_records].min())) if with_records.any() else begin
        self._known_until = max(self._known_until, known)
        self.dropped += self._cupti.dropped()
        return self._batch(self._decode(content)) if filled else GpuBatch(known_until=self._known_until)

    def _decode(self, content: NDArray[np.uint8]) -> records.Decoded:
        return records.decode(content, self._layout, self._sizes, waiting=self._waiting)

    def _batch(self, decoded: records.Decoded) -> GpuBatch:
        operations, calls = decoded.operations, decoded.calls
        for rows in (operations, calls):
            for field in ("start", "end"):
                rows[field] = self._clock.monotonic(rows[field])
        credible = operations["end"] < time.monotonic_ns() + _FUTURE_NS
        self.dropped += decoded.dropped + len(operations) - int(credible.sum())
        names = self._names.at(decoded.pointers.tolist())
        return GpuBatch(operations[credible], calls, names, known_until=self._known_until)

    def _read_clock(self, now: int) -> None:
        if self._clock.read(self._read_both_clocks()):
            self._gaps += now - self._last_flush
        self._last_flush = now

    def _read_both_clocks(self) -> ClockPair:
        """Read both clocks at one instant: the shortest of five tries."""
        tries = []
        for _ in range(5):
            before = time.monotonic_ns()
            record = self._cupti.timestamp()
            after = time.monotonic_ns()
            tries.append((after - before, ClockPair(record, (before + after) // 2)))
        return min(tries)[1]
