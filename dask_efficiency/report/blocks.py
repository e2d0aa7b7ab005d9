"""Pieces of HTML that the notebook and every page share: tables, pie, bars, legend, style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from dask_efficiency.buckets import Bucket
from dask_efficiency.report.colours import COLOURS, ink
from dask_efficiency.report.lost_time import LostTime, Part, Row, loss_cells, percent_of
from dask_efficiency.report.pie import Wedge, label_point, svg_path, wedges
from dask_efficiency.report.verdict import DESCRIPTIONS

#: A narrower wedge has no room for its per cent, which the legend has too.
LABELLED_SHARE = 0.08

_LIGHT = {"ink": "#1f2328", "dim": "#59636e", "paper": "#ffffff", "line": "#d1d9e0", "warn": "#9a6700"}
_DARK = {"ink": "#e6edf3", "dim": "#9198a1", "paper": "#111418", "line": "#3d444d", "warn": "#e3b341"}
#: The notebook's own colours, which win where it has them: JupyterLab's, then VS Code's.
_HOST = {
    "ink": ("--jp-content-font-color1", "--vscode-editor-foreground"),
    "dim": ("--jp-content-font-color2", "--vscode-descriptionForeground"),
    "paper": ("--jp-layout-color0", "--vscode-editor-background"),
    "line": ("--jp-border-color2", "--vscode-panel-border"),
    "warn": ("--jp-warn-color0", "--vscode-editorWarning-foreground"),
}

_RULES = """
.dask-efficiency{color:var(--de-ink);background:var(--de-paper);font-size:13px;line-height:1.45;
font-family:var(--jp-content-font-family,system-ui,sans-serif);padding:8px 10px;max-width:76em}
.dask-efficiency .de-dim{color:var(--de-dim)}
.dask-efficiency .de-verdict{font-size:15px;font-weight:600;margin:4px 0 10px}
.dask-efficiency .de-figure{display:flex;flex-wrap:wrap;gap:12px 20px;align-items:center}
.dask-efficiency .de-beside{flex:1 1 20em;min-width:16em}
.dask-efficiency svg{display:block;overflow:visible}
.dask-efficiency .de-pie{width:136px;height:136px;flex:none}
.dask-efficiency .de-pie path,.dask-efficiency .de-pie circle{stroke:var(--de-paper);stroke-width:1.2}
.dask-efficiency .de-pie text{font-size:9px;text-anchor:middle;dominant-baseline:central}
.dask-efficiency .de-bar{width:100%;height:18px}
.dask-efficiency .de-legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin-top:8px}
.dask-efficiency .de-legend span{white-space:nowrap}
.dask-efficiency .de-mark{display:inline-block;width:10px;height:10px;margin-right:6px;vertical-align:baseline}
.dask-efficiency table{border-collapse:collapse;border:0;margin:8px 0;font-size:13px;color:inherit;
font-variant-numeric:tabular-nums;table-layout:auto}
.dask-efficiency tr,.dask-efficiency tbody tr:nth-child(odd),.dask-efficiency tbody tr:nth-child(even),
.dask-efficiency tbody tr:hover{background:none}
.dask-efficiency th,.dask-efficiency td{border:0;padding:2px 14px 2px 0;text-align:right;
vertical-align:top;white-space:nowrap;color:inherit;max-width:none}
.dask-efficiency .de-word,.dask-efficiency th:first-child,.dask-efficiency td:first-child{text-align:left}
.dask-efficiency .de-todo{white-space:normal;text-align:left;color:var(--de-dim);padding-right:0}
.dask-efficiency thead th{border-bottom:1px solid var(--de-line);font-weight:600}
.dask-efficiency .de-total td{border-top:1px solid var(--de-line);font-weight:600}
.dask-efficiency .de-useful td{font-weight:600}
.dask-efficiency .de-scroll{overflow-x:auto}
.dask-efficiency section,.dask-efficiency details{margin-top:8px}
.dask-efficiency .de-head,.dask-efficiency summary{font-weight:600}
.dask-efficiency summary{cursor:pointer}
.dask-efficiency .de-caveat .de-head{color:var(--de-warn)}
.dask-efficiency .de-line{margin:2px 0;overflow-wrap:anywhere}
"""


class Html(str):
    """Markup that is safe as it stands; any other string is text, and is escaped."""

    __slots__ = ()


def safe(text: str) -> Html:
    """The text as markup: escaped, unless it is markup already."""
    return text if isinstance(text, Html) else Html(escape(text))


def joined(pieces: Iterable[str]) -> Html:
    """Pieces one after the other; those that are text are escaped."""
    return Html("".join(map(safe, pieces)))


def style() -> Html:
    """The rules of every block, scoped to ``.dask-efficiency``.

    Colours follow JupyterLab's or VS Code's theme, elsewhere the reader's ``prefers-color-scheme``.
    """
    light, dark = (
        "".join(f"--de-{name}:var({_HOST[name][0]},var({_HOST[name][1]},{colour}));" for name, colour in theme.items())
        for theme in (_LIGHT, _DARK)
    )
    # on paper it is light
    dark = f"@media screen and (prefers-color-scheme:dark){{.dask-efficiency{{{dark}}}}}"
    return Html(f".dask-efficiency{{{light}}}\n{dark}{_RULES}")


def cell(tag: str, content: str, kind: str = "", *, sortable: bool = False) -> Html:
    """A cell ``td`` or ``th`` of a table, of a class."""
    attributes = (f' class="{kind}"' if kind else "") + (" data-sort" if sortable else "")
    return Html(f"<{tag}{attributes}>{safe(content)}</{tag}>")


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Sequence[int] = (0,),
    kinds: Mapping[int, str] | None = None,
    sortable: bool = False,
) -> Html:
    """A table that scrolls by itself where it is too wide.

    Parameters
    ----------
    heads, rows
        Text, or :class:`Html`.
    words
        Positions of the columns that hold words, as the first one always does; figures stand to the right.
    kinds
        Class by position of a row: ``"de-useful"`` or ``"de-total"``.
    sortable
        On a page with a script, a press on a head that is not empty sorts the rows.
    """
    kind = ["de-word" if column and column in words else "" for column in range(len(heads))]
    title = joined(cell("th", head, kind[i], sortable=sortable and bool(head)) for i, head in enumerate(heads))
    lines = (joined(cell("td", content, kind[i]) for i, content in enumerate(row)) for row in rows)
    return whole_table(title, (row_of(line, (kinds or {}).get(i, "")) for i, line in enumerate(lines)))


def row_of(cells: Html, kind: str = "") -> Html:
    """A row of a table, of a class."""
    return Html(f'<tr class="{kind}">{cells}</tr>' if kind else f"<tr>{cells}</tr>")


def whole_table(titles: Html, rows: Iterable[Html]) -> Html:
    """A table from its cells of the head and its rows."""
    head = f"<thead><tr>{titles}</tr></thead>"
    return Html(f'<div class="de-scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>')


def line(text: str, *, dim: bool = False) -> Html:
    """A sentence on a line of its own."""
    return Html(f'<div class="de-line{" de-dim" if dim else ""}">{safe(text)}</div>')


def mark(bucket: Bucket) -> Html:
    """A square in a bucket's colour."""
    square = f'<rect width="10" height="10" fill="{COLOURS[bucket]}"/>'
    return Html(f'<svg class="de-mark" width="10" height="10" aria-hidden="true">{square}</svg>')


