"""Cures: findings with the title and the advice of the recipe that fits what has their loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dask_efficiency.report.conditions import NOTHING_KNOWN, Conditions
from dask_efficiency.report.culprits import senders
from dask_efficiency.report.kinds import holds_any
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.recipe_text import Weighted
from dask_efficiency.report.recipes import recipe_for
from dask_efficiency.show.finding import Finding


def with_recipe(
    report: EfficiencyReport,
    found: Finding,
    stacks: Weighted = (),
    prefixes: Mapping[str, int] | None = None,
    facts: Conditions = NOTHING_KNOWN,
) -> Finding:
    """Give a finding the title of the recipe that fits it, if any, and its advice unless facts speak against that."""
    prefixes = prefixes or {}
    recipe = recipe_for(found.kind, stacks, prefixes=prefixes, lines=senders(report, prefixes))
    if recipe is None:
        return found
    words = found.advice if holds_any(recipe.unless_fact, facts) else recipe.advice
    return replace(found, title=recipe.title, advice=words, page=recipe.page)


def tasks_by_prefix(report: EfficiencyReport) -> dict[str, int]:
    """Number of tasks of each prefix."""
    return {prefix: skew.count for prefix, skew in report.skew.items()}
