import pytest

from dask_efficiency.show.figures import MAX_KERNEL_NAME
from dask_efficiency.torch_traces.summaries.kernel_kinds import KERNEL_LABELS, KernelKind, kernel_kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_32x32_sliced1x4_tn", KernelKind.GEMM),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>", KernelKind.GEMM),
        ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128", KernelKind.GEMM),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTT", KernelKind.GEMM),
        ("triton_tem_fused_mm_3", KernelKind.GEMM),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>", KernelKind.ATTENTION),
        ("attn_fwd", KernelKind.ATTENTION),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", KernelKind.ATTENTION),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32", KernelKind.CONVOLUTION),
        ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", KernelKind.CONVOLUTION),
        ("igemm_fwd_gtcx_nhwc_fp16", KernelKind.CONVOLUTION),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128>", KernelKind.NORMALISATION),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
            KernelKind.NORMALISATION,
        ),
        ("triton_red_fused_native_layer_norm_2", KernelKind.NORMALISATION),
        ("void at::native::indexSelectLargeIndex<c10::BFloat16, long>", KernelKind.EMBEDDING),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", KernelKind.REDUCTION),
        ("void (anonymous namespace)::softmax_warp_forward<float, float>", KernelKind.REDUCTION),
        ("triton_per_fused_sum_1", KernelKind.REDUCTION),
        ("triton_poi_fused_convolution_relu_0", KernelKind.ELEMENTWISE),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            KernelKind.ELEMENTWISE,
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata>",
            KernelKind.ELEMENTWISE,
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", KernelKind.COPY),
        ("__amd_rocclr_copyBuffer", KernelKind.COPY),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float>", KernelKind.COPY),
        ("my_own_kernel", KernelKind.OTHER),
    ],
)
def test_kernels_of_libraries_have_their_kind(name: str, kind: KernelKind) -> None:
    assert kernel_kind(name) is kind


def test_of_a_long_name_only_the_beginning_counts() -> None:
    # patterns look for a word after any number of others, so time would be quadratic in the length
    assert kernel_kind("my_kernel" + "x" * MAX_KERNEL_NAME + "gemm") is KernelKind.OTHER
    assert kernel_kind("gemm" + "x" * MAX_KERNEL_NAME) is KernelKind.GEMM


def test_each_kind_has_a_label() -> None:
    assert set(KERNEL_LABELS) == set(KernelKind)