def hint(bucket: str, figure: str) -> Html:
    """What a shape says when it is pointed at: bucket, figure and meaning."""
    meaning = f": {DESCRIPTIONS[Bucket(bucket)]}" if bucket in set(Bucket) else ""
    return Html(f"<title>{escape(f'{bucket} {figure}{meaning}')}</title>")


def pie(parts: Sequence[Part]) -> Html:
    """A pie of time by bucket, with the per cent in the wide wedges."""
    shapes = "".join(map(_wedge, wedges({part.bucket: part.nanoseconds for part in parts})))
    return Html(
        '<svg class="de-pie" viewBox="-51 -51 102 102" width="136" height="136" '
        f'role="img" aria-label="Pie of thread time by bucket">{shapes}</svg>'
    )


def _wedge(wedge: Wedge) -> str:
    shape = f'<path d="{svg_path(wedge, 50)}" fill="{wedge.colour}">{hint(wedge.label, f"{wedge.percent} %")}</path>'
    if wedge.share < LABELLED_SHARE:
        return shape
    x, y = label_point(wedge, 36)
    # the label stays out of the mouse's way, so that the wedge below it shows its hint
    label = f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink(wedge.colour)}" pointer-events="none">'
    return f"{shape}{label}{float(wedge.percent):.0f} %</text>"


