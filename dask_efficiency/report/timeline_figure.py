"""The timeline of a run as a figure: stacked areas on axes, in a few kilobytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dask_efficiency.buckets import Bucket
from dask_efficiency.report.blocks import Html, hint
from dask_efficiency.report.colours import COLOURS
from dask_efficiency.report.figures import format_seconds
from dask_efficiency.report.lost_time import Part, percent_of
from dask_efficiency.timeline import Timeline

#: Steps of the figure's own coordinates, finer than a screen.
WIDTH = 1_200
HEIGHT = 400

#: Seconds from one label of the time axis to the next: what clocks and people count by.
_STEPS = (
    *(mantissa * 10.0**power for power in range(-6, 0) for mantissa in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0),
    *(14400.0, 21600.0, 43200.0, 86400.0, 172800.0, 432000.0, 864000.0),
)
MAX_TICKS = 8

#: For a reader who points at the figure: when it was, and the threads by activity.
SCRIPT = r"""
(() => {
  const figure = document.querySelector(".de-timeline"), held = document.getElementById("data")
  if (!figure || !held) return
  const {bin_seconds, seconds, threads} = JSON.parse(held.textContent).timeline
  const said = figure.querySelector(".de-said"), line = figure.querySelector(".de-at")
  const bins = Math.ceil(seconds / bin_seconds)
  const time = (at) => at.toFixed(seconds < 10 ? 2 : 1) + " s"
  figure.addEventListener("pointermove", (event) => {
    const box = figure.querySelector("svg").getBoundingClientRect()
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1)
    const i = Math.min(Math.floor(share * seconds / bin_seconds), bins - 1)
    const now = Object.entries(threads).map(([name, row]) => [row[i], name]).filter(([n]) => n > 0)
    said.textContent = time(i * bin_seconds) + " to " + time(Math.min((i + 1) * bin_seconds, seconds)) + ", threads: "
      + now.sort((a, b) => b[0] - a[0]).map(([n, name]) => name + " " + n).join(", ")
    line.setAttribute("x1", 100 * share + "%")
    line.setAttribute("x2", 100 * share + "%")
    line.setAttribute("visibility", "visible")
  })
  figure.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden")
    said.textContent = said.dataset.rest
  })
})();
"""

RULES = """
.dask-efficiency .de-timeline{margin:8px 0 4px;padding-left:2.6em}
.dask-efficiency .de-timeline>svg{width:100%;height:244px}
.dask-efficiency .de-timeline text{font-size:12px;fill:var(--de-dim)}
.dask-efficiency .de-timeline line{stroke:var(--de-line);stroke-width:1}
.dask-efficiency .de-timeline .de-at{stroke:var(--de-ink)}
.dask-efficiency .de-said{min-height:1.5em;margin-top:4px;font-size:13px;color:var(--de-dim);
font-variant-numeric:tabular-nums}
@media print{.dask-efficiency .de-said{display:none}}
"""

#: Pixels of the areas; below are the labels of the time axis.
_AREA = 220


def data(timeline: Timeline) -> dict[str, Any]:
    """The mean number of threads in each bin, by activity, to hundredths."""
    return {
        "bin_seconds": timeline.bin_ns / 1e9,
        "seconds": timeline.elapsed_ns / 1e9,
        "threads": {
            name: [round(ns / width, 2) for ns, width in zip(row, timeline.widths, strict=True)]
            for name, row in timeline.activity.items()
        },
    }


def figure(timeline: Timeline, parts: Sequence[Part]) -> Html:
    """Threads by activity through time, stacked in the order of the buckets.

    Parameters
    ----------
    timeline
        At least one bin that holds time.
    parts
        Its activities with their shares, for what an area says when it is pointed at.
    """
    most = max(
        sum(row[i] for row in timeline.activity.values()) / width for i, width in enumerate(timeline.widths) if width
    )
    figures = {part.bucket: f"{percent_of(part)} %" for part in parts}
    areas = "".join(
        f'<path fill="{COLOURS[bucket]}" d="{path}">{hint(bucket, figures.get(bucket, ""))}</path>'
        for bucket, path in _areas(timeline, most)
    )
    rest = "Point at the figure for its numbers."
    return Html(
        '<div class="de-timeline"><svg role="img" aria-label="Threads by activity through the run">'
        f'<svg width="100%" height="{_AREA}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'shape-rendering="crispEdges">{areas}</svg>{_axes(timeline, most)}'
        f'<line class="de-at" y1="0" y2="{_AREA}" visibility="hidden"/></svg>'
        f'<div class="de-said" data-rest="{rest}">{rest}</div></div>'
    )


def _areas(timeline: Timeline, most: float) -> list[tuple[Bucket, str]]:
    """Outlines from the top of the stack down: each covers the lower part of the one before it."""
    stacked = [0] * timeline.bins
    ends = accumulate(timeline.widths)
    right = [round(WIDTH * end / timeline.elapsed_ns) for end in ends]
    outlines = []
    for bucket in (Bucket(name) for name in timeline.activity):
        stacked = [below + ns for below, ns in zip(stacked, timeline.activity[bucket], strict=True)]
        tops = [HEIGHT - round(HEIGHT * ns / width / most) for ns, width in zip(stacked, timeline.widths, strict=True)]
        outlines.append((bucket, _outline(right, tops)))
    return outlines[::-1]


def _outline(right: Sequence[int], tops: Sequence[int]) -> str:
    """A stepped line with everything below it."""
    path = [f"M0 {HEIGHT}"]
    x, y = 0, HEIGHT
    for i, (upto, top) in enumerate(zip(right, tops, strict=True)):
        if top != y:
            path.append(f"V{top}")
            y = top
        if i + 1 == len(tops) or tops[i + 1] != top:
            path.append(f"h{upto - x}")
            x = upto
    return "".join((*path, f"V{HEIGHT}Z"))


def _axes(timeline: Timeline, most: float) -> str:
    threads = f"{most:.0f}" if abs(most - round(most)) < 0.05 else f"{most:.1f}"
    marks = [
        f'<text x="-8" y="10" text-anchor="end">{threads}</text>',
        f'<text x="-8" y="{_AREA}" text-anchor="end">0</text>',
        f'<line x1="0" x2="100%" y1="{_AREA}" y2="{_AREA}"/>',
    ]
    whole = timeline.elapsed_ns / 1e9
    for at in ticks(whole):
        share = 100 * at / whole
        anchor = "start" if share < 2 else "end" if share > 98 else "middle"
        marks.append(
            f'<line x1="{share:.2f}%" x2="{share:.2f}%" y1="{_AREA}" y2="{_AREA + 5}"/>'
            f'<text x="{share:.2f}%" y="{_AREA + 18}" text-anchor="{anchor}">{_time(at)}</text>'
        )
    return "".join(marks)


def ticks(seconds: float) -> list[float]:
    """Round times from 0 to ``seconds``, at most :data:`MAX_TICKS` + 1 of them."""
    step = next((step for step in _STEPS if seconds / step <= MAX_TICKS), seconds)
    return [step * i for i in range(math.floor(seconds / step + 1e-9) + 1)] if seconds > 0 else []


def _time(seconds: float) -> str:
    if not seconds:
        return "0 s"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size and seconds % size == 0 and (seconds > 119 or size > 60):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 and seconds % 1 == 0 else format_seconds(seconds)
