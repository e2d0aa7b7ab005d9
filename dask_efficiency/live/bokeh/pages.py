"""Pages of the dashboard and their routes, with everything that is private to Dask there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from bokeh.core.properties import without_property_validation
from bokeh.models import Column, Row, TextInput
from bokeh.server.tornado import BokehTornado
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from distributed.http.scheduler.info import IndividualPlots
from distributed.utils import log_errors
from tornado.ioloop import IOLoop

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH
from dask_efficiency.live.bokeh import columns, texts
from dask_efficiency.live.bokeh.figures import (
    BESIDE_OTHERS,
    PagePart,
    Text,
    TimelineFigure,
    gpu_bars,
    pie_chart,
    prefix_bars,
    worker_bars,
    worker_spread,
)
from dask_efficiency.live.bokeh.tab import LINK, UPDATE_MS, Tab
from dask_efficiency.live.narrowing import NameParts, narrowed
from dask_efficiency.live.tab_view import MIN_BIN_NS, TabView

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts


class Page(DashboardComponent):
    """Parts of a page below a headline; the headline also shows notices, and inputs may narrow all but the timeline."""

    def __init__(
        self, tab: Tab, headline: Text, parts: Sequence[PagePart], root: Any, inputs: Sequence[TextInput] = ()
    ) -> None:
        self._tab = tab
        self._inputs = inputs
        for one in inputs:
            one.on_change("value", self._narrow)
        self._headline = headline
        self._parts = parts
        self._view: TabView | None = None
        self._shown: dict[PagePart, Any] = {}
        #: Parts that are drawn seldom: the first and the others take turns, as each takes milliseconds.
        seldom = [part for part in parts if part.every_ns]
        self._turns = cycle((frozenset(seldom[:1]), frozenset(seldom[1:])))
        self.root = root

    @without_property_validation  # type: ignore[untyped-decorator]  # bokeh is skipped by mypy
    @log_errors
    def update(self) -> None:
        """Draw what has changed."""
        tab, notice = self._tab, None
        wanted = NameParts(*(one.value[:MAX_NAME_LENGTH].strip() for one in self._inputs))
        try:
            tab.refresh()
            if tab.notice is None and tab.view is not None:
                self._draw(tab.view, wanted)
        except Exception as error:
            if any(wanted) and tab.notice is None:  # others see all, or what they asked for
                notice = tab.failed(error)
            else:
                tab.fail(error)
        if (shown := tab.notice or notice) is not None:
            self._headline.draw(shown)

    def _narrow(self, attribute: str, old: str, new: str) -> None:
        self._view = None
        self.update()

    def _draw(self, view: TabView, wanted: NameParts) -> None:
        if view is self._view and any(wanted):
            return
        mine = narrowed(view, wanted, self._tab.prefixes_in) if any(wanted) else None

        def made_by(part: PagePart) -> Any:
            return self._tab.drawn(part.made_by, every_ns=part.every_ns) if mine is None else part.made_by(mine)

        self._headline.draw(made_by(self._headline))
        if view is self._view:
            return
        others = next(self._turns) & self._shown.keys() if mine is None else ()
        for part in self._parts:
            if part in others:
                continue
            made = made_by(part)
            if made is not self._shown.get(part):
                part.draw(made)
                self._shown[part] = made
        self._view = view


def whole(tab: Tab) -> Page:
    """Headline, inputs that narrow it, findings, pie with key, timeline, data, stragglers, GPUs and workers."""
    key = Text(texts.key_with_causes, width=230, name="key")
    pie = pie_chart(width=300, height=330, title="Thread time while there was work")
    timeline = TimelineFigure(
        height=330, min_width=330, sizing_mode="stretch_width", title="Threads by what they were doing"
    )
    # Titles are separate texts because a figure's title does not wrap.
    titled: list[PagePart] = [
        Text(texts.data_moved, sizing_mode="stretch_width", styles=_TABLE_STYLE, name="moved"),
        Text(texts.memory, sizing_mode="stretch_width", styles=_TABLE_STYLE, name="memory"),
        Text(texts.straggler_table, sizing_mode="stretch_width", styles=_TABLE_STYLE, name="stragglers"),
        Text(texts.few_gpus_title, every_ns=MIN_BIN_NS, sizing_mode="stretch_width", styles=_TITLE_STYLE),
        gpu_bars(columns.few_gpus, **BESIDE_OTHERS),
        Text(texts.few_workers_title, every_ns=MIN_BIN_NS, sizing_mode="stretch_width", styles=_TITLE_STYLE),
        worker_bars(columns.few_workers, **BESIDE_OTHERS),
    ]
    headline = Text(texts.headline, sizing_mode="stretch_width", styles=_VERDICT_STYLE, name="headline")
    findings = Text(
        texts.findings, every_ns=MIN_BIN_NS, sizing_mode="stretch_width", styles=_FINDINGS_STYLE, name="findings"
    )
    wrap = {"flex-wrap": "wrap"}
    inputs = [
        TextInput(placeholder=f"{name}: all", name=f"only-{name}", width=160) for name in ("prefix", "span", "worker")
    ]
    root = Column(
        headline.root,
        Row(*inputs, styles=wrap),
        findings.root,
        Row(Row(pie.root, key.root, styles=wrap), timeline.root, sizing_mode="stretch_width", styles=wrap),
        *(part.root for part in titled),
        sizing_mode="stretch_width",
    )
    return Page(tab, headline, [findings, key, pie, timeline, *titled], root, inputs)


def pie(tab: Tab) -> Page:
    """Pie with its key."""
    key = Text(texts.key_table, name="key", styles={"font-size": _FONT_SIZE, "margin": "0 12px"})
    figure = pie_chart(aspect_ratio=1, sizing_mode="scale_height")
    return _stacked(tab, texts.headline, [key, figure], [Row(figure.root, key.root, sizing_mode="stretch_both")])


def timeline(tab: Tab) -> Page:
    """Timeline below its key."""
    key = Text(texts.timeline_key, **_KEY_LINE)
    return _stacked(tab, texts.timeline_title, [key, TimelineFigure(sizing_mode="stretch_both")])


def workers(tab: Tab) -> Page:
    """Workers below the key: one bar each, or the spread of many."""
    bars = worker_bars(columns.all_workers, sizing_mode="stretch_both")
    spread = worker_spread(sizing_mode="stretch_both")
    return _stacked(tab, texts.workers_title, [Text(texts.workers_key, **_KEY_LINE), bars, spread])


def gpus(tab: Tab) -> Page:
    """GPUs below the key, one bar each."""
    bars = gpu_bars(columns.all_gpus, sizing_mode="stretch_both")
    return _stacked(tab, texts.gpus_title, [Text(texts.gpu_key, **_KEY_LINE), bars])


def prefixes(tab: Tab) -> Page:
    """Prefixes with most thread time, below their key."""
    key = Text(texts.prefixes_key, every_ns=MIN_BIN_NS, **_KEY_LINE)
    return _stacked(tab, texts.prefixes_title, [key, prefix_bars(sizing_mode="stretch_both")])


#: Pages by path, to leave open on a wall or in a panel of JupyterLab.
PAGES: dict[str, Callable[[Tab], Page]] = {
    "individual-efficiency": whole,
    "individual-efficiency-gpus": gpus,
    "individual-efficiency-pie": pie,
    "individual-efficiency-prefixes": prefixes,
    "individual-efficiency-timeline": timeline,
    "individual-efficiency-workers": workers,
}


def _stacked(
    tab: Tab, title: Callable[[TabView], str], parts: Sequence[PagePart], roots: Sequence[Any] | None = None
) -> Page:
    """Page that fills its window: the headline, then the roots (by default those of the parts)."""
    if roots is None:
        roots = [part.root for part in parts]
    headline = Text(title, sizing_mode="stretch_width", styles=_HEADLINE_STYLE, name="headline")
    return Page(tab, headline, parts, Column(headline.root, *roots, sizing_mode="stretch_both"))


_VERDICT_STYLE = {"font-size": "17px", "line-height": "1.4", "margin": "8px 6px 4px"}
_FINDINGS_STYLE = {"font-size": "14px", "line-height": "1.4", "color": "#444444", "margin": "0 6px 4px"}
_TABLE_STYLE = {"font-size": "13px", "line-height": "1.4", "margin": "4px 6px 4px 20px"}
_TITLE_STYLE = {"font-size": "13px", "font-weight": "bold", "color": "#444444", "margin": "12px 20px 0"}
_HEADLINE_STYLE = {"font-size": "clamp(12px, 1.5vw, 22px)", "line-height": "1.3", "margin": "6px 12px 4px"}
#: Readable in a panel of JupyterLab, and larger on a wall.
_FONT_SIZE = "clamp(11px, 1.3vw, 18px)"
_KEY_LINE: dict[str, Any] = {
    "sizing_mode": "stretch_width",
    "styles": {"font-size": _FONT_SIZE, "margin": "0 12px 4px"},
    "name": "key",
}


# -- routes ----------------------------------------------------------------------------------------


class NoDashboardError(RuntimeError):
    """The scheduler serves no Bokeh dashboard."""


#: Tab of each scheduler, from its first registration on.
_TABS: WeakKeyDictionary[Scheduler, Tab] = WeakKeyDictionary()


def show(scheduler: Scheduler, source: ClusterAccounts) -> None:
    """Put the pages on this scheduler's dashboard, or switch them to this source; NoDashboardError if it has none."""
    tab = _TABS.get(scheduler)
    if tab is None:
        tab = _TABS[scheduler] = _install(scheduler)
    tab.show(source)


