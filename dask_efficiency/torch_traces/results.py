"""A PyTorch trace's critical path, as a result that shows itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from dask_efficiency.runs.trace.events import Written
from dask_efficiency.show.html.render import save_page
from dask_efficiency.show.shown import Printed
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.chrome import save_overlay
from dask_efficiency.torch_traces.path.files import read_path, save_path
from dask_efficiency.torch_traces.path.path import TorchPathValues, TorchQuestion
from dask_efficiency.torch_traces.sections import data as torch_path_data
from dask_efficiency.torch_traces.sections import path as torch_path_sections


class TorchCriticalPath(Printed, TorchPathValues):  # noqa: D101  # the values say it
    __doc__ = TorchPathValues.__doc__

    _said_by: ClassVar[str] = "dask_efficiency.torch_traces.sections.path"

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the path, its trace and its graphs to a local path or any fsspec URL; :func:`load_path` reads it."""
        save_path(self, path, **storage_options)

    def to_chrome(
        self,
        path: str | os.PathLike[str],
        *,
        only_critical: bool = True,
        all_edges: bool = False,
        **storage_options: Any,
    ) -> Written:
        """Write the trace, with this path marked in it, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path, only_critical, all_edges, **storage_options
            As of :func:`~dask_efficiency.torch_traces.path.chrome.save_overlay`.
        """
        return save_overlay(self.overlay(), path, only_critical=only_critical, all_edges=all_edges, **storage_options)

    def to_dict(self) -> dict[str, Any]:
        """The path's figures as plain data, ready for JSON."""
        return torch_path_data.to_dict(self)

    def to_html(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write a page that opens offline, to a local path or any fsspec URL."""
        save_page(torch_path_sections.page(self), path, **storage_options)


def critical_path(
    trace: KinetoTrace,
    *,
    annotation: str = "",
    instance: int | tuple[int, int] | None = None,
    rank: int | None = None,
    data_loading: str | Sequence[str] | None = None,
) -> TorchCriticalPath:
    """What the time of a PyTorch program was spent on, and what it had to wait for.

    Two answers: a walk back from the end of the window, from each event to what let it happen last, which covers the
    window to the nanosecond; and the longest path through what events had to wait for, as HTA has it.

    Parameters
    ----------
    trace
        One or more ranks, as :func:`load_kineto` reads them.
    annotation
        Only what is in an annotation with this in its name, such as ``"ProfilerStep"``; empty for all of the trace.
    instance
        Which one of those annotations, from 0 in the order of time, or the first and the last of several; by default
        the first one.
    rank
        Only this rank. By default the walk runs over all of them, through the last one to arrive at each collective;
        the longest path is then that of the rank that ended last.
    data_loading
        Regular expressions: events of the CPU with one of them in their names load data.

    Raises
    ------
    UnknownRankError, UnknownAnnotationError
        If there is no such rank, annotation or instance; it says which there are.
    EmptyTraceError
        If nothing that takes time is in what was asked for.
    """
    patterns = (data_loading,) if isinstance(data_loading, str) else tuple(data_loading or ())
    return TorchCriticalPath.of(trace, TorchQuestion(annotation, instance, rank, patterns))


def load_critical_path(path: str | os.PathLike[str], **storage_options: Any) -> TorchCriticalPath:
    """The critical path of a torch trace that was saved to a local path or fsspec URL.

    Parameters
    ----------
    path
        As given to :meth:`TorchCriticalPath.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    PathFileError
        If the file is foreign, truncated, damaged, forged or of a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return read_path(TorchCriticalPath, path, **storage_options)
