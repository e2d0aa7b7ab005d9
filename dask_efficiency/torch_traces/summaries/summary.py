"""TorchSummary: where the time of a PyTorch job went, by rank, kernel, copy, collective and step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.columns import as_frame
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.shown import Shown, late
from dask_efficiency.torch_traces.kineto.errors import UnknownRankError
from dask_efficiency.torch_traces.kineto.load import Paths, check_one_job, kineto_files
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.summaries.merged import RankSummaries
from dask_efficiency.torch_traces.summaries.rank import rank_summary
from dask_efficiency.torch_traces.summaries.reading import summaries_of
from dask_efficiency.torch_traces.summaries.tables import TABLES
from dask_efficiency.torch_traces.summaries.tasks import summaries_of_tasks

if TYPE_CHECKING:
    import pandas as pd


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class TorchSummary(Shown):
    """Use of a PyTorch job's time.

    Parameters
    ----------
    ranks
        Summaries of its ranks, in the order of their numbers.
    top
        Most rows of a table on a screen or page.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.torch_traces.summaries.sections"

    ranks: RankSummaries
    top: int = 10

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the ranks."""
        return tuple(summary.rank for summary in self.ranks)

    @property
    def seconds(self) -> float:
        """Time of the rank that took longest, from its first event to its last."""
        return max(summary.seconds for summary in self.ranks)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Losses of wall clock, the largest first, with what each could save at most."""
        found: tuple[Finding, ...] = late("dask_efficiency.torch_traces.summaries.findings:findings_of")(self)
        return found

    def to_frame(self, table: str = "ranks") -> pd.DataFrame:
        """One table as pandas' DataFrame: seconds, bytes, and shares from 0 to 1.

        Parameters
        ----------
        table
            One of :data:`~dask_efficiency.torch_traces.summaries.tables.TABLES`, such as ``"ranks"``, ``"idle"``,
            ``"streams"``, ``"launches"`` or ``"steps"``. It has no rows where the traces do not show that.

        Raises
        ------
        ValueError
            If there is no such table; the message lists them.
        """
        if table not in TABLES:
            raise ValueError(f"table is {table!r:.80}; expected one of {', '.join(map(repr, TABLES))}")
        return as_frame(TABLES[table](self.ranks))

    def rank(self, number: int) -> TorchSummary:
        """Summary of one rank alone.

        Raises
        ------
        UnknownRankError
            If there is no such rank; the message lists those that exist.
        EmptyTraceError
            If nothing in its trace takes time.
        """
        if number not in self.numbers:
            raise UnknownRankError(number, self.numbers)
        return replace(self, ranks=_timed(type(self.ranks)([self.ranks[self.numbers.index(number)]])))


def summary(traces: KinetoTrace | RunTrace | Paths, **storage_options: Any) -> TorchSummary:
    """Summarise what ``torch.profiler`` recorded: where the time of each rank went, and what could be saved.

    Parameters
    ----------
    traces
        What :func:`load_kineto` reads (a file, a folder, a pattern or a list of files), or what it returned. Files
        are read once, large ones in several processes; no trace is kept. Or a recorded run of Dask, for the profiles of
        its tasks.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    KinetoFileError
        If a file is no trace of Kineto's, is damaged, or ends early.
    RanksError
        If a rank is there twice, or files belong to different jobs, or a folder or pattern lacks a rank.
    EmptyTraceError
        If there is no event in any of them.
    """
    if isinstance(traces, KinetoTrace):
        return TorchSummary(_timed(RankSummaries(map(rank_summary, traces.ranks))))
    if isinstance(traces, RunTrace):
        return TorchSummary(_timed(summaries_of_tasks(traces)))
    whole, files = kineto_files(traces, storage_options)
    ranks = summaries_of(files)
    check_one_job([summary.job for summary in ranks], whole=whole)
    return TorchSummary(_timed(RankSummaries(ranks)))


def _timed(ranks: RankSummaries) -> RankSummaries:
    """Those ranks, if anything in them takes time."""
    if not any(summary.seconds for summary in ranks):
        raise EmptyTraceError("nothing in these traces takes time; expected operators, calls or kernels")
    return ranks


def summary_of_tasks(trace: RunTrace) -> TorchSummary | None:
    """Summary of a run's profiled tasks, as :func:`summary`; None where torch did nothing in them."""
    with suppress(EmptyTraceError):
        return summary(trace)
    return None
