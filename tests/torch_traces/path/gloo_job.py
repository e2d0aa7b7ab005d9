"""Four processes that train together under torch.profiler; in four steps one of them is late, each time another way.

``python -m tests.torch_traces.path.gloo_job FOLDER`` writes the ranks' traces into a folder.
"""

import multiprocessing
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

from tests.torch_traces.path.late_ranks import COMMUNICATION, COMPUTE, DATA_LOADING, LATE_START, MESSAGES, RANKS, STEPS

#: How late; a step without takes some tens of milliseconds.
_SECONDS = 0.5
#: Of a message; all of them take about as long.
_ELEMENTS = 4_000_000


class Numbers(Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, step: int) -> torch.Tensor:
        if (step, self.rank) == DATA_LOADING:
            time.sleep(_SECONDS)
        return torch.ones(128, 128)


def main(folder: Path) -> None:
    """Run the job. Torch is imported once, before its processes are forked."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_run, args=(rank, folder)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in ranks))


def _run(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", store, timedelta(seconds=200), RANKS, rank)
    batches = iter(DataLoader(Numbers(rank)))
    gradient = torch.ones(1000)
    messages = torch.ones(_ELEMENTS)
    dist.all_reduce(gradient)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=STEPS - 1, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(folder / f"rank{rank}.json")),
    ) as profiler:
        for step in range(STEPS):
            _train(rank, step, next(batches)[0], messages)
            dist.all_reduce(gradient)
            if (step + 1, rank) == LATE_START:
                time.sleep(_SECONDS)
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def _train(rank: int, step: int, batch: torch.Tensor, messages: torch.Tensor) -> None:
    until = time.monotonic() + _SECONDS * ((step, rank) == COMPUTE)
    # The neighbour has asked for the messages before, and does not wait for them.
    neighbour = (step, (rank - 1) % RANKS) == COMMUNICATION
    awaited = [dist.irecv(messages, rank - 1) for _ in range(MESSAGES)] if neighbour else []
    weights = torch.ones(512, 512)
    weights @ weights
    while time.monotonic() < until:
        weights @ weights
    if (step, rank) == COMMUNICATION:
        for _ in range(MESSAGES):
            dist.send(messages, rank + 1)
    dist.all_reduce(batch)
    for one in awaited:
        one.wait()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(Path(sys.argv[1]))
