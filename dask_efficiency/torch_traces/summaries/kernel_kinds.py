"""KernelKind: kinds of kernels by their names, of CUDA's and ROCm's libraries, of PyTorch and of Triton."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from dask_efficiency.accounts.tables import Int8
from dask_efficiency.show.figures import MAX_KERNEL_NAME
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.roles import gpu_collectives


class KernelKind(IntEnum):
    """Kind of a kernel, by what it computes."""

    GEMM = 0
    ATTENTION = 1
    CONVOLUTION = 2
    NORMALISATION = 3
    #: Lookups in tables, gathers, scatters and other use of indices.
    EMBEDDING = 4
    #: Sums, softmax, losses, sorts and scans.
    REDUCTION = 5
    ELEMENTWISE = 6
    #: Kernels that only move or set bytes; copies by the GPU's copy engines are no kernels.
    COPY = 7
    COLLECTIVE = 8
    OTHER = 9


#: Labels on a screen.
KERNEL_LABELS = {
    KernelKind.GEMM: "matrix products",
    KernelKind.ATTENTION: "attention",
    KernelKind.CONVOLUTION: "convolutions",
    KernelKind.NORMALISATION: "normalisation",
    KernelKind.EMBEDDING: "embeddings and indices",
    KernelKind.REDUCTION: "reductions",
    KernelKind.ELEMENTWISE: "elementwise",
    KernelKind.COPY: "copies by kernels",
    KernelKind.COLLECTIVE: "collectives",
    KernelKind.OTHER: "other",
}

#: Parts of names; the first one that fits gives the kind. Triton's kernels are of what TorchInductor wrote before the
#: names of the operators that it fused: ``triton_poi_fused_convolution_relu`` adds the bias after a convolution.
_SPELLED = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"^triton_\w*?(?:tem|mm)_fused\w*attention|^triton_tem_\w*flex", KernelKind.ATTENTION),
        (r"^triton_\w*?tem_\w*conv", KernelKind.CONVOLUTION),
        (r"^triton_\w*?tem_|^triton_(?:mm|bmm|addmm)", KernelKind.GEMM),
        (r"^triton_(?:red|per)_\w*norm", KernelKind.NORMALISATION),
        (r"^triton_poi_\w*(?:embedding|index|gather|scatter)", KernelKind.EMBEDDING),
        (r"^triton_(?:red|per)_", KernelKind.REDUCTION),
        (r"^triton_(?:poi|for)_", KernelKind.ELEMENTWISE),
        (r"flash_?(?:fwd|bwd|attn|attention)|fmha|attention(?!_mask)|attn_fwd|attn_bwd|splitkv", KernelKind.ATTENTION),
        (
            r"conv(?!ert)|cudnn_\d+x\d+|^void fft2d_|[fdw]prop|[dw]grad_|winograd|implicit_gemm|im2col|col2im",
            KernelKind.CONVOLUTION,
        ),
        (r"igemm_(?:fwd|bwd|wrw)", KernelKind.CONVOLUTION),
        (r"layer_?norm|batch_?norm|group_?norm|rms_?norm|instance_?norm", KernelKind.NORMALISATION),
        (r"\bbn_[fb]w|RowwiseMoments|GammaBeta|lrn_", KernelKind.NORMALISATION),
        (r"gemm|gemv|cutlass|^Cijk_|nvjet|split_?K|s\d{3,5}gemm|matmul|dot_kernel|_mma_|\bger_", KernelKind.GEMM),
        (r"embedding|index_?select|index_?put|indexing|_index_|gather|scatter|index_kernel", KernelKind.EMBEDDING),
        (r"direct_copy|FillFunctor|CatArray|copy_?buffer|fill_?buffer|transpose|memcpy|memset", KernelKind.COPY),
        (r"float\d+\w*_copy_kernel|nchwToNhwc|nhwcToNchw", KernelKind.COPY),
        (
            r"reduc|softmax|RadixSort|bitonic|argm(?:ax|in)|cumsum|DeviceScan|topk|loss|norm_kernel",
            KernelKind.REDUCTION,
        ),
        (r"elementwise|pointwise|multi_tensor_apply|dropout|distribution_|gelu|relu|silu|adam", KernelKind.ELEMENTWISE),
    )
)


def kernel_kind(name: str) -> KernelKind:
    """Kind of a kernel that exchanges no data with other ranks."""
    name = name[:MAX_KERNEL_NAME]
    return next((kind for pattern, kind in _SPELLED if pattern.search(name)), KernelKind.OTHER)


def kernel_kinds(trace: RankTrace, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Int8:
    """Kind of each kernel at some rows."""
    events = trace.events
    names, which = np.unique(events.name[rows], return_inverse=True)
    kinds = np.array([kernel_kind(trace.names[name]) for name in names.tolist()], np.int8)[which]
    return np.where(gpu_collectives(trace)[rows], np.int8(KernelKind.COLLECTIVE), kinds)
