"""Sections by worker, prefix and span."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dask_efficiency.accounts.buckets import (
    CAUSES,
    GOOD,
    HELD,
    UNKNOWN,
    Breakdown,
    Bucket,
    cause_name,
    causes_of,
    combine,
)
from dask_efficiency.accounts.facts import SEPARATOR
from dask_efficiency.plugin.names import ALL_WORKERS, NO_SPAN, OTHER_WORK
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.turnover import arrival_lines, killer_texts, lost_worker_line, most_costly_first
from dask_efficiency.show.columns import as_table, names, seconds, shares
from dask_efficiency.show.document import (
    MAX_ROWS,
    SCREEN,
    Cell,
    Extent,
    Label,
    Section,
    Stack,
    Strip,
    Strips,
    Table,
    bucket_label,
    section,
    slices_of,
)
from dask_efficiency.show.drawn_buckets import COLOURS, in_order, parts_of
from dask_efficiency.show.figures import (
    FEW_ROWS,
    ROWS_ON_A_SCREEN,
    Scale,
    apportion,
    format_bytes,
    format_count,
    format_share,
    kernel_name,
    labelled,
    name_of,
    time_scale,
)

#: Cells of a strip; with more workers, neighbours share a cell. By eye.
MAX_CELLS = 250
#: Buckets that have a strip. By eye.
MAX_STRIPS = 8
#: Compressed bytes of profiles above which a page has no summary of them: reading more takes over ten seconds.
MAX_SUMMARISED_BYTES = 16 << 20
#: Sections of that summary that are on a screen.
SUMMARISED = ("Where the time went", "Kernels", "Operators", "Notes")


def workers(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Spread of the workers, and a table of all or the least useful of them."""
    if report.by_worker.keys() == {ALL_WORKERS}:
        return Section("Workers", ("a report in retrospect does not distinguish workers",))
    there = {name: _ns_with_work(row) for name, row in report.by_worker.items()}
    shares = [row.ns(*HELD) / there[name] for name, row in report.by_worker.items() if there[name]]
    if not shares:
        return Section("Workers")
    low, middle, high = _spread(shares)
    balance = "" if math.isnan(report.load_balance) else f"; load balance {report.load_balance:.2f}"
    lines = [f"share of its time held by tasks: min {low}, median {middle}, max {high}{balance}"]
    lines += arrival_lines(report.arrivals)
    ranked = least_useful_first(report)
    if len(ranked) <= extent.workers:
        drawings = _stacks([report.by_worker[name] for name in ranked]) if extent.drawn else ()
        return section("Workers", *lines, _worker_table(report, ranked, drawings))
    shown = [name for name in ranked if there[name]][:FEW_ROWS]
    lines.append(f"the {len(shown)} of {len(there)} with the smallest useful share:")
    few = _worker_table(report, shown)
    if not extent.drawn:
        return section("Workers", *lines, few)
    everyone = replace(_worker_table(report, ranked), sortable=True) if len(ranked) <= MAX_ROWS else Table((), ())
    folded = section(f"All {len(ranked)} workers", everyone, folded=True)
    return section("Workers", worker_strips(report), *lines, few, folded)


def _spread(shares: Sequence[float]) -> tuple[str, str, str]:
    return format_share(min(shares)), format_share(statistics.median(shares)), format_share(max(shares))


def _worker_table(report: EfficiencyReport, names: Sequence[str], drawings: tuple[Stack, ...] = ()) -> Table:
    there = {name: _ns_with_work(row) for name, row in report.by_worker.items()}
    scale = time_scale(sum(there.values()) / 1e9)
    steps = apportion(list(there.values()), scale.steps(sum(there.values()) / 1e9))
    time = dict(zip(there, map(scale.text, steps), strict=True))
    return Table(
        ("worker", "threads", f"thread-{scale.unit}", "held", "useful", "largest loss"),
        tuple(_worker_row(report, name, time[name]) for name in names),
        words=(0, 5),
        drawings=drawings,
        sortable=bool(drawings),
    )


def _worker_row(report: EfficiencyReport, name: str, time: str) -> tuple[str, ...]:
    row = report.by_worker[name]
    there = _ns_with_work(row)
    held = format_share(row.ns(*HELD) / there) if there else "-"
    loss = _largest_loss(row, report.causes_by_worker.get(name, {}))
    return name_of(name), str(report.nthreads.get(name, "-")), time, held, _useful_text(row), loss


