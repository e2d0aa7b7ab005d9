"""A critical path as HTML: along the run, and by kind, prefix and worker; without script or request."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from dask_efficiency.critical_paths.kinds import KINDS, Kind
from dask_efficiency.critical_paths.path import PathValues
from dask_efficiency.report.blocks import Html, joined, line, safe, style, table
from dask_efficiency.report.figures import format_seconds
from dask_efficiency.report.page import headline, lines_and_table, page, section
from dask_efficiency.report.path_data import to_dict
from dask_efficiency.report.path_kinds import MEANINGS, colour_of
from dask_efficiency.report.path_sections import bounds, by_host, by_name, context, improvements, kinds, notes, title
from dask_efficiency.report.section import Section
from dask_efficiency.storage import writing

#: Steps of the picture along the run: a kind that fills most of a step has it.
STEPS = 400

#: Runs of a trace of which a page tells where an improvement would help: some 3 seconds of replays.
MAX_RUNS = 10_000

_RULES = """
.dask-efficiency .de-path{display:block;margin:10px 0 2px}
.dask-efficiency .de-ends{display:flex;justify-content:space-between}
.dask-efficiency .de-pair{display:flex;flex-wrap:wrap;gap:14px 56px;margin-top:14px}
.dask-efficiency .de-share{width:10em;padding-top:4px}
.dask-efficiency main .de-path rect,.dask-efficiency main .de-path{height:34px}
.dask-efficiency main .de-share svg,.dask-efficiency main .de-share rect{height:12px}
"""


def render_html(path: PathValues) -> str:
    """The path as a self-contained fragment for a notebook: no script, no request and no id."""
    head = f'<div><b>{escape(title(path))}</b> <span class="de-dim">{escape(context(path))}</span></div>'
    body = joined((Html(head), Html(f'<div class="de-verdict">{escape(path.verdict)}.</div>'), *_parts(path)))
    return f'<div class="dask-efficiency"><style>{style()}{_RULES}</style>{body}</div>'


def render_page(path: PathValues) -> str:
    """The path as a self-contained document; its element ``#data`` holds the figures."""
    figures = [("makespan", format_seconds(path.makespan_seconds))]
    if 0 < path.slot_bound_seconds < math.inf:
        figures.append((f"at least, on {round(path.slots)} slots", format_seconds(path.slot_bound_seconds)))
    if path.floor_seconds:
        figures.append(("at least, on any cluster", format_seconds(path.floor_seconds)))
    head = headline(title(path), context(path), path.verdict, figures)
    return page(title(path), joined((head, *_parts(path), _improvements(path))), data=to_dict(path), rules=_RULES)


def save_page(path: PathValues, target: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the page to a local path or any fsspec URL."""
    with writing(target, compression="infer", **storage_options) as file:
        file.write(render_page(path).encode("utf-8"))


def page_section(path: PathValues) -> Html:
    """The path as a section of a page."""
    rules = Html(f"<style>{_RULES}</style>")
    return section(
        "Critical path: why it took so long", rules, line(f"{path.verdict}."), *_parts(path), _improvements(path)
    )


def _parts(path: PathValues) -> tuple[Html, ...]:
    names = [part for part in (by_name(path, "prefix"), by_name(path, "worker"), by_host(path)) if part.rows]
    return (
        _along(path),
        _by_kind(path),
        joined(map(line, bounds(path).lines)),
        _side_by_side(names),
        _caveats(notes(path)),
    )


def _along(path: PathValues) -> Html:
    """The path from the start to the end of the run, as a bar."""
    if not len(path.segments):
        return Html("")
    shapes = []
    for kind, first, last in _steps(path):
        left, width = 100 * first / STEPS, 100 * (last - first) / STEPS
        hint = f"<title>{kind}: {MEANINGS[kind]}</title>"
        shapes.append(f'<rect x="{left:g}%" width="{width:g}%" height="26" fill="{colour_of(kind)}">{hint}</rect>')
    label = 'role="img" aria-label="Critical path along the run"'
    bar = f'<svg class="de-path" width="100%" height="26" {label}>{"".join(shapes)}</svg>'
    ends = f"<span>0</span><span>{escape(format_seconds(path.makespan_seconds))}</span>"
    return Html(f'{bar}<div class="de-ends de-dim">{ends}</div>')


def _steps(path: PathValues) -> list[tuple[Kind, int, int]]:
    """The kind that fills most of each step, equal neighbours as one: kind, first step, step after the last."""
    segments, start = path.segments, path.scope.start
    length = path.scope.stop - start
    # beside its own time, a segment takes part in the step that it begins in
    filled = np.zeros((STEPS, len(KINDS)))
    for kind, since, until in zip(
        segments.kind.tolist(), (segments.start - start).tolist(), (segments.stop - start).tolist(), strict=True
    ):
        first, last = since * STEPS / length, until * STEPS / length
        for step in range(int(first), min(int(np.ceil(last)), STEPS)):
            filled[step, kind] += min(last, step + 1) - max(first, step)
    found: list[tuple[Kind, int, int]] = []
    for step, position in enumerate(filled.argmax(axis=1).tolist()):
        if found and found[-1][0] is KINDS[position]:
            found[-1] = (KINDS[position], found[-1][1], step + 1)
        else:
            found.append((KINDS[position], step, step + 1))
    return found


def _marked(kind: str) -> Html:
    if kind not in set(Kind):
        return safe(kind)
    square = f'<rect width="10" height="10" fill="{colour_of(kind)}"/>'
    return Html(f'<svg class="de-mark" width="10" height="10" aria-hidden="true">{square}</svg>{kind}')


def _by_kind(path: PathValues) -> Html:
    part = kinds(path)
    rows = [(_marked(row[0]), *row[1:3], MEANINGS[Kind(row[0])] if row[0] in set(Kind) else "") for row in part.rows]
    return table((part.heads[0], *part.heads[1:3], "what it is"), rows, words=(0, 3))


def _side_by_side(parts: Sequence[Section]) -> Html:
    pieces = (Html(f'<div><div class="de-head">{safe(part.title)}</div>{_with_bars(part)}</div>') for part in parts)
    return Html(f'<div class="de-pair">{joined(pieces)}</div>')


def _with_bars(part: Section) -> Html:
    longest = max((float(row[2]) for row in part.rows), default=0.0)
    rows = [(row[0], _bar(float(row[2]) / longest if longest else 0.0), *row[1:3]) for row in part.rows]
    return table((part.heads[0], "", *part.heads[1:3]), rows, words=(0, 1))


def _bar(share: float) -> Html:
    shape = f'<rect width="{100 * share:.0f}%" height="12" fill="var(--de-dim)"/>'
    return Html(f'<div class="de-share"><svg width="100%" height="12" aria-hidden="true">{shape}</svg></div>')


def _improvements(path: PathValues) -> Html:
    """Where 10 % would help most, of a run that is replayed within a few seconds."""
    part = improvements(path) if len(path.trace.runs) <= MAX_RUNS else Section("")
    if not part.lines:
        return Html("")
    longest = max((float(row[1]) for row in part.rows), default=0.0)
    rows = [(row[0], _bar(float(row[1]) / longest if longest else 0.0), *row[1:4]) for row in part.rows]
    shown = table((*part.heads[:1], "", part.heads[1], "±", part.heads[3]), rows, words=(0, 1)) if rows else ""
    return section(part.title, *map(line, part.lines), shown)


def _caveats(part: Section) -> Html:
    return section(part.title, lines_and_table(part), caveat=True)
