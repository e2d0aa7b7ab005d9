"""Document of a comparison: its headline, findings, tables and caveats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.compare import Comparison, PrefixChange
from dask_efficiency.report.comparison_data import to_dict
from dask_efficiency.report.comparison_findings import caveats as caveats_of
from dask_efficiency.report.comparison_findings import find, format_rise, headline
from dask_efficiency.report.comparison_table import (
    ComparisonRow,
    ComparisonTable,
    comparison_table,
    fine_scale,
    rounded,
    signed,
    sum_of,
)
from dask_efficiency.report.difference import Difference
from dask_efficiency.show.document import (
    Cell,
    ChangeBar,
    Document,
    Legend,
    Section,
    Sides,
    Table,
    bucket_label,
    cause_label,
    section,
    slices_of,
    with_content,
)
from dask_efficiency.show.drawn_buckets import COLOURS, finalized_parts
from dask_efficiency.show.figures import (
    MINOR_ROWS,
    NAMES_IN_A_LINE,
    ROWS_ON_A_SCREEN,
    Scale,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    labelled,
    money_scale,
    name_of,
)
from dask_efficiency.show.finding import MAX_SHOWN

#: Mark before a change within the spread of the runs.
WITHIN = "~"
#: Names in a report's environment that the table of the run has.
SIZES = ("workers", "threads")


def title(comparison: Comparison) -> str:
    """Names of the runs before and after."""
    return " -> ".join(_run_names(names) for names in (comparison.names_before, comparison.names_after))


def _run_names(names: Sequence[str]) -> str:
    shown = list(dict.fromkeys(map(name_of, names)))
    more = len(shown) - NAMES_IN_A_LINE
    return ", ".join(shown[:NAMES_IN_A_LINE]) + (f" and {more} more" if more > 0 else "") or "a run"


def context(comparison: Comparison) -> str:
    """Number of runs, and what it allows to conclude; and the cost."""
    counts = len(comparison.before), len(comparison.after)
    priced = "".join(f"; {name} {text}" for name, text in _cost(comparison))
    if counts == (1, 1):
        return f"one run per side, so the spread of the runs is unknown{priced}"
    return f"medians of {format_count(counts[0], 'run')} before and {counts[1]} after{priced}"


def _cost(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Name and text of the cost before and after, if it is known."""
    cost = comparison.cost
    if math.isfinite(cost.before) and math.isfinite(cost.after):
        scale = money_scale(max(cost.before, cost.after))
        yield "cost", f"{scale.figure(cost.before)} -> {scale.figure(cost.after)}"


def document(comparison: Comparison) -> Document:
    """Document of a comparison."""
    first = tuple(one.lines for one in find(comparison)[:MAX_SHOWN])
    texts = title(comparison), context(comparison), headline(comparison)
    return Document(*texts, sections(comparison), findings=first)


def page(comparison: Comparison) -> Document:
    """Document for a page: caveats stand near the top."""
    shown = document(comparison)
    first, rest = shown.sections[:1], shown.sections[1:]
    return replace(
        shown,
        figure=_sides(comparison),
        sections=(*first, *(part for part in rest if part.caveat), *(part for part in rest if not part.caveat)),
        stats=tuple(_stats(comparison)),
        data=to_dict(comparison),
    )


