"""Computed first: what a client waits for in functions that compute before a result is asked for, such as set_index."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.lines import NOWHERE, Frame, Stack, is_the_users, place_of
from dask_efficiency.report.computing import own_line
from dask_efficiency.report.cures import with_recipe
from dask_efficiency.report.kinds import BESIDE, page_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.recipe_text import Weighted
from dask_efficiency.report.recipes import recipe_for
from dask_efficiency.show.figures import format_count, format_share, name_of, sentence
from dask_efficiency.show.finding import KNOWN, WORTH_FINDING, Finding

#: Kind of the finding.
COMPUTED_FIRST = "computed-first"
#: Share of the wall clock from which it is worth a finding; and share of that which is taken to be in vain, to rank it.
#: By judgement.
WORTH_TELLING, IN_VAIN = 0.3, 0.5
#: Recipes of functions of which the result may be all that is asked for: only what follows can compute it again.
OF_RESULTS = frozenset({"len-of-frame", "array-on-client", "sizes-of-chunks"})


def computed_first(report: EfficiencyReport) -> Finding | None:
    """Finding of a function with a recipe in which the client waited for the cluster, for much of the time.

    The cluster worked meanwhile, so that nothing was lost: unless the result was not needed, or is computed again.
    """
    waited = [(row.stack, row.ns - row.idle_ns) for row in report.client if row.activity == "wait"]
    of_lines = (recipe_for(COMPUTED_FIRST, rows) for rows in _by_line(waited))
    others = (one for one in of_lines if one is not None and one.name not in OF_RESULTS)
    if (recipe := recipe_for(COMPUTED_FIRST, waited) or next(others, None)) is None:
        return None
    there = [(stack, ns) for stack, ns in waited if recipe.fits(stack)]
    wall, seconds = report.wall_clock_seconds, sum(ns for _, ns in there) / 1e9
    again = sum(ns for _, ns in waited) / 1e9 - seconds if recipe.name in OF_RESULTS else seconds
    if seconds < WORTH_TELLING * wall or again < WORTH_FINDING * wall:
        return None
    where = f"{format_share(min(seconds / wall, 1.0))} of the time: {_for_whom(report, there)}"
    kind = BESIDE[COMPUTED_FIRST]
    found = Finding(COMPUTED_FIRST, kind.title, where, advice=kind.advice, page=page_of(COMPUTED_FIRST))
    return with_recipe(report, replace(found, evidence={KNOWN: IN_VAIN * min(seconds, again, wall)}), there)


def _by_line(waited: Weighted) -> list[Weighted]:
    """Waits at each line of the user's, the longest first."""
    lines: dict[Frame, list[tuple[Stack, float]]] = {}
    for stack, ns in waited:
        own = next((frame for frame in reversed(stack) if is_the_users(frame.file)), NOWHERE)
        lines.setdefault(own, []).append((stack, ns))
    return sorted(lines.values(), key=lambda rows: -sum(ns for _, ns in rows))


def _for_whom(report: EfficiencyReport, there: Weighted) -> str:
    """Tasks that took most time of those that the user's line sent, and all lines that sent such; else that line."""
    lines: Counter[str] = Counter()
    for stack, ns in there:
        own = next((frame for frame in reversed(stack) if is_the_users(frame.file)), None)
        lines[place_of(own) if own is not None else ""] += round(ns)
    (line, _), *_ = lines.most_common(1)
    held = {
        prefix: row.ns(*HELD)
        for prefix, row in report.by_prefix.items()
        if line and re.search(rf"(?<!\S){re.escape(line)}(?!\d)", report.computed_by.get(prefix, ""))
    }
    if not held:
        return own_line((stack, round(ns)) for stack, ns in there)
    most = max(held, key=held.__getitem__)
    skew = report.skew.get(most)
    tasks = format_count(skew.count, "task") if skew is not None else "tasks"
    return f"{tasks} of {name_of(most)}, computed by {sentence(report.computed_by[most])}"
