"""Checks of what a worker says of itself when it registers; upstream takes anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from distributed.scheduler import WorkerState

from dask_efficiency.accounts.checks import RefusedPayload, mapping, short, text, whole

#: Threads of a worker. The largest machines with one memory have 1,792 hardware threads (32 sockets), and a worker
#: that mostly waits may have several for each; memory and time grow with each thread that is claimed.
MAX_THREADS = 10_000


def check_registration(ws: WorkerState) -> None:
    """Raise RefusedPayload, which names the field, if a worker cannot be measured as it registered.

    Its name may be anything: that is cut to fit wherever it is read.
    """
    if type(ws.nthreads) is not int or not 1 <= ws.nthreads <= MAX_THREADS:
        raise RefusedPayload(f"nthreads is {short(ws.nthreads)}; expected 1 to {MAX_THREADS}")
    for field in ("address", "host", "server_id"):
        text(field, getattr(ws, field))
    if ws.nanny is not None:
        text("nanny", ws.nanny)
    whole("memory_limit", ws.memory_limit)
    whole("pid", ws.pid)
    for name, amount in mapping("resources", ws.resources).items():
        text("the name of a resource", name)
        if not isinstance(amount, int | float) or math.isnan(amount):
            raise RefusedPayload(f"resources[{short(name)}] is {short(amount)}; expected a number")
    text("the name of a GPU", gpu_model(ws))


def gpu_model(ws: WorkerState) -> Any:
    """Name of a worker's GPU, by Dask's own reading; empty without one."""
    gpu = ws.extra.get("gpu") if isinstance(ws.extra, Mapping) else None
    return gpu.get("name") or "" if isinstance(gpu, Mapping) else ""
