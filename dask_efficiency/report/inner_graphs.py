"""Graphs that tasks compute themselves: what is told of their many small tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dask_efficiency.accounts.lines import Stack, is_the_users
from dask_efficiency.report.computing import own_line
from dask_efficiency.report.cures import tasks_by_prefix
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.recipes import RECIPES
from dask_efficiency.show.finding import MOST, Finding

#: End of the page of the recipe for tasks that compute graphs; and Dask's own files, without its scheduler.
_NESTED, _DASK = "#nested-compute", re.compile(r"[\\/]dask[\\/]")


def of_inner_graphs(report: EfficiencyReport, small: Finding, found: Iterable[Finding]) -> Finding:
    """Finding of small tasks; if most of them are of graphs that tasks compute themselves, with these tasks' words."""
    tasks = tasks_by_prefix(report)
    sent = sum(count for prefix, count in tasks.items() if prefix in report.computed_by)
    if not report.computed_by or sent > (1.0 - MOST) * sum(tasks.values()):
        return small
    inner = next((one for one in found if one.page.endswith(_NESTED)), None) or _seceded(report, small)
    if inner is None:
        return small
    return replace(small, title=inner.title, where=inner.where, advice=inner.advice, page=inner.page)


def _seceded(report: EfficiencyReport, small: Finding) -> Finding | None:
    """Finding of tasks of the client's that call Dask, and have no thread, and so no loss, while they wait."""
    rows = [(row.stack, row.ns) for row in report.profile if row.prefix in report.computed_by and _calls(row.stack)]
    if not rows:
        return None
    recipe = next(one for one in RECIPES if one.page.endswith(_NESTED))
    return replace(small, title=recipe.title, where=own_line(rows), advice=recipe.advice, page=recipe.page)


def _calls(stack: Stack) -> bool:
    """True if the user's own code has called Dask's."""
    own = next((i for i, frame in enumerate(stack) if is_the_users(frame.file)), len(stack))
    return any(_DASK.search(frame.file) for frame in stack[own:])
