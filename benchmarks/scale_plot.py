"""The picture of ``benchmarks/scale.py``: what the plugin costs by the number of workers and the length of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bokeh.embed import file_html
from bokeh.layouts import row
from bokeh.models import ColumnDataSource, Whisker
from bokeh.plotting import figure
from bokeh.resources import INLINE

#: Pixels of each figure.
WIDTH, HEIGHT = 480, 360

COLOURS = {False: "#2b7bba", True: "#d95f02"}


class Size(NamedTuple):
    """What is drawn of one number of workers, with GPUs or without."""

    workers: int
    gpu: bool
    #: Per cent of a core: median, least and most of the runs.
    percent: tuple[float, float, float]


def plot(sizes: Sequence[Size], task_us: float, path: Path) -> None:
    """Write the picture: as a page, or as a PNG where Playwright has a browser."""
    page = file_html(row(_by_workers(sizes), _by_length(task_us)), INLINE, "dask-efficiency at scale")
    if path.suffix != ".png":
        path.write_text(page, encoding="utf-8")
        return
    import shutil

    from playwright.sync_api import sync_playwright

    from tests.conftest import ARGUMENTS

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        shown = browser.new_page(viewport={"width": 2 * WIDTH + 16, "height": HEIGHT + 16}, device_scale_factor=1.5)
        shown.set_content(page)
        shown.wait_for_timeout(1_000)
        shown.screenshot(path=path)
        browser.close()


def _by_workers(sizes: Sequence[Size]) -> Any:
    """Median, least and most of the runs of each size."""
    drawn = _figure("workers", "% of a core on the scheduler")
    for gpu in (False, True):
        of = [size for size in sizes if size.gpu is gpu]
        if not of:
            continue
        middle, lower, upper = zip(*(size.percent for size in of), strict=True)
        source = ColumnDataSource(
            {"x": [size.workers for size in of], "y": list(middle), "lower": list(lower), "upper": list(upper)}
        )
        label = "with GPUs" if gpu else "without GPUs"
        drawn.line("x", "y", source=source, color=COLOURS[gpu], legend_label=label)
        drawn.scatter("x", "y", source=source, color=COLOURS[gpu], size=6, legend_label=label)
        drawn.add_layout(
            Whisker(base="x", lower="lower", upper="upper", source=source, line_color=COLOURS[gpu], level="annotation")
        )
    drawn.scatter([1_000, 10_000], [2, 15], marker="dash", size=24, color="black", legend_label="the claim")
    drawn.legend.location = "top_left"
    return drawn


def _by_length(task_us: float) -> Any:
    """Share of a task's time, by its length."""
    lengths = [10 ** (exponent / 10) for exponent in range(31)]
    drawn = _figure("milliseconds of a task", "% of its time")
    drawn.line(lengths, [task_us / ms / 10 for ms in lengths], color=COLOURS[False])
    drawn.line([lengths[0], lengths[-1]], [0.1, 0.1], color="black", line_dash="dashed", legend_label="0.1 %")
    return drawn


def _figure(x: str, y: str) -> Any:
    """Logarithmic axes with these labels."""
    return figure(
        width=WIDTH,
        height=HEIGHT,
        x_axis_type="log",
        y_axis_type="log",
        x_axis_label=x,
        y_axis_label=y,
        toolbar_location=None,
    )
