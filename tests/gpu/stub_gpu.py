"""A GPU that is not there: libraries in C that the real meter loads, and kernels that last as long as a test says.

In a test: the fixture ``stub`` of tests/gpu/conftest.py. In a worker of another process: ``stub.load(directory)`` with
the directory that the test's fixture has, once, in a task; then :func:`launch` and :func:`sync` from tasks.
All times are monotonic nanoseconds, all durations seconds.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "stub_gpu_c"
COMPILER = shutil.which("cc")

MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10

#: cudaLaunchKernel, cudaGraphLaunch, cuLaunchKernel, cudaMemcpyAsync, cudaMemcpy, cudaDeviceSynchronize,
#: cudaStreamSynchronize.
LAUNCH, GRAPH_LAUNCH, DRIVER_LAUNCH, COPY_ASYNC, COPY, DEVICE_SYNC, STREAM_SYNC = 211, 311, 307, 41, 31, 165, 131

#: ``CU_CTX_SCHED_AUTO``, ``_SPIN`` and ``_BLOCKING_SYNC``.
AUTO, SPIN, BLOCK = 0, 1, 4

cupti: ctypes.CDLL
cuda: ctypes.CDLL
#: The same library, holding the GIL while it is called, as many extensions do when they launch.
cupti_under_the_gil: ctypes.PyDLL

#: Names must stay where they are: records carry their addresses.
_names: dict[str, ctypes.Array[ctypes.c_char]] = {}


class Span(NamedTuple):
    """When an operation, or several one after another, run on the device."""

    start: int
    end: int


def build(directory: Path, *flags: str) -> Path:
    """Compile both libraries into a directory, under the names of the real ones; about a second."""
    assert COMPILER is not None
    for source, library in (("cupti_stub.c", "libcupti.so.13"), ("cuda_stub.c", "libcuda.so.1")):
        arguments = ["-O1", "-fPIC", "-shared", "-pthread", f"-Wl,-soname,{library}", *flags]
        subprocess.run([COMPILER, *arguments, str(SOURCES / source), "-o", str(directory / library)], check=True)
    return directory


def load(directory: str | Path, *, devices: int = 1, contexts: bool = True, schedule: int = AUTO) -> None:
    """Bring both libraries into this process, as a framework that uses the GPU would, and begin anew."""
    global cuda, cupti, cupti_under_the_gil  # a process has one libcupti
    cuda = ctypes.CDLL(str(Path(directory) / "libcuda.so.1"))
    cupti = ctypes.CDLL(str(Path(directory) / "libcupti.so.13"))
    cupti_under_the_gil = ctypes.PyDLL(str(Path(directory) / "libcupti.so.13"))
    for library in (cupti, cupti_under_the_gil):
        library.stub_work.argtypes = [
            ctypes.c_uint32,
            ctypes.c_int64,
            *[ctypes.c_uint32] * 3,
            ctypes.c_char_p,
            *[ctypes.c_uint32] * 2,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_int64),
        ]
    cupti.stub_shift_clock.argtypes = [ctypes.c_int64]
    cupti.stub_other_records.restype = cupti.stub_other_unknown.restype = ctypes.c_size_t
    cupti.stub_reset()
    cuda.stub_devices(devices, int(contexts), schedule)


def launch(
    seconds: float,
    *,
    name: str = "kernel",
    kernels: int = 1,
    device: int = 0,
    stream: int = 7,
    cbid: int = LAUNCH,
    api: int = RUNTIME,
    holding_the_gil: bool = False,
) -> Span:
    """Ask for kernels of ``seconds`` each, one after another on a stream; returns at once.

    Several kernels of one call are what a graph's launch asks for: give ``GRAPH_LAUNCH`` as ``cbid``, too.
    """
    return _work(KERNEL, seconds, name, kernels, device, stream, api, cbid, False, holding_the_gil)


def copy(seconds: float, *, wait: bool = True, device: int = 0, stream: int = 7, kind: int = MEMCPY) -> Span:
    """Ask for a copy, and wait for it or not."""
    return _work(kind, seconds, "", 1, device, stream, RUNTIME, COPY if wait else COPY_ASYNC, wait, False)


def sync(device: int = 0, stream: int | None = None) -> None:
    """Wait in the calling thread for all work of a device, or of one of its streams."""
    if stream is None:
        cupti.stub_wait(device, -1, RUNTIME, DEVICE_SYNC)
    else:
        cupti.stub_wait(device, stream, RUNTIME, STREAM_SYNC)


def fail(function: str, code: int) -> None:
    """Let a function of CUPTI return an error from now on."""
    cupti.stub_fail(function.encode(), code)


def _work(
    kind: int,
    seconds: float,
    name: str,
    count: int,
    device: int,
    stream: int,
    api: int,
    cbid: int,
    wait: bool,
    holding_the_gil: bool,
) -> Span:
    kept = _names.setdefault(name, ctypes.create_string_buffer(name.encode()))
    span = (ctypes.c_int64 * 2)()
    library = cupti_under_the_gil if holding_the_gil else cupti
    address = ctypes.cast(kept, ctypes.c_char_p)
    library.stub_work(kind, round(seconds * 1e9), count, device, stream, address, api, cbid, int(wait), span)
    offset = _wall_clock_ahead()
    return Span(span[0] - offset, span[1] - offset)


def _wall_clock_ahead() -> int:
    """Nanoseconds by which the wall clock is ahead, by the reading that was interrupted for the shortest time."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(5)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) // 2
