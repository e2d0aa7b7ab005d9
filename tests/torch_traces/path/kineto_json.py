"""Kineto's JSON by hand, and profiles of it."""

from __future__ import annotations

import gzip
import json
from typing import Any

from dask_efficiency.runs.trace.run_trace import TaskProfile

#: The process, and what Kineto calls GPU 0 in its place.
PROCESS, GPU = 4321, 0

US = 1_000


def on_thread(category: str, name: str, thread: int, start: float, stop: float, **args: Any) -> dict[str, Any]:
    """An event on a thread; microseconds since the profile began."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": PROCESS,
        "tid": thread,
        "ts": start,
        "dur": stop - start,
        "args": args,
    }


def operator(name: str, thread: int, start: float, stop: float) -> dict[str, Any]:
    return on_thread("cpu_op", name, thread, start, stop)


def call(name: str, thread: int, start: float, stop: float, correlation: int) -> dict[str, Any]:
    return on_thread("cuda_runtime", name, thread, start, stop, correlation=correlation)


def kernel(name: str, start: float, stop: float, correlation: int, *, stream: int = 7) -> dict[str, Any]:
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return on_thread("kernel", name, stream, start, stop, **args) | {"pid": GPU}


def synchronisation(start: float, stop: float, correlation: int) -> dict[str, Any]:
    """Kineto's record of a call that waited for everything on the device."""
    args = {"cuda_sync_kind": "Context Sync", "device": 0, "stream": -1, "correlation": correlation}
    return on_thread("cuda_sync", "Context Sync", -1, start, stop, **args) | {"pid": GPU}


def profile(events: list[dict[str, Any]], *, run: int, thread: int, start: int, stop: int, ahead: int) -> TaskProfile:
    """A profile of a run; its clock of the day is behind the trace's by ``ahead``."""
    base = start - ahead
    text = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events})
    return TaskProfile(run, thread, start, stop, base, gzip.compress(text.encode(), mtime=0))
