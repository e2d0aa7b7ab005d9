"""A comparison in HTML: a document of its own, and a piece for a notebook."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from dask_efficiency.buckets import Bucket
from dask_efficiency.report import comparison_sections as parts
from dask_efficiency.report.blocks import Html, joined, legend, line, mark, stacked_bar, style, table
from dask_efficiency.report.colours import COLOURS
from dask_efficiency.report.compare import ComparisonValues
from dask_efficiency.report.comparison_data import to_dict
from dask_efficiency.report.comparison_verdict import verdict
from dask_efficiency.report.figures import format_seconds, format_share
from dask_efficiency.report.lost_time import Part, percent_of, settled_parts
from dask_efficiency.report.page import headline, page, section
from dask_efficiency.report.section import Section
from dask_efficiency.storage import writing

#: Width of the column of bars, in pixels, and the height of a bar.
_WIDTH, _HEIGHT = 120, 10

_RULES = """
.dask-efficiency .de-sides{display:grid;grid-template-columns:max-content 1fr;gap:6px 14px;align-items:center}
.dask-efficiency .de-sides .de-bar{min-width:1px}
.dask-efficiency .de-change{height:10px;margin-top:.4em}
.dask-efficiency .de-change line{stroke:var(--de-dim)}
"""


def document(comparison: ComparisonValues) -> str:
    """The comparison as one file of HTML that opens offline; its data are in it as JSON."""
    name = parts.title(comparison)
    body = joined(
        [
            headline(name, parts.context(comparison), verdict(comparison), _stats(comparison)),
            _sides(comparison),
            *(section(part.title, *_content(comparison, part), caveat=part.caveat) for part in _sections(comparison)),
        ]
    )
    return page(name, body, data=to_dict(comparison), rules=_RULES)


def save_page(comparison: ComparisonValues, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the document to a local path or any fsspec URL."""
    with writing(path, compression="infer", **storage_options) as file:
        file.write(document(comparison).encode("utf-8"))


def fragment(comparison: ComparisonValues) -> str:
    """The comparison as a self-contained piece of HTML without script, request or id."""
    name, said = escape(parts.title(comparison)), escape(parts.context(comparison))
    body = [
        f'<div><b>{name}</b> <span class="de-dim">{said}</span></div>',
        f'<div class="de-verdict">{escape(verdict(comparison))}.</div>',
        _sides(comparison),
    ]
    for position, part in enumerate(_sections(comparison)):
        content = joined(_content(comparison, part))
        if position == 0 or part.caveat:
            kind = ' class="de-caveat"' if part.caveat else ""
            body.append(f'<section{kind}><div class="de-head">{escape(part.title)}</div>{content}</section>')
        else:
            body.append(f"<details><summary>{escape(part.title)}</summary>{content}</details>")
    return f'<div class="dask-efficiency"><style>{style()}{_RULES}</style>{"".join(body)}</div>'


def _sections(comparison: ComparisonValues) -> Iterator[Section]:
    """What stands against comparing comes right after the causes: on a page it is not the last that one reads."""
    found = parts.sections(comparison)
    yield from found[:1]
    yield from (part for part in found[1:] if part.caveat)
    yield from (part for part in found[1:] if not part.caveat)


def _stats(comparison: ComparisonValues) -> Iterator[tuple[str, str]]:
    for name, seconds in (("wall clock", comparison.wall_clock_seconds), ("ideal time", comparison.ideal_seconds)):
        if math.isfinite(seconds.before) and math.isfinite(seconds.after):
            yield name, f"{format_seconds(seconds.before)} → {format_seconds(seconds.after)}"
    efficiency = comparison.efficiency
    if math.isfinite(efficiency.before) and math.isfinite(efficiency.after):
        yield "efficiency", f"{format_share(efficiency.before)} → {format_share(efficiency.after)}"


def _sides(comparison: ComparisonValues) -> Html:
    """A bar for each side, as long as its runs took, of the buckets' medians."""
    sides = [settled_parts(breakdown) for breakdown in comparison.breakdowns]
    if not all(sides):
        return Html("")
    wall = comparison.cluster_seconds
    known = math.isfinite(wall.before) and math.isfinite(wall.after)
    lengths = [wall.before, wall.after] if known else [sum(part.nanoseconds for part in side) / 1e9 for side in sides]
    rows = []
    for name, length, shown in zip(("before", "after"), lengths, sides, strict=True):
        label = f"{name}, {format_seconds(length)}" if known else name
        bar = stacked_bar(shown, f"Stacked bar of thread time by bucket {name}")
        rows.append(
            Html(f'<div>{escape(label)}</div><div style="width:{100 * length / max(lengths):.2f}%">{bar}</div>')
        )
    return Html(f'<div class="de-sides">{joined(rows)}</div>{_legend(*sides)}')


def _legend(before: tuple[Part, ...], after: tuple[Part, ...]) -> Html:
    shares: list[Mapping[Bucket, str]] = [{part.bucket: percent_of(part) for part in side} for side in (before, after)]
    buckets = [part.bucket for part in after] + [part.bucket for part in before if part.bucket not in shares[1]]
    return legend({bucket: f"{shares[0].get(bucket, '0')} → {shares[1].get(bucket, '0')} %" for bucket in buckets})


def _content(comparison: ComparisonValues, part: Section) -> Iterator[Html]:
    yield from map(line, part.lines)
    if not part.rows:
        return
    sums = dict.fromkeys(part.sums, "de-total")
    rows = [_arrows(row, part.words) for row in part.rows]
    if part.heads[0] != parts.CAUSE:
        yield table(part.heads, rows, words=part.words, kinds=sums)
        return
    changes = {str(cause.bucket): cause.time.change for cause in comparison.causes}
    largest = max(map(abs, changes.values()), default=0)
    beside = part.heads.index("change") + 1
    heads = (*part.heads[:beside], "", *part.heads[beside:])
    bars = [_bar(row[0], changes.get(row[0], 0), largest) for row in rows]
    drawn = [(_label(row[0]), *row[1:beside], bar, *row[beside:]) for row, bar in zip(rows, bars, strict=True)]
    yield table(heads, drawn, words=part.words, kinds=sums)


def _arrows(row: Sequence[str], words: Sequence[int]) -> tuple[str, ...]:
    return tuple(cell if i in words else cell.replace(" -> ", " → ") for i, cell in enumerate(row))


def _label(label: str) -> Html:
    return Html(f"{mark(Bucket(label))}{label}") if label in set(Bucket) else Html(escape(label))


def _bar(label: str, change: int, largest: int) -> Html:
    """A bar to the right for what grew and to the left for what shrank."""
    if not change:
        return Html("")
    middle = _WIDTH / 2
    length = max(abs(change) / largest * middle, 0.5)
    left = middle if change > 0 else middle - length
    return Html(
        f'<svg class="de-change" width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true">'
        f'<rect x="{left:.1f}" width="{length:.1f}" height="{_HEIGHT}" fill="{COLOURS[Bucket(label)]}"/>'
        f'<line x1="{middle}" x2="{middle}" y1="-3" y2="{_HEIGHT + 3}"/></svg>'
    )
