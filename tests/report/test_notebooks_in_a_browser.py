"""A report as notebooks show it: in the colours of the place that it is in, whatever the reader's system prefers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.report.samples import by_hand

#: What the hosts set around an output, with the colour of their text and of their background.
HOSTS = {
    "JupyterLab, dark": (
        "--jp-content-font-color1:rgb(250,250,250);--jp-layout-color0:rgb(17,17,17);background:rgb(17,17,17)",
        "rgb(250, 250, 250)",
    ),
    "VS Code, light": (
        "--vscode-editor-foreground:rgb(59,59,59);--vscode-editor-background:rgb(255,255,255)",
        "rgb(59, 59, 59)",
    ),
    "another, dark": ("color:rgb(213,213,213);background:rgb(56,56,56)", "rgb(213, 213, 213)"),
    "another, light": ("color:rgb(10,10,10)", "rgb(10, 10, 10)"),
}

COLOUR = "element => getComputedStyle(element).color"
#: What JupyterLab does to a notebook that is not trusted.
SANITISE = """() => {
    document.querySelectorAll("style").forEach((style) => style.remove())
    document.querySelectorAll("svg").forEach((svg) => svg.replaceWith(svg.textContent))
}"""


@pytest.fixture(params=["light", "dark"])
def page(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    context = chromium.new_context(color_scheme=request.param)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("host", HOSTS)
def test_it_has_the_colours_of_its_host(page: Any, host: str) -> None:
    style, colour = HOSTS[host]
    page.set_content(f'<!DOCTYPE html><body style="{style}">{by_hand()._repr_html_()}')
    assert page.locator(".de-headline").evaluate(COLOUR) == colour
    assert page.locator("summary").first.evaluate(COLOUR) == colour
    background = "getComputedStyle(document.querySelector('.dask-efficiency')).backgroundColor"
    assert page.evaluate(background) == "rgba(0, 0, 0, 0)"
    assert not page.get_by_text(f"[{'#' * 5}").is_visible()


def test_without_its_style_it_is_the_text_of_the_first_screen(page: Any) -> None:
    report = by_hand(notes=("Idle is an estimate.",))
    page.set_content(f"<!DOCTYPE html><body>{report._repr_html_()}")
    page.evaluate(SANITISE)
    shown = page.locator("body").inner_text()
    assert shown.count(report.headline) == 1
    assert "Idle is an estimate." in shown
    assert "Lost time" not in shown
