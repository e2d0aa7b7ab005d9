"""Sections on tasks that failed, and on tasks that were outstanding at the end."""

from __future__ import annotations

from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.columns import as_table, counts, names, seconds, words
from dask_efficiency.show.document import SCREEN, Extent, Section, section
from dask_efficiency.show.figures import MINOR_ROWS, harmless, named, shorten

#: Characters of an error. By eye.
ERROR_LENGTH = 200


def failed_tasks(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Errors with their tasks and lines, the most frequent first."""
    ranked = sorted(report.failures, key=lambda one: -one.tasks)
    shown = ranked[:MINOR_ROWS]
    columns = {
        "prefix": names(one.prefix for one in shown),
        "tasks": counts(one.tasks for one in shown),
        "line": names(one.line or None for one in shown),
        "error": words(_error(one.error) for one in shown),
    }
    ended_by = f"It ended by {harmless(report.ended_by)}." if report.ended_by else ""
    return section("Failed tasks", ended_by, as_table(columns), _more(len(ranked)))


def outstanding_tasks(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Outstanding tasks by prefix, with the workers that run them or hold them up."""
    ranked = sorted(report.unfinished, key=lambda one: -one.tasks)
    shown = ranked[:MINOR_ROWS]
    columns = {
        "prefix": names(one.prefix for one in shown),
        "tasks": counts(one.tasks for one in shown),
        "running on": words(named([*one.running]) or None for one in shown),
        "for": seconds(one.seconds if one.running else None for one in shown),
        "held up by the paused": words(named([*one.held_up]) or None for one in shown),
    }
    return section("Outstanding tasks", as_table(columns), _more(len(ranked)))


def _error(error: str) -> str:
    return "other errors" if error == OTHER else shorten(harmless(error), ERROR_LENGTH)


def _more(number: int) -> str:
    return f"{number - MINOR_ROWS} more" if number > MINOR_ROWS else ""
