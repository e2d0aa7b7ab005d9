"""Sections of a comparison of two summaries: in a terminal, on a page, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dask_efficiency.show.columns import as_records, as_table
from dask_efficiency.show.document import Document, Section, section, with_content
from dask_efficiency.show.figures import format_count, format_seconds, format_share
from dask_efficiency.torch_traces.summaries.comparison import COMPARED, TorchComparison
from dask_efficiency.torch_traces.summaries.sections import MEANINGS, chosen, in_one_unit, rest_of


def to_dict(compared: TorchComparison) -> dict[str, Any]:
    """Figures of a comparison, ready for JSON: seconds by step and rank, or by rank where some rank has no steps."""
    sides = {"before": compared.before, "after": compared.after}
    return {
        "headline": headline(compared),
        "files": {name: [rank.job.path for rank in side.ranks] for name, side in sides.items()},
        "tables": {name: as_records(table(compared)) for name, table in COMPARED.items()},
    }


def headline(compared: TorchComparison) -> str:
    """Line with the change of the median step, or of the whole traces where there are no steps."""
    if not compared.has_steps:
        before, after = compared.before.seconds, compared.after.seconds
        medians = f"{format_seconds(before)} before, {format_seconds(after)} after"
        return f"{medians}; there are no steps of the profiler to compare"
    total = compared.steps["total"]
    medians = f"{format_seconds(total.before)} to {format_seconds(total.after)}"
    limits = "" if total.has_spread else "; with one step each, it is not known by how much steps vary"
    if not total.change:
        return f"The median step did not change: {format_seconds(total.after)}{limits}"
    if total.has_spread and not total.is_beyond_spread:
        return f"The median step went from {medians}, which is within what steps vary by"
    word = "slower" if total.change > 0 else "faster"
    share = format_share(abs(total.change) / total.before) if total.before else "much"
    return f"The median step is {share} {word}: {medians}{limits}"


def document(compared: TorchComparison) -> Document:
    """Document for a terminal."""
    sides = (compared.before, compared.after)
    ranks = " and ".join(format_count(len(side.ranks), "rank") for side in sides)
    by = "by step and rank" if compared.by_step else "by rank"
    context = f"{ranks}; times and counts are {by} ({' and '.join(str(compared.rounds(side)) for side in sides)})"
    parts = with_content(
        steps(compared), _named(compared, "kernels"), _named(compared, "operators"), ranks_of(compared)
    )
    return Document("Comparison of two traces", context, headline(compared), parts)


def page(compared: TorchComparison) -> Document:
    """Document for a page of its own, with the data."""
    return replace(document(compared), data=to_dict(compared))


def steps(compared: TorchComparison) -> Section:
    """Median steps by part."""
    columns = COMPARED["steps"](compared)
    if not [*columns["part"].values]:
        return Section("")
    labels = [MEANINGS[part][0] if part in MEANINGS else part for part in columns["part"].values]
    columns = {**columns, "part": replace(columns["part"], values=labels)}
    heads = {"part": "median of steps", "before": "before", "after": "after", "change": "change", "spread": "spread"}
    shown = in_one_unit(columns, ("before", "after", "change", "spread"))
    return section("Steps", as_table(shown, heads | {"beyond_spread": "beyond the spread"}))


def _named(compared: TorchComparison, name: str) -> Section:
    """Kernels or operators whose time changed most."""
    columns = COMPARED[name](compared)
    number = len([*columns["name"].values])
    shown = [*range(min(number, compared.top))]
    heads: Mapping[str, str] = {
        "name": name.removesuffix("s"),
        "what": "change",
        "before": "before",
        "after": "after",
        "count_before": "runs before",
        "count_after": "after",
    }
    table = as_table(in_one_unit(chosen(columns, shown), ("before", "after", "change")), heads)
    title = f"{name.capitalize()} by {'step' if compared.by_step else 'rank'}"
    return section(title, table, rest_of(number, shown, name.removesuffix("s")))


def ranks_of(compared: TorchComparison) -> Section:
    """Ranks by number, if there are several."""
    columns = COMPARED["ranks"](compared)
    number = len([*columns["rank"].values])
    if number < 2:
        return Section("")
    shown = [*range(min(number, compared.top))]
    heads = {name: name.replace("_", ", ") for name in columns}
    table = as_table(in_one_unit(chosen(columns, shown), tuple(name for name in columns if name != "rank")), heads)
    return section("Ranks by step" if compared.by_step else "Ranks", table, rest_of(number, shown, "rank"))