def stacked_bar(parts: Sequence[Part], label: str = "Stacked bar of thread time by bucket") -> Html:
    """Parts side by side over the whole width, each with its hint."""
    total = sum(part.nanoseconds for part in parts)
    before = 0
    blocks = []
    for part in parts:
        left, width = (100 * ns / total for ns in (before, part.nanoseconds))
        blocks.append(
            f'<rect x="{left:.3f}%" width="{width:.3f}%" height="18" fill="{COLOURS[part.bucket]}">'
            f"{hint(part.bucket, f'{percent_of(part)} %')}</rect>"
        )
        before += part.nanoseconds
    return Html(
        f'<svg class="de-bar" width="100%" height="18" role="img" aria-label="{escape(label)}">{"".join(blocks)}</svg>'
    )


def small_bar(parts: Sequence[Part], *, whole_ns: int) -> Html:
    """The same in little room, for a row of a table; ``whole_ns`` is what the whole width stands for."""
    before = 0
    blocks = []
    for part in parts:
        left, width = (100 * ns / whole_ns for ns in (before, part.nanoseconds))
        blocks.append(f'<rect x="{left:.1f}%" width="{width:.1f}%" height="12" fill="{COLOURS[part.bucket]}"/>')
        before += part.nanoseconds
    said = ", ".join(f"{part.bucket} {percent_of(part)} %" for part in parts)
    return Html(f'<svg class="de-bar" width="100%" height="12" role="img"><title>{said}</title>{"".join(blocks)}</svg>')


def legend(figures: Mapping[Bucket, str]) -> Html:
    """The buckets' colours, names and figures."""
    items = "".join(
        f'<span title="{escape(DESCRIPTIONS[bucket])}">{mark(bucket)}{bucket} '
        f'<span class="de-dim">{escape(figure)}</span></span>'
        for bucket, figure in figures.items()
    )
    return Html(f'<div class="de-legend">{items}</div>')


def breakdown_figure(parts: Sequence[Part]) -> Html:
    """Pie beside stacked bar, with their legend; nothing without parts."""
    if not parts:
        return Html("")
    names = legend({part.bucket: f"{percent_of(part)} %" for part in parts})
    beside = f'<div class="de-beside">{stacked_bar(parts)}{names}</div>'
    return Html(f'<div class="de-figure">{pie(parts)}{beside}</div>')


def losses(table: LostTime, todo: Mapping[str, str], uncounted: str) -> Iterator[Html]:
    """The table of lost time by cause, what to do about each, and what is not counted."""
    if table.parts or table.running is not None:
        heads, rows = loss_cells(table)
        titles = [cell("th", head, "de-word" if not i else "") for i, head in enumerate(heads)]
        if todo:
            titles.append(cell("th", "what to do", "de-word"))
        lines = (_loss_row(table, row, cells, todo) for row, cells in zip(table.rows, rows, strict=True))
        yield Html(f'<div class="de-losses">{whole_table(joined(titles), lines)}</div>')
    if uncounted:
        yield line(uncounted, dim=True)


def _loss_row(table: LostTime, row: Row, cells: Sequence[str], todo: Mapping[str, str]) -> Html:
    square = mark(Bucket(row.label)) if row.label in set(Bucket) else ""
    content = [Html(f'<td class="de-word">{square}{escape(cells[0])}</td>'), *(cell("td", text) for text in cells[1:])]
    if todo:
        content.append(cell("td", todo.get(row.label, ""), "de-todo"))
    kind = "de-useful" if row is table.useful else "de-total" if row is table.total else ""
    return row_of(joined(content), kind)