def _stats(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for name, number, text in (
        ("wall clock", comparison.wall_clock_seconds, format_seconds),
        ("ideal time", comparison.ideal_seconds, format_seconds),
        ("efficiency", comparison.efficiency, format_share),
    ):
        if math.isfinite(number.before) and math.isfinite(number.after):
            yield name, f"{text(number.before)} -> {text(number.after)}"
    yield from _cost(comparison)


def _sides(comparison: Comparison) -> Sides | None:
    sides = [slices_of(finalized_parts(breakdown)) for breakdown in comparison.breakdowns]
    if not all(sides):
        return None
    wall = comparison.cluster_seconds
    known = math.isfinite(wall.before) and math.isfinite(wall.after)
    lengths = [wall.before, wall.after] if known else [float(sum(each.size for each in side)) for side in sides]
    bars = (
        (f"{name}, {format_seconds(length)}" if known else name, length / max(lengths), side)
        for name, length, side in zip(comparison.sides, lengths, sides, strict=True)
    )
    was, now = ({each.label: each.percent for each in side} for side in sides)
    labels = dict.fromkeys((*now, *was))
    legend = Legend(tuple((label, f"{was.get(label, '0')} -> {now.get(label, '0')} %") for label in labels))
    return Sides(tuple(bars), legend)


def sections(comparison: Comparison) -> tuple[Section, ...]:
    """Every section with content, in reading order."""
    return with_content(*(part(comparison) for part in (causes, cost, run, factors, prefixes, environment, caveats)))


def causes(comparison: Comparison) -> Section:
    """Table of thread time by cause; its figures add up."""
    table = comparison_table(comparison)
    if not any(run.thread_seconds for run in comparison.runs):
        return Section("Thread time by cause")
    several = has_spread(comparison)
    columns: dict[str, Callable[[ComparisonRow], Cell]] = {
        "cause": _cause,
        "before": lambda row: row.before,
        "after": lambda row: row.after,
        "change": lambda row: f"{WITHIN if row.time.change and row.time.within_spread else ''}{row.change}",
    }
    if several:
        columns["spread"] = lambda row: row.spread
    if table.wall_scale is not None:
        columns[f"wall {table.wall_scale.unit} +/-"] = lambda row: row.wall_change
    columns["share, %"] = lambda row: (
        f"{row.percent_before} -> {row.percent_after}" if row.percent_before and row is not table.rows[-1] else ""
    )
    medians = "(medians): the medians of the causes do not add up to the median of lost time"
    return section(
        f"Thread time by cause (thread-{table.thread_scale.unit})",
        f"{WITHIN} marks changes within the spread of the runs" if several else "",
        medians if any(comparison.not_by_cause) else "",
        Table(
            tuple(columns),
            tuple(tuple(cell(row) for cell in columns.values()) for row in table.rows),
            sums=table.sums,
            drawings=_changes(table),
            drawn_behind=list(columns).index("change"),
        ),
    )


def _cause(row: ComparisonRow) -> Cell:
    return cause_label(row.bucket, row.label) if row.bucket else bucket_label(row.label)


def cost(comparison: Comparison) -> Section:
    """Table of what the thread time costs by cause; its figures add up."""
    table = comparison_table(comparison)
    if table.money_scale is None:
        return Section("Cost by cause")
    rows = tuple((_cause(row), row.money_before, row.money_after, row.money_change) for row in table.rows)
    return section("Cost by cause", Table(("cause", "before", "after", "change"), rows, sums=table.sums))


def _changes(table: ComparisonTable) -> tuple[ChangeBar | None, ...]:
    causes = [row for row in table.rows[: table.sums[0]] if not row.bucket and row.label in set(Bucket)]
    changes = {row: row.time.change for row in causes}
    largest = max(map(abs, changes.values()), default=0)
    return tuple(
        ChangeBar(change / largest, COLOURS[Bucket(row.label)]) if (change := changes.get(row)) else None
        for row in table.rows
    )


def has_spread(comparison: Comparison) -> bool:
    """True if a side has several runs."""
    return comparison.lost.spread is not None


def run(comparison: Comparison) -> Section:
    """Table of runtime, efficiency, size and tasks."""
    whole, ideal = comparison.wall_clock_seconds, comparison.ideal_seconds
    parts = {
        "work on the cluster": comparison.cluster_seconds,
        "without any worker": comparison.no_workers_seconds,
        "on the client": comparison.client_seconds,
    }
    known = [value for value in (whole.before, whole.after, ideal.before, ideal.after) if math.isfinite(value)]
    scale = fine_scale(max(known, default=0.0))
    tasks = [(name, count) for name, count in comparison.tasks.items() if count.before or count.after]
    rows = [
        _time_row("wall clock", whole, scale),
        *(_time_row(name, time, scale) for name, time in parts.items() if time.before or time.after),
        _time_row("ideal time", ideal, scale),
        _row("efficiency", comparison.efficiency, format_share, _change_in_points),
        _row("load balance", comparison.load_balance, "{:.2f}".format, "{:+.2f}".format),
        *(_row(f"GPU {name}", share, format_share, _change_in_points) for name, share in comparison.gpu.items()),
        _row("workers", comparison.workers, str, "{:+d}".format),
        _row("threads", comparison.threads, str, "{:+d}".format),
        *(_row(f"tasks {name_of(name)}", count, str, "{:+d}".format) for name, count in tasks[:MINOR_ROWS]),
        *(
            _row(f"data {name_of(way)}", nbytes, format_bytes, _change_in_bytes)
            for way, nbytes in comparison.moved.items()
        ),
        *(
            _row(f"peak memory of {whose}", peak, format_bytes, _change_in_bytes)
            for whose, peak in zip(("a worker", "all workers"), comparison.peaks.values(), strict=True)
        ),
        *(
            _row(f"results, {how}", amount, _byte_seconds, partial(_rise, amount))
            for how, amount in zip(("in memory", "on disk"), comparison.byte_seconds.values(), strict=True)
            if amount.before or amount.after
        ),
    ]
    return section("The run", _figures(comparison, "", [row for row in rows if any(row[1:3])]))


def _figures(comparison: Comparison, head: str, rows: Sequence[tuple[str, ...]]) -> Table:
    heads = (head, "before", "after", "change", "spread")
    width = len(heads) if has_spread(comparison) else len(heads) - 1
    return Table(heads[:width], tuple(row[:width] for row in rows))


def _time_row(name: str, time: Difference[float], scale: Scale) -> tuple[str, ...]:
    return _row(name, time, lambda seconds: f"{scale.figure(seconds)} {scale.unit}", partial(_rise, time))


def _row(name: str, number: Difference[Any], text: Callable[..., str], change: Callable[..., str]) -> tuple[str, ...]:
    """Name, the figures before and after, change and spread; unknown ones are empty."""
    before, after, spread = (
        "" if value is None or not math.isfinite(value) else text(value)
        for value in (number.before, number.after, number.spread)
    )
    changed = change(number.change) if before and after and number.change else ""
    # a change that rounds to nothing is not shown as "+0.000"
    mark = WITHIN if number.within_spread else ""
    return name, before, after, f"{mark}{changed}" if changed.strip("+-0. %points") else "", spread


def _change_in_bytes(change: float) -> str:
    return f"{'-' if change < 0 else '+'}{format_bytes(abs(change))}"


def _rise(number: Difference[Any], _: float) -> str:
    return format_rise(number.rise)


def _byte_seconds(amount: float) -> str:
    return f"{format_bytes(amount)} x s"


def _change_in_points(change: float) -> str:
    return f"{100 * change:+.1f} points"


def factors(comparison: Comparison) -> Section:
    """Factors of the efficiency, if any has changed."""
    found = comparison.factors
    if not any(factor.change and math.isfinite(factor.change) for factor in found.values()):
        return Section("Factors of the efficiency")
    rows = [
        _row(name, factor, "{:.3f}".format, "{:+.3f}".format)
        for name, factor in found.items()
        if not factor.before == factor.after == 1
    ]
    return section("Factors of the efficiency", _figures(comparison, "factor", rows))


def prefixes(comparison: Comparison) -> Section:
    """Useful and lost time of the prefixes that changed most; columns add up."""
    changes = comparison.by_prefix
    ranked = sorted(changes, key=lambda name: -_largest_change(changes[name]))
    if not ranked or not _largest_change(changes[ranked[0]]):
        return Section("Prefixes that changed most")
    labels = labelled(ranked, "prefix", "prefixes", ROWS_ON_A_SCREEN)
    wholes = [sum_of([getattr(change, kind) for change in changes.values()]) for kind in ("useful", "lost")]
    scale = fine_scale(max(whole.before + whole.after for whole in wholes) / 1e9)
    cells = _prefix_cells(changes, labels, scale)
    fates = [_new_or_gone(changes[names[0]]) if len(names) == 1 else "" for names in labels.values()]
    heads = ("prefix", "useful", "change", "lost", "change", *([""] if any(fates) else []))
    rows = [(label, *cells[label], fate)[: len(heads)] for label, fate in zip(labels, fates, strict=True)]
    rows.append(("total", *cells["total"], "")[: len(heads)])
    groups = {fate: [name for name in changes if _new_or_gone(changes[name]) == fate] for fate in ("new", "gone")}
    return section(
        f"Prefixes that changed most (thread-{scale.unit}, while tasks held threads)",
        *(f"{fate}: {_run_names(names)}" for fate, names in groups.items() if names),
        Table(heads, tuple(rows), words=(0, 5) if any(fates) else (0,), sums=(len(rows) - 1,)),
    )


def _largest_change(change: PrefixChange) -> int:
    return max(abs(change.useful.change), abs(change.lost.change))


def _new_or_gone(change: PrefixChange) -> str:
    return "new" if change.is_new else "gone" if change.is_gone else ""


def _prefix_cells(
    changes: Mapping[str, PrefixChange], labels: Mapping[str, Sequence[str]], scale: Scale
) -> dict[str, tuple[str, ...]]:
    """Cells of useful time and its change, lost time and its change, by label and in total."""
    cells: dict[str, tuple[str, ...]] = dict.fromkeys((*labels, "total"), ())
    for kind in ("useful", "lost"):
        sums = {label: sum_of([getattr(changes[name], kind) for name in names]) for label, names in labels.items()}
        sides = ({label: getattr(time, side) for label, time in sums.items()} for side in ("before", "after"))
        before, after = (rounded(side, scale.steps(sum(side.values()) / 1e9)) for side in sides)
        for label in labels:
            cells[label] += _change(scale, before[label], after[label])
        cells["total"] += _change(scale, sum(before.values()), sum(after.values()))
    return cells


def _change(scale: Scale, before: int, after: int) -> tuple[str, str]:
    return f"{scale.text(before)} -> {scale.text(after)}", signed(scale, after - before)


def environment(comparison: Comparison) -> Section:
    """Versions and settings that differ."""

    def text(values: Sequence[str]) -> str:
        return " or ".join(name_of(value) or "unknown" for value in values[:NAMES_IN_A_LINE])

    differ = [(name, *sides) for name, sides in comparison.environment.items() if name not in SIZES]
    lines = (f"{name_of(name)}: {text(before)} -> {text(after)}" for name, before, after in differ[:MINOR_ROWS])
    more = len(differ) - MINOR_ROWS
    return section("Environment that differs", *lines, f"{more} more" if more > 0 else "")


def caveats(comparison: Comparison) -> Section:
    """Reasons why the sides may not be comparable."""
    return section("Mind when comparing", *caveats_of(comparison)[:MINOR_ROWS], caveat=True)
