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

from dask_efficiency.preflights.hardware.measured import NotMeasured

#: Characters of a reason.
MAX_REASON = 500


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
    except NotMeasured as reason:
        return {"missing": str(reason)[:MAX_REASON]}
    except ImportError as error:
        return {"missing": f"{error.name or 'a module'} cannot be imported: {error}"[:MAX_REASON]}
    except BaseException as error:  # a user's workload may do anything, and end in any way
        return {"failed": f"{type(error).__name__}: {error}"[:MAX_REASON]}


# Each imports what it needs: a worker without NumPy's threads or torch measures the rest.


def _cpu(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
    from dask_efficiency.preflights.hardware.processor import matrix_products

    return matrix_products(1, request["repetition"], request["repeats"])


def _cpu_all(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
    from dask_efficiency.preflights.hardware.processor import matrix_products

    return matrix_products(request["threads"], request["repetition"], request["repeats"])


def _memory(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
    from dask_efficiency.preflights.hardware.memory import copies

    return copies(request["memory"], request["repetition"], request["repeats"])


def _disk(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
    from dask_efficiency.preflights.hardware.disk import writes

    return writes(request["directory"], request["repetition"], request["repeats"])


def _workload(request: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
    from dask_efficiency.preflights.hardware import workload

    return workload.run(request["workload"], payload, request["repeats"])


def _collective(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
    import torch

    from dask_efficiency.preflights.hardware.collective import all_reduce

    of = request["collective"]
    return all_reduce(torch, of["backend"], of["address"], of["rank"], of["timeout"])


def _on_gpu(name: str) -> Callable[[Mapping[str, Any], bytes], dict[str, Any]]:
    def measure(request: Mapping[str, Any], _: bytes) -> dict[str, Any]:
        import torch

        from dask_efficiency.preflights.hardware import torch_gpu

        found: dict[str, Any] = getattr(torch_gpu, name)(torch)
        return found

    return measure


MEASUREMENTS: dict[str, Callable[[Mapping[str, Any], bytes], dict[str, Any]]] = {
    "cpu": _cpu,
    "cpu_all": _cpu_all,
    "memory_bandwidth": _memory,
    "disk": _disk,
    "gpu": _on_gpu("matrix_products"),
    "gpu_memory": _on_gpu("memory"),
    "gpu_copy": _on_gpu("host_copies"),
    "gpu_peer": _on_gpu("peer_copies"),
    "soak": _on_gpu("soak"),
    "workload": _workload,
    "collective": _collective,
}

if __name__ == "__main__":
    main()