def _largest_loss(row: Breakdown, causes: Mapping[str, int]) -> str:
    """Largest bucket of loss, or the cause that is most of it, with its share of the finalized time."""
    bucket = next(iter(_lost(row)), None)
    if bucket is None:
        return ""
    finalized = _ns_with_work(row) - row.ns(Bucket.RUNNING)
    seen = causes_of(causes, bucket) if bucket in CAUSES else {}
    known = {cause: ns for cause, ns in seen.items() if cause != UNKNOWN}
    most = max(known, key=lambda cause: known[cause], default=UNKNOWN)
    if 2 * known.get(most, 0) > row.ns(bucket):
        return f"{cause_name(bucket, most)} {format_share(known[most] / finalized)}"
    return f"{bucket} {format_share(row.ns(bucket) / finalized)}"


def _lost(row: Breakdown) -> list[Bucket]:
    return [bucket for bucket in in_order(row) if bucket not in (*GOOD, Bucket.RUNNING)]


def least_useful_first(report: EfficiencyReport) -> list[str]:
    """Names of the workers by useful share, the smallest first; workers without finalized time come last."""
    return sorted(report.by_worker, key=lambda name: _useful(report.by_worker[name]))


def _useful(row: Breakdown) -> float:
    """Useful share of the finalized time; infinite without any, so that it sorts last."""
    finalized = row.total_ns - row.ns(Bucket.NO_WORK, Bucket.RUNNING)
    return row.ns(*GOOD) / finalized if finalized else math.inf


def _useful_text(row: Breakdown) -> str:
    return format_share(useful) if (useful := _useful(row)) <= 1 else "-"


def _ns_with_work(row: Breakdown) -> int:
    return row.total_ns - row.ns(Bucket.NO_WORK)


def _stacks(rows: Sequence[Breakdown]) -> tuple[Stack, ...]:
    """Bars of the rows; the longest fills the whole width."""
    parts = [parts_of(in_order(row)) for row in rows]
    whole = max((sum(part.nanoseconds for part in row) for row in parts), default=0)
    return tuple(Stack(slices_of(row), whole) for row in parts)


