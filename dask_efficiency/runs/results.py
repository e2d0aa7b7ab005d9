"""A recorded run and its critical path, as results that show and save themselves."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

from dask_efficiency.runs.path.compare import PathComparisonValues
from dask_efficiency.runs.path.kinds import KINDS
from dask_efficiency.runs.path.path import PathValues
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.sections import path as path_sections
from dask_efficiency.runs.trace.chrome import PathSlice, save_chrome
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.events import Written
from dask_efficiency.runs.trace.files import read_trace, save_trace
from dask_efficiency.runs.trace.run_trace import TraceTables
from dask_efficiency.show.document import Document
from dask_efficiency.show.html.render import save_page
from dask_efficiency.show.shown import Printed, fields_of


class RunTrace(TraceTables):  # noqa: D101  # the values say it
    __doc__ = TraceTables.__doc__

    __slots__ = ()

    @classmethod
    def of(cls, tables: TraceTables) -> Self:
        """The same run as a result."""
        return cls(**fields_of(tables))

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the trace to a local path or any fsspec URL; :func:`~dask_efficiency.load_trace` reads it."""
        save_trace(self, path, **storage_options)

    def to_chrome(
        self, path: str | os.PathLike[str], *, only_critical: bool = False, **storage_options: Any
    ) -> Written:
        """Write the trace in the Trace Event Format, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A name in ``.gz`` is compressed; Perfetto reads it as it is.
        only_critical
            Leave out the runs that are not on the critical path, and the transfers that none of them waited for.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Returns
        -------
        Written
            How many slices, arrows and counters are in the file.

        Raises
        ------
        EmptyTraceError
            If only the critical path is asked for, and no task ended in the trace.
        """
        try:
            found = critical_path(self)
        except EmptyTraceError:
            if only_critical:
                raise
            return save_chrome(self, path, **storage_options)
        return found.to_chrome(path, only_critical=only_critical, **storage_options)


def load_trace(path: str | os.PathLike[str], **storage_options: Any) -> RunTrace:
    """The trace that was saved to a local path or fsspec URL.

    Parameters
    ----------
    path
        As given to :meth:`RunTrace.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    TraceFileError
        If the file is foreign, truncated, damaged, forged or of a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return RunTrace.of(read_trace(path, **storage_options))


class CriticalPath(Printed, PathValues):  # noqa: D101  # the values say it
    __doc__ = PathValues.__doc__

    _said_by: ClassVar[Any] = path_sections

    trace: RunTrace

    def slices(self) -> list[PathSlice]:
        """The segments as :func:`~dask_efficiency.runs.trace.chrome.save_chrome` takes them."""
        columns = (self.segments.kind, self.segments.start, self.segments.stop, self.segments.run)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [PathSlice(str(KINDS[kind]), start, stop, run) for kind, start, stop, run in rows]

    def to_chrome(
        self, path: str | os.PathLike[str], *, only_critical: bool = False, **storage_options: Any
    ) -> Written:
        """Write the trace, with this path on top, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path, only_critical, **storage_options
            As of :func:`~dask_efficiency.runs.trace.chrome.save_chrome`.
        """
        return save_chrome(self.trace, path, critical=self.slices(), only_critical=only_critical, **storage_options)

    def to_html(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write a page that opens offline, to a local path or any fsspec URL."""
        save_page(path_sections.page(self), path, **storage_options)


def critical_path(
    trace: RunTrace,
    *,
    target: str | None = None,
    span: str | None = None,
    window: tuple[int, int] | None = None,
) -> CriticalPath:
    """What every second of a run's wall clock was spent on.

    From the end backwards, each event leads to the one that let it happen last: a task's end to its start, its
    start to the input, the slot or the message that came last, and so on, to the client's first activity.

    Parameters
    ----------
    trace
        A recorded run, or a replayed one.
    target
        Only what the end of the task with this key waited for.
    span
        Only what the end of this span's last task waited for.
    window
        Only what happened between two instants, in nanoseconds since the epoch on the scheduler's clock.

    Returns
    -------
    CriticalPath
        Its segments tile the makespan exactly.

    Raises
    ------
    EmptyTraceError
        If no task ended in what was asked for.
    UnknownNameError
        If there is no such task or span.
    ValueError
        If more than one of the restrictions is given, or the window does not end after its start.
    """
    return CriticalPath.of(trace, Question(target, span, window))


class PathComparison(Printed, PathComparisonValues):  # noqa: D101  # the values say it
    __doc__ = PathComparisonValues.__doc__

    __slots__ = ()

    before: CriticalPath
    after: CriticalPath

    @property
    def document(self) -> Document:
        """All that is said of it; what a renderer takes."""
        return path_sections.comparison_document(self)


def compare_paths(before: CriticalPath, after: CriticalPath) -> PathComparison:
    """Which kinds and prefixes moved onto the critical path, or off it, and by how many seconds each grew.

    Parameters
    ----------
    before, after
        Paths of two runs, or of a run and of a what-if.
    """
    return PathComparison.of(before, after)
