"""Measures what it is asked for on standard input, and writes a line of JSON for each component.

The first line of the input is JSON, the bytes of a workload follow it. When the input ends, which it does however the
worker that asked ends, this process ends with all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.preflights.hardware import host


def main() -> None:
    """Measure, component by component."""
    source = sys.stdin.buffer
    request = json.loads(source.readline())
    payload = source.read(request.get("nbytes", 0))
    # What is measured may print: that goes nowhere.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    for component in request["components"]:
        _write(out, {"component": component, **_measured(component, request, payload)})
    _write(out, {"cpu_seconds": time.process_time()})
    out.close()
    # Threads of libraries may not end by themselves.
    os._exit(0)


def _end_with(source: BinaryIO) -> None:
    source.read()
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _write(out: Any, line: Mapping[str, Any]) -> None:
    out.write(json.dumps(line).encode() + b"\n")


def _measured(component: str, request: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
    try:
        return MEASUREMENTS[component](request, payload)
    except host.CannotMeasure as reason:
        return {"missing": str(reason)[:MAX_REASON]}
    except ImportError as error:
        return {"missing": f"{error.name or 'a module'} cannot be imported: {error}"[:MAX_REASON]}
    except BaseException as error:  # a user's workload may do anything, and end in any way
        return {"failed": f"{type(error).__name__}: {error}"[:MAX_REASON]}


def _with_torch(name: str, *options: str) -> Callable[[Mapping[str, Any], bytes], dict[str, Any]]:
    """Measure with a function of :mod:`with_torch`; torch is imported by then only, as a worker may lack it."""

    def measure(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
        import torch

        from dask_efficiency.preflights.hardware import with_torch

        measured: dict[str, Any] = getattr(with_torch, name)(torch, **{option: request[option] for option in options})
        return measured

    return measure


MEASUREMENTS: dict[str, Callable[[Mapping[str, Any], bytes], dict[str, Any]]] = {
    "cpu": lambda asked, _: host.matrix_products(1, asked["repetition"], asked["repeats"]),
    "cpu_all": lambda asked, _: host.matrix_products(asked["threads"], asked["repetition"], asked["repeats"]),
    "memory_bandwidth": lambda asked, _: host.copies(asked["memory"], asked["repetition"], asked["repeats"]),
    "disk": lambda asked, _: host.writes(asked["directory"], asked["repetition"], asked["repeats"]),
    "gpu": _with_torch("matrix_products"),
    "gpu_memory": _with_torch("memory"),
    "gpu_copy": _with_torch("host_copies"),
    "gpu_peer": _with_torch("peer_copies"),
    "soak": _with_torch("soak"),
    # Its first run may load what the next ones have: all repetitions, always.
    "workload": lambda asked, payload: host.run(asked["workload"], payload),
    "collective": _with_torch("all_reduce", "group"),
    "training": _with_torch("training_step", "group", "threads", "memory"),
}