def worker_strips(report: EfficiencyReport) -> Strips:
    """Strips of the workers' shares by bucket, with one cell per worker, the least useful first in every strip."""
    names = [name for name in least_useful_first(report) if _ns_with_work(report.by_worker[name])]
    rows = [report.by_worker[name] for name in names]
    strips: list[tuple[Label, str, Sequence[Bucket]]] = [
        (Label("held by tasks"), COLOURS[Bucket.RUNNING], HELD),
        (Label("useful"), COLOURS[Bucket.THREAD_CPU], GOOD),
        *((bucket_label(bucket), COLOURS[bucket], (bucket,)) for bucket in _lost(report.breakdown)[:MAX_STRIPS]),
    ]
    per_cell = max(-(-len(names) // MAX_CELLS), 1)
    starts = range(0, len(names), per_cell)
    each = "worker" if per_cell == 1 else f"{per_cell} workers"
    cells: list[tuple[Cell, ...]] = []
    drawings = []
    for label, colour, buckets in strips if rows else ():
        shares = [row.ns(*buckets) / _ns_with_work(row) for row in rows]
        cells.append((label, *_spread(shares)))
        means = tuple(statistics.fmean(shares[i : i + per_cell]) for i in starts)
        drawings.append(Strip(means, max(shares), colour))
    heads, order = ("share of its time", "min", "median", "max"), f"least useful {each} first"
    table = Table(heads, tuple(cells), drawings=tuple(drawings), drawn_head=order)
    return Strips(table, tuple(", ".join(map(name_of, names[i : i + per_cell][:3])) for i in starts))


def prefixes(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Prefixes that held most time, and the rest as one row; each row adds up to its last figure."""
    rows = report.by_prefix
    ranked = sorted((name for name in rows if rows[name].ns(*HELD)), key=lambda name: -rows[name].ns(*HELD))
    if not ranked:
        return Section("Prefixes")
    table = _prefix_table(report, ranked, extent.prefixes)
    line = "other: cancelled, recomputed or still running" if "other" in table.heads else ""
    title = f"Prefixes by time held (thread-{time_scale(report.thread_seconds).unit})"
    if not extent.drawn:
        return section(title, line, table)
    # the rest together may be larger than any prefix: next to its bar no other would be visible
    rest = [None] if len(ranked) > extent.prefixes else []
    drawings = (*_stacks([rows[name] for name in ranked[: extent.prefixes]]), *rest)
    number, more = len(ranked), section("")
    if number > extent.prefixes + 1:  # the rest of them is more than one
        heading = f"All {number} prefixes" if number <= MAX_ROWS else f"{MAX_ROWS} of {number} prefixes"
        more = section(heading, replace(_prefix_table(report, ranked, MAX_ROWS), sortable=True), folded=True)
    return section(title, line, replace(table, drawings=drawings, sortable=True), more)


def _prefix_table(report: EfficiencyReport, ranked: Sequence[str], at_most: int) -> Table:
    labels = labelled(ranked, "prefix", "prefixes", at_most)
    groups = {label: combine(report.by_prefix[name] for name in names) for label, names in labels.items()}
    columns = {
        name: buckets
        for name, buckets in _PREFIX_COLUMNS.items()
        if name not in _OPTIONAL or any(row.ns(*buckets) for row in groups.values())
    }
    scale = time_scale(max(row.ns(*HELD) for row in groups.values()) / 1e9, report.thread_seconds)
    rows = []
    for label, row in groups.items():
        causes = _causes(report.causes_by_prefix, labels[label], Bucket.THREAD_NONCPU)
        waits = "".join(f"{cause} {format_share(ns / causes.total())}" for cause, ns in causes.most_common(1))
        rows.append((label, *_cells(row, columns, scale, scale.steps(row.ns(*HELD) / 1e9)), waits))
    heads = ("prefix", *columns, "held", "waits for")
    if not any(row[-1] for row in rows):
        return Table(heads[:-1], tuple(row[:-1] for row in rows))
    return Table(heads, tuple(rows), words=(0, len(heads) - 1))


def _cells(row: Breakdown, columns: Mapping[str, tuple[Bucket, ...]], scale: Scale, total: int) -> tuple[str, ...]:
    """Figures that add up to the total, in steps of a scale, which comes last."""
    steps = apportion([row.ns(*buckets) for buckets in columns.values()], total)
    return *map(scale.text, steps), scale.text(total)


#: Columns of the table of prefixes, together all held time; and those that are left out without any.
_PREFIX_COLUMNS: dict[str, tuple[Bucket, ...]] = {
    "cpu": (Bucket.THREAD_CPU,),
    "gpu": (Bucket.GPU,),
    "libraries": (Bucket.LIBRARY_THREADS,),
    "noncpu": (Bucket.THREAD_NONCPU,),
    "spill": (Bucket.SPILL,),
    "overhead": (Bucket.OVERHEAD,),
    "failed": (Bucket.FAILED,),
    "other": (Bucket.CANCELLED, Bucket.RECOMPUTED, Bucket.RUNNING),
}
_OPTIONAL = ("gpu", "libraries", "other")
#: Columns of the table of spans; together all buckets but ``no-work``.
_SPAN_COLUMNS: dict[str, tuple[Bucket, ...]] = {
    "held": HELD,
    "on data": (Bucket.WAITING_ON_DATA,),
    "constrained": (Bucket.CONSTRAINED,),
    "paused": (Bucket.PAUSED, Bucket.RETIRING),
    "idle": (Bucket.IDLE,),
    "lost": (Bucket.LOST_WORKER, Bucket.UNMEASURED),
}


def spans(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Spans as a tree if there are several, and the share of other work.

    Each row adds up to its last figure, and top-level spans to all thread time; the other top-level spans are one row.
    """
    times = {path: _ns_with_work(row) for path, row in report.by_span.items() if _ns_with_work(row)}
    # a span whose only content is one inner span is listed once
    inner = [path for path in times if SEPARATOR in path and times[path] < times.get(path.rpartition(SEPARATOR)[0], 0)]
    top = sorted((path for path in times if SEPARATOR not in path), key=lambda path: (path == NO_SPAN, -times[path]))
    if len(inner) < 2 and len([path for path in top if path != NO_SPAN]) < 2:
        return Section("Spans")
    shown = set(sorted(inner, key=lambda path: (-times[path], path.count(SEPARATOR)))[: extent.prefixes])
    labels = labelled(top, "span", "spans", extent.prefixes)
    groups = {label: combine(report.by_span[path] for path in paths) for label, paths in labels.items()}
    whole = [_ns_with_work(row) for row in groups.values()]
    scale = time_scale(sum(whole) / 1e9, report.thread_seconds)
    columns = {n: b for n, b in _SPAN_COLUMNS.items() if any(row.ns(*b) for row in groups.values())}
    steps = apportion(whole, scale.steps(sum(whole) / 1e9))

    def row_of(label: str, paths: Sequence[str], total: int) -> tuple[str, ...]:
        row, causes = (
            combine(map(report.by_span.__getitem__, paths)),
            _causes(report.causes_by_span, paths, Bucket.IDLE),
        )
        most = next(iter(causes.most_common(1)), ("", 0))
        return label, *_cells(row, columns, scale, total), _useful_text(row), most[0]

    rows = []
    for (label, paths), step in zip(labels.items(), steps, strict=True):
        rows.append(row_of(label, paths, step))
        below = [path for path in shown if len(paths) == 1 and path.startswith(paths[0] + SEPARATOR)]
        rows += [
            row_of(name_of(path[len(paths[0]) :]), [path], scale.steps(times[path] / 1e9))
            for path in sorted(below, key=lambda path: path.split(SEPARATOR))
        ]
    lines = ["the time of free threads is shared equally by the spans that had work outstanding"]
    if shown:
        lines.append(f"a span includes its inner spans, which begin with {SEPARATOR!r}: the others add up to the whole")
    if len(shown) < len(inner):
        lines.append(f"{format_count(len(inner) - len(shown), 'more span')} in these")
    held = sum(report.by_span[path].ns(*HELD) for path in top)
    if OTHER_WORK in times and held:
        own = sum(report.by_span[path].ns(*HELD) for path in top if path not in (OTHER_WORK, NO_SPAN))
        of_own = f"{format_share(own / held)} is of the report's own, the rest of others"
        lines.append(f"of the time that tasks held, {of_own}")
    heads = ("span", *columns, f"thread-{scale.unit}", "useful", "idle for")
    return section("Spans", *lines, Table(heads, tuple(rows), words=(0, len(heads) - 1)))


def _causes(causes: Mapping[str, Mapping[str, int]], names: Iterable[str], bucket: Bucket) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in names:
        found.update(causes_of(causes.get(name, {}), bucket))
    return found


def lost_workers(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Lost workers, why they went and what each cost, the most costly first."""
    ranked = most_costly_first(report.lost_workers)
    more = len(ranked) - (room := MAX_ROWS if extent.drawn else ROWS_ON_A_SCREEN)
    lines = [*killer_texts(ranked), *(lost_worker_line(one, report.skew) for one in ranked[:room])]
    return section("Lost workers", *lines, f"{more} more" if more > 0 else "")


def repeats(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Repeated results by prefix, those with most repeated tasks first."""
    ranked = sorted(report.repeats, key=lambda name: (-report.repeats[name].tasks, name))
    if not ranked:
        return section("")
    times = max(repeat.times for repeat in report.repeats.values())
    tasks = format_count(sum(repeat.tasks for repeat in report.repeats.values()), "task")
    text = f"results were computed up to {times} times, on request ({tasks} more): "
    lines = [text + "persist() what several computations share, or compute them together in one dask.compute()"]
    if len(ranked) > ROWS_ON_A_SCREEN:
        lines.append(f"the {ROWS_ON_A_SCREEN} prefixes with most of these tasks, of {len(ranked)}:")
    rows = tuple(
        (name_of(name) or "(no prefix)", str(report.repeats[name].tasks), f"{report.repeats[name].times} times")
        for name in ranked[:ROWS_ON_A_SCREEN]
    )
    return section("Computed again", *lines, Table(("prefix", "tasks", "computed up to"), rows))


def operators(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Operators and kernels of tasks that ran under ``torch.profiler``, by prefix."""
    found = report.operators
    wholes: defaultdict[str, float] = defaultdict(float)
    for one in found:
        wholes[one.prefix] += one.seconds
    runs = {one.prefix: one.runs for one in found}
    lines = [f"{name_of(prefix)}: {format_count(runs[prefix], 'run')} read" for prefix in runs]
    shown = (kernel_name(one.name) if one.kind.startswith("gpu") else one.name for one in found)
    columns = {
        "prefix": names(one.prefix for one in found),
        "operator or kernel": names((name or None for name in shown), unknown="(no operator)"),
        "kind": names(one.kind for one in found),
        "time": seconds(one.seconds for one in found),
        "share": shares(one.seconds / wholes[one.prefix] if wholes[one.prefix] else None for one in found),
    }
    if found and report.trace is None:
        lines.append("Kernels, launches and copies are not in a saved report: summarise the trace of its run")
    return section("Inside profiled tasks (torch.profiler)", *lines, as_table(columns))


def torch(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Summary of tasks that ran under ``torch.profiler``: on a screen, its first sections."""
    nbytes = 0 if report.trace is None else sum(len(profile.content) for profile in report.trace.profiles)
    heading = "Summary of profiled tasks (torch.profiler)"
    if nbytes > MAX_SUMMARISED_BYTES:
        return section(heading, f"Not made here of {format_bytes(nbytes)} of profiles; report.torch is the summary")
    if (found := report.torch) is None:
        return section("")
    whole = found.document.sections
    shown = whole if extent.drawn else (one for one in whole if one.title in SUMMARISED)
    return section(heading, f"{found.headline}.", *shown)
