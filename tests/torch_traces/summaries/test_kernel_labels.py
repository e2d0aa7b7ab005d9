import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.figures import MAX_KERNEL_NAME, NAME_LENGTH
from dask_efficiency.torch_traces.summaries.kernel_labels import kernel_label

ADD = "at::native::CUDAFunctor_add<c10::BFloat16>"


@pytest.mark.parametrize(
    ("whole", "told"),
    [
        (
            f"void at::native::reduce_kernel<4, {ADD}, std::array<char*, 3ul> >(int)",
            "CUDAFunctor_add<BFloat16>, reduce_kernel",
        ),
        (
            "void at::elementwise_kernel<2, at::gpu_kernel_impl<at::AUnaryFunctor<at::MulFunctor<float> > > >(int)",
            "MulFunctor<float>, elementwise_kernel",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_gemm_bf16_32x32>(cutlass_80_gemm_bf16_32x32::Params)",
            "cutlass_80_gemm_bf16_32x32",
        ),
        (
            "void flash::fwd_kernel<flash::traits<64, flash::kinds<8, 4> >, false>(flash::params)",
            "fwd_kernel<traits, false>",
        ),
        ("void at::native::reduce_kernel<512, float>(int)", "reduce_kernel<512, float>"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_a_label_begins_with_what_tells_a_kernel_from_others_and_hints_at_its_whole_name(whole: str, told: str) -> None:
    assert (str(kernel_label(whole)), kernel_label(whole).hint) == (told, whole)


@given(st.text("Kernel2ab_<>(), &{}:\x1b", max_size=80))
def test_any_name_has_a_short_label_without_what_steers_a_terminal(name: str) -> None:
    found = kernel_label(name)
    assert len(str(found)) <= NAME_LENGTH
    assert (str(found) + found.hint).isprintable()


@pytest.mark.parametrize("name", ["Kernel2<" + "a<" * 10**6, "f" + "<" * 10**3 + ">" * 10**6])
def test_nested_templates_of_megabytes_are_cut_before_they_are_read(name: str) -> None:
    assert len(kernel_label(name).hint) < MAX_KERNEL_NAME
