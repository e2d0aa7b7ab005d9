import ctypes

import pytest

from dask_efficiency.gpu.cupti.names import MAX_LENGTH, KernelNames, shortened

MANGLED = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, T)",
            "elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>",
        ),
        ("void (anonymous namespace)::softmax<(int)8, float>(float*, int)", "softmax<8, float>"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        ),
        ("kernel(void (*)(int), float)", "kernel"),
        ("", ""),
        ("unbalanced)", "unbalanced)"),
    ],
)
def test_a_name_is_cut_to_what_tells_kernels_apart(name: str, short: str):
    assert shortened(name) == short


def test_long_names_end_in_an_ellipsis():
    assert shortened("k" * 5000) == "k" * (MAX_LENGTH - 1) + "…"


def test_a_name_is_read_demangled_and_shortened_where_it_stands():
    place = ctypes.create_string_buffer(MANGLED)
    names = KernelNames()
    address = ctypes.addressof(place)
    assert names.at([address, 0]) == ["vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>", ""]
    place.value = b"another"
    assert names.at([address]) == ["another"]


def test_what_is_not_a_name_stays_readable():
    place = ctypes.create_string_buffer(b"_Znonsense\xff")
    assert KernelNames().at([ctypes.addressof(place)]) == ["_Znonsense\ufffd"]
