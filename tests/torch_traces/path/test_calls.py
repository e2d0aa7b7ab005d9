"""What the calls of CUDA and HIP do, by their names."""

from __future__ import annotations

import pytest

from dask_efficiency.torch_traces.path.calls import CallKind, call_kinds, kind_of_call, matching
from tests.torch_traces.path.small_traces import SmallTrace


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize", CallKind.DEVICE_WAIT),
        ("hipDeviceSynchronize", CallKind.DEVICE_WAIT),
        ("cuCtxSynchronize", CallKind.DEVICE_WAIT),
        ("cudaStreamSynchronize", CallKind.STREAM_WAIT),
        ("cuStreamSynchronize_ptsz", CallKind.STREAM_WAIT),
        ("hipEventSynchronize", CallKind.EVENT_WAIT),
        ("cudaEventQuery", CallKind.EVENT_QUERY),
        ("cudaEventRecordWithFlags", CallKind.EVENT_RECORD),
        ("cudaStreamWaitEvent", CallKind.STREAM_WAITS_EVENT),
        ("cudaMemcpy", CallKind.COPY),
        ("cuMemcpyDtoH_v2", CallKind.COPY),
        ("hipMemcpyWithStream", CallKind.COPY),
        ("cudaMemcpyAsync", CallKind.COPY_ASYNC),
        ("cudaMemcpy2DAsync_ptsz", CallKind.COPY_ASYNC),
        ("hipMemcpyHtoDAsync", CallKind.COPY_ASYNC),
        ("cudaHostAlloc", CallKind.ALLOCATE),
        ("hipMalloc", CallKind.ALLOCATE),
        ("cuMemAlloc_v2", CallKind.ALLOCATE),
        ("hipFree", CallKind.FREE),
    ],
)
def test_a_call_is_known_by_its_name_in_cuda_its_driver_and_hip(name: str, kind: CallKind) -> None:
    assert kind_of_call(name) is kind


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaGetDevice", "cudaMemcpyFancy", "cudart", "aten::copy_", ""])
def test_all_other_names_are_of_no_kind(name: str) -> None:
    assert kind_of_call(name) is CallKind.OTHER


def test_each_event_has_the_kind_of_its_name() -> None:
    small = SmallTrace()
    small.call("cudaMemcpyAsync", 0, 1)
    small.operator("aten::add", 0, 1)
    small.call("cudaMemcpyAsync", 2, 3)
    assert call_kinds(small.trace()).tolist() == [CallKind.COPY_ASYNC, CallKind.OTHER, CallKind.COPY_ASYNC]


def test_any_of_the_patterns_may_be_anywhere_in_a_name() -> None:
    small = SmallTrace()
    for name in ("enumerate(DataLoader)#next", "aten::add", "my.load.batch"):
        small.operator(name, 0, 1)
    assert matching(small.trace(), ["DataLoader", r"load\.b"]).tolist() == [True, False, True]
    assert not matching(small.trace(), []).any()
