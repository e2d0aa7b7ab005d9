"""Bokeh figures of the pages: the pie, the timeline, and bars in named rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    Div,
    FixedTicker,
    HoverTool,
    NoOverlap,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.plotting import figure
from bokeh.transform import stack

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.bokeh import columns
from dask_efficiency.live.bokeh.columns import Columns
from dask_efficiency.live.tab_view import MIN_BIN_NS, TabView
from dask_efficiency.show.drawn_buckets import COLOURS, GPU_COLOURS

MakesColumns = Callable[[TabView], Columns]


class PagePart(ABC):
    """A figure or text of a page: a Bokeh model that draws a function of the view, every so many nanoseconds."""

    def __init__(self, root: Any, made_by: Callable[[TabView], Any], every_ns: int = 0) -> None:
        self.root = root
        self.made_by = made_by
        self.every_ns = every_ns

    @abstractmethod
    def draw(self, made: Any) -> None:
        """Show the result."""


class Text(PagePart):
    """Lines of HTML; an empty text takes no room."""

    def __init__(self, made_by: Callable[[TabView], str], *, every_ns: int = 0, **options: Any) -> None:
        super().__init__(Div(disable_math=True, **options), made_by, every_ns)

    def draw(self, made: str) -> None:
        """Show the HTML."""
        self.root.text = made
        self.root.visible = bool(made)


class Figure(PagePart):
    """A figure of named columns."""

    def __init__(
        self, name: str, made_by: MakesColumns, names: Sequence[str], *, every_ns: int = 0, **options: Any
    ) -> None:
        self.source = ColumnDataSource(columns.empty(names), name=name)
        root = figure(toolbar_location=None, tools="", outline_line_color=None, **options)
        super().__init__(root, made_by, every_ns)

    def draw(self, made: Columns) -> None:
        """Send the viewer the columns that changed: most activities stay at zero."""
        shown = self.source.data
        # Copies: the values are shared by all viewers, and Bokeh patches columns in place.
        if changed := {name: list(values) for name, values in made.items() if values != shown[name]}:
            shown.update(changed)


# -- growth of a table -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """Difference between two versions of a table: changed rows at its end, then added rows."""

    #: Index of the first changed row, and the new values from there on; unchanged columns are left out.
    since: int
    changed: Mapping[str, list[Any]]
    #: Added rows by column, and the number of rows afterwards; the first rows are dropped.
    added: Mapping[str, list[Any]]
    rows: int


def growth(then: Columns, now: Columns, *, order: str) -> Growth | None:
    """Difference between versions of a table with rows in increasing ``order``; None if too little is in common."""
    if not then[order] or not now[order] or now[order][0] not in then[order]:
        return None
    dropped = then[order].index(now[order][0])
    common = len(then[order]) - dropped
    if common > len(now[order]) or (dropped and common == len(now[order])):
        return None
    same = min(_same(then[name][dropped:], values) for name, values in now.items())
    if 2 * same < common:
        return None
    tails = {name: values[same:common] for name, values in now.items()}
    return Growth(
        since=dropped + same,
        changed={name: tail for name, tail in tails.items() if tail != then[name][dropped + same :]},
        added={name: values[common:] for name, values in now.items()},
        rows=len(now[order]),
    )


def _same(then: list[Any], now: list[Any]) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), len(then))


# -- figures of all threads ------------------------------------------------------------------------


def pie_chart(**options: Any) -> Figure:
    """Thread time by activity, as a pie."""
    ranges = {"x_range": Range1d(-1.03, 1.03), "y_range": Range1d(-1.03, 1.03)}
    found = Figure("pie", columns.pie, columns.PIE, min_border=0, **ranges, **options)
    root, source = found.root, found.source
    root.axis.visible = False
    root.grid.visible = False
    angles = {"start_angle": "start", "end_angle": "stop", "direction": "clock"}
    root.wedge(x=0, y=0, radius=1, **angles, fill_color="colour", line_color="#fafafa", source=source)
    style = {"text_color": "ink", "text_align": "center", "text_baseline": "middle", "text_font_size": "12px"}
    root.text(x="x", y="y", text="text", **style, source=source)
    root.add_tools(HoverTool(tooltips="<b>@label</b> @percent<br>@seconds{0,0.0} thread-seconds<br>@causes"))
    return found


class TimelineFigure(Figure):
    """Threads by activity over time."""

    def __init__(self, **options: Any) -> None:
        # No range that follows the data: it warns when there is none yet.
        ranges = {"x_range": Range1d(0, 1), "y_range": DataRange1d(start=0, range_padding=0.08)}
        super().__init__("timeline", columns.timeline, columns.TIMELINE, x_axis_type="datetime", **ranges, **options)
        root, source = self.root, self.source
        bar = {"left": "left", "right": "right", "line_color": None, "source": source}
        bars = [
            root.quad(bottom=stack(*below), top=stack(*below, name), color=COLOURS[Bucket(name)], name=name, **bar)
            for name, below in ((name, ACTIVITIES[:i]) for i, name in enumerate(ACTIVITIES))
        ]
        ends = {"x0": "left", "y0": "nthreads", "x1": "right", "y1": "nthreads"}
        root.segment(**ends, line_color="#1f2328", line_width=1.5, source=source)
        tooltips = "<b>$name</b><br>@$name{0,0.00} of @nthreads{0,0.0} threads"
        root.add_tools(HoverTool(renderers=bars, tooltips=tooltips))
        # Local time of the viewer; Bokeh's formatter knows UTC only.
        root.xaxis.formatter = CustomJSTickFormatter(code=_LOCAL_TIME)
        root.xgrid.visible = False
        root.yaxis.minor_tick_line_color = None
        root.yaxis.ticker = AdaptiveTicker(min_interval=1, desired_num_ticks=5)
        root.yaxis.formatter = NumeralTickFormatter(format="0,0")

    def draw(self, made: Columns) -> None:
        """Show the bins."""
        if made["left"]:
            self.root.x_range.update(start=made["left"][0], end=made["right"][-1])
        grown = growth(self.source.data, made, order="left")
        if grown is None:
            super().draw(made)
            return
        rows = slice(grown.since, len(self.source.data["left"]))
        if grown.changed:
            self.source.patch({name: [(rows, values)] for name, values in grown.changed.items()})
        if grown.added["left"]:
            self.source.stream(grown.added, rollover=grown.rows)


_LOCAL_TIME = """
const time = new Date(tick)
const parts = [time.getHours(), time.getMinutes()]
if (time.getSeconds() != 0) parts.push(time.getSeconds())
return parts.map((part) => String(part).padStart(2, "0")).join(":")
"""


# -- named rows ------------------------------------------------------------------------------------


#: Rows that a figure of a whole window has room for at least: one or two would be walls of colour. By eye.
MIN_ROWS = 6
#: Options of a figure that is as high as its rows, on a page that scrolls.
BESIDE_OTHERS: dict[str, Any] = {"grows": True, "min_width": 330, "sizing_mode": "stretch_width"}


class NamedRows(Figure):
    """Figure with one named row per row of its columns, of shares by default; hidden without rows."""

    def __init__(
        self, name: str, made_by: MakesColumns, names: Sequence[str], *, grows: bool = False, **options: Any
    ) -> None:
        self._grows = grows
        self._min_rows = 1 if grows else MIN_ROWS
        options.setdefault("x_range", Range1d(0, 1))
        options["y_range"] = Range1d(self._min_rows - 0.5, -0.5)
        # The last tick's label is half beyond the axis.
        super().__init__(name, made_by, names, every_ns=MIN_BIN_NS, min_border_right=24, visible=False, **options)
        self.root.xaxis.formatter = NumeralTickFormatter(format="0 %")
        self.root.yaxis.ticker = FixedTicker(ticks=[])
        # Show only as many names as there is room for.
        self.root.yaxis.major_label_policy = NoOverlap(min_distance=2)
        self.root.yaxis.major_tick_line_color = None
        self.root.grid.visible = False

    def draw(self, made: Columns) -> None:
        """Show the rows."""
        names = made["name"]
        if names != self.source.data["name"]:
            axis = self.root.yaxis[0]
            axis.major_label_overrides = dict(enumerate(names))
            axis.ticker.ticks = list(range(len(names)))
            self.root.y_range.start = max(len(names), self._min_rows) - 0.5
            if self._grows:
                self.root.height = 45 + 18 * len(names)
            self.root.visible = bool(names)
        super().draw(made)

    def stack(self, colours: Mapping[str, str], tooltips: str) -> None:
        """Fill the rows with stacked bars, one for each named column."""
        bars = self.root.hbar_stack(
            list(colours), y="y", height=0.8, line_color=None, fill_color=list(colours.values()), source=self.source
        )
        self.root.add_tools(HoverTool(renderers=bars, tooltips=tooltips))


def worker_bars(made_by: MakesColumns, **options: Any) -> NamedRows:
    """One bar per worker, by activity."""
    rows = NamedRows("workers", made_by, columns.WORKERS, **options)
    colours = {name: COLOURS[Bucket(name)] for name in ACTIVITIES}
    rows.stack(colours, "<b>$name</b> @$name{0.0 %}<br>worker @name, @nthreads threads")
    return rows


def gpu_bars(made_by: MakesColumns, **options: Any) -> NamedRows:
    """One bar per GPU, by activity."""
    rows = NamedRows("gpus", made_by, columns.GPUS, **options)
    rows.stack(GPU_COLOURS, "<b>$name</b> @$name{0.0 %}<br>@name")
    return rows


def prefix_bars(**options: Any) -> NamedRows:
    """One bar per prefix, by bucket."""
    x_range = DataRange1d(start=0, range_padding=0.04)
    rows = NamedRows("prefixes", columns.prefixes, columns.PREFIXES, **options, x_range=x_range)
    colours = {str(bucket): COLOURS[bucket] for bucket in TASK_BUCKETS}
    rows.stack(colours, "<b>$name</b> @$name{0,0.0} of @total{0,0.0} thread-seconds<br>@name")
    rows.root.xaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    rows.root.xaxis.axis_label = "thread-seconds"
    rows.root.xaxis.axis_label_text_font_size = "11px"
    return rows


def worker_spread(**options: Any) -> NamedRows:
    """Spread of the workers' shares, one row per activity."""
    rows = NamedRows("spread", columns.worker_spread, columns.SPREAD, **options)
    line = {"line_color": "colour", "source": rows.source}
    rows.root.segment(x0="q0", x1="q100", y0="y", y1="y", line_width=2, **line)
    rows.root.hbar(y="y", left="q10", right="q90", height=0.56, fill_color="colour", **line)
    rows.root.scatter(
        x="q50", y="y", marker="dash", angle=1.5708, size=18, line_color="#1f2328", line_width=2.5, source=rows.source
    )
    tooltips = (
        "<b>@name</b><br>half of the workers below @q50{0.0 %}, 8 of 10 within @q10{0.0 %} to @q90{0.0 %}"
        "<br>least @q0{0.0 %}: worker @least<br>most @q100{0.0 %}: worker @most"
    )
    reach = rows.root.hbar(y="y", left="q0", right="q100", height=0.9, fill_alpha=0, line_alpha=0, source=rows.source)
    rows.root.add_tools(HoverTool(renderers=[reach], tooltips=tooltips))
    rows.root.xgrid.visible = True
    return rows
