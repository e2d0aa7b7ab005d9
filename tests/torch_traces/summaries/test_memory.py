from typing import Any

from dask_efficiency.torch_traces.summaries.memory import PARTS, memory_of, merged_memory
from tests.torch_traces.path.programs import Event, on_cpu, rank_of
from tests.torch_traces.path.samples import recorded_rank


def memory(at: float, nbytes: int, allocated: int | None, *, device: int = 0, **others: Any) -> Event:
    args = {"Device Type": 1, "Device Id": device, "Bytes": nbytes, "Addr": 1}
    args |= {} if allocated is None else {"Total Allocated": allocated, "Total Reserved": 1000}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": at,
        "args": args,
    } | others


def test_memory_has_its_peak_by_device_and_when_that_was() -> None:
    events = [memory(5, 300, 300), memory(1, 100, 100), memory(7, -100, 200), memory(6, 50, 60, device=1)]
    found = memory_of(rank_of([*events, on_cpu("aten::mm", 0, 9)]))
    peaks = found.peaks
    assert peaks.device.tolist() == [0, 1]
    assert peaks.peak_allocated.tolist() == [300, 60]
    assert peaks.peak_after.tolist() == [4_000, 5_000]
    assert peaks.last_allocated.tolist() == [200, 60]
    assert peaks.peak_reserved.tolist() == [1000, 1000]
    assert (peaks.allocations.tolist(), peaks.nbytes.tolist()) == ([2, 1], [400, 50])
    assert found.timeline.allocated.max() == 300


def test_old_traces_have_allocations_and_no_total() -> None:
    found = memory_of(rank_of([memory(1, 100, None), on_cpu("aten::mm", 0, 9)]))
    assert found.peaks.nbytes.tolist() == [100]
    assert (found.peaks.peak_allocated[0], found.peaks.peak_after[0]) == (-1, -1)
    assert len(found.timeline) == 0


def test_a_timeline_is_short_and_has_the_peak() -> None:
    found = memory_of(recorded_rank("h100"))
    on_gpu = found.peaks.take(found.peaks.device_type == 1)
    assert on_gpu.peak_allocated.tolist() == [101_305_344]
    assert found.timeline.allocated.max() == 101_305_344
    assert len(found.timeline) <= 2 * PARTS


def test_sizes_that_cannot_be_are_left_out_of_sums() -> None:
    events = [memory(at, nbytes, 7) for at, nbytes in enumerate((9 * 10**18, 9 * 10**18, 7))]
    peaks = memory_of(rank_of([*events, on_cpu("aten::mm", 0, 9)])).peaks
    assert (peaks.allocations.tolist(), peaks.nbytes.tolist()) == ([1], [7])


def test_damaged_events_of_memory_are_left_out() -> None:
    events = [memory(1, 100, 100, args=None), memory(1, 100, 100, ts="soon"), memory(2, 7, 7)]
    assert memory_of(rank_of([*events, on_cpu("aten::mm", 0, 9)])).peaks.nbytes.tolist() == [7]


def test_ranks_that_were_merged_into_one_file_keep_their_memory() -> None:
    import io
    import json

    from dask_efficiency.torch_traces.kineto.load import read_ranks

    events = [on_cpu("aten::mm", 0, 9) | {"pid": f"rank {rank}"} for rank in (0, 1)]
    events += [memory(1 + rank, 100 + rank, 100 + rank, pid=f"rank {rank}") for rank in (0, 1)]
    ranks = read_ranks(io.BytesIO(json.dumps({"traceEvents": events}).encode()), "merged.json")
    peaks = merged_memory([memory_of(rank) for rank in ranks]).peaks
    assert (peaks.rank.tolist(), peaks.nbytes.tolist()) == ([0, 1], [100, 101])
