"""Two pure functions of a document, by Jinja2: a page of its own, and a piece for a notebook."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from dask_efficiency.files.storage import writing
from dask_efficiency.show.document import (
    Block,
    Cell,
    Document,
    Flames,
    Label,
    Section,
    Strips,
    Table,
    Through,
    legend_of,
    slices_of,
)
from dask_efficiency.show.html import figures
from dask_efficiency.show.terminal import blocks_of, plain

#: Scripts of figures that respond to the pointer.
SCRIPTS = {Through: "timeline.js", Flames: "flames.js", Strips: "strips.js"}


def page(document: Document) -> str:
    """The document as one file that opens offline; its element ``#data`` holds the document's data.

    Its own policy forbids every request, and every script but the package's own.
    """
    names = ["page.js", *(name for kind, name in SCRIPTS.items() if _holds(document.sections, kind))]
    script = Markup("".join(f"{_environment().get_template(name).render()}\n" for name in names))
    # The policy names the script by its hash, so that markup smuggled into the page cannot run.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return _environment().get_template("page.html").render(document=document, script=script, digest=digest)


def _holds(blocks: Sequence[Block], kind: type) -> bool:
    return any(isinstance(one, kind) or (isinstance(one, Section) and _holds(one.blocks, kind)) for one in blocks)


def save_page(document: Document, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the page to a local path or any fsspec URL, as :func:`~dask_efficiency.report.files.save` does."""
    with writing(path, compression="infer", **storage_options) as file:
        file.write(page(document).encode("utf-8"))


def fragment(document: Document) -> str:
    """The document as a self-contained piece of HTML for a notebook: no script, no request and no id.

    Colours are those of JupyterLab's or VS Code's theme; elsewhere they are mixed from that of the text around it.
    Where the style is removed, as from a notebook that is not trusted, the text of what is not folded shows.
    """
    sections = tuple(_folded(section, position) for position, section in enumerate(document.sections))
    text = plain(replace(document, sections=tuple(section for section in sections if not section.folded)))
    return _environment().get_template("fragment.html").render(document=document, sections=sections, text=text)


def _folded(section: Section, position: int) -> Section:
    """Fold all sections with tables but the first; caveats and narrow sections always show."""
    if position and section.table.rows and not (section.caveat or section.narrow):
        return replace(section, folded=True)
    return section


class _OneLine(Extension):
    """Removes line breaks and indentation of templates, which only their readers need."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Join the lines of a template of HTML; style and script keep theirs."""
        if name is None or not name.endswith(".html"):
            return source
        between_tags = re.sub(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])", "", source)
        return re.sub(r"\s*\n\s*", " ", between_tags).strip()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dask_efficiency.show.html", "templates"),
        extensions=[_OneLine],
        autoescape=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals |= {"numbers": figures, "slices_of": slices_of, "legend_of": legend_of, "blocks_of": blocks_of}
    environment.filters.update(kind=lambda value: type(value).__name__.lower(), typeset=_typeset, hints=_hints)
    environment.filters["coded"] = _coded
    environment.tests["narrow"] = lambda block: isinstance(block, Section) and block.narrow
    return environment


def _typeset(figure: Cell) -> str:
    return str(figure).replace(" -> ", " → ").replace("+-", "±")


def _coded(text: str) -> list[str]:
    """Parts of a sentence; every other one is code, which stands between backticks."""
    return re.split(r"`([^`\n]+)`", text)


def _hints(table: Table) -> Sequence[str]:
    firsts = [row[0] for row in table.rows] if table.hint_head else []
    return [first.hint if isinstance(first, Label) else "" for first in firsts]
