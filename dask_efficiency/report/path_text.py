"""Critical paths in a terminal: one, one with changes, and two side by side."""

from __future__ import annotations

from dask_efficiency.critical_paths.compare import PathComparisonValues
from dask_efficiency.critical_paths.path import PathValues
from dask_efficiency.report.document import Document
from dask_efficiency.report.path_sections import context, differences, improvements, sections, title, what_if
from dask_efficiency.report.section import name_of


def path_document(path: PathValues) -> Document:
    """What the wall clock was spent on."""
    return Document(title(path), context(path), path.verdict, sections(path))


def what_if_document(before: PathValues, after: PathValues, changes: str) -> Document:
    """What changes would do to a run.

    Parameters
    ----------
    before, after
        The path as recorded, and of the replay with changes.
    changes
        The changes in words, as the beginning of a sentence.
    """
    then = (f"Then: {after.verdict}.",)
    return Document(title(before), "", before.verdict, what_if(before, after, changes), then)


def improvements_document(path: PathValues) -> Document:
    """Where an improvement would help most; some seconds of replays."""
    return Document(title(path), "", path.verdict, (improvements(path),))


def comparison_document(comparison: PathComparisonValues) -> Document:
    """What differs between two paths."""
    named = f"{title(comparison.before)}, and of {name_of(comparison.after.trace.name) or 'a run'}"
    last = (f"Before: {comparison.before.verdict}.", f"Now: {comparison.after.verdict}.")
    return Document(named, "", comparison.verdict, differences(comparison), last)
