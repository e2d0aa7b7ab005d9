"""Roles of events by their names."""

from __future__ import annotations

import pytest

from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.roles import CallKind, cpu_collectives, gpu_collectives, kind_of_call
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
        ("cudaLaunchKernel", CallKind.OTHER),
        ("cudaMemcpyFancy", CallKind.OTHER),
        ("cudart", CallKind.OTHER),
        ("aten::copy_", CallKind.OTHER),
        ("", CallKind.OTHER),
    ],
)
def test_a_call_is_known_by_its_name_in_cuda_its_driver_and_hip(name: str, kind: CallKind) -> None:
    assert kind_of_call(name) is kind


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", True),
        ("void ncclKernel<4>(int)", True),
        ("rccl_main_kernel", True),
        ("hipLaunchedSomething", False),
        ("void gemm<float>(int)", False),
    ],
)
def test_collectives_are_known_by_their_kernels_names(name: str, communicates: bool) -> None:
    small = SmallTrace()
    small.work(10, 20, small.call("cudaLaunchKernel", 0, 2), name=name)
    small.operator(name, 0, 1)
    assert gpu_collectives(small.trace()).tolist() == [False, communicates, False]


def test_a_kernel_of_any_name_exchanges_data_if_the_trace_says_so() -> None:
    small = SmallTrace()
    small.add(Category.KERNEL, "all_to_all_on_my_own", 0, 1, collective=0)
    assert gpu_collectives(small.trace()).tolist() == [True]


def test_collectives_of_the_cpu_are_named_by_programs() -> None:
    small = SmallTrace()
    for category in (Category.ANNOTATION, Category.OPERATOR, Category.RUNTIME, Category.KERNEL):
        small.add(category, "gloo:all_reduce", 0, 1)
    small.add(Category.ANNOTATION, "nccl:all_reduce", 0, 1)
    assert cpu_collectives(small.trace()).tolist() == [True, True, False, False, False]
