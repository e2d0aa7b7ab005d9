"""RunHistory: runs of the same names over weeks, the changes among them, and the judgement of the latest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.histories.change_points import LEAST_CHANGE, change_points
from dask_efficiency.histories.folder import SavedRun, read_folder
from dask_efficiency.report.compare import Comparison, compare
from dask_efficiency.report.difference import Difference
from dask_efficiency.report.head import given_labels
from dask_efficiency.show.shown import Shown, late

if TYPE_CHECKING:
    import pandas as pd

#: Figures in which a run can be worse than others, by their field in a head: what a run takes more of.
FIGURES: Mapping[str, str] = {"wall_clock_seconds": "time", "worker_peak_bytes": "memory of a worker"}
#: Runs before a change, and runs after it, that are compared: their reports are loaded. As many as make their medians
#: known (docs/compare.md).
COMPARED = 8
#: Runs before the latest by which it is judged, and the fewest by which it is judged at all.
JUDGED_BY, FEWEST_BEFORE = 20, 5
#: Spreads of a comparison, of 2.5 deviations each, beyond which one run is worse: four deviations. By simulation.
SPREADS = 1.6


@dataclass(frozen=True)
class Change:
    """A figure of a series that changed with a run, and stayed so.

    Parameters
    ----------
    figure
        One of :data:`FIGURES`.
    before, after
        The runs from the change before this one on, and those up to the one after it, in order.
    since
        Number of runs since: this and all later ones.
    mended
        First run of the next stretch that took no more than the runs before this change, if there is one.
    """

    figure: str
    before: tuple[SavedRun, ...]
    after: tuple[SavedRun, ...]
    since: int
    mended: SavedRun | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def first(self) -> SavedRun:
        """First run after the change."""
        return self.after[0]

    @cached_property
    def difference(self) -> Difference[float]:
        """The figure before and after."""
        return Difference(_values(self.before, self.figure), _values(self.after, self.figure))

    @property
    def is_worse(self) -> bool:
        """True if runs take more since."""
        return self.difference.change > 0

    @property
    def lasts(self) -> bool:
        """True if runs take more since, and nobody mended it."""
        return self.is_worse and self.mended is None

    @cached_property
    def comparison(self) -> Comparison:
        """The last runs before compared with the first after; loads their reports."""
        sides = self.before[-COMPARED:], self.after[:COMPARED]
        return compare(*([run.path for run in side] for side in sides), **self.storage_options)


@dataclass(frozen=True)
class RunSeries:
    """Runs of one name, the earliest first."""

    name: str
    runs: tuple[SavedRun, ...]
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def known(self, figure: str) -> tuple[SavedRun, ...]:
        """Runs to their end whose figure is known."""
        return tuple(run for run in self.runs if run.head.is_whole and getattr(run.head, figure))

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Changes of all figures, the latest first."""
        found = [change for figure in FIGURES for change in self._changes(figure)]
        return tuple(sorted(found, key=lambda change: -change.first.head.started))

    def _changes(self, figure: str) -> list[Change]:
        runs = self.known(figure)
        starts = [0, *change_points(_values(runs, figure))]
        stretches = [runs[start:stop] for start, stop in zip(starts, [*starts[1:], len(runs)], strict=True)]
        return [
            Change(figure, before, after, len(runs) - at, _mended(stretches[place:], figure), self.storage_options)
            for place, (at, before, after) in enumerate(zip(starts[1:], stretches, stretches[1:], strict=False))
        ]

    @property
    def ended_by(self) -> str:
        """Error that ended the latest run; empty if none did."""
        return self.runs[-1].head.ended_by

    @property
    def is_judged(self) -> bool:
        """True if the latest run, and enough before it, ran to their end."""
        whole = self.known("wall_clock_seconds")
        return len(whole) > FEWEST_BEFORE and whole[-1] is self.runs[-1]

    def worse(self, figure: str, than: float | Fraction) -> WorseRun | None:
        """Judge the latest run by those before it, since the last change among these."""
        *before, latest = self.known(figure) or (None,)
        if latest is None or latest is not self.runs[-1] or len(before) < FEWEST_BEFORE:
            return None
        values = _values(before, figure)
        stretch = values[max(change_points(values), default=0) :]
        found = Difference(stretch[-JUDGED_BY:], _values((latest,), figure))
        over = round(found.rise - float(than), 9)  # 0.1 as a float is more than a tenth
        is_worse = over > 0 and not found.within_spread and found.change > SPREADS * (found.spread or 0.0)
        return WorseRun(self.name, figure, latest, found) if is_worse else None


