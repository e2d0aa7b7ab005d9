"""Sections on memory through the run, beside its limit and Dask's thresholds, and on why results were kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dask_efficiency.accounts.cluster.memory_timeline import MemoryLine, MemoryTimeline
from dask_efficiency.accounts.memory import Why
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.report.lost_time import WORTH_A_ROW
from dask_efficiency.report.memory_needs import kept_seconds
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import HeldFor
from dask_efficiency.show.document import SCREEN, Aside, Extent, Label, Legend, Levels, Section, Spark, Table, section
from dask_efficiency.show.drawn_buckets import MEMORY_COLOURS, PREFIX_COLOURS
from dask_efficiency.show.figures import format_bytes, format_seconds, format_share, name_of

#: Settings of Dask, as shares of a worker's limit: from these on it spills, pauses the worker, and kills it.
THRESHOLDS = ("target", "spill", "pause", "terminate")
#: Workers whose memory is drawn, and steps of such a drawing: a page stays small. By eye.
MAX_DRAWN, MAX_STEPS = 12, 60
#: A limit this many times above what was taken is not drawn: it would flatten all else. By eye.
FAR_ABOVE = 3

#: Reasons why results are kept, in words.
REASONS: Mapping[str, str] = {
    Why.RUNNING: "input of {needed_by} at work",
    Why.QUEUED: "for {needed_by}, waiting for threads",
    Why.AHEAD: "ahead of {needed_by}, waiting for {waits_for}",
    Why.BLOCKED: "for {needed_by}, waiting for {waits_for}",
    Why.FUTURE: "only for {needed_by}",
    Why.UNNEEDED: "for nobody: about to be released",
}


def thresholds(report: EfficiencyReport) -> dict[str, float]:
    """Thresholds by name as shares of the limit: those of a worker, or else of the scheduler's process, if not off."""
    found = {}
    for name in THRESHOLDS:
        value = report.environment.get(f"distributed.worker.memory.{name}", "").partition(" ")[0]
        if value.replace(".", "", 1).isdecimal() and 0 < float(value) <= 1:
            found[name] = float(value)
    known = next((one for one in report.memory.values() if one.limit), None)
    return found if known is None else found | {name: at / known.limit for name, at in known.thresholds.items()}


