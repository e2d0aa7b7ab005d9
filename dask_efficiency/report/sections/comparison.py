"""Document of a comparison: its headline, findings, tables and caveats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.compare import Comparison, Difference, PrefixChange
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
)
from dask_efficiency.report.sections.groups import TOP_GROUPS
from dask_efficiency.report.sections.report import TOP_LABELS
from dask_efficiency.show.document import (
    ChangeBar,
    Document,
    Label,
    Legend,
    Section,
    Sides,
    Slice,
    Table,
    bucket_label,
    cause_label,
    section,
    slices_of,
    with_content,
)
from dask_efficiency.show.drawn_buckets import COLOURS, finalized_parts
from dask_efficiency.show.figures import (
    NAMES_IN_A_LINE,
    Scale,
    format_bytes,
    format_seconds,
    format_share,
    labelled,
    name_of,
)
from dask_efficiency.show.finding import MAX_SHOWN

#: Mark before a change within the spread of the runs.
WITHIN = "~"
#: Names in a report's environment that the table of the run has.
SIZES = ("workers", "threads")
SIDES = ("before", "after")


def title(comparison: Comparison) -> str:
    """Names of the runs before and after."""
    return " -> ".join(_run_names(names) for names in (comparison.names_before, comparison.names_after))


def _run_names(names: Sequence[str]) -> str:
    shown = list(dict.fromkeys(map(name_of, names)))
    more = len(shown) - NAMES_IN_A_LINE
    return ", ".join(shown[:NAMES_IN_A_LINE]) + (f" and {more} more" if more > 0 else "") or "a run"


def context(comparison: Comparison) -> str:
    """Number of runs, and what it allows to conclude."""
    counts = len(comparison.before), len(comparison.after)
    if counts == (1, 1):
        return "one run per side, so the spread of the runs is unknown"
    return f"medians of {counts[0]} {'run' if counts[0] == 1 else 'runs'} before and {counts[1]} after"


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
    for name, seconds in (("wall clock", comparison.wall_clock_seconds), ("ideal time", comparison.ideal_seconds)):
        if math.isfinite(seconds.before) and math.isfinite(seconds.after):
            yield name, f"{format_seconds(seconds.before)} -> {format_seconds(seconds.after)}"
    efficiency = comparison.efficiency
    if math.isfinite(efficiency.before) and math.isfinite(efficiency.after):
        yield "efficiency", f"{format_share(efficiency.before)} -> {format_share(efficiency.after)}"


def _sides(comparison: Comparison) -> Sides | None:
    """Bars of the buckets' medians, one per side, as long as its runs took."""
    sides = [slices_of(finalized_parts(breakdown)) for breakdown in comparison.breakdowns]
    if not all(sides):
        return None
    wall = comparison.cluster_seconds
    known = math.isfinite(wall.before) and math.isfinite(wall.after)
    lengths = [wall.before, wall.after] if known else [float(sum(each.size for each in side)) for side in sides]
    labels = [
        f"{name}, {format_seconds(length)}" if known else name for name, length in zip(SIDES, lengths, strict=True)
    ]
    shares = [length / max(lengths) for length in lengths]
    return Sides(tuple(zip(labels, shares, sides, strict=True)), _legend(*sides))


def _legend(before: Sequence[Slice], after: Sequence[Slice]) -> Legend:
    was, now = ({each.label: each.percent for each in side} for side in (before, after))
    labels = [*now, *(label for label in was if label not in now)]
    return Legend(tuple((label, f"{was.get(label, '0')} -> {now.get(label, '0')} %") for label in labels))


def sections(comparison: Comparison) -> tuple[Section, ...]:
    """Every section with content, in reading order."""
    return with_content(
        causes(comparison),
        run(comparison),
        factors(comparison),
        prefixes(comparison),
        environment(comparison),
        caveats(comparison),
    )


def causes(comparison: Comparison) -> Section:
    """Table of thread time by cause; its figures add up."""
    table = comparison_table(comparison)
    if not any(report.thread_seconds for report in (*comparison.before, *comparison.after)):
        return Section("Thread time by cause")
    columns = _columns(comparison, table)
    rows = [tuple(cell(position) for cell in columns.values()) for position in range(len(table.rows))]
    lines = []
    if has_spread(comparison):
        lines.append(f"{WITHIN} marks changes within the spread of the runs")
    if any(comparison.not_by_cause):
        lines.append("(medians): the medians of the causes do not add up to the median of lost time")
    return section(
        f"Thread time by cause (thread-{table.thread_scale.unit})",
        *lines,
        Table(
            tuple(columns),
            tuple((_label(row), *cells[1:]) for row, cells in zip(table.rows, rows, strict=True)),
            sums=table.sums,
            drawings=_changes(comparison, table),
            drawn_behind=list(columns).index("change"),
        ),
    )


