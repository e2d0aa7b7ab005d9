"""Summaries of the profiles that torch.profiler wrote inside the tasks of a Dask run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from dask_efficiency.runs.trace.run_trace import RunTrace, TaskProfile
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError, RanksError
from dask_efficiency.torch_traces.kineto.load import check_one_job, read_rank
from dask_efficiency.torch_traces.path.join import name_of_profile
from dask_efficiency.torch_traces.summaries.memory import Memory
from dask_efficiency.torch_traces.summaries.merged import RankSummaries, TaskSummaries
from dask_efficiency.torch_traces.summaries.rank import RankSummary, rank_summary

#: Summaries of profiles that were read before; they are small.
_READ: WeakKeyDictionary[TaskProfile, RankSummary] = WeakKeyDictionary()


def summaries_of_tasks(trace: RunTrace) -> RankSummaries:
    """Summarise the profiles of a run's tasks that can be read and in which torch did something.

    They are the ranks of a job if they say that they are, each once. Else they are numbered in the order of the tasks.
    """
    found = [*_read(trace)]
    if any("rank" in summary.job.said for summary in found):
        with suppress(RanksError):
            check_one_job([summary.job for summary in found], whole=False)
            return RankSummaries(sorted(found, key=lambda summary: summary.rank))
    return TaskSummaries(_numbered(*each) for each in enumerate(found))


def _read(trace: RunTrace) -> Iterator[RankSummary]:
    for profile in trace.profiles:
        with suppress(KinetoFileError):
            if profile not in _READ:
                read = read_rank(io.BytesIO(profile.content), name_of_profile(trace, profile))
                _READ[profile] = rank_summary(read)
            if _READ[profile].seconds:
                yield _READ[profile]


def _numbered(number: int, summary: RankSummary) -> RankSummary:
    """Summary of a rank with another number."""
    tables = {name: getattr(summary.memory, name) for name in ("peaks", "timeline")}
    tables = {name: replace(table, rank=np.full_like(table.rank, number)) for name, table in tables.items()}
    job, exchanges = replace(summary.job, rank=number), replace(summary.exchanges, rank=number)
    return replace(summary, job=job, exchanges=exchanges, memory=Memory(**tables))
