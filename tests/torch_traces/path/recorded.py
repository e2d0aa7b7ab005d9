"""Traces that tests record themselves, of a small training program on the CPU."""

import json
from pathlib import Path
from typing import Any


def record_training(path: Path, *, steps: int = 3) -> None:
    import torch
    from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function

    network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8 * steps, 32)), batch_size=8)
    # Steps are annotated only if there is a schedule.
    recorded = {"activities": [ProfilerActivity.CPU], "schedule": lambda step: ProfilerAction.RECORD}
    with profile(**recorded) as profiler:
        for (batch,) in batches:
            with record_function("forward"):
                loss = network(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def with_a_kernel(path: Path, target: Path) -> None:
    """Append a launch and a kernel, without which HTA takes no trace."""
    trace: dict[str, Any] = json.loads(path.read_text())
    timed = [event for event in trace["traceEvents"] if event.get("ph") == "X" and event.get("cat") == "cpu_op"]
    last = max(timed, key=lambda event: event["ts"])
    end = last["ts"] + last["dur"] + 1_000
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": last["pid"], "tid": last["tid"]}
    kernel = {"ph": "X", "cat": "kernel", "name": "last", "pid": 0, "tid": 7}
    trace["traceEvents"] += [
        {**call, "ts": end, "dur": 5, "args": {"correlation": 100_001}},
        {**kernel, "ts": end + 10, "dur": 5, "args": {"device": 0, "stream": 7, "correlation": 100_001}},
    ]
    target.write_text(json.dumps(trace))
