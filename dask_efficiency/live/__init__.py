"""Live figures of a cluster: Prometheus, a tab of Dask's dashboard, `dask-efficiency top` and `stacks`."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.live.thread_stacks import ClusterStacks, stacks

__all__ = ["ClusterStacks", "stacks"]

__getattr__, __dir__ = public(__name__, {"ClusterStacks": "thread_stacks", "stacks": "thread_stacks"})
