"""How Sphinx makes the documentation; ``make docs`` runs it."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import dask_efficiency
from dask_efficiency.report.recipes import RECIPES

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs.constants import constants, markdown

project = "dask-efficiency"
author = "dask-efficiency developers"
version = release = dask_efficiency.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = "dask-efficiency"
html_show_sourcelink = False
# All pages, under the captions of the table of contents, are beside each page; there are too many for a bar above it.
html_sidebars = {"**": ["globaltoc.html"]}
html_theme_options = {"navigation_with_keys": False, "navbar_center": [], "show_toc_level": 2}

# Anchors are made as forges make them, so that the pages' links also work where they are read unbuilt.
myst_heading_anchors = 4
# The blocks show what to type and what is printed; where that is no valid program, colours do not matter.
highlight_language = "none"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# What has no entry of its own here: other projects' names, what is in modules or classes that are not public, and
# fields, which the docstrings of their classes explain.
nitpick_ignore_regex = [
    ("py:.*", rf"(?!({'|'.join(dask_efficiency.__all__)})\.)[A-Z]\w+\.\w+"),
    ("py:.*", r"(fsspec|pandas)\..*"),
    ("py:.*", r"dask_efficiency\.\w+\..*"),
    ("py:data", r"[A-Z_]+"),
    ("py:(func|attr)", r"confidence_of|facts|save|usual|trace"),
]


def lead_to_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a reference to where a public name is defined, such as ``dask_efficiency.accounts.buckets.Bucket``."""
    target = node.get("reftarget", "")
    parts = target.split(".")
    for position, part in enumerate(parts):
        if position and part in dask_efficiency.__all__ and defined_at(".".join(parts[:position]), part):
            domain = env.domains["py"]
            public = ".".join(["dask_efficiency", *parts[position:]])
            return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], public, node, content)
    return None


def defined_at(module: str, name: str) -> bool:
    """True if a public name comes from this module."""
    try:
        return getattr(importlib.import_module(module), name, None) is getattr(dask_efficiency, name)
    except ImportError:
        return False


def without_dataclass_signature(
    app: Any, what: str, name: str, found: Any, options: Any, signature: Any, _: Any
) -> Any:
    """Leave out the list of a dataclass's fields: its docstring explains them one by one."""
    if inspect.isclass(found) and hasattr(found, "__dataclass_fields__"):
        return "", None
    return None


def add_constants(app: Any, page: str, source: list[str]) -> None:
    """Append the tables of constants to their page."""
    if page == "constants":
        source[0] += "\n" + markdown(constants())


def add_recipes(app: Any, page: str, source: list[str]) -> None:
    """Append the recipes of the package to their page."""
    if page == "recipes":
        for one in RECIPES:
            title, advice = (re.sub(r"([\\`*_^\[\]<>])", r"\\\1", text) for text in (one.title, one.advice))
            source[0] += f"\n({one.name})=\n### `{one.name}`: {title}\n\n{advice}\n"


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx's events."""
    app.connect("source-read", add_constants)
    app.connect("source-read", add_recipes)
    app.connect("missing-reference", lead_to_public_name)
    app.connect("autodoc-process-signature", without_dataclass_signature)
