"""Bokeh: a tab on Dask's own dashboard, of what the cluster's threads did in the last minutes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from bokeh.core.properties import without_property_validation
from bokeh.models import (
    AdaptiveTicker,
    Column,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    Div,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
    Row,
)
from bokeh.plotting import figure
from bokeh.server.tornado import BokehTornado
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from distributed.http.scheduler.info import IndividualPlots
from distributed.scheduler import heartbeat_interval
from distributed.utils import log_errors
from tornado.ioloop import IOLoop, PeriodicCallback

from dask_efficiency.buckets import Bucket
from dask_efficiency.cluster import ACTIVITIES, ClusterLedger
from dask_efficiency.report import recent
from dask_efficiency.report.colours import COLOURS, OTHER_COLOUR, ink
from dask_efficiency.report.pie import OTHER, Wedge, label_point, radians, wedges
from dask_efficiency.report.verdict import DESCRIPTIONS

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger("dask_efficiency")

#: Where the tab is, and the same figures without Dask's links around them, for a panel of a notebook.
PAGE = "efficiency"
PANEL = "individual-efficiency"

#: How often an open page asks for news, which there is once a heartbeat at most.
UPDATE_MS = 2_000

#: How often what each worker did is kept: a view of the last minutes begins at the oldest one kept.
KEEP_WORKERS_MS = 60_000

#: A narrower wedge has no room for its per cent, which the key has too.
LABELLED_SHARE = 0.07

GONE = (
    "The plugin was unregistered, and these figures stand still. "
    "They go on when client.register_plugin(EfficiencyPlugin()) puts it back."
)
NO_REPORT = "No worker has reported yet."


class NoDashboardError(RuntimeError):
    """The scheduler serves no Bokeh dashboard; says what it is without."""


class Source(Protocol):
    """What is shown: the accounts, and what they said at the last polls."""

    cluster: ClusterLedger
    #: Why nothing is measured any more; None while it is.
    off: str | None
    #: Seconds since the epoch at which the accounts began.
    since: float

    @property
    def recent(self) -> Iterable[recent.Moment]:
        """The last polls, in order."""


@dataclass(frozen=True, slots=True)
class View:
    """What every open page shows, as plain data: columns by name for each figure, and texts as HTML."""

    verdict: str
    key: str
    pie: Mapping[str, list[Any]]
    timeline: Mapping[str, list[Any]]
    #: Milliseconds since the epoch from which to which the timeline goes.
    span: tuple[float, float]
    workers: Mapping[str, list[Any]]
    workers_title: str


#: The view of a scheduler that nothing is known of.
EMPTY = View(
    verdict="",
    key="",
    pie={name: [] for name in ("label", "start", "stop", "colour", "x", "y", "percent", "text", "ink", "seconds")},
    timeline={name: [] for name in ("left", "right", "middle", "width", "nthreads", *ACTIVITIES)},
    span=(0.0, 1.0),
    workers={name: [] for name in ("y", "name", "nthreads", *ACTIVITIES)},
    workers_title="Workers",
)


class Tab:
    """The tab on one scheduler's dashboard.

    Its routes stay for as long as the scheduler serves, for Dask can take none away: a page that is
    left open over :meth:`hide` says so, and goes on with the next :meth:`show`. The links are there
    between the two.
    """

    def __init__(self, variables: dict[str, Any]) -> None:
        #: Lists that the templates of all pages share.
        self._pages: list[str] = variables["pages"]
        self._plots: list[dict[str, str]] = variables["plots"]
        self._source: Source | None = None
        self._view = EMPTY
        #: Of the last moment in the view; None where nothing of this source is.
        self._at: int | None = None
        self._failed = False
        self._workers: deque[recent.WorkersMoment] = deque(maxlen=1 + recent.WINDOW_NS // (KEEP_WORKERS_MS * 10**6))
        self._keeper = PeriodicCallback(self._keep_workers, KEEP_WORKERS_MS)

    @property
    def shown(self) -> bool:
        """Whether there is something to show."""
        return self._source is not None

    def show(self, source: Source) -> None:
        """Link to the tab, and show this from now on."""
        self.hide(self._source)
        self._source = source
        self._pages.append(PAGE)
        self._plots.append({"url": PAGE, "name": "Efficiency"})
        self._plots.sort(key=lambda plot: plot["name"])
        self._keep_workers()
        self._keeper.start()

    def hide(self, source: Source | None) -> None:
        """Link to it no more, and say so on pages that are open; no-op where another source is shown."""
        if source is None or source is not self._source:
            return
        self._source = None
        self._keeper.stop()
        self._workers.clear()
        self._at = None
        self._pages[:] = [page for page in self._pages if page != PAGE]
        self._plots[:] = [plot for plot in self._plots if plot["url"] != PAGE]

    def view(self) -> View:
        """What to show now; the same object where nothing has changed since the last time."""
        try:
            self._refresh()
        except Exception as error:
            if not self._failed:
                logger.exception("dask_efficiency could not draw its page")
            self._failed = True
            self._say(f"This page failed: {type(error).__name__}: {error}"[:500])
        return self._view

    def _refresh(self) -> None:
        source = self._source
        if source is None:
            self._say(GONE)
        elif source.off is not None:
            self._say(f"Nothing is measured any more: {source.off}")
        else:
            moments = list(source.recent)
            heartbeat_seconds = float(heartbeat_interval(len(source.cluster.present)))
            # Less a quarter, for polls and pages do not keep step.
            gap = 0.75e9 * max(UPDATE_MS / 1e3, heartbeat_seconds)
            if moments and (self._at is None or moments[-1].at - self._at >= gap):
                self._at = moments[-1].at
                moments = recent.window_of(moments, width=recent.bin_width(heartbeat_seconds))
                self._view = _view(source, moments, self._workers, heartbeat_seconds)

    def _say(self, text: str) -> None:
        """Only this, above figures that stand still."""
        verdict = escape(text)
        if self._view.verdict != verdict:
            self._view = replace(self._view, verdict=verdict)

    def _keep_workers(self) -> None:
        source = self._source
        if source is not None and source.off is None:
            self._workers.append(recent.WorkersMoment.of(source.cluster.present.values()))


#: Every scheduler's tab, from its first registration on.
_TABS: WeakKeyDictionary[Scheduler, Tab] = WeakKeyDictionary()


def show(scheduler: Scheduler, source: Source) -> None:
    """Put the tab on this scheduler's dashboard, or show this on the one that is there.

    Raises
    ------
    NoDashboardError
        If the scheduler serves none.
    """
    tab = _TABS.get(scheduler)
    if tab is None:
        tab = _TABS[scheduler] = _install(scheduler)
    tab.show(source)


def hide(scheduler: Scheduler, source: Source) -> None:
    """Take the tab off again, as far as Dask allows; no-op where another source is shown."""
    tab = _TABS.get(scheduler)
    if tab is not None:
        tab.hide(source)


# -- where Dask's dashboard is private -------------------------------------------------------


def _install(scheduler: Scheduler) -> Tab:
    """Serve the page, once for a scheduler: Dask has no way to take a route away."""
    http = scheduler.http_application
    dashboard = next((app for app in http.applications if isinstance(app, BokehTornado)), None)
    if dashboard is None:
        raise NoDashboardError("the scheduler serves no Bokeh dashboard")
    # Memoised, so that these are the lists that the pages of Dask's own have.
    variables = template_variables(scheduler)
    tab = Tab(variables)
    documents = {f"/{PAGE}": partial(_page, tab), f"/{PANEL}": partial(_panel, tab)}
    application = BokehApplication(documents, scheduler, prefix=dashboard.prefix, template_variables=variables)
    http.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # Dask's own handler knows only the first Bokeh application; of two, the later one is asked first.
    route = rf"{dashboard.prefix}/individual-plots.json"
    http.add_handlers(r".*", [(route, _IndividualPlots, {"dask_server": scheduler})])
    return tab


class _IndividualPlots(IndividualPlots):
    """Dask's list of plots for dask-labextension, and ours."""

    def write(self, chunk: Any) -> None:
        tab = _TABS.get(self.server)
        if isinstance(chunk, dict) and tab is not None and tab.shown:
            chunk = {**chunk, PANEL.replace("-", " ").title(): f"/{PANEL}"}
        super().write(chunk)


