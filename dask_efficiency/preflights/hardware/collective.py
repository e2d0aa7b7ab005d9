"""Collective: seconds of an all-reduce between two workers, with gloo or NCCL, through torch."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from dask_efficiency.preflights.hardware.measured import least_seconds

#: Bytes that are reduced.
NBYTES = 16 * 2**20


def all_reduce(torch: Any, backend: str, address: str, rank: int, timeout: float) -> dict[str, Any]:
    """Seconds of an all-reduce of two ranks.

    Parameters
    ----------
    torch
        The module.
    backend
        ``gloo`` or ``nccl``.
    address
        Where rank 0 listens, as ``host:port``.
    rank
        Of this process, 0 or 1.
    timeout
        Seconds until it gives up on the other.
    """
    distributed = torch.distributed
    distributed.init_process_group(
        backend, init_method=f"tcp://{address}", rank=rank, world_size=2, timeout=timedelta(seconds=timeout)
    )
    device = "cuda" if backend == "nccl" else "cpu"
    data = torch.ones(NBYTES // 4, device=device)

    def once() -> float:
        began = time.perf_counter()
        distributed.all_reduce(data)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    try:
        once()
        return least_seconds(once)
    finally:
        distributed.destroy_process_group()
