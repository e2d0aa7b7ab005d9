"""RankSummaries: summaries of several ranks, and what all of them have together, each worked out once."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from dask_efficiency.torch_traces.summaries.collectives import JobCollectives, merged_collectives
from dask_efficiency.torch_traces.summaries.copies import Copies, merged_copies
from dask_efficiency.torch_traces.summaries.memory import Memory, merged_memory
from dask_efficiency.torch_traces.summaries.rank import RankSummary
from dask_efficiency.torch_traces.summaries.work import Work, merged_work


class RankSummaries(tuple[RankSummary, ...]):
    """Ranks of one job, in the order of their numbers."""

    #: Word for one of them, in titles and heads.
    what: ClassVar[str] = "rank"

    @cached_property
    def work(self) -> Work:
        """Operators and kernels."""
        return merged_work([rank.work for rank in self])

    @cached_property
    def copies(self) -> Copies:
        """Copies and fills."""
        return merged_copies([rank.copies for rank in self])

    @cached_property
    def collectives(self) -> JobCollectives:
        """Collectives, matched over the ranks."""
        return merged_collectives([rank.exchanges for rank in self])

    @cached_property
    def memory(self) -> Memory:
        """Memory of each rank."""
        return merged_memory([rank.memory for rank in self])


class TaskSummaries(RankSummaries):
    """Profiles of tasks that are no ranks of one job, or of which a rank has several: by numbers from 0."""

    what: ClassVar[str] = "profiled task"

    @cached_property
    def collectives(self) -> JobCollectives:
        """Collectives, of which nobody knows which tasks were in them together."""
        return merged_collectives([rank.exchanges for rank in self], matched=False)
