"""The nodes of a region: when each of its events that can be on a path begins and ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.critical_paths.torch.calls import matching
from dask_efficiency.critical_paths.torch.graph import Nodes
from dask_efficiency.critical_paths.torch.region import ON_THREADS
from dask_efficiency.kineto.trace import CALLS, GPU_WORK, Category, RankTrace
from dask_efficiency.trace.tables import Bool, Int64


def can_be_on_a_path(trace: RankTrace, data_loading: Sequence[str]) -> Bool:
    """Whether each event is an operator, a call, work on a GPU, or loads data."""
    category = trace.events.category
    working = np.isin(category, (Category.OPERATOR, *CALLS, *GPU_WORK))
    if not data_loading:
        return working
    return working | (np.isin(category, ON_THREADS) & matching(trace, data_loading))


def nodes_of(start: Int64, stop: Int64, rows: NDArray[np.integer]) -> Nodes:
    """Two nodes for each row, in the order of time, then of rows, the beginning before the end."""
    at = np.stack([start[rows], stop[rows]], axis=1).ravel()
    order = np.argsort(at, kind="stable")
    return Nodes(at[order], rows[order // 2].astype(np.int32), order % 2 == 0)
