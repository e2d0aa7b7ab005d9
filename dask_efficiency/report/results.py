"""Results that show themselves: the values below, with the renderers and files beside them as methods.

A value, such as :class:`~dask_efficiency.report.model.ReportValues`, holds data and what follows from the data: it
knows no renderer and no file. Renderers know values. The classes here know both, and add nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from dask_efficiency.report import (
    collapsed,
    comparison_data,
    comparison_verdict,
    files,
    frames,
    speedscope,
    verdict,
)
from dask_efficiency.report.compare import ComparisonValues
from dask_efficiency.report.culprits import Culprit, find_culprits
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.sections import comparison as comparison_sections
from dask_efficiency.report.sections import report as report_sections
from dask_efficiency.report.sections.predictions import Predicted, with_predictions
from dask_efficiency.runs.path.path import CriticalPath, critical_path
from dask_efficiency.show.html.render import fragment, save_page
from dask_efficiency.show.shown import Printed, Shown

if TYPE_CHECKING:
    import pandas as pd


class EfficiencyReport(Printed, ReportValues):  # noqa: D101  # the values say it
    __doc__ = ReportValues.__doc__

    _said_by: ClassVar[str] = "dask_efficiency.report.sections.report"

    __slots__ = ()

    @classmethod
    def of(cls, values: ReportValues) -> Self:
        """The same report as a result."""
        return cls(**fields_of(values))

    def critical_path(self, **scope: Any) -> CriticalPath:
        """What every second of the wall clock was spent on, from the recorded :attr:`trace`.

        Parameters
        ----------
        **scope
            ``target``, ``span`` or ``window``, as of :func:`~dask_efficiency.critical_path`.

        Raises
        ------
        ValueError
            If the report has no trace.
        """
        if self.trace is None:
            raise ValueError(
                f"the report {self.name!r:.80} has no trace; expected one of efficiency_report(trace=True)"
            )
        return critical_path(self.trace, **scope)

    @property
    def verdict(self) -> str:
        """The report in one sentence."""
        return verdict.verdict(self)

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """The lines of code on which most time was lost, and why; the most costly first."""
        return find_culprits(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, exact: what :meth:`save` writes."""
        return files.to_dict(self)

    def to_frame(self, by: str = "worker") -> pd.DataFrame:
        """Thread-seconds as a table: a row for each worker, prefix, span, bucket, cause or line of code.

        Parameters
        ----------
        by
            ``"worker"``, ``"prefix"`` or ``"span"``: one column a bucket, and ``total``.
            ``"bucket"``: columns ``thread_seconds`` and ``share`` (of all thread time, [0, 1]).
            ``"cause"``: columns ``bucket``, ``cause`` (empty where a bucket has none), ``thread_seconds``, ``share``
            and ``share_of_bucket``. ``"line"``: columns ``bucket``, ``cause``, ``prefix``, ``function`` (what the line
            called), ``file``, ``line`` and ``thread_seconds``, the most costly first; file and line are missing where
            no sample was taken. ``"skew"``: a row for each prefix, the fields of
            :class:`~dask_efficiency.accounts.skew.Skew`.

        Raises
        ------
        ValueError
            If ``by`` is something else.
        """
        return frames.to_frame(self, by)

    def to_speedscope(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the sampled stacks for speedscope.app, one profile for each bucket and cause.

        Parameters
        ----------
        path
            A local path or any fsspec URL.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Raises
        ------
        NoStacksError
            If no stack was sampled.
        """
        speedscope.save(self, path, **storage_options)

    def to_collapsed(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the sampled stacks with their nanoseconds, a line each: collapsed stacks, as flamegraph.pl reads them.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A name in ``.gz`` is compressed.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Raises
        ------
        NoStacksError
            If no stack was sampled.
        """
        collapsed.save(self, path, **storage_options)

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the report as JSON, to a local path or any fsspec URL."""
        files.save(self, path, **storage_options)

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        predictions: Sequence[Predicted] = (),
        **storage_options: Any,
    ) -> None:
        """Write the report as one HTML file that works offline, to a local path or any fsspec URL.

        Parameters
        ----------
        path
            A local path or any fsspec URL.
        predictions
            What :func:`~dask_efficiency.simulate` and :func:`~dask_efficiency.sweep` made of the report's trace, to be
            shown behind the critical path.
        **storage_options
            For the file system, as in :func:`fsspec.open`.
        """
        save_page(with_predictions(report_sections.page(self), predictions), path, **storage_options)


def load_report(path: str | os.PathLike[str], **storage_options: Any) -> EfficiencyReport:
    """The report that was saved to a local path or fsspec URL.

    Parameters
    ----------
    path
        As given to :meth:`EfficiencyReport.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    ReportFileError
        If the file is foreign, truncated, damaged or of a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return EfficiencyReport.of(files.read_report(path, **storage_options))


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass's fields as the arguments that make it anew; :func:`dataclasses.asdict` would go into them."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


class Comparison(Shown, ComparisonValues):  # noqa: D101  # the values say it
    __doc__ = ComparisonValues.__doc__

    __slots__ = ()

    _said_by: ClassVar[str] = "dask_efficiency.report.sections.comparison"

    before: tuple[EfficiencyReport, ...]
    after: tuple[EfficiencyReport, ...]

    @property
    def caveats(self) -> tuple[str, ...]:
        """Why the two sides may not be comparable, a sentence each."""
        return comparison_verdict.caveats(self)

    def to_frame(self, by: str = "cause") -> pd.DataFrame:
        """Thread-seconds as a table.

        Parameters
        ----------
        by
            ``"cause"``: a row for each cause of loss, ``useful`` and ``running``; columns
            ``before``, ``after``, ``change``. ``"prefix"``: a row for each task prefix; the same
            columns after ``useful_`` and ``lost_``.
        """
        return comparison_data.to_frame(self, by)

    def _repr_html_(self) -> str:
        return fragment(comparison_sections.page(self))


#: A report, or the path or fsspec URL of one.
Run: TypeAlias = EfficiencyReport | str | os.PathLike[str]


def compare(before: Run | Sequence[Run], after: Run | Sequence[Run], **storage_options: Any) -> Comparison:
    """Set runs before a change against runs after it.

    Parameters
    ----------
    before, after
        A report, the path or fsspec URL of a saved one, or several of them: then medians are
        compared, and each change is set against how much the runs of one side differ among themselves.
    **storage_options
        For the file systems of the paths, as in :func:`fsspec.open`.

    Raises
    ------
    ReportFileError
        If a file is no report.
    FileNotFoundError
        If there is no such file.
    ValueError
        If a side is empty.
    TypeError
        If a side holds something else.

    Examples
    --------
    >>> compare("main.json", "branch.json")  # doctest: +SKIP
    >>> compare(["main1.json", "main2.json"], [report1, report2]).verdict  # doctest: +SKIP
    """
    sides = [_read("before", before, storage_options), _read("after", after, storage_options)]
    return Comparison(
        before=tuple(report for _, report in sides[0]),
        after=tuple(report for _, report in sides[1]),
        names_before=tuple(name for name, _ in sides[0]),
        names_after=tuple(name for name, _ in sides[1]),
    )


def _read(
    side: str, given: Run | Sequence[Run], storage_options: Mapping[str, Any]
) -> list[tuple[str, EfficiencyReport]]:
    """By side, each report with what it is called."""
    runs = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not runs:
        raise ValueError(f"{side} is {given!r}; expected one run at least")
    read = []
    for run in runs:
        if isinstance(run, EfficiencyReport):
            read.append((run.name, run))
        elif isinstance(run, str | os.PathLike):
            read.append((os.fspath(run), load_report(run, **storage_options)))
        else:
            raise TypeError(f"{side} holds {run!r:.80}; expected an EfficiencyReport or the path of one")
    return read
