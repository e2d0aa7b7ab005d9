"""The ledger of what Kineto recorded on real GPUs, against sums that are made without it."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.gpu.calls import COPIES, DRIVER_TABLE, RUNTIME_TABLE, WAITS
from dask_efficiency.gpu.ledger import GpuLedger
from dask_efficiency.gpu.meter import (
    CALL,
    COPY,
    FILL,
    KERNEL,
    OPERATION,
    RETURNS,
    SPINS,
    Device,
    GpuBatch,
    TaskId,
    TaskWindow,
)
from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category

DATA = Path(__file__).parents[1] / "gpu" / "data"
RECORDED = ["simple_add", "cudagraph"]
#: By category of Kineto's events.
ACTIVITY = np.zeros(len(Category), np.int64)
ACTIVITY[list(GPU_WORK)] = KERNEL, COPY, FILL
TASKS = 7
FLUSHES = 40


@dataclass(frozen=True)
class Recorded:
    """A trace in nanoseconds since its first event."""

    operations: np.ndarray
    calls: np.ndarray
    windows: list[TaskWindow]
    end: int

    def batches(self, count: int) -> list[GpuBatch]:
        """As a meter would have brought them, in so many flushes."""
        found, before = [], -1
        for at in np.linspace(0, self.end, count + 1, dtype=np.int64)[1:].tolist():
            parts = [rows[(rows["end"] > before) & (rows["end"] <= at)] for rows in (self.operations, self.calls)]
            found.append(GpuBatch(*parts, ["kernel"], {}, at))
            before = at
        return found


def recorded(name: str) -> Recorded:
    (trace,) = load_kineto(DATA / f"{name}.json.gz").ranks
    events = trace.events
    is_work = np.isin(events.category, GPU_WORK)
    is_call = np.isin(events.category, CALLS)
    first = int(events.start[is_work | is_call].min())
    start, stop = events.start - first, events.stop - first

    operations = np.zeros(np.count_nonzero(is_work), OPERATION)
    for field, column in (
        ("start", start),
        ("end", stop),
        ("device", events.device),
        ("stream", events.stream),
        ("correlation", events.correlation),
        ("activity", ACTIVITY[events.category]),
    ):
        operations[field] = column[is_work]

    does = np.where(events.category == Category.RUNTIME, RUNTIME_TABLE[events.cbid], DRIVER_TABLE[events.cbid])
    does[~is_call] = 0
    calls = np.zeros(np.count_nonzero(does), CALL)
    for field, column in (
        ("start", start),
        ("end", stop),
        ("thread", events.thread),
        ("correlation", np.where(does == WAITS, 0, events.correlation)),
        ("waits", np.where(np.isin(does, (WAITS, COPIES)), SPINS, RETURNS)),
    ):
        calls[field] = column[does > 0]
    calls.sort()

    # the calls of the one thread in turn belong to so many tasks
    bounds = [int(calls["start"][len(calls) * index // TASKS]) for index in range(TASKS)]
    end = 1 + int(max(operations["end"].max(), calls["end"].max()))
    thread = int(calls["thread"][0])
    windows = [
        TaskWindow(TaskId(thread, start), stop - 1, f"task-{index}")
        for index, (start, stop) in enumerate(zip(bounds, [*bounds[1:], end], strict=True))
    ]
    return Recorded(operations, calls, windows, end)


def covered(rows: np.ndarray) -> int:
    """Length of a union, by a sweep over sorted intervals."""
    total, reached = 0, -1
    for start, end in sorted(zip(rows["start"].tolist(), rows["end"].tolist(), strict=True)):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def fed(trace: Recorded, flushes: int) -> tuple[GpuLedger, dict[TaskId, GpuUse]]:
    """The ledger, and the uses that it reported."""
    uses: dict[TaskId, GpuUse] = {}
    ledger = GpuLedger(0, prefix_of=str)
    batches = trace.batches(flushes)
    for batch in batches:
        windows = [w if w.stop <= batch.known_until else w._replace(stop=-1) for w in trace.windows]
        begun = [window for window in windows if window.task.start <= batch.known_until]
        ledger.add(batch, begun, devices={0: Device("GPU-0")}, final=batch is batches[-1])
        uses |= ledger.uses()
    return ledger, uses


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("flushes", [1, FLUSHES])
def test_the_time_of_device_and_tasks_is_that_of_the_recorded_operations(name: str, flushes: int) -> None:
    trace = recorded(name)
    totals = fed(trace, flushes)[0].totals()
    (device,) = totals.devices
    kernels = trace.operations[trace.operations["activity"] == KERNEL]
    assert device.kernels == covered(kernels)
    assert device.kernels + device.copies == covered(trace.operations)
    assert (device.elapsed, device.late, device.unattributed) == (trace.end, 0, 0)
    assert sum(device.shares.values()) == device.kernels + device.copies
    assert totals.kernel_ns == totals.attributed_ns == int((kernels["end"] - kernels["start"]).sum())
    assert totals.coverage == 1
    # each task has the kernels that its calls asked for
    asked = {int(call["correlation"]): int(call["start"]) for call in trace.calls if call["correlation"]}
    expected: Counter[str] = Counter()
    for row in kernels:
        begun = asked[int(row["correlation"])]
        expected[max(w for w in trace.windows if w.task.start <= begun).key] += int(row["end"] - row["start"])
    assert {kernel.prefix: kernel.ns for kernel in totals.kernels} == expected


@pytest.mark.parametrize("name", RECORDED)
def test_the_parts_of_each_tasks_waiting_are_all_of_it(name: str) -> None:
    trace = recorded(name)
    _, uses = fed(trace, FLUSHES)
    waits = trace.calls[trace.calls["waits"] == SPINS]
    for window in trace.windows:
        use = uses.get(window.task, GpuUse())
        mine = waits[(waits["start"] >= window.task.start) & (waits["start"] <= window.stop)]
        assert use.kernel + use.contention + use.copy + use.wait == covered(mine) == use.spun