def _label(row: ComparisonRow) -> Label:
    return cause_label(row.bucket, row.label) if row.bucket else bucket_label(row.label)


def _changes(comparison: Comparison, table: ComparisonTable) -> tuple[ChangeBar | None, ...]:
    changes = {str(cause.bucket): cause.time.change for cause in comparison.causes}
    largest = max(map(abs, changes.values()), default=0)
    return tuple(
        ChangeBar(changes[row.label] / largest, COLOURS[Bucket(row.label)])
        if not row.bucket and changes.get(row.label)
        else None
        for row in table.rows
    )


def _columns(comparison: Comparison, table: ComparisonTable) -> dict[str, Callable[[int], str]]:
    rows = table.rows
    times = {("", str(cause.bucket)): cause.time for cause in comparison.causes}
    times |= {("", "lost"): comparison.lost, ("", "useful"): comparison.useful, ("", "running"): comparison.running}
    times |= {(str(cause.bucket), part.cause): part.time for cause in comparison.causes for part in cause.parts}

    def change(position: int) -> str:
        time = times.get((rows[position].bucket, rows[position].label))
        noise = time is not None and time.change and time.within_spread
        return f"{WITHIN if noise else ''}{rows[position].change}"

    def share(position: int) -> str:
        row = rows[position]
        return f"{row.percent_before} -> {row.percent_after}" if row.percent_before and row is not table.total else ""

    columns: dict[str, Callable[[int], str]] = {
        "cause": lambda position: rows[position].label,
        "before": lambda position: rows[position].before,
        "after": lambda position: rows[position].after,
        "change": change,
    }
    if has_spread(comparison):
        columns["spread"] = lambda position: rows[position].spread
    if table.wall_scale is not None:
        columns[f"wall {table.wall_scale.unit} +/-"] = lambda position: rows[position].wall_change
    columns["share, %"] = share
    if table.money_scale is not None:
        columns["money +/-"] = lambda position: rows[position].money_change
    return columns


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
    rows = [
        _time_row("wall clock", whole, scale),
        *(_time_row(name, time, scale) for name, time in parts.items() if time.before or time.after),
        _time_row("ideal time", ideal, scale),
        _number_row("efficiency", comparison.efficiency, format_share, _change_in_points),
        _number_row("load balance", comparison.load_balance, "{:.2f}".format, "{:+.2f}".format),
        *(_number_row(f"GPU {name}", share, format_share, _change_in_points) for name, share in comparison.gpu.items()),
        _number_row("workers", comparison.workers, str, "{:+d}".format),
        _number_row("threads", comparison.threads, str, "{:+d}".format),
        *(_number_row(f"tasks {name_of(name)}", count, str, "{:+d}".format) for name, count in _tasks(comparison)),
        *(
            _number_row(f"data {way}", nbytes, format_bytes, _change_in_bytes)
            for way, nbytes in comparison.moved.items()
        ),
    ]
    heads = ("", "before", "after", "change", "spread")
    width = len(heads) if has_spread(comparison) else len(heads) - 1
    return section("The run", Table(heads[:width], tuple(row[:width] for row in rows if any(row[1:3]))))


def _tasks(comparison: Comparison) -> list[tuple[str, Difference[int]]]:
    counted = [(name, count) for name, count in comparison.tasks.items() if count.before or count.after]
    return counted[:TOP_LABELS]


def _time_row(name: str, time: Difference[float], scale: Scale) -> tuple[str, ...]:
    def text(seconds: float) -> str:
        return f"{scale.figure(seconds)} {scale.unit}" if math.isfinite(seconds) else ""

    return _row(name, time, text, lambda _: format_rise(time.rise))


def _number_row(
    name: str, number: Difference[int] | Difference[float], text: Callable[..., str], change: Callable[..., str]
) -> tuple[str, ...]:
    def known(value: float) -> str:
        return text(value) if math.isfinite(value) else ""

    return _row(name, number, known, change)


def _row(
    name: str, number: Difference[int] | Difference[float], text: Callable[..., str], change: Callable[..., str]
) -> tuple[str, ...]:
    before, after = text(number.before), text(number.after)
    changed = ""
    if before and after and number.change:
        changed = change(number.change)
        # a change that rounds to nothing is not shown as "+0.000"
        changed = f"{WITHIN if number.within_spread else ''}{changed}" if changed.strip("+-0. %points") else ""
    return name, before, after, changed, "" if number.spread is None else text(number.spread)


def _change_in_bytes(change: float) -> str:
    return f"{'-' if change < 0 else '+'}{format_bytes(abs(change))}"


def _change_in_points(change: float) -> str:
    return f"{100 * change:+.1f} points"