@dataclass(frozen=True, slots=True)
class WorseRun:
    """The latest run of a name, which takes more than those before it vary by."""

    name: str
    figure: str
    run: SavedRun
    difference: Difference[float]


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class RunHistory(Shown):
    """Runs by name, from the heads of saved reports.

    Parameters
    ----------
    where
        Folder or pattern of the reports.
    runs
        All runs, the earliest first.
    not_read
        Other files, and why they were not read.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.histories.sections"

    where: str
    runs: tuple[SavedRun, ...]
    not_read: Mapping[str, str]
    storage_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def series(self) -> tuple[RunSeries, ...]:
        """Runs of each name, those with the latest run first."""
        by_name: dict[str, list[SavedRun]] = {}
        for run in self.runs:
            by_name.setdefault(run.head.name, []).append(run)
        found = [RunSeries(name, tuple(runs), self.storage_options) for name, runs in by_name.items()]
        return tuple(sorted(found, key=lambda one: -one.runs[-1].head.started))

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Changes of all series: first those for the worse that last, then mended ones; each the latest first."""
        found = [change for one in self.series for change in one.changes]
        return tuple(
            sorted(found, key=lambda change: (not change.lasts, not change.is_worse, -change.first.head.started))
        )

    def worse(self, than: float | Fraction = 0.1) -> tuple[WorseRun, ...]:
        """Latest runs that take more time or memory than those before them, by more than a share and than they vary.

        Parameters
        ----------
        than
            Share of the median before; 0.1 allows 10 %. A run is judged by at most 20 runs of its name before it, since
            the last change among them, and not by fewer than five in all.
        """
        found = (one.worse(figure, than) for one in self.series for figure in FIGURES)
        return tuple(worse for worse in found if worse is not None)

    def to_frame(self) -> pd.DataFrame:
        """A row per run, the earliest first; seconds, bytes, shares in [0, 1]."""
        frame: pd.DataFrame = late("dask_efficiency.histories.rows:to_frame")(self)
        return frame

    def _repr_html_(self) -> str:
        from dask_efficiency.show.html.render import fragment

        return fragment(self._from_sections("page"))


def _values(runs: Sequence[SavedRun], figure: str) -> tuple[float, ...]:
    return tuple(float(getattr(run.head, figure)) for run in runs)


def _mended(stretches: Sequence[Sequence[SavedRun]], figure: str) -> SavedRun | None:
    """First run of the first later stretch that takes no more than the first one."""
    before, *later = (median(_values(stretch, figure)) for stretch in stretches)
    allowed = before * (1 + LEAST_CHANGE)
    return next((stretch[0] for stretch, now in zip(stretches[1:], later, strict=True) if now <= allowed), None)


def history(
    where: str | os.PathLike[str], *, name: str = "", labels: Mapping[str, str] | None = None, **storage_options: Any
) -> RunHistory:
    """Runs over weeks: a row for each saved report of a folder, and where the runs of a name got slower or hungrier.

    Parameters
    ----------
    where
        Folder, with the folders in it, or a pattern such as ``"nightly/*.json"``; a local path or fsspec URL. Only the
        heads of the reports are read, and an index in the folder, where it may be written, saves that the next time.
    name
        Only runs of this name.
    labels
        Only runs with these labels, such as ``{"branch": "main"}``.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no report in it.

    Examples
    --------
    >>> history("nightly").changes[0].comparison.findings  # doctest: +SKIP
    """
    place = os.fspath(where)
    found, not_read = read_folder(place, **storage_options)
    wanted = given_labels(labels or {}).items()
    runs = [run for run in found if wanted <= run.head.labels.items() and name in ("", run.head.name)]
    if not runs:
        raise FileNotFoundError(_none_of(place, len(found), not_read))
    runs.sort(key=lambda run: (run.head.started, run.path))
    return RunHistory(place, tuple(runs), not_read, storage_options)


def _none_of(place: str, others: int, not_read: Mapping[str, str]) -> str:
    if others:
        return f"{place} has {others} reports, and none of that name or with these labels"
    return f"{place} has no saved report; {next(iter(not_read.values()))}"
