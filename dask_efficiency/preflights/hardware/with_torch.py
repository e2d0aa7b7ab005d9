"""GPU: matrix products, memory, copies and a training step of a transformer, with torch.

What these take of ``torch`` is given, so that a stand-in can take its place where there is no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from dask_efficiency.preflights.hardware.host import CannotMeasure, best_rate, least_seconds

#: Rows of the matrices: a product takes 2 to 20 ms on the GPUs of today's servers.
ROWS = 8192

#: Bytes copied: more than any cache of a GPU holds.
COPIED_NBYTES = 256 * 2**20

#: Share of a GPU's free memory that the soak fills.
SOAK_SHARE = 0.8

#: Transformer of the soak: width, heads, length of a sequence, layers. Then the bytes of a training step for each token
#: and layer: 34 for each of its width in 16 bits (Korthikanti et al., MLSys 2023, eq. 1), and for the attention 5 x
#: heads x length / width = 40 more, rounded up.
WIDTH, HEADS, LENGTH, LAYERS = 1024, 16, 512, 4
BYTES_PER_TOKEN = 80 * WIDTH

#: First compute capability whose matrix units take bfloat16.
BFLOAT16_CAPABILITY = (8, 0)


def gpu_of(torch: Any) -> Any:
    """GPU that this process may use.

    Raises
    ------
    CannotMeasure
        If torch sees none.
    """
    if not torch.cuda.is_available():
        raise CannotMeasure("torch sees no GPU")
    return torch.device("cuda", 0)


def matrix_products(torch: Any) -> dict[str, Any]:
    """Floating-point operations a second, in the type of the GPU's matrix units."""
    gpu = gpu_of(torch)
    modern = tuple(torch.cuda.get_device_capability(gpu)) >= BFLOAT16_CAPABILITY
    kind = torch.bfloat16 if modern else torch.float16
    one, other = (torch.randn(ROWS, ROWS, device=gpu, dtype=kind) for _ in range(2))
    seconds = _timed(torch, lambda: torch.matmul(one, other))
    return best_rate(lambda: (2 * ROWS**3 / seconds(), float("nan")))


def memory(torch: Any) -> dict[str, Any]:
    """Bytes a second read and written within the GPU's memory."""
    gpu = gpu_of(torch)
    source = torch.ones(COPIED_NBYTES, dtype=torch.uint8, device=gpu)
    target = torch.empty_like(source)
    seconds = _timed(torch, lambda: target.copy_(source))
    return best_rate(lambda: (2 * COPIED_NBYTES / seconds(), float("nan")))


def host_copies(torch: Any) -> dict[str, Any]:
    """Bytes a second of the slower direction between page-locked memory of the host and the GPU."""
    gpu = gpu_of(torch)
    here = torch.ones(COPIED_NBYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(COPIED_NBYTES, dtype=torch.uint8, device=gpu)
    to, back = (
        _timed(torch, lambda: there.copy_(here, non_blocking=True)),
        _timed(torch, lambda: here.copy_(there, non_blocking=True)),
    )
    return best_rate(lambda: (COPIED_NBYTES / max(to(), back()), float("nan")))


def peer_copies(torch: Any) -> dict[str, Any]:
    """Bytes a second to the slowest of the other GPUs that this process sees.

    Raises
    ------
    CannotMeasure
        If it sees one only.
    """
    gpu = gpu_of(torch)
    count = torch.cuda.device_count()
    if count < 2:
        raise CannotMeasure("the worker sees one GPU")
    source = torch.ones(COPIED_NBYTES, dtype=torch.uint8, device=gpu)
    timed = []
    for number in range(1, count):
        target = torch.empty(COPIED_NBYTES, dtype=torch.uint8, device=torch.device("cuda", number))
        timed.append(_timed(torch, lambda target=target: target.copy_(source)))  # type: ignore[misc]  # mypy infers no type for a default
    return best_rate(lambda: (COPIED_NBYTES / max(seconds() for seconds in timed), float("nan")))


def soak(torch: Any) -> dict[str, Any]:
    """Seconds of a training step of a transformer that fills most of the GPU's free memory."""
    gpu = gpu_of(torch)
    free, _ = torch.cuda.mem_get_info(gpu)
    tokens = int(SOAK_SHARE * free) // (BYTES_PER_TOKEN * LAYERS)
    sequences = tokens // LENGTH
    if sequences < 1:
        raise CannotMeasure(
            f"{free / 2**20:.0f} MiB of GPU memory are free, too few for one sequence of {LENGTH} tokens"
        )
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, LAYERS).to(gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(sequences, LENGTH, WIDTH, device=gpu)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()

    return least_seconds(_timed(torch, step))


def _timed(torch: Any, work: Callable[[], Any]) -> Callable[[], float]:
    """Function that runs the work and returns the seconds until the GPU has done it; runs it once before."""
    work()
    torch.cuda.synchronize()

    def seconds() -> float:
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    return seconds


#: Bytes reduced.
REDUCED_NBYTES = 16 * 2**20


def all_reduce(torch: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of an all-reduce of two ranks.

    Parameters
    ----------
    asked
        ``backend``: gloo or nccl; ``address``: ``host:port`` at which rank 0 listens; ``rank``: of this process, 0 or
        1; ``timeout``: seconds to wait for the other.
    """
    backend, timeout = asked["backend"], timedelta(seconds=asked["timeout"])
    distributed = torch.distributed
    distributed.init_process_group(
        backend, init_method=f"tcp://{asked['address']}", rank=asked["rank"], world_size=2, timeout=timeout
    )
    device = "cuda" if backend == "nccl" else "cpu"
    data = torch.ones(REDUCED_NBYTES // 4, device=device)

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
