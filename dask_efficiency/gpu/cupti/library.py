"""Cupti: the functions of libcupti that the meter calls, its clock, and where libcupti is found."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from glob import escape, glob
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.cupti.decode import DRIVER, RUNTIME

#: Environment variable with the path of libcupti. A libcupti that the process has loaded takes precedence.
VARIABLE = "DASK_EFFICIENCY_CUPTI"
#: Reasons for users, by the code of ``CUptiResult``.
_REASONS = {
    15: "CUPTI could not initialise",
    27: "CUPTI does not support this device or system",
    33: "CUPTI does not support this virtual GPU",
    35: "the driver lets only administrators profile (NVreg_RestrictProfilingToAdminUsers)",
    39: "another profiler has CUPTI: Nsight, compute-sanitizer, or a torch.profiler that ran before",
    40: "this virtual GPU may not be profiled",
    41: "CUPTI does not support confidential computing",
    42: "CUPTI does not support this mining processor",
    43: "CUPTI does not support this MIG instance",
    44: "CUPTI does not support linked GPUs (SLI)",
    45: "CUPTI does not support this Windows Subsystem for Linux",
}


class CuptiError(OSError):
    """A call of CUPTI failed; the text names the call and the reason, for a report."""

    def __init__(self, function: str, code: int, name: str = "") -> None:
        reason = _REASONS.get(code) or f"{name or 'error'} ({code})"
        super().__init__(f"{reason}, says {function}")


class Cupti:
    """Functions of the libcupti in a file, loaded once; each raises CuptiError if CUPTI returns an error."""

    def __init__(self, path: str) -> None:
        self.path = path
        # CDLL releases the GIL in calls: CUPTI may wait for threads that hold it.
        self._library = ctypes.CDLL(path)

    @property
    def version(self) -> int:
        """``CUPTI_API_VERSION`` of the library."""
        version = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(version))
        return version.value

    def timestamp(self) -> int:
        """Time now, by the clock of CUPTI's records."""
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        return now.value

    def probe(self) -> None:
        """Raise CuptiError if another profiler has CUPTI."""
        subscriber = ctypes.c_void_p()
        # No callback is enabled, so the function is never called; getpid is one that always exists.
        never = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        self._call("cuptiSubscribe", ctypes.byref(subscriber), never, None)
        self._call("cuptiUnsubscribe", subscriber)

    def register(self, request: int, done: int) -> None:
        """Make CUPTI get its buffers from one function and return them to the other, both given by address."""
        self._call("cuptiActivityRegisterCallbacks", ctypes.c_void_p(request), ctypes.c_void_p(done))

    def enable(self, kind: int) -> None:
        """Begin to record activities of a kind."""
        self._call("cuptiActivityEnable", ctypes.c_int(kind))

    def disable(self, kind: int) -> None:
        """Stop recording activities of a kind."""
        self._call("cuptiActivityDisable", ctypes.c_int(kind))

    def enable_call(self, api: int, number: int, on: bool = True) -> bool:
        """Start or stop recording calls of one function of the runtime or driver API; False if this version cannot."""
        function = {RUNTIME: "cuptiActivityEnableRuntimeApi", DRIVER: "cuptiActivityEnableDriverApi"}[api]
        call = getattr(self._library, function, None)
        return call is not None and call(ctypes.c_uint32(number), ctypes.c_uint8(on)) == 0

    def flush(self, *, forced: bool = False) -> None:
        """Make CUPTI return the buffers in which everything has ended, or all buffers if ``forced``."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(forced))

    def dropped(self) -> int:
        """Number of records dropped since the last call."""
        count = ctypes.c_size_t()
        self._call("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(count))
        return count.value

    def sizes(self, address: int, valid: int, *, max_records: int = 64) -> dict[int, int]:
        """Bytes of a record by kind: the distances between the first records of a buffer."""
        lengths: dict[int, int] = {}
        record, last = ctypes.c_void_p(), 0
        for _ in range(max_records):
            arguments = ctypes.c_void_p(address), ctypes.c_size_t(valid), ctypes.byref(record)
            if self._library.cuptiActivityGetNextRecord(*arguments) != 0 or not record.value:
                break
            if last:
                lengths[ctypes.c_uint32.from_address(last).value] = record.value - last
            last = record.value
        return lengths

    def _call(self, function: str, *arguments: object) -> None:
        call = getattr(self._library, function, None)
        if call is None:
            raise CuptiError(function, -1, f"{self.path} has no such function")
        code = call(*arguments)
        if code != 0:
            name = ctypes.c_char_p()
            self._library.cuptiGetResultString(ctypes.c_int(code), ctypes.byref(name))
            raise CuptiError(function, code, (name.value or b"").decode(errors="replace"))


def find(newest: int | None = None) -> str | None:
    """Path of the libcupti to use: loaded in this process, else named by :data:`VARIABLE`, else installed; else None.

    Of those installed, one of at most the major version ``newest``, which the driver can run; None for any.
    """
    loaded = _loaded()
    if loaded or (named := os.environ.get(VARIABLE)):
        return loaded or named
    installed = sorted(_installed(), key=_major, reverse=True)
    return next((path for path in installed if newest is None or _major(path) <= newest), None)


def _loaded() -> str | None:
    """Path of a libcupti that torch, for example, has loaded: two in one process would disturb each other."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    paths = (line[line.index("/") :] for line in lines if "/libcupti" in line)
    return next((path for path in paths if "libcupti.so" in path or "libcupti-" in path), None)


