"""What Kineto calls its categories today, for tables and files that others read."""

from __future__ import annotations

from dask_efficiency.torch_traces.kineto.trace import Category

#: By category, Kineto's own name.
CATEGORIES = {
    Category.OPERATOR: "cpu_op",
    Category.ANNOTATION: "user_annotation",
    Category.PYTHON: "python_function",
    Category.RUNTIME: "cuda_runtime",
    Category.DRIVER: "cuda_driver",
    Category.KERNEL: "kernel",
    Category.COPY: "gpu_memcpy",
    Category.FILL: "gpu_memset",
    Category.SYNC: "cuda_sync",
    Category.GPU_ANNOTATION: "gpu_user_annotation",
    Category.OTHER: "other",
}
