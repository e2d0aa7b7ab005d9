"""Cures: findings with the title and the advice of the recipe that fits what has their loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dask_efficiency.accounts.lines import place_of
from dask_efficiency.report.bounds import bounded_saving
from dask_efficiency.report.conditions import NOTHING_KNOWN, Conditions
from dask_efficiency.report.culprits import senders
from dask_efficiency.report.kinds import holds_any
from dask_efficiency.report.made import built, made_for, made_most, names
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.recipe_text import Weighted
from dask_efficiency.report.recipes import recipe_for
from dask_efficiency.report.wall_clock import WORTH_SAYING, client_doing
from dask_efficiency.show.finding import MOST, Basis, Finding

#: Recipes whose cure is the one that a replay of their loss has: more threads, processes, or larger partitions.
REPLAYED = frozenset(("object-store", "http", "sql", "drawing", "graphs-in-python", "bags", "repartition", "rechunked"))


def with_recipe(
    report: EfficiencyReport,
    found: Finding,
    stacks: Weighted = (),
    prefixes: Mapping[str, int] | None = None,
    facts: Conditions = NOTHING_KNOWN,
) -> Finding:
    """Give a finding the title of the recipe that fits it, if any, and its advice unless facts speak against that.

    What a replay of another cure saves is no promise of the recipe's, whose saving is a bound.
    """
    prefixes = prefixes or {}
    recipe = recipe_for(found.kind, stacks, prefixes=prefixes, lines=senders(report, prefixes))
    if recipe is None:
        return found
    if holds_any(recipe.unless_fact, facts):
        return replace(found, title=recipe.title, page=recipe.page)
    if found.basis is Basis.REPLAYED and recipe.name not in REPLAYED:
        most = max(found.saves_seconds or 0.0, bounded_saving(report, found.kind, found.lost_seconds))
        found = replace(found, saves_seconds=most, saves_interval=None, basis=Basis.BOUNDED)
    return replace(found, title=recipe.title, advice=recipe.advice, page=recipe.page)


def tasks_by_prefix(report: EfficiencyReport) -> dict[str, int]:
    """Number of tasks of each prefix."""
    return {prefix: skew.count for prefix, skew in report.skew.items()}


def with_builder(report: EfficiencyReport, found: Finding, *activities: str) -> Finding:
    """Finding with the client's line that built graphs: which took most of that time, if that is much, or made most."""
    spent = {row: row.ns for row in report.client if row.activity in activities}
    much = sum(spent.values()) >= WORTH_SAYING * report.wall_clock_seconds * 1e9
    doing = client_doing(report, lambda row: spent.get(row, 0)) if much else None
    made = made_for(report, found.where)
    if doing is not None and doing.share > MOST:
        line, called = place_of(doing.line), doing.line.function.rpartition(".")[2]
        if line in made:  # which knows what the line calls, and not the wrapper of Dask's around it
            called = made[line].called
        elif line in report.made:  # of others
            return found
    else:
        line, called = made_most(replace(report, made=made)) if found.kind == "small-tasks" else ("", "")
    if not line or names(found.where, line):
        return found
    return replace(found, where=", ".join(filter(None, (found.where, built(line, called)))))
