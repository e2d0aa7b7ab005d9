"""The shell of a document that is one file: style, print, a little script, and no request whatsoever."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from typing import Any

from dask_efficiency.report.blocks import Html, joined, line, safe, style, table
from dask_efficiency.report.section import Section

#: The element that holds the data of a page.
DATA_ID = "data"

_RULES = """
:root{color-scheme:light dark}
html{background:#ffffff;-webkit-text-size-adjust:100%}
@media screen and (prefers-color-scheme:dark){html{background:#111418}}
body.dask-efficiency{font-size:15px;line-height:1.5;margin:0 auto;padding:28px 32px 48px;max-width:70rem}
.dask-efficiency h1{font-size:15px;font-weight:600;margin:0}
.dask-efficiency h2{font-size:17px;font-weight:600;margin:0 0 6px}
.dask-efficiency h3{font-size:14px;font-weight:600;margin:14px 0 0}
.dask-efficiency main>section{margin-top:34px}
.dask-efficiency main .de-verdict{font-size:24px;line-height:1.3;margin:6px 0 22px;max-width:46rem;text-wrap:pretty}
.dask-efficiency main table,.dask-efficiency main summary{font-size:14px}
.dask-efficiency main th,.dask-efficiency main td{padding:3px 20px 3px 0}
.dask-efficiency main .de-line{max-width:60rem}
.dask-efficiency main .de-pie{width:170px;height:170px}
.dask-efficiency main .de-bar{height:26px}
.dask-efficiency main .de-bar rect{height:26px}
.dask-efficiency .de-stats{display:flex;flex-wrap:wrap;gap:14px 36px;margin:0 0 22px}
.dask-efficiency .de-stats dt{color:var(--de-dim);font-size:13px}
.dask-efficiency .de-stats dd{margin:0;font-size:20px;font-variant-numeric:tabular-nums}
.dask-efficiency .de-caveat h2{color:var(--de-warn)}
.dask-efficiency th[data-sort]{cursor:pointer}
.dask-efficiency th[data-sort]:hover,.dask-efficiency th[data-sort]:focus-visible{text-decoration:underline}
.dask-efficiency th[aria-sort=ascending]::after{content:" \\2191"}
.dask-efficiency th[aria-sort=descending]::after{content:" \\2193"}
.dask-efficiency pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:8px 0;padding:12px 14px;
border:1px solid var(--de-line);border-radius:6px;overflow-x:auto}
.dask-efficiency footer{margin-top:44px;padding-top:10px;border-top:1px solid var(--de-line);font-size:13px}
@media (max-width:640px){body.dask-efficiency{padding:18px 16px 32px}.dask-efficiency main .de-verdict{font-size:20px}
.dask-efficiency main th,.dask-efficiency main td{padding-right:12px}
.dask-efficiency .de-losses table,.dask-efficiency .de-losses thead,.dask-efficiency .de-losses tbody{display:block}
.dask-efficiency .de-losses tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--de-line)}
.dask-efficiency .de-losses :is(th,td){flex:0 0 4em;padding-right:0;border:0}
.dask-efficiency .de-losses :is(th,td):first-child{flex:1 1 6.5em;min-width:0;white-space:normal}
.dask-efficiency .de-losses td.de-todo{flex:0 0 100%;padding-top:0}
.dask-efficiency .de-losses :is(td.de-todo:empty,th:not(:first-child).de-word){display:none}}
@media print{@page{margin:14mm}:root{color-scheme:light}
html,body.dask-efficiency{background:none;max-width:none;padding:0;font-size:12px}
.dask-efficiency *{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.dask-efficiency h2,.dask-efficiency h3{break-after:avoid}.dask-efficiency tr,.dask-efficiency svg,
.dask-efficiency .de-figure{break-inside:avoid}
.dask-efficiency thead{display:table-header-group}.dask-efficiency .de-scroll{overflow:visible}
.dask-efficiency pre{white-space:pre-wrap;overflow-wrap:anywhere}}
"""

#: A head that is pressed sorts its table; what is folded is unfolded for printing.
_SCRIPT = r"""
(() => {
  const value = (row, i) => row.cells[i].dataset.value ?? row.cells[i].textContent
  const collator = new Intl.Collator(undefined, {numeric: true})
  const compare = (a, b) => {
    const x = parseFloat(a), y = parseFloat(b)
    return isNaN(x) || isNaN(y) ? collator.compare(a, b) : x - y
  }
  const sort = (head) => {
    const descending = head.getAttribute("aria-sort") !== "descending"
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort")
    head.setAttribute("aria-sort", descending ? "descending" : "ascending")
    const body = head.closest("table").tBodies[0], i = head.cellIndex
    const rows = [...body.rows].sort((a, b) => compare(value(a, i), value(b, i)))
    body.append(...(descending ? rows.reverse() : rows))
  }
  for (const head of document.querySelectorAll("th[data-sort]")) {
    head.tabIndex = 0
    head.addEventListener("click", () => sort(head))
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(head) }
    })
  }
  let folded = []
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")]
    for (const each of folded) each.open = true
  })
  addEventListener("afterprint", () => { for (const each of folded) each.open = false })
})();
"""


def page(title: str, body: str, *, data: Any = None, script: str = "", rules: str = "") -> str:
    """A document that needs nothing but itself.

    Parameters
    ----------
    title
        Text; it is escaped.
    body
        What stands in ``<main>``: :class:`~dask_efficiency.report.blocks.Html`, or text, which is escaped.
    data
        Anything that JSON can hold, for other programs and for ``script``: the text of the element
        with the id :data:`DATA_ID`. None leaves it out.
    script, rules
        More JavaScript and CSS, from this package and never from a user.

    Returns
    -------
    str
        Its own policy forbids every request, and every script but the package's own.
    """
    whole_script = _SCRIPT + script
    # What a policy allows is named by its hash, so that markup smuggled into the page cannot run.
    digest = base64.b64encode(hashlib.sha256(whole_script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    held = "" if data is None else f'<script type="application/json" id="{DATA_ID}">{embedded(data)}</script>\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        # without it a browser asks the server for one
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{style()}{_RULES}{rules}</style>\n</head>\n"
        f'<body class="dask-efficiency">\n<main>\n{safe(body)}\n</main>\n{held}'
        f"<script>{whole_script}</script>\n</body>\n</html>\n"
    )


def embedded(data: Any) -> Html:
    """The data as JSON that no parser of HTML takes for anything else."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))