def memory_through(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Memory of the cluster through the run, and on a page of each worker."""
    heading, timeline = "Memory through the run", report.memory_timeline
    if timeline is None or not timeline.cluster.peak:
        return Section(heading)
    cluster, at = timeline.cluster, thresholds(report)
    if not extent.drawn:
        most = cluster.limit or cluster.peak
        return section(heading, _sentence(cluster), Spark(_scale(cluster), tuple(n / most for n in cluster.process)))
    areas = [*_of_prefixes(cluster), *_rest(cluster)]
    text = (
        f"Each step of {format_seconds(timeline.bin_ns / 1e9)} as it was when most was taken: of all workers at one of "
        "their heartbeats, of each also between two."
    )
    legend = Legend(tuple((label, format_bytes(max(row))) for label, row in areas))
    return section(
        heading,
        _sentence(cluster),
        Aside(text),
        _drawn(timeline, cluster, areas, at, "Memory of the cluster through the run"),
        legend,
        _workers(report, timeline, at, extent),
        Aside(_more(timeline, extent)),
    )


def _sentence(cluster: MemoryLine) -> str:
    """Peak of the cluster, and its parts then."""
    i = cluster.process.index(cluster.peak)
    limit = f" of {format_bytes(cluster.limit)}" if cluster.limit else ""
    parts = f"managed {format_bytes(cluster.managed[i])}, unmanaged {_signed(cluster.unmanaged[i])}"
    spilled = f", spilled {format_bytes(max(cluster.spilled))} at most" if any(cluster.spilled) else ""
    return f"at most {format_bytes(cluster.peak)}{limit} on all workers at a time: {parts}{spilled}"


def _signed(nbytes: int) -> str:
    """Bytes that may be negative, as where results are estimated as larger than they are."""
    return f"-{format_bytes(-nbytes)}" if nbytes < 0 else format_bytes(nbytes)


def _scale(cluster: MemoryLine) -> str:
    return f"from 0 to {f'the limit, {format_bytes(cluster.limit)}' if cluster.limit else format_bytes(cluster.peak)}:"


def _of_prefixes(line: MemoryLine) -> Iterator[tuple[Label, tuple[int, ...]]]:
    """Managed memory by the prefixes that matter; of all together where it is not known by prefix."""
    named = [name for name, row in line.prefixes.items() if name != OTHER and max(row) >= WORTH_A_ROW * line.peak]
    for prefix, colour in zip(named, PREFIX_COLOURS, strict=False):
        row = line.prefixes[prefix]
        hint = f"results in memory, {format_bytes(max(row))} at most"
        yield Label(name_of(prefix) or "(no prefix)", colour, hint), row
    known = [line.prefixes[name] for name in named[: len(PREFIX_COLOURS)]]
    rest = tuple(whole - sum(parts) for whole, *parts in zip(line.managed, *known, strict=True))
    if any(rest):
        yield Label("other managed" if known else "managed", MEMORY_COLOURS["managed"], "results in memory"), rest


def _rest(line: MemoryLine) -> Iterator[tuple[Label, tuple[int, ...]]]:
    yield Label("unmanaged", MEMORY_COLOURS["unmanaged"], "the rest of the processes' memory"), line.unmanaged
    if any(line.spilled):
        yield Label("spilled", MEMORY_COLOURS["spilled"], "on disk, by its size in memory"), line.spilled


def _drawn(
    timeline: MemoryTimeline,
    line: MemoryLine,
    areas: list[tuple[Label, tuple[int, ...]]],
    at: Mapping[str, float],
    label: str,
    *,
    small: bool = False,
) -> Levels:
    together = -(-timeline.bins // MAX_STEPS) if small else 1
    if together > 1:  # of neighbours, the step with most
        most_first = [
            max(range(i, min(i + together, timeline.bins)), key=line.process.__getitem__)
            for i in range(0, timeline.bins, together)
        ]
        areas = [(label, tuple(row[i] for i in most_first)) for label, row in areas]
    taken = max(map(sum, zip(*(row for _, row in areas), strict=True)), default=0)
    near = line.limit <= FAR_ABOVE * taken
    most = max(taken, line.limit if near else 0, 1)
    lines = [(share * line.limit, f"{name} {format_share(share)}") for name, share in at.items()]
    shown = tuple(one for one in (*lines, (line.limit, "limit")) if near and line.limit)
    top = format_bytes(most)
    return Levels(timeline.bin_ns * together, timeline.elapsed_ns, tuple(areas), shown, most, top, label, small)


def kept(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Reasons why results were kept, in byte-seconds and when most memory was taken."""
    rows = []
    for one in report.held_for[: extent.prefixes]:
        each = format_seconds(seconds) if (seconds := kept_seconds(report, one)) else ""
        sizes = (f"{format_bytes(round(one.byte_seconds))} s", format_bytes(one.at_peak))
        rows.append((name_of(one.prefix), _reason(one), *sizes, each))
    more = len(report.held_for) - len(rows)
    few = f"the {len(rows)} largest of {len(report.held_for)}" if more else ""
    head = ("prefix", "kept", "in memory", "at the peak", "each for")
    return section("Why results were kept", few, Table(head, tuple(rows), words=(0, 1)))


def _reason(one: HeldFor) -> str:
    needed_by, waits_for = name_of(one.needed_by) or "other tasks", name_of(one.waits_for) or "threads"
    return REASONS.get(one.why, "for {needed_by}").format(needed_by=needed_by, waits_for=waits_for)


def _workers(report: EfficiencyReport, timeline: MemoryTimeline, at: Mapping[str, float], extent: Extent) -> Table:
    rows, drawings, at_peaks = [], [], report.held_at_peaks
    for name, line in list(timeline.workers.items())[: _shown(extent)]:
        i = line.process.index(line.peak)
        shares = (format_bytes(line.managed[i]), _signed(line.unmanaged[i]), format_bytes(max(line.spilled)))
        of_limit = format_share(line.peak / line.limit) if line.limit else "-"
        most = [f"{name_of(one.prefix)} {_reason(one)}" for one in at_peaks.get(name, ())[:1]] or [""] * bool(at_peaks)
        rows.append((name_of(name), format_bytes(line.peak), of_limit, *shares, *most))
        areas = [(Label("managed", MEMORY_COLOURS["managed"]), line.managed), *_rest(line)]
        drawings.append(_drawn(timeline, line, areas, at, f"Memory of worker {name_of(name)}", small=True))
    heads = ("worker", "peak", "of its limit", "managed then", "unmanaged then", "spilled at most")
    return Table(
        (*heads, *(["most of it kept"] if at_peaks else [])),
        tuple(rows),
        words=(0, len(heads)),
        drawings=tuple(drawings),
        drawn_behind=len(heads) - 1,
        drawn_head="through the run",
    )


def _more(timeline: MemoryTimeline, extent: Extent) -> str:
    more = len(timeline.workers) - _shown(extent) + timeline.more_workers
    return f"The {_shown(extent)} workers that came nearest to their limits; {more} more." if more > 0 else ""


def _shown(extent: Extent) -> int:
    return min(extent.workers, MAX_DRAWN)
