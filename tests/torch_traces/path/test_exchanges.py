from __future__ import annotations

import pytest

from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.exchanges import cpu_collectives, gpu_collectives
from tests.torch_traces.path.small_traces import SmallTrace


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
