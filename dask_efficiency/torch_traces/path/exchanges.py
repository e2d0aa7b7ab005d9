"""Which events of a rank exchange data with other ranks."""

from __future__ import annotations

import re

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Category, RankTrace
from dask_efficiency.torch_traces.path.calls import named

#: In the names of kernels of NCCL, and of the libraries that kept its names: AMD's, Huawei's and Microsoft's.
_KERNEL = re.compile("nccl|rccl|hccl|msccl", re.IGNORECASE)
#: What torch.distributed's backends for the CPU call their work, on threads of their own: ``gloo:all_reduce``. That of
#: NCCL on the CPU only asks for a kernel.
_ON_CPU = re.compile("(?:gloo|mpi|ucc):")


def gpu_collectives(trace: RankTrace) -> Bool:
    """Whether each event is a kernel that exchanges data with other processes.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``is_comm_kernel``. We differ: a name that begins with ``hip`` does not make one, but
    what the trace says of a collective does; neither copies nor fills are.
    """
    events = trace.events
    said = named(trace, lambda name: _KERNEL.search(name) is not None) | (events.collective != MISSING)
    found: Bool = (events.category == Category.KERNEL) & said
    return found


def cpu_collectives(trace: RankTrace) -> Bool:
    """Whether each event is a collective that a thread of the CPU does."""
    of_name = named(trace, lambda name: _ON_CPU.match(name) is not None)
    return np.isin(trace.events.category, NAMED_BY_PROGRAMS) & of_name