def _page(tab: Tab, scheduler: Scheduler, extra: dict[str, Any], doc: Any) -> None:
    """The tab, with Dask's links above it."""
    _panel(tab, scheduler, extra, doc)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


def _panel(tab: Tab, scheduler: Scheduler, extra: dict[str, Any], doc: Any) -> None:
    page = EfficiencyPage(tab)
    page.update()
    add_periodic_callback(doc, page, UPDATE_MS)
    doc.add_root(page.root)
    doc.title = "Dask: Efficiency"
    doc.theme = BOKEH_THEME


# -- what is drawn ---------------------------------------------------------------------------


class EfficiencyPage(DashboardComponent):
    """Verdict, pie and key, timeline, and workers."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._view = EMPTY
        self.verdict = Div(sizing_mode="stretch_width", styles=_VERDICT_STYLE, disable_math=True, name="verdict")
        self.key = Div(width=230, disable_math=True, name="key")
        #: Apart from its figure, for a title of that does not wrap.
        self.workers_title = Div(sizing_mode="stretch_width", styles=_TITLE_STYLE, disable_math=True)
        self.pie_source = ColumnDataSource(dict(EMPTY.pie), name="pie")
        self.timeline_source = ColumnDataSource(dict(EMPTY.timeline), name="timeline")
        self.workers_source = ColumnDataSource(dict(EMPTY.workers), name="workers")
        self.timeline = _timeline_figure(self.timeline_source)
        self.workers = _workers_figure(self.workers_source)
        pie = Row(_pie_figure(self.pie_source), self.key, styles={"flex-wrap": "wrap"})
        self.root = Column(
            self.verdict,
            Row(pie, self.timeline, sizing_mode="stretch_width", styles={"flex-wrap": "wrap"}),
            self.workers_title,
            self.workers,
            sizing_mode="stretch_width",
        )

    @without_property_validation  # type: ignore[untyped-decorator]  # bokeh is skipped by mypy
    @log_errors
    def update(self) -> None:
        """Show what has changed."""
        view = self._tab.view()
        then, self._view = self._view, view
        if view is then:
            return
        self.verdict.text = view.verdict
        self.key.text = view.key
        if view.timeline is then.timeline:
            return
        self.pie_source.data = dict(view.pie)
        self.timeline_source.data = dict(view.timeline)
        self.timeline.x_range.update(start=view.span[0], end=view.span[1])
        self.workers_source.data = dict(view.workers)
        self.workers_title.text = view.workers_title
        if view.workers["name"] != then.workers["name"]:
            names = view.workers["name"]
            axis = self.workers.yaxis[0]
            axis.major_label_overrides = dict(enumerate(names))
            axis.ticker.ticks = list(range(len(names)))
            self.workers.y_range.start = len(names) - 0.5
            self.workers.height = _workers_height(len(names))


#: The cluster's time is told from its workers' by size.
_VERDICT_STYLE = {"font-size": "17px", "line-height": "1.4", "margin": "8px 6px 4px"}
_TITLE_STYLE = {"font-size": "13px", "font-weight": "bold", "color": "#444444", "margin": "12px 20px 0"}
_DIM = "color:#59636e"


def _pie_figure(source: ColumnDataSource) -> Any:
    pie = figure(
        width=300,
        height=330,
        x_range=Range1d(-1.03, 1.03),
        y_range=Range1d(-1.03, 1.03),
        toolbar_location=None,
        tools="",
        title="Thread time while there was work",
        min_border=0,
        outline_line_color=None,
    )
    pie.axis.visible = False
    pie.grid.visible = False
    pie.wedge(
        x=0,
        y=0,
        radius=1,
        start_angle="start",
        end_angle="stop",
        direction="clock",
        fill_color="colour",
        line_color="#fafafa",
        source=source,
    )
    pie.text(
        x="x",
        y="y",
        text="text",
        text_color="ink",
        text_align="center",
        text_baseline="middle",
        text_font_size="12px",
        source=source,
    )
    pie.add_tools(HoverTool(tooltips="<b>@label</b> @percent<br>@seconds{0,0.0} thread-seconds"))
    return pie


def _timeline_figure(source: ColumnDataSource) -> Any:
    time = figure(
        height=330,
        min_width=330,
        sizing_mode="stretch_width",
        x_range=Range1d(0, 1),
        y_range=DataRange1d(start=0, range_padding=0.08),
        x_axis_type="datetime",
        toolbar_location=None,
        tools="",
        title="Threads by what they were doing",
        outline_line_color=None,
    )
    bars = time.vbar_stack(
        ACTIVITIES,
        x="middle",
        width="width",
        color=[COLOURS[Bucket(name)] for name in ACTIVITIES],
        line_width=0.5,
        source=source,
    )
    time.segment(
        x0="left", y0="nthreads", x1="right", y1="nthreads", line_color="#1f2328", line_width=1.5, source=source
    )
    time.add_tools(HoverTool(renderers=bars, tooltips="<b>$name</b><br>@$name{0,0.00} of @nthreads{0,0.0} threads"))
    # The viewer's own time; Bokeh's formatter knows UTC only.
    time.xaxis.formatter = CustomJSTickFormatter(code=_LOCAL_TIME)
    time.xgrid.visible = False
    time.yaxis.minor_tick_line_color = None
    time.yaxis.ticker = AdaptiveTicker(min_interval=1, desired_num_ticks=5)
    time.yaxis.formatter = NumeralTickFormatter(format="0,0")
    return time


_LOCAL_TIME = """
const time = new Date(tick)
const parts = [time.getHours(), time.getMinutes()]
if (time.getSeconds() != 0) parts.push(time.getSeconds())
return parts.map((part) => String(part).padStart(2, "0")).join(":")
"""


def _workers_figure(source: ColumnDataSource) -> Any:
    workers = figure(
        height=_workers_height(0),
        min_width=330,
        sizing_mode="stretch_width",
        x_range=Range1d(0, 1),
        y_range=Range1d(-0.5, -0.5),
        toolbar_location=None,
        tools="",
        outline_line_color=None,
    )
    bars = workers.hbar_stack(
        ACTIVITIES, y="y", height=0.8, color=[COLOURS[Bucket(name)] for name in ACTIVITIES], source=source
    )
    workers.add_tools(
        HoverTool(renderers=bars, tooltips="<b>$name</b> @$name{0.0 %}<br>worker @name, @nthreads threads")
    )
    workers.xaxis.formatter = NumeralTickFormatter(format="0 %")
    workers.yaxis.ticker = FixedTicker(ticks=[])
    workers.yaxis.major_tick_line_color = None
    workers.grid.visible = False
    return workers


def _workers_height(number: int) -> int:
    return 45 + 18 * max(1, number)


def _view(
    source: Source,
    moments: Sequence[recent.Moment],
    kept: Sequence[recent.WorkersMoment],
    heartbeat_seconds: float,
) -> View:
    """The accounts of these moments as columns and texts."""
    gained = recent.gained(moments)
    working = {name: ns for name, ns in gained.items() if name != Bucket.NO_WORK}
    slices = wedges(working)
    binned = recent.timeline(moments, width=recent.bin_width(heartbeat_seconds))
    epoch = source.since * 1e3 - source.cluster.started / 1e6
    left, right = (edges / 1e6 + epoch for edges in (binned.start, binned.stop))
    workers = recent.workers(source.cluster.present.values(), kept[0] if kept else recent.NOTHING)
    seconds = (moments[-1].at - moments[0].at) / 1e9
    text = escape(recent.sentence(gained, source.cluster.reasons)) if gained else NO_REPORT
    return View(
        verdict=f'<span style="{_DIM}">Last {recent.span_of(seconds)}</span>&ensp;{text}',
        key=_key(gained, slices),
        pie={
            "label": [wedge.label for wedge in slices],
            "start": [radians(wedge.start) for wedge in slices],
            "stop": [radians(wedge.stop) for wedge in slices],
            "colour": [wedge.colour for wedge in slices],
            "x": [label_point(wedge, 0.68)[0] for wedge in slices],
            "y": [-label_point(wedge, 0.68)[1] for wedge in slices],
            "percent": [_percent(wedge) for wedge in slices],
            "text": [_percent(wedge) if wedge.share >= LABELLED_SHARE else "" for wedge in slices],
            "ink": [ink(wedge.colour) for wedge in slices],
            "seconds": [wedge.nanoseconds / 1e9 for wedge in slices],
        },
        timeline={
            "left": left.tolist(),
            "right": right.tolist(),
            "middle": ((left + right) / 2).tolist(),
            "width": (right - left).tolist(),
            "nthreads": binned.nthreads.tolist(),
            **{name: binned.threads[:, i].tolist() for i, name in enumerate(ACTIVITIES)},
        },
        span=(moments[0].at / 1e6 + epoch, moments[-1].at / 1e6 + epoch),
        workers={
            "y": list(range(len(workers.names))),
            "name": list(workers.names),
            "nthreads": list(workers.nthreads),
            **{name: workers.shares[:, i].tolist() for i, name in enumerate(ACTIVITIES)},
        },
        workers_title=escape(f"{workers.title}: share of their thread time while there was work"),
    )


def _key(gained: Mapping[str, int], slices: Sequence[Wedge]) -> str:
    """Every activity's colour, and its per cent of the time while there was work."""
    percent = {
        wedge.label: _percent(wedge) for wedge in wedges(dict(gained, **{Bucket.NO_WORK: 0}), at_most=len(ACTIVITIES))
    }
    rows = [
        _key_row(COLOURS[Bucket(name)], name, percent.get(name, ""), DESCRIPTIONS[Bucket(name)])
        for name in ACTIVITIES
        if name in gained
    ]
    rows += [
        _key_row(OTHER_COLOUR, "in the pie: other", _percent(wedge), "what is too small for a wedge of its own")
        for wedge in slices
        if wedge.label == OTHER
    ]
    return f'<table style="border-spacing:0 3px">{"".join(rows)}</table>'


def _key_row(colour: str, name: str, percent: str, description: str) -> str:
    mark = f'<span style="display:inline-block;width:11px;height:11px;margin-right:7px;background:{colour}"></span>'
    return (
        f'<tr title="{escape(description)}"><td style="white-space:nowrap">{mark}{name}</td>'
        f'<td style="text-align:right;padding-left:12px;font-variant-numeric:tabular-nums">{percent}</td></tr>'
    )


def _percent(wedge: Wedge) -> str:
    return f"{'<0.1' if wedge.percent == '0.0' else wedge.percent} %"
