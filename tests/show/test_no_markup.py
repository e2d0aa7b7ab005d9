"""Markup is in templates, where everything is escaped: no string of Python that makes pages holds any."""

import ast
import re
from pathlib import Path

import pytest

from dask_efficiency import show

FOLDER = Path(show.__file__).parent
MARKUP = re.compile(r"<[a-zA-Z/!]|&(?:#\d+|[a-z]+);")


def strings(source: str) -> list[tuple[int, str]]:
    """Every string that is no docstring, with its line; those within f-strings too."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) and isinstance(node.body[0], ast.Expr)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def markup(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in strings(source) if MARKUP.search(text)]


@pytest.mark.parametrize(
    "path",
    sorted([*FOLDER.rglob("*.py"), *FOLDER.parent.rglob("sections/*.py")]),
    ids=lambda path: str(path.relative_to(FOLDER.parent)),
)
def test_no_string_holds_a_tag(path: Path) -> None:
    found = markup(path.read_text(encoding="utf-8"))
    # not markup: names of C++ and sentences about how little there is
    allowed = {"<unnamed>", "<details>", "</details>", "</summary>"}  # those of Markdown stand around escaped text
    assert [(line, text) for line, text in found if not any(each in text for each in allowed)] == []


@pytest.mark.parametrize(
    "source", ["x = '<b>'", "x = f'<rect x={1}/>'", "x = '</div>'", "x = '<!-- -->'", "x = 'a &lt; b'"]
)
def test_a_tag_would_be_found(source: str) -> None:
    assert markup(source)


def test_a_docstring_may_speak_of_markup() -> None:
    assert not markup('"""As ``<main>`` has it."""')


def test_every_template_is_used_and_escapes() -> None:
    templates = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "html" / "templates").iterdir()}
    html, css = ("blocks.html", "figures.html", "fragment.html", "page.html"), ("page.css", "style.css")
    assert templates.keys() == {*html, *css, "page.js", "flames.js", "strips.js", "timeline.js"}
    assert not any("|safe" in text for text in templates.values())
