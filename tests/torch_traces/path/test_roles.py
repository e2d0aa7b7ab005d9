"""Roles of events by their names."""

import pytest

from dask_efficiency.torch_traces.path.roles import CallKind, cpu_collectives, gpu_collectives, kind_of_call
from tests.torch_traces.path.programs import call, on_cpu, rank_of, work

#: Names of calls by kind, in CUDA, its driver and HIP.
NAMES = {
    CallKind.DEVICE_WAIT: ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"),
    CallKind.STREAM_WAIT: ("cudaStreamSynchronize", "cuStreamSynchronize_ptsz"),
    CallKind.EVENT_WAIT: ("hipEventSynchronize",),
    CallKind.EVENT_QUERY: ("cudaEventQuery",),
    CallKind.EVENT_RECORD: ("cudaEventRecordWithFlags",),
    CallKind.STREAM_WAITS_EVENT: ("cudaStreamWaitEvent",),
    CallKind.COPY: ("cudaMemcpy", "cuMemcpyDtoH_v2", "hipMemcpyWithStream"),
    CallKind.COPY_ASYNC: ("cudaMemcpyAsync", "cudaMemcpy2DAsync_ptsz", "hipMemcpyHtoDAsync"),
    CallKind.ALLOCATE: ("cudaHostAlloc", "hipMalloc", "cuMemAlloc_v2"),
    CallKind.FREE: ("hipFree",),
    CallKind.OTHER: ("cudaLaunchKernel", "cudaMemcpyFancy", "cudart", "aten::copy_", ""),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
def test_a_call_is_known_by_its_name_in_cuda_its_driver_and_hip(kind: CallKind, name: str) -> None:
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
    trace = rank_of([call("cudaLaunchKernel", 0, 2, 1), work(name, 10, 20, 1), on_cpu(name, 0, 1)])
    assert gpu_collectives(trace).tolist() == [False, communicates, False]


def test_a_kernel_of_any_name_exchanges_data_if_the_trace_names_its_collective() -> None:
    kernel = work("all_to_all_on_my_own", 0, 1, 1)
    kernel["args"]["Collective name"] = "all_to_all"
    assert gpu_collectives(rank_of([kernel])).tolist() == [True]


def test_collectives_of_the_cpu_are_named_by_programs() -> None:
    categories = ("user_annotation", "cpu_op", "cuda_runtime", "kernel")
    events = [on_cpu("gloo:all_reduce", 0, 1, cat=category) for category in categories]
    events.append(on_cpu("nccl:all_reduce", 0, 1, cat="user_annotation"))
    assert cpu_collectives(rank_of(events)).tolist() == [True, True, False, False, False]