def _installed() -> Iterator[str]:
    """Libraries of NVIDIA's Python packages, then of CUDA toolkits."""
    packages = [os.path.join(entry, "nvidia", name, "lib") for entry in sys.path for name in ("cu13", "cuda_cupti")]
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    toolkits = [os.path.join(root, at) for root in roots for at in ("extras/CUPTI/lib64", "lib64", "lib")]
    for directory in packages + toolkits:
        yield from glob(os.path.join(escape(directory), "libcupti.so.[0-9]*"))


def _major(path: str) -> int:
    """Major version of CUDA in the file name of a library."""
    number = os.path.basename(path).removeprefix("libcupti.so.").split(".")[0]
    return int(number) if number.isdigit() else 0


#: Largest drift of two clocks between readings, nanoseconds; beyond, the wall clock was set.
STEP_NS = 1_000_000
#: A record clock within this of the wall clock, nanoseconds, is taken for it: a minute, as a tick counter is far off.
_NEAR_NS = 60_000_000_000


class ClockPair(NamedTuple):
    """Times of two clocks at one instant."""

    record: int
    #: Monotonic nanoseconds.
    monotonic: int


class RecordClock:
    """Converts times of CUPTI's records to monotonic nanoseconds, along a line through readings of both clocks.

    CUPTI's clock is the wall clock by default. After a ``torch.profiler`` has run, it is the tick counter of the
    processor, whose rate is measured from the first reading on. That is from before any record, when the wall clock
    stood at ``wall`` nanoseconds.
    """

    def __init__(self, first: ClockPair, *, wall: int) -> None:
        self._first = self._last = first
        self._in_nanoseconds = abs(first.record - wall) < _NEAR_NS
        self._rate = 1.0

    def read(self, now: ClockPair) -> bool:
        """Take a reading; True if the record clock jumped since the last, so that times in between are uncertain."""
        ahead, passed = now.record - self._last.record, now.monotonic - self._last.monotonic
        stepped = self._last is not self._first or self._in_nanoseconds
        stepped = stepped and abs(ahead * self._rate - passed) > STEP_NS + 1e-4 * passed
        if stepped:
            self._first = now
        elif not self._in_nanoseconds and now.record > self._first.record:
            self._rate = (now.monotonic - self._first.monotonic) / (now.record - self._first.record)
        self._last = now
        return stepped

    def monotonic(self, times: NDArray[Any]) -> NDArray[np.int64]:
        """Times of records as monotonic nanoseconds, by the readings so far."""
        since = times.astype(np.int64) - self._last.record
        if not self._in_nanoseconds:
            since = np.rint(since * self._rate).astype(np.int64)
        return since + self._last.monotonic
