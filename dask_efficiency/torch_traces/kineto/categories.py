"""Kineto's names of categories, new and old, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from dask_efficiency.accounts.tables import Bool
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category

#: In lower case; those of old versions were ``Operator``, ``Runtime``, ``Kernel``, ``Memcpy`` and ``Memset``.
_CATEGORIES = {
    "cpu_op": Category.OPERATOR,
    "operator": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "cuda_runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "driver": Category.DRIVER,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.COPY,
    "memcpy": Category.COPY,
    "gpu_memset": Category.FILL,
    "memset": Category.FILL,
    "cuda_sync": Category.SYNC,
    "gpu_user_annotation": Category.GPU_ANNOTATION,
}


@lru_cache(maxsize=256)
def category_of(name: Any) -> Category:
    """What Kineto's ``cat`` means."""
    return _CATEGORIES.get(str(name).lower(), Category.OTHER)


def _which(categories: Iterable[Category]) -> Bool:
    """Whether each category is one of these."""
    chosen = frozenset(categories)
    return np.array([category in chosen for category in Category])


#: Whether a category's events are on a GPU, by category.
GPU_EVENTS = _which((*GPU_WORK, Category.SYNC, Category.GPU_ANNOTATION))
#: Whether they can have a correlation with a call.
ASKED_FOR = _which((*GPU_WORK, Category.SYNC))
#: Whether they are calls.
ARE_CALLS = _which(CALLS)
#: Whether they are operators or ranges on a CPU thread.
ON_CPU = _which((Category.OPERATOR, Category.ANNOTATION))
#: Whether they are copies or fills.
COPIES = _which((Category.COPY, Category.FILL))
#: Whether they are synchronisations.
SYNCS = _which((Category.SYNC,))
#: Whether they can be a collective's.
COLLECTIVES = ON_CPU | _which((Category.KERNEL, Category.COPY))
#: Of every category.
ALL = _which(Category)