def factors(comparison: Comparison) -> Section:
    """Factors of the efficiency, if any has changed."""
    found = comparison.factors
    if not any(factor.change and math.isfinite(factor.change) for factor in found.values()):
        return Section("Factors of the efficiency")
    rows = [
        _number_row(name, factor, "{:.3f}".format, "{:+.3f}".format)
        for name, factor in found.items()
        if not factor.before == factor.after == 1
    ]
    heads = ("factor", "before", "after", "change", "spread")
    width = len(heads) if has_spread(comparison) else len(heads) - 1
    return section("Factors of the efficiency", Table(heads[:width], tuple(row[:width] for row in rows)))


def prefixes(comparison: Comparison) -> Section:
    """Useful and lost time of the prefixes that changed most; columns add up."""
    changes = comparison.by_prefix
    ranked = sorted(changes, key=lambda name: -_largest_change(changes[name]))
    if not ranked or not _largest_change(changes[ranked[0]]):
        return Section("Prefixes that changed most")
    labels = labelled(ranked, "prefix", "prefixes", TOP_GROUPS)
    scale = fine_scale(max(sum(time) for time in _sums(list(changes.values()))) / 1e9)
    cells = _prefix_cells(changes, labels, scale)
    fates = [_new_or_gone(changes[names[0]]) if len(names) == 1 else "" for names in labels.values()]
    heads = ("prefix", "useful", "change", "lost", "change", *([""] if any(fates) else []))
    rows = [(label, *cells[label], fate)[: len(heads)] for label, fate in zip(labels, fates, strict=True)]
    rows.append(("total", *cells["total"], "")[: len(heads)])
    return section(
        f"Prefixes that changed most (thread-{scale.unit}, while tasks held threads)",
        *_new_and_gone(changes),
        Table(heads, tuple(rows), words=(0, 5) if any(fates) else (0,), sums=(len(rows) - 1,)),
    )


def _times(change: PrefixChange) -> tuple[Difference[int], Difference[int]]:
    return change.useful, change.lost


def _largest_change(change: PrefixChange) -> int:
    return max(abs(time.change) for time in _times(change))


def _new_or_gone(change: PrefixChange) -> str:
    return "new" if change.is_new else "gone" if change.is_gone else ""


def _new_and_gone(changes: Mapping[str, PrefixChange]) -> tuple[str, ...]:
    groups = {
        fate: [name for name, change in changes.items() if _new_or_gone(change) == fate] for fate in ("new", "gone")
    }
    return tuple(f"{fate}: {_run_names(names)}" for fate, names in groups.items() if names)


def _sums(changes: Sequence[PrefixChange]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Useful time before and after, and lost time before and after."""
    return (
        (sum(change.useful.before for change in changes), sum(change.useful.after for change in changes)),
        (sum(change.lost.before for change in changes), sum(change.lost.after for change in changes)),
    )


def _prefix_cells(
    changes: Mapping[str, PrefixChange], labels: Mapping[str, Sequence[str]], scale: Scale
) -> dict[str, tuple[str, ...]]:
    """Cells of useful time and its change, lost time and its change, by label and in total."""
    sums = {label: _sums([changes[name] for name in names]) for label, names in labels.items()}
    cells: dict[str, tuple[str, ...]] = dict.fromkeys((*labels, "total"), ())
    for kind in (0, 1):
        sides = [{label: both[kind][side] for label, both in sums.items()} for side in (0, 1)]
        before, after = (rounded(side, scale.steps(sum(side.values()) / 1e9)) for side in sides)
        for label in labels:
            cells[label] += _change(scale, before[label], after[label])
        cells["total"] += _change(scale, sum(before.values()), sum(after.values()))
    return cells


def _change(scale: Scale, before: int, after: int) -> tuple[str, str]:
    return f"{scale.text(before)} -> {scale.text(after)}", signed(scale, after - before)


def environment(comparison: Comparison) -> Section:
    """Versions and settings that differ."""
    differ = {name: values for name, values in comparison.environment.items() if name not in SIZES}
    lines = [
        f"{name_of(name)}: {_values(before)} -> {_values(after)}"
        for name, (before, after) in list(differ.items())[:TOP_LABELS]
    ]
    if len(differ) > TOP_LABELS:
        lines.append(f"{len(differ) - TOP_LABELS} more")
    return section("Environment that differs", *lines)


def _values(values: Sequence[str]) -> str:
    return " or ".join(name_of(value) or "unknown" for value in values[:NAMES_IN_A_LINE])


def caveats(comparison: Comparison) -> Section:
    """Reasons why the sides may not be comparable."""
    return section("Mind when comparing", *caveats_of(comparison)[:TOP_LABELS], caveat=True)