def hide(scheduler: Scheduler, source: ClusterAccounts) -> None:
    """Remove the links to the pages; does nothing if another source is shown."""
    tab = _TABS.get(scheduler)
    if tab is not None:
        tab.hide(source)


def _install(scheduler: Scheduler) -> Tab:
    """Serve the pages; once per scheduler, as Dask cannot remove a route."""
    http = scheduler.http_application
    dashboard = next((app for app in http.applications if isinstance(app, BokehTornado)), None)
    if dashboard is None:
        raise NoDashboardError("the scheduler serves no Bokeh dashboard")
    # Memoised by Dask, so these are the lists that Dask's own pages use.
    variables = template_variables(scheduler)
    tab = Tab(variables)
    documents = {f"/{LINK}": partial(_with_links, tab)}
    documents |= {f"/{path}": partial(_alone, page, tab) for path, page in PAGES.items()}
    application = BokehApplication(documents, scheduler, prefix=dashboard.prefix, template_variables=variables)
    http.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # Dask's own handler knows only the first Bokeh application; the handler added last is asked first.
    route = rf"{dashboard.prefix}/individual-plots.json"
    http.add_handlers(r".*", [(route, _IndividualPlots, {"dask_server": scheduler})])
    return tab


class _IndividualPlots(IndividualPlots):
    """List of plots for dask-labextension, with the plugin's pages added."""

    def write(self, chunk: Any) -> None:
        tab = _TABS.get(self.server)
        if isinstance(chunk, dict) and tab is not None and tab.shown:
            # Named like Dask's own: the extension shows what follows "Individual".
            chunk = {**chunk, **{path.replace("-", " ").title(): f"/{path}" for path in PAGES}}
        super().write(chunk)


def _with_links(tab: Tab, scheduler: Scheduler, extra: dict[str, Any], doc: Any) -> None:
    """Page with all figures, below Dask's links."""
    _alone(whole, tab, scheduler, extra, doc)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


def _alone(make: Callable[[Tab], Page], tab: Tab, scheduler: Scheduler, extra: dict[str, Any], doc: Any) -> None:
    """Page that fills its window, or a panel of JupyterLab."""
    page = make(tab)
    page.update()
    add_periodic_callback(doc, page, UPDATE_MS)
    doc.add_root(page.root)
    doc.title = "Dask: Efficiency"
    doc.theme = BOKEH_THEME
