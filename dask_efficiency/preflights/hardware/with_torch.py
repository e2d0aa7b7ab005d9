"""GPUs: matrix products, memory, copies and a training step; and work of two workers together, with torch.

``torch`` is a parameter, so that a stand-in can take its place where there is no GPU.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil

from dask_efficiency.preflights.hardware.host import CannotMeasure, best_rate, least_seconds

#: Rows of the matrices: a product takes 2 to 20 ms on the GPUs of today's servers.
ROWS = 8192
#: Bytes copied: more than any cache of a GPU holds.
COPIED_NBYTES = 256 * 2**20
#: Share of a GPU's free memory that a training step fills.
GPU_SHARE = 0.8
#: Share of a worker's memory that a training step on its cores fills, and most sequences of it: 0.3 s of one core.
CPU_SHARE, MAX_CPU_SEQUENCES = 0.1, 8

#: Bytes of a training step for each token, layer and element of its width, in 16 bits: 34 (Korthikanti et al., MLSys
#: 2023, eq. 1), and for the attention 5 x heads x length / width = 40 more, rounded up.
BYTES_PER_ELEMENT = 80

#: First compute capability whose matrix units take bfloat16.
BFLOAT16_CAPABILITY = (8, 0)


def gpu_of(torch: Any) -> Any:
    """GPU that this process may use."""
    if not torch.cuda.is_available():
        raise CannotMeasure("torch sees no GPU")
    return torch.device("cuda", 0)


def _rate(amount: float, *timed: Callable[[], float]) -> dict[str, Any]:
    """Amount a second of the slowest; a GPU's share of computing is unknown."""
    return best_rate(lambda: (amount / max([seconds() for seconds in timed]), math.nan))


def matrix_products(torch: Any) -> dict[str, Any]:
    """Floating-point operations a second, in the type of the GPU's matrix units."""
    gpu = gpu_of(torch)
    modern = tuple(torch.cuda.get_device_capability(gpu)) >= BFLOAT16_CAPABILITY
    kind = torch.bfloat16 if modern else torch.float16
    left, right = (torch.randn(ROWS, ROWS, device=gpu, dtype=kind) for _ in range(2))
    return _rate(2 * ROWS**3, _timed(torch, lambda: torch.matmul(left, right)))


def memory(torch: Any) -> dict[str, Any]:
    """Bytes a second read and written within the GPU's memory."""
    gpu = gpu_of(torch)
    source = torch.ones(COPIED_NBYTES, dtype=torch.uint8, device=gpu)
    target = torch.empty_like(source)
    return _rate(2 * COPIED_NBYTES, _timed(torch, lambda: target.copy_(source)))


def host_copies(torch: Any) -> dict[str, Any]:
    """Bytes a second of the slower direction between page-locked memory of the host and the GPU."""
    gpu = gpu_of(torch)
    on_host = torch.ones(COPIED_NBYTES, dtype=torch.uint8, pin_memory=True)
    on_gpu = torch.empty(COPIED_NBYTES, dtype=torch.uint8, device=gpu)
    to = _timed(torch, lambda: on_gpu.copy_(on_host, non_blocking=True))
    back = _timed(torch, lambda: on_host.copy_(on_gpu, non_blocking=True))
    return _rate(COPIED_NBYTES, to, back)


def peer_copies(torch: Any) -> dict[str, Any]:
    """Bytes a second to the slowest of the other GPUs that this process sees."""
    gpu = gpu_of(torch)
    count = torch.cuda.device_count()
    if count < 2:
        raise CannotMeasure("the worker sees one GPU")
    source = torch.ones(COPIED_NBYTES, dtype=torch.uint8, device=gpu)
    timed = []
    for number in range(1, count):
        target = torch.empty(COPIED_NBYTES, dtype=torch.uint8, device=torch.device("cuda", number))
        timed.append(_timed(torch, lambda target=target: target.copy_(source)))  # type: ignore[misc]  # mypy infers no type for a default
    return _rate(COPIED_NBYTES, *timed)


