"""Compares the critical paths of two runs: kinds and prefixes that moved onto the path, or off it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_efficiency.accounts.tables import needs_pandas
from dask_efficiency.runs.path.path import GROUPS, NOBODY, CriticalPath
from dask_efficiency.show.figures import format_number, format_share, name_of, shorten
from dask_efficiency.show.finding import MAX_HEADLINE
from dask_efficiency.show.shown import Printed, late

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.show.document import Document

#: Groups of changes. The workers of two runs need not be the same, so changes by worker mean nothing.
COMPARED = GROUPS[:2]
#: Characters of a prefix in a headline of at most :data:`~dask_efficiency.show.finding.MAX_HEADLINE`.
MAX_PREFIX = 20


@dataclass(frozen=True, slots=True)
class PathChange:
    """Seconds of the makespan that one kind or prefix made up, before and after."""

    #: One of :data:`COMPARED`.
    by: str
    name: str
    before: float
    after: float

    @property
    def seconds(self) -> float:
        """Growth in seconds; below 0 where it shrank."""
        return self.after - self.before

    @property
    def moved(self) -> str:
        """``onto`` if it is new on the path, ``off`` if it is gone from it, else an empty string."""
        return "onto" if not self.before else "" if self.after else "off"


@dataclass(frozen=True, slots=True, repr=False)
class PathComparison(Printed):
    """Difference between two paths; the changes by kind and by prefix each add up to that of the makespan."""

    before: CriticalPath
    after: CriticalPath
    changes: tuple[PathChange, ...]

    @property
    def document(self) -> Document:
        """Document of the comparison, for a renderer."""
        document: Document = late("dask_efficiency.runs.sections.path:comparison_document")(self)
        return document

    @property
    def headline(self) -> str:
        """One line: the change of the makespan, and the kind and prefix that changed most; at most 100 characters."""
        was, now = self.before.makespan_seconds, self.after.makespan_seconds
        if was == now:
            return f"No difference: both took {format_number(now)} s"
        ratio, sign = f"{format_share(abs(now / was - 1))} " if was else "", 1 if now > was else -1
        kind, prefix = (max((c for c in self.changes if c.by == by), key=lambda c: sign * c.seconds) for by in COMPARED)
        name = "no task" if prefix.name == NOBODY else shorten(name_of(prefix.name), MAX_PREFIX)
        text = f"{ratio}{'longer' if now > was else 'shorter'}: {format_number(was)} -> {format_number(now)} s"
        text += f", mostly {kind.name} ({kind.seconds:+.2g} s), in {name} ({prefix.seconds:+.2g} s)"
        return shorten(text, MAX_HEADLINE)

    def to_frame(self, by: str = "kind") -> pd.DataFrame:
        """The changes by kind or by prefix. Needs pandas.

        Returns
        -------
        DataFrame
            By name: ``before`` and ``after`` (seconds), ``change`` (seconds), ``moved`` (``onto``, ``off`` or nothing).

        Raises
        ------
        ValueError
            If ``by`` is neither.
        """
        if by not in COMPARED:
            raise ValueError(f"by is {by!r}; expected one of {', '.join(COMPARED)}")
        with needs_pandas():
            import pandas as pd

        rows = [(c.name, c.before, c.after, c.seconds, c.moved) for c in self.changes if c.by == by]
        return pd.DataFrame(rows, columns=[by, "before", "after", "change", "moved"]).set_index(by)


def compare_paths(before: CriticalPath, after: CriticalPath) -> PathComparison:
    """Compare two critical paths: the kinds and prefixes that moved onto or off it, and how much each grew.

    Parameters
    ----------
    before, after
        Paths of two runs, or of a run and of a what-if.
    """
    all_changes: list[PathChange] = []
    for by in COMPARED:
        was, now = before.seconds(by), after.seconds(by)
        changes = [PathChange(by, name, was.get(name, 0.0), now.get(name, 0.0)) for name in {**was, **now}]
        all_changes += sorted(changes, key=lambda change: (-abs(change.seconds), change.name))
    return PathComparison(before, after, tuple(all_changes))
