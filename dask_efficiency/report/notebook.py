"""A report as a piece of HTML for a notebook: pie, bar and tables without script or request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from dask_efficiency.buckets import Bucket
from dask_efficiency.report.colours import COLOURS, ink
from dask_efficiency.report.lost_time import LostTime, Row, loss_cells, lost_time, percent_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.pie import Wedge, label_point, svg_path, wedges
from dask_efficiency.report.sections import Section, advised, context, no_work, sections, title
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
.dask-efficiency .de-word{text-align:left}
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


def render_html(report: EfficiencyReport) -> str:
    """The report as a self-contained fragment of HTML.

    Returns
    -------
    str
        No script, no request and no id, so that one page can hold several. Colours follow
        JupyterLab's or VS Code's theme, elsewhere the reader's ``prefers-color-scheme``.
    """
    table = lost_time(report)
    body = [
        f'<div><b>{escape(title(report))}</b> <span class="de-dim">{escape(context(report))}</span></div>',
        f'<div class="de-verdict">{escape(report.verdict)}.</div>',
        *_figure(table),
        *_losses(report, table),
        *(_section(section) for section in sections(report)),
    ]
    return f'<div class="dask-efficiency"><style>{_style()}</style>{"".join(body)}</div>'


def _style() -> str:
    light, dark = (
        "".join(f"--de-{name}:var({_HOST[name][0]},var({_HOST[name][1]},{colour}));" for name, colour in theme.items())
        for theme in (_LIGHT, _DARK)
    )
    return f".dask-efficiency{{{light}}}\n@media (prefers-color-scheme:dark){{.dask-efficiency{{{dark}}}}}{_RULES}"


def _figure(table: LostTime) -> Iterator[str]:
    if not table.parts:
        return
    pie = "".join(map(_wedge, wedges({part.bucket: part.nanoseconds for part in table.parts})))
    yield (
        '<div class="de-figure"><svg class="de-pie" viewBox="-51 -51 102 102" width="136" height="136" '
        f'role="img" aria-label="Pie of thread time by bucket">{pie}</svg>'
        f'<div class="de-beside">{_bar(table)}{_legend(table)}</div></div>'
    )


def _wedge(wedge: Wedge) -> str:
    shape = f'<path d="{svg_path(wedge, 50)}" fill="{wedge.colour}">{_hint(wedge.label, wedge.percent)}</path>'
    if wedge.share < LABELLED_SHARE:
        return shape
    x, y = label_point(wedge, 36)
    # the label stays out of the mouse's way, so that the wedge below it shows its hint
    label = f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink(wedge.colour)}" pointer-events="none">'
    return f"{shape}{label}{float(wedge.percent):.0f} %</text>"


def _hint(bucket: str, percent: str) -> str:
    meaning = f": {DESCRIPTIONS[Bucket(bucket)]}" if bucket in set(Bucket) else ""
    return f"<title>{escape(f'{bucket} {percent} %{meaning}')}</title>"


def _bar(table: LostTime) -> str:
    total = sum(part.nanoseconds for part in table.parts)
    before = 0
    blocks = []
    for part in table.parts:
        left, width = (100 * ns / total for ns in (before, part.nanoseconds))
        blocks.append(
            f'<rect x="{left:.3f}%" y="0" width="{width:.3f}%" height="18" fill="{COLOURS[part.bucket]}">'
            f"{_hint(part.bucket, percent_of(part))}</rect>"
        )
        before += part.nanoseconds
    label = "Stacked bar of thread time by bucket"
    return f'<svg class="de-bar" width="100%" height="18" role="img" aria-label="{label}">{"".join(blocks)}</svg>'


def _mark(bucket: Bucket) -> str:
    square = f'<rect width="10" height="10" fill="{COLOURS[bucket]}"/>'
    return f'<svg class="de-mark" width="10" height="10" aria-hidden="true">{square}</svg>'


def _legend(table: LostTime) -> str:
    items = [
        f'<span title="{escape(DESCRIPTIONS[part.bucket])}">{_mark(part.bucket)}{part.bucket} '
        f'<span class="de-dim">{escape(percent_of(part))} %</span></span>'
        for part in table.parts
    ]
    return f'<div class="de-legend">{"".join(items)}</div>'


def _losses(report: EfficiencyReport, table: LostTime) -> Iterator[str]:
    if table.parts or table.running is not None:
        todo = advised(report)
        heads, rows = loss_cells(table)
        titles = [_cell("th", head, "de-word" if not i else "") for i, head in enumerate(heads)]
        if todo:
            titles.append(_cell("th", "what to do", "de-word"))
        lines = [_loss_row(table, row, cells, todo) for row, cells in zip(table.rows, rows, strict=True)]
        yield _table("".join(titles), lines)
    if said := no_work(report):
        yield f'<div class="de-line de-dim">{escape(said)}</div>'


def _loss_row(table: LostTime, row: Row, cells: Sequence[str], todo: dict[str, str]) -> str:
    mark = _mark(Bucket(row.label)) if row.label in set(Bucket) else ""
    line = f'<td class="de-word">{mark}{escape(cells[0])}</td>'
    line += "".join(_cell("td", cell) for cell in cells[1:])
    if todo:
        line += _cell("td", todo.get(row.label, ""), "de-todo")
    kind = "de-useful" if row is table.useful else "de-total" if row is table.total else ""
    return f'<tr class="{kind}">{line}</tr>' if kind else f"<tr>{line}</tr>"


def _section(section: Section) -> str:
    lines = "".join(f'<div class="de-line">{escape(line)}</div>' for line in section.lines)
    if section.rows:
        titles = [_cell("th", head, _kind(section, i)) for i, head in enumerate(section.heads)]
        rows = [
            "<tr>" + "".join(_cell("td", cell, _kind(section, i)) for i, cell in enumerate(row)) + "</tr>"
            for row in section.rows
        ]
        body = lines + _table("".join(titles), rows)
        return f"<details><summary>{escape(section.title)}</summary>{body}</details>"
    kind = ' class="de-caveat"' if section.caveat else ""
    return f'<section{kind}><div class="de-head">{escape(section.title)}</div>{lines}</section>'


def _kind(section: Section, column: int) -> str:
    return "de-word" if column in section.words else ""


def _cell(tag: str, text: str, kind: str = "") -> str:
    return f'<{tag} class="{kind}">{escape(text)}</{tag}>' if kind else f"<{tag}>{escape(text)}</{tag}>"


def _table(titles: str, rows: Sequence[str]) -> str:
    head = f"<thead><tr>{titles}</tr></thead>"
    return f'<div class="de-scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