@dataclass(frozen=True, slots=True)
class Transformer:
    """Transformer for training: width, heads, layers, and length of a sequence."""

    width: int
    heads: int
    layers: int
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes of a training step for each sequence, in 16 bits."""
        return BYTES_PER_ELEMENT * self.width * self.layers * self.length

    def made(self, torch: Any, device: str) -> Any:
        """Model with the same weights in each process."""
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(self.width, self.heads, 4 * self.width, dropout=0.0, batch_first=True)
        return torch.nn.TransformerEncoder(layer, self.layers).to(device)

    def trained(self, torch: Any, model: Any, sequences: int, device: str) -> dict[str, Any]:
        """Seconds of a training step on made-up data, for each sequence."""
        if sequences < 1:
            raise CannotMeasure(f"too little memory is free for a training step of {self.length} tokens")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        inputs = torch.randn(sequences, self.length, self.width, device=device)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast(device, enabled=device == "cuda"):
                loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()

        seconds = _timed(torch, step, device)
        return least_seconds(lambda: seconds() / sequences)


#: Transformers that are trained: 50 million parameters on a GPU, 3 million (12 MB of gradients) on cores.
ON_GPU = Transformer(width=1024, heads=16, layers=4, length=512)
ON_CPU = Transformer(width=256, heads=4, layers=4, length=128)


def soak(torch: Any) -> dict[str, Any]:
    """Seconds of a training step that fills most of the GPU's free memory, for each sequence."""
    free, _ = torch.cuda.mem_get_info(gpu_of(torch))
    return ON_GPU.trained(torch, ON_GPU.made(torch, "cuda"), int(GPU_SHARE * free / ON_GPU.nbytes), "cuda")


def _timed(torch: Any, work: Callable[[], Any], device: str = "cuda") -> Callable[[], float]:
    """Function that runs the work and returns the seconds until the device has done it; runs it once before."""

    def seconds() -> float:
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    seconds()
    return seconds


#: Bytes reduced.
REDUCED_NBYTES = 16 * 2**20


def interface_to(host: str) -> str:
    """Name of the network interface by which a host is reached; empty if unknown."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return ""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, addresses in interfaces if own in {address.address for address in addresses}), "")


@contextmanager
def process_group(torch: Any, group: Mapping[str, Any]) -> Iterator[str]:
    """Group of this process and another; gives the device of its data.

    It has a ``backend``, gloo or nccl, the ``address`` (``host:port``) at which rank 0 listens, this process's ``rank``
    of the two, and a ``timeout`` in seconds.
    """
    # Else gloo listens where the host's name leads, which may be another network than Dask's.
    if interface := interface_to(group["address"].rpartition(":")[0]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    torch.distributed.init_process_group(
        group["backend"],
        init_method=f"tcp://{group['address']}",
        rank=group["rank"],
        world_size=2,
        timeout=timedelta(seconds=group["timeout"]),
    )
    try:
        yield "cuda" if group["backend"] == "nccl" else "cpu"
    finally:
        torch.distributed.destroy_process_group()


def all_reduce(torch: Any, group: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of an all-reduce of two ranks; ``group`` is that of :func:`process_group`."""
    with process_group(torch, group) as device:
        data = torch.ones(REDUCED_NBYTES // 4, device=device)
        return least_seconds(_timed(torch, lambda: torch.distributed.all_reduce(data), device))


def training_step(torch: Any, group: Mapping[str, Any], *, threads: int, memory: int) -> dict[str, Any]:
    """Seconds of a training step of two ranks with DistributedDataParallel, for each sequence of one.

    Both train as many as the rank with less memory can, in bytes (0 for no limit). DLRover's node check runs matrix
    products and an all-gather in each pair; a step has both at once, as training does.
    """
    with process_group(torch, group) as device:
        if device == "cuda":
            transformer, able = ON_GPU, GPU_SHARE * torch.cuda.mem_get_info(gpu_of(torch))[0] / ON_GPU.nbytes
        else:
            torch.set_num_threads(threads)
            able = CPU_SHARE * (memory or math.inf) / (2 * ON_CPU.nbytes)  # in 32 bits
            transformer, able = ON_CPU, min(MAX_CPU_SEQUENCES, able)
        sequences = torch.tensor([int(able)], device=device)
        torch.distributed.all_reduce(sequences, torch.distributed.ReduceOp.MIN)
        model = torch.nn.parallel.DistributedDataParallel(transformer.made(torch, device))
        return transformer.trained(torch, model, int(sequences), device)
