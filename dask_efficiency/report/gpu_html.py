"""The GPUs on a page: a bar of each one's time, shares by prefix, and the kernels that took most."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import zip_longest

from dask_efficiency.report.blocks import Html, joined, line, table
from dask_efficiency.report.colours import GPU_COLOURS
from dask_efficiency.report.figures import apportion, format_percent, harmless, shorten
from dask_efficiency.report.gpu import MEANINGS, DeviceTime, GpuSummary, summary
from dask_efficiency.report.gpu_sections import (
    NO_TASK,
    busiest_last,
    by_prefix,
    devices,
    efficiencies,
    kernels,
    meters,
    prefix_shares,
    sentences,
    top_kernels,
    upper_bounds,
)
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.page import folded, section
from dask_efficiency.report.section import Section

#: GPUs with a bar each; more, up to a limit, are listed where one asks for it.
GPUS_WITH_BARS = 16
MAX_GPUS = 250

PREFIXES_WITH_BARS = 20
KERNELS = 20

#: Characters of a kernel's name in the table.
SHORT_NAME = 64

#: Characters of a kernel's whole name, which shows when its short one is pointed at.
WHOLE_NAME = 1000


def gpu_section(report: ReportValues) -> Html:
    """The section of a page; empty where no GPU was watched."""
    found = summary(report.gpu)
    if found is None or not (found.meters or found.devices):
        return Html("")
    part = devices(report, found, in_full=GPUS_WITH_BARS)
    parts = (
        joined(map(line, sentences(report, found))),
        _legend(found),
        _devices(part, busiest_last(found)[: len(part.rows)]),
        _all_devices(report, found),
        joined(map(line, efficiencies(report, found))),
        joined(line(text, dim=True) for text in meters(found)),
        _titled(by_prefix(found, at_most=PREFIXES_WITH_BARS), _prefix_bars(found)),
        _titled(upper_bounds(found)),
        _kernels(found),
    )
    return section(part.title, *parts)


def _legend(found: GpuSummary) -> Html:
    if not found.devices:
        return Html("")
    # of GPUs that workers share there is no sum
    tenths = apportion(list(found.activity.values()), 1000) if found.elapsed else []
    items = "".join(
        f'<span title="{escape(MEANINGS[name])}">{_mark(GPU_COLOURS[name])}{name}'
        + (f' <span class="de-dim">{format_percent(tenth)} %</span></span>' if tenth is not None else "</span>")
        for name, tenth in zip_longest(found.activity, tenths)
    )
    return Html(f'<div class="de-legend">{items}</div>')


def _mark(colour: str) -> str:
    square = f'<rect width="10" height="10" fill="{colour}"/>'
    return f'<svg class="de-mark" width="10" height="10" aria-hidden="true">{square}</svg>'


def _devices(part: Section, shown: Sequence[DeviceTime]) -> Html:
    if not part.rows:
        return Html("")
    bars = [
        _bar([(name, ns, GPU_COLOURS[name]) for name, ns in device.activity.items()], device.totals.elapsed)
        for device in shown
    ]
    return _with_bars(part, bars)


def _all_devices(report: ReportValues, found: GpuSummary) -> Html:
    if len(found.devices) <= GPUS_WITH_BARS:
        return Html("")
    part = devices(report, found, in_full=MAX_GPUS)
    return folded(f"All {len(part.rows)} GPUs", table(part.heads, part.rows, words=part.words, sortable=True))


def _prefix_bars(found: GpuSummary) -> list[Html]:
    shares = prefix_shares(found, PREFIXES_WITH_BARS)
    largest = max(shares.values(), default=0)
    return [
        _bar([(label, ns, GPU_COLOURS["idle"] if label == NO_TASK else GPU_COLOURS["kernels"])], largest)
        for label, ns in shares.items()
    ]


def _kernels(found: GpuSummary) -> Html:
    part = kernels(found, at_most=KERNELS, name_length=SHORT_NAME)
    if not part.rows:
        return Html("")
    names = [shorten(harmless(kernel.name[:WHOLE_NAME]), WHOLE_NAME) for kernel in top_kernels(found, KERNELS)]
    rows = [
        (Html(f'<span title="{escape(name)}">{escape(cells[0])}</span>'), *cells[1:])
        for name, cells in zip(names, part.rows, strict=True)
    ]
    drawn = table(part.heads, rows, words=part.words, sortable=True)
    return joined((Html(f"<h3>{escape(part.title)}</h3>"), *(line(text, dim=True) for text in part.lines), drawn))


def _titled(part: Section, bars: Sequence[Html] = ()) -> Html:
    if not part.rows:
        return Html("")
    drawn = _with_bars(part, bars) if bars else table(part.heads, part.rows, words=part.words)
    return joined((Html(f"<h3>{escape(part.title)}</h3>"), *(line(text, dim=True) for text in part.lines), drawn))


def _with_bars(part: Section, bars: Sequence[Html]) -> Html:
    """A section's table with a bar behind the name of each row."""
    rows = [
        (cells[0], Html(f'<div class="de-share">{bar}</div>'), *cells[1:])
        for cells, bar in zip(part.rows, bars, strict=True)
    ]
    words = (0, 1, *(column + 1 for column in part.words if column))
    return table((part.heads[0], "", *part.heads[1:]), rows, words=words, sortable=True)


def _bar(parts: Sequence[tuple[str, int, str]], whole: int) -> Html:
    """Names, nanoseconds and colours side by side; ``whole`` is what the whole width stands for."""
    before = 0
    blocks = []
    for _, ns, colour in parts:
        left, width = (100 * value / whole for value in (before, ns))
        blocks.append(f'<rect x="{left:.1f}%" width="{width:.1f}%" height="12" fill="{colour}"/>')
        before += ns
    said = ", ".join(f"{name} {format_percent(round(1000 * ns / whole))} %" for name, ns, _ in parts)
    title = f"<title>{escape(said)}</title>"
    return Html(f'<svg class="de-bar" width="100%" height="12" role="img">{title}{"".join(blocks)}</svg>')