def section(title: str, *content: str, caveat: bool = False) -> Html:
    """A part of a page with a heading; nothing where all of its content is empty.

    Parameters
    ----------
    title
        Text; it is escaped.
    *content
        Html, or text, which is escaped.
    caveat
        It bears on how far the page can be trusted.
    """
    inner = joined(content)
    if not inner:
        return Html("")
    kind = ' class="de-caveat"' if caveat else ""
    return Html(f"<section{kind}><h2>{safe(title)}</h2>{inner}</section>")


def folded(title: str, *content: str) -> Html:
    """What is unfolded by a click, and on paper."""
    return Html(f"<details><summary>{safe(title)}</summary>{joined(content)}</details>")


def headline(name: str, context: str, verdict: str, figures: Iterable[tuple[str, str]]) -> Html:
    """The top of a page: what it is about, its verdict (a full stop is added), and its main figures by name."""
    stats = joined(Html(f"<div><dt>{safe(what)}</dt><dd>{safe(figure)}</dd></div>") for what, figure in figures)
    return Html(
        f'<header><h1>{safe(name)}</h1><div class="de-dim">{safe(context)}</div>'
        f'<div class="de-verdict">{safe(verdict)}.</div></header>'
        + (f'<dl class="de-stats">{stats}</dl>' if stats else "")
    )


def lines_and_table(part: Section) -> Html:
    """The content of a section of a report: its sentences, then its table."""
    rows = table(part.heads, part.rows, words=part.words) if part.rows else ""
    return joined((*map(line, part.lines), rows))


def whole_section(part: Section) -> Html:
    """A section of a report under its own title."""
    return section(part.title, lines_and_table(part), caveat=part.caveat)
