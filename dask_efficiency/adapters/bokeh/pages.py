"""Pages: which figures stand together, and how they share the room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import Column, Div, Row
from distributed.dashboard.components import DashboardComponent
from distributed.utils import log_errors

from dask_efficiency.adapters.bokeh import columns
from dask_efficiency.adapters.bokeh.columns import Reading
from dask_efficiency.adapters.bokeh.figures import (
    AllWorkers,
    FewGpus,
    FewWorkers,
    GpuBars,
    Part,
    Pie,
    PrefixBars,
    Text,
    Timeline,
    WorkerSpread,
)
from dask_efficiency.adapters.bokeh.tab import Tab


class Page(DashboardComponent):
    """Parts below a headline, which is also where it is said that they stand still.

    Parameters
    ----------
    tab
        Knows what there is to draw.
    headline, parts
        What :meth:`update` draws.
    root
        Where all of them are.
    """

    def __init__(self, tab: Tab, headline: Text, parts: Sequence[Part], root: Any) -> None:
        self._tab = tab
        self._headline = headline
        self._parts = parts
        self._reading: Reading | None = None
        self._shown: dict[Part, Any] = {}
        self.root = root

    @without_property_validation  # type: ignore[untyped-decorator]  # bokeh is skipped by mypy
    @log_errors
    def update(self) -> None:
        """Show what has changed."""
        tab = self._tab
        try:
            tab.refresh()
            if tab.notice is None and tab.reading is not None:
                self._draw(tab.reading)
        except Exception as error:
            tab.fail(error)
        if tab.notice is not None:
            self._headline.draw(tab.notice)

    def _draw(self, reading: Reading) -> None:
        self._headline.draw(self._tab.drawn(self._headline.made_by))
        if reading is self._reading:
            return
        for part in self._parts:
            made = self._tab.drawn(part.made_by, every_ns=part.every_ns)
            if made is not self._shown.get(part):
                part.draw(made)
                self._shown[part] = made
        self._reading = reading


def whole(tab: Tab) -> Page:
    """Verdict, pie and key, timeline, GPUs where there are any, and workers."""
    headline = Text(columns.verdict, sizing_mode="stretch_width", styles=_VERDICT_STYLE, name="headline")
    key = Text(columns.key_table, width=230, name="key")
    pie = Pie(width=300, height=330, title="Thread time while there was work")
    timeline = Timeline(height=330, min_width=330, sizing_mode="stretch_width", title="Threads by what they were doing")
    stragglers = Text(columns.straggler_table, sizing_mode="stretch_width", styles=_TABLE_STYLE, name="stragglers")
    gpus = FewGpus()
    workers = FewWorkers()
    wrap = {"flex-wrap": "wrap"}
    root = Column(
        headline.root,
        Row(Row(pie.root, key.root, styles=wrap), timeline.root, sizing_mode="stretch_width", styles=wrap),
        stragglers.root,
        gpus.title,
        gpus.root,
        workers.title,
        workers.root,
        sizing_mode="stretch_width",
    )
    return Page(tab, headline, [key, pie, timeline, stragglers, gpus, workers], root)


def pie(tab: Tab) -> Page:
    """The pie, and its key beside it."""
    key = Text(columns.key_table, name="key", styles={"font-size": _FONT_SIZE, "margin": "0 12px"})
    figure = Pie(aspect_ratio=1, sizing_mode="scale_height")
    return _stacked(tab, columns.verdict, [key, figure], [Row(figure.root, key.root, sizing_mode="stretch_both")])


def timeline(tab: Tab) -> Page:
    """The timeline below its key."""
    return _stacked(
        tab, columns.timeline_title, [Text(columns.timeline_key, **_KEY_LINE), Timeline(sizing_mode="stretch_both")]
    )


def workers(tab: Tab) -> Page:
    """The workers below the key: a bar each, or the spread over many."""
    figures: list[Part] = [AllWorkers(sizing_mode="stretch_both"), WorkerSpread(sizing_mode="stretch_both")]
    return _stacked(tab, columns.workers_title, [Text(columns.workers_key, **_KEY_LINE), *figures])


def gpus(tab: Tab) -> Page:
    """The GPUs, a bar each below the key."""
    figures: list[Part] = [Text(columns.gpu_key, **_KEY_LINE), GpuBars(sizing_mode="stretch_both")]
    return _stacked(tab, columns.gpus_title, figures)


def prefixes(tab: Tab) -> Page:
    """The task prefixes that took most time, below their key."""
    bars = PrefixBars(Div(disable_math=True, **_KEY_LINE), sizing_mode="stretch_both")
    return _stacked(tab, columns.prefixes_title, [bars], [bars.key, bars.root])


#: The pages to leave open on a wall, or in a panel of JupyterLab, by path.
PAGES: dict[str, Callable[[Tab], Page]] = {
    "individual-efficiency": whole,
    "individual-efficiency-gpus": gpus,
    "individual-efficiency-pie": pie,
    "individual-efficiency-prefixes": prefixes,
    "individual-efficiency-timeline": timeline,
    "individual-efficiency-workers": workers,
}


def _stacked(
    tab: Tab, title: Callable[[Reading], str], parts: Sequence[Part], roots: Sequence[Any] | None = None
) -> Page:
    """A page that fills its window: the headline, then the roots, which are those of the parts if not given."""
    if roots is None:
        roots = [part.root for part in parts]
    headline = Text(title, sizing_mode="stretch_width", styles=_HEADLINE_STYLE, name="headline")
    return Page(tab, headline, parts, Column(headline.root, *roots, sizing_mode="stretch_both"))


_VERDICT_STYLE = {"font-size": "17px", "line-height": "1.4", "margin": "8px 6px 4px"}
_TABLE_STYLE = {"font-size": "13px", "line-height": "1.4", "margin": "4px 6px 4px 20px"}
_HEADLINE_STYLE = {"font-size": "clamp(12px, 1.5vw, 22px)", "line-height": "1.3", "margin": "6px 12px 4px"}

#: Readable in a panel of JupyterLab, and larger on a wall.
_FONT_SIZE = "clamp(11px, 1.3vw, 18px)"
_KEY_LINE: dict[str, Any] = {
    "sizing_mode": "stretch_width",
    "styles": {"font-size": _FONT_SIZE, "margin": "0 12px 4px"},
    "name": "key",
}
