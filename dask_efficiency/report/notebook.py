"""A report as a piece of HTML for a notebook: pie, bar and tables without script or request."""

from __future__ import annotations

from html import escape

from dask_efficiency.report.advice import advised
from dask_efficiency.report.blocks import breakdown_figure, joined, line, losses, style, table
from dask_efficiency.report.lost_time import lost_time
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.section import Section
from dask_efficiency.report.sections import context, not_counted, sections, title
from dask_efficiency.report.verdict import verdict


def render_html(report: ReportValues) -> str:
    """The report as a self-contained fragment of HTML.

    Returns
    -------
    str
        No script, no request and no id, so that one page can hold several. Colours follow
        JupyterLab's or VS Code's theme, elsewhere the reader's ``prefers-color-scheme``.
    """
    figures = lost_time(report)
    body = [
        f'<div><b>{escape(title(report))}</b> <span class="de-dim">{escape(context(report))}</span></div>',
        f'<div class="de-verdict">{escape(verdict(report))}.</div>',
        breakdown_figure(figures.parts),
        *losses(figures, advised(report), not_counted(report)),
        *map(_section, sections(report)),
    ]
    return f'<div class="dask-efficiency"><style>{style()}</style>{"".join(body)}</div>'


def _section(section: Section) -> str:
    lines = joined(map(line, section.lines))
    if section.rows:
        body = lines + table(section.heads, section.rows, words=section.words)
        return f"<details><summary>{escape(section.title)}</summary>{body}</details>"
    kind = ' class="de-caveat"' if section.caveat else ""
    return f'<section{kind}><div class="de-head">{escape(section.title)}</div>{lines}</section>'
