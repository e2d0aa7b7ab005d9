"""Tasks that use torch, as a training job's do."""

import sys
import threading
import time
from typing import Any

from distributed import get_worker


def imports_torch(i: int) -> bool:
    return "torch" in sys.modules


def train_step(i: int = 0, *, nap: float = 0.0) -> dict[str, Any]:
    """A step of training with a loader of data; what it knows of itself."""
    import torch

    began = time.time_ns()
    data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randn(64, 1))
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    for inputs, wanted in torch.utils.data.DataLoader(data, batch_size=16):
        time.sleep(nap)
        torch.nn.functional.mse_loss(model(inputs), wanted).backward()
    return {
        "thread": threading.get_native_id(),
        "began": began,
        "ended": time.time_ns(),
        "worker": get_worker().address,
    }


def fails_in_training(i: int) -> None:
    train_step(i)
    raise ValueError("diverged")


async def trains_in_a_coroutine(i: int) -> int:
    train_step(i)
    return i


class Trainer:
    def step(self) -> int:
        train_step()
        return 1
