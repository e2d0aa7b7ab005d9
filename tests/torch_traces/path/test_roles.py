"""Roles of events by their names."""

import pytest

from dask_efficiency.torch_traces.path.roles import (
    CallKind,
    awaited_copies,
    cpu_collectives,
    gpu_collectives,
    kind_of_call,
    sets_up,
)
from tests.torch_traces.path.programs import call, on_cpu, rank_of, work, written

#: Names of calls by kind, in CUDA, its driver and HIP.
NAMES = {
    CallKind.DEVICE_WAIT: ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"),
    CallKind.STREAM_WAIT: ("cudaStreamSynchronize", "cuStreamSynchronize_ptsz"),
    CallKind.EVENT_WAIT: ("hipEventSynchronize", "urEventWait"),
    CallKind.EVENT_QUERY: ("cudaEventQuery",),
    CallKind.EVENT_RECORD: ("cudaEventRecordWithFlags",),
    CallKind.STREAM_WAITS_EVENT: ("cudaStreamWaitEvent",),
    CallKind.COPY: ("cudaMemcpy", "cuMemcpyDtoH_v2", "hipMemcpyWithStream"),
    CallKind.COPY_ASYNC: ("cudaMemcpyAsync", "cudaMemcpy2DAsync_ptsz", "hipMemcpyHtoDAsync"),
    CallKind.ALLOCATE: ("cudaHostAlloc", "hipMalloc", "cuMemAlloc_v2"),
    CallKind.FREE: ("hipFree",),
    CallKind.LAUNCH: (
        *("cudaLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC_v11060", "cudaLaunchCooperativeKernel"),
        *("cudaGraphLaunch_ptsz", "hipExtModuleLaunchKernel", "hipLaunchByPtr", "hipExtLaunchMultiKernelMultiDevice"),
        *("urEnqueueKernelLaunch", "zeCommandListAppendLaunchKernel"),
    ),
    CallKind.OTHER: ("cudaLaunchHostFunc", "cudaMemcpyFancy", "cudart", "aten::copy_", ""),
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
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", True),
        ("void deep_ep::internode_ll::combine<true, 9, 10>(void*)", True),
        ("deep_ep::intranode::cached_notify_combine<8>", True),
        ("void deep_ep::internode::notify_dispatch<true, 4>(int const*)", True),
        ("ep::combine", True),
        ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", False),
        ("void step::combine<float>(int)", False),
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


@pytest.mark.parametrize(
    ("name", "asked_by", "lasts", "awaited"),
    [
        ("Memcpy DtoH (Device -> Pinned)", "cudaMemcpy", 5, True),
        ("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync", 5, True),
        ("Memcpy DtoH (Device -> Pinned)", "cudaMemcpyAsync", 500, False),
        ("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", 5, False),
        ("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", 500, True),
        ("CopyDeviceToHost", "hipMemcpyAsync", 5, False),
        ("CopyDeviceToHost", "hipMemcpyAsync", 500, True),
    ],
)
def test_a_copy_is_waited_for_by_its_call_as_memory_and_length_tell(
    name: str, asked_by: str, lasts: int, awaited: bool
) -> None:
    trace = rank_of([call(asked_by, 0, lasts, 1), work(name, 1, 3, 1, cat="gpu_memcpy")])
    assert awaited_copies(trace).tolist() == ([1] if awaited else [])


LAUNCHED = "cudaLaunchKernel 20000-20005 #1, gemm 20008-20010 #1"


@pytest.mark.parametrize(
    ("events", "found"),
    [
        # before the first launch, whatever it is
        (f"cudaMalloc 0-10000 #2, {LAUNCHED}", ["cudaMalloc"]),
        (f"cudaMalloc 0-9000 #2, {LAUNCHED}", []),
        (f"cudaStreamSynchronize 0-15000 #2, {LAUNCHED}", []),
        (f"{LAUNCHED}, cudaMalloc 30000-50000 #2", []),
        # the first of many calls, of a kernel's launches too
        (
            "cudaLaunchKernel 0-3000 #1, gemm 3005-3010 #1, cudaLaunchKernel 4000-4005 #2, gemm 4010-4020 #2",
            ["cudaLaunchK"],
        ),
        ("cudaLaunchKernel 0-5 #1, gemm 8-9 #1, cudaLaunchKernel 10-3000 #2, gemm 3002-3003 #2", []),
        ("cudaLaunchKernel 0-5 #1, gemm 8-9 #1, cudaLaunchKernel 10-3000 #2, relu 3002-3003 #2", ["cudaLaunchK"]),
        # the first frees, as long as each is far longer than a free is
        (f"{LAUNCHED}, cudaFree 30000-140000 #2, cudaFree 140000-250000 #3", ["cudaFree", "cudaFree"]),
        (f"{LAUNCHED}, cudaFree 30000-30010 #2, cudaFree 140000-250000 #3", []),
        ("cudaLaunchKernel 0-5 #1, gemm 8-100000 #1, cudaFree 10-110000 #2", []),
    ],
)
def test_first_calls_that_take_far_longer_set_libraries_up(events: str, found: list[str]) -> None:
    trace = rank_of(written(events))
    assert [trace.names[name][:11] for name in trace.events.name[sets_up(trace)]] == [name[:11] for name in found]
