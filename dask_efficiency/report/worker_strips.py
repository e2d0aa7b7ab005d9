"""Many workers at once: for each cause a strip with one cell a worker, and the spread in figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby

from dask_efficiency.buckets import GOOD, HELD, Breakdown, Bucket
from dask_efficiency.report.blocks import Html, joined, mark, table
from dask_efficiency.report.colours import COLOURS
from dask_efficiency.report.figures import format_share
from dask_efficiency.report.lost_time import in_order
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.section import name_of
from dask_efficiency.report.sections import least_useful_first

#: Cells of a strip; of more workers, neighbours share one.
MAX_CELLS = 250

#: Shades of a cell, from nothing to full.
SHADES = 10

#: The least share that has the darkest shade: less is nothing to look at, however the workers differ.
FULL_SHADE = 0.2

#: Causes that have a strip.
MAX_STRIPS = 8

RULES = """
.dask-efficiency .de-strips td:nth-child(2){width:60%;min-width:8em;vertical-align:middle}
.dask-efficiency .de-strips svg.de-strip{width:100%;height:18px;background:none;outline:1px solid var(--de-line)}
.dask-efficiency .de-strips table{width:100%}
"""

SCRIPT = r"""
(() => {
  const strips = document.querySelector(".de-strips")
  if (!strips) return
  const names = JSON.parse(strips.dataset.cells), said = strips.querySelector(".de-said")
  strips.addEventListener("pointermove", (event) => {
    const strip = event.target.closest(".de-strip")
    if (!strip) return
    const box = strip.getBoundingClientRect()
    const i = Math.min(Math.max(Math.floor((event.clientX - box.left) / box.width * names.length), 0), names.length - 1)
    said.textContent = names[i]
  })
  strips.addEventListener("pointerleave", () => { said.textContent = said.dataset.rest })
})();
"""

_Share = Callable[[Breakdown], float]


def strips(report: ReportValues) -> Html:
    """A table: cause, strip, and the workers' least, median and largest share.

    The workers stand in the same order in every strip, those first whose time was useful least.
    """
    names = [name for name in least_useful_first(report) if _there(report.by_worker[name])]
    if not names:
        return Html("")
    rows = [report.by_worker[name] for name in names]
    lost = [b for b in in_order(report.breakdown) if b not in (*GOOD, Bucket.RUNNING)]
    shares: list[tuple[str, str, _Share]] = [
        ("held by tasks", COLOURS[Bucket.RUNNING], _of(HELD)),
        ("useful", COLOURS[Bucket.THREAD_CPU], _of(GOOD)),
        *((str(bucket), COLOURS[bucket], _of((bucket,))) for bucket in lost[:MAX_STRIPS]),
    ]
    body = []
    for label, colour, share in shares:
        found = [share(row) for row in rows]
        spread = (format_share(f(found)) for f in (min, statistics.median, max))
        square = mark(Bucket(label)) if label in set(Bucket) else Html("")
        body.append((joined((square, label)), _strip(found, colour), *spread))
    per_cell = -(-len(names) // MAX_CELLS)
    cells = [", ".join(map(name_of, names[i : i + per_cell][:3])) for i in range(0, len(names), per_cell)]
    each = "worker" if per_cell == 1 else f"{per_cell} workers"
    head = ("share of its time", f"least useful {each} first", "min", "median", "max")
    rest = "Darker is more. Point at a cell for the worker's name."
    return Html(
        f'<div class="de-strips" data-cells="{escape(json.dumps(cells))}">{table(head, body, words=(0, 1))}'
        f'<div class="de-said" data-rest="{rest}">{rest}</div></div>'
    )


def _there(row: Breakdown) -> int:
    return row.total_ns - row.ns(Bucket.NO_WORK)


def _of(buckets: Sequence[Bucket]) -> _Share:
    return lambda row: row.ns(*buckets) / _there(row)


def _strip(shares: Sequence[float], colour: str) -> Html:
    """The shares as shades of a colour, one path for each shade."""
    full = max(FULL_SHADE, *shares)
    per_cell = -(-len(shares) // MAX_CELLS)
    means = [statistics.fmean(shares[i : i + per_cell]) for i in range(0, len(shares), per_cell)]
    # what is there at all is seen
    shades = [max(round(SHADES * share / full), 1) if share else 0 for share in means]
    runs: dict[int, list[str]] = {}
    x = 0
    for shade, cells in groupby(shades):
        width = len(list(cells))
        runs.setdefault(shade, []).append(f"M{x} .5h{width}")
        x += width
    paths = "".join(
        f'<path stroke="{colour}" stroke-opacity="{shade / SHADES:g}" d="{"".join(runs[shade])}"/>'
        for shade in sorted(runs)
        if shade
    )
    return Html(
        f'<svg class="de-strip" viewBox="0 0 {len(means)} 1" preserveAspectRatio="none" '
        f'shape-rendering="crispEdges">{paths}</svg>'
    )
