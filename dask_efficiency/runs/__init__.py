"""A recorded run: its recorder, trace, critical path, replay and stragglers."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.runs.path.compare import compare_paths

__all__ = ["compare_paths"]
__getattr__, __dir__ = public(__name__, {"compare_paths": "path.compare"})
