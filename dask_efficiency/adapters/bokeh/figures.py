"""Figures: the parts of the pages as Bokeh draws them, each from what one function makes of a reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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

from dask_efficiency.adapters.bokeh import columns
from dask_efficiency.adapters.bokeh.columns import Bars, ByPrefix, Columns, Reading
from dask_efficiency.adapters.bokeh.growth import growth
from dask_efficiency.buckets import Bucket
from dask_efficiency.ledger import TASK_BUCKETS
from dask_efficiency.presence import ACTIVITIES, GPU_ACTIVITIES
from dask_efficiency.report.colours import COLOURS, GPU_COLOURS

#: What is of minutes as a whole changes by little in as many nanoseconds.
SLOW_NS = 5_000_000_000

#: A figure that fills its window has room for as many rows at least: one or two would be walls of colour.
FEWEST_ROWS = 6


class Part(Protocol):
    """Something on a page."""

    #: What Bokeh draws.
    root: Any
    #: How much older it may be than what is new.
    every_ns: int

    @property
    def made_by(self) -> Callable[[Reading], Any]:
        """Gives what :meth:`draw` takes."""

    def draw(self, made: Any) -> None:
        """Show it."""


class Text:
    """Lines of HTML."""

    every_ns = 0

    def __init__(self, made_by: Callable[[Reading], str], **options: Any) -> None:
        self.made_by = made_by
        self.root = Div(disable_math=True, **options)

    def draw(self, made: str) -> None:
        """Show it."""
        self.root.text = made


class Pie:
    """What the threads did, as a pie.

    Parameters
    ----------
    options
        Of the figure: its size.
    """

    made_by = staticmethod(columns.pie)
    every_ns = 0

    def __init__(self, **options: Any) -> None:
        self.source = ColumnDataSource(columns.empty(columns.PIE), name="pie")
        self.root = figure(
            x_range=Range1d(-1.03, 1.03),
            y_range=Range1d(-1.03, 1.03),
            toolbar_location=None,
            tools="",
            min_border=0,
            outline_line_color=None,
            **options,
        )
        self.root.axis.visible = False
        self.root.grid.visible = False
        self.root.wedge(
            x=0,
            y=0,
            radius=1,
            start_angle="start",
            end_angle="stop",
            direction="clock",
            fill_color="colour",
            line_color="#fafafa",
            source=self.source,
        )
        self.root.text(
            x="x",
            y="y",
            text="text",
            text_color="ink",
            text_align="center",
            text_baseline="middle",
            text_font_size="12px",
            source=self.source,
        )
        self.root.add_tools(HoverTool(tooltips="<b>@label</b> @percent<br>@seconds{0,0.0} thread-seconds"))

    def draw(self, made: Columns) -> None:
        """Show it."""
        _send(self.source, made)


class Timeline:
    """The threads by activity over time.

    Parameters
    ----------
    options
        Of the figure: its size and its title.
    """

    made_by = staticmethod(columns.timeline)
    every_ns = 0

    def __init__(self, **options: Any) -> None:
        self.source = ColumnDataSource(columns.empty(columns.TIMELINE), name="timeline")
        self.root = figure(
            # Not one that follows the data: it complains where there is none yet.
            x_range=Range1d(0, 1),
            y_range=DataRange1d(start=0, range_padding=0.08),
            x_axis_type="datetime",
            toolbar_location=None,
            tools="",
            outline_line_color=None,
            **options,
        )
        bars = [
            self.root.quad(
                left="left",
                right="right",
                bottom=stack(*ACTIVITIES[:i]),
                top=stack(*ACTIVITIES[: i + 1]),
                color=COLOURS[Bucket(name)],
                line_color=None,
                name=name,
                source=self.source,
            )
            for i, name in enumerate(ACTIVITIES)
        ]
        self.root.segment(
            x0="left",
            y0="nthreads",
            x1="right",
            y1="nthreads",
            line_color="#1f2328",
            line_width=1.5,
            source=self.source,
        )
        tooltips = "<b>$name</b><br>@$name{0,0.00} of @nthreads{0,0.0} threads"
        self.root.add_tools(HoverTool(renderers=bars, tooltips=tooltips))
        # The viewer's own time; Bokeh's formatter knows UTC only.
        self.root.xaxis.formatter = CustomJSTickFormatter(code=_LOCAL_TIME)
        self.root.xgrid.visible = False
        self.root.yaxis.minor_tick_line_color = None
        self.root.yaxis.ticker = AdaptiveTicker(min_interval=1, desired_num_ticks=5)
        self.root.yaxis.formatter = NumeralTickFormatter(format="0,0")

    def draw(self, made: Columns) -> None:
        """Show it."""
        if made["left"]:
            self.root.x_range.update(start=made["left"][0], end=made["right"][-1])
        grown = growth(self.source.data, made, order="left")
        if grown is None:
            _send(self.source, made)
            return
        if grown.changed:
            rows = slice(grown.since, len(self.source.data["left"]))
            self.source.patch({name: [(rows, values)] for name, values in grown.changed.items()})
        if grown.added["left"]:
            self.source.stream(grown.added, rollover=grown.rows)


_LOCAL_TIME = """
const time = new Date(tick)
const parts = [time.getHours(), time.getMinutes()]
if (time.getSeconds() != 0) parts.push(time.getSeconds())
return parts.map((part) => String(part).padStart(2, "0")).join(":")
"""


class _Rows:
    """A figure with a named row for each row of its columns, the first on top."""

    every_ns = SLOW_NS

    def __init__(self, name: str, empty: Columns, *, fewest_rows: int = FEWEST_ROWS, **options: Any) -> None:
        self._fewest_rows = fewest_rows
        self.source = ColumnDataSource(dict(empty), name=name)
        self.root = figure(
            y_range=Range1d(fewest_rows - 0.5, -0.5),
            # Half of the last tick's label is beyond the axis.
            min_border_right=24,
            toolbar_location=None,
            tools="",
            outline_line_color=None,
            **options,
        )
        self.root.yaxis.ticker = FixedTicker(ticks=[])
        # Of more names than there is room for, some.
        self.root.yaxis.major_label_policy = NoOverlap(min_distance=2)
        self.root.yaxis.major_tick_line_color = None
        self.root.grid.visible = False

    def draw_rows(self, made: Columns) -> None:
        """Show them."""
        names = made["name"]
        if names != self.source.data["name"]:
            axis = self.root.yaxis[0]
            axis.major_label_overrides = dict(enumerate(names))
            axis.ticker.ticks = list(range(len(names)))
            self.root.y_range.start = max(len(names), self._fewest_rows) - 0.5
        _send(self.source, made)


class WorkerBars(_Rows):
    """What each worker's threads did, a bar each.

    Parameters
    ----------
    options
        Of the figure: its size.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__("workers", columns.empty(columns.BARS), x_range=Range1d(0, 1), **options)
        bars = self.root.hbar_stack(
            ACTIVITIES, y="y", height=0.8, line_color=None, fill_color=_colours(ACTIVITIES), source=self.source
        )
        tooltips = "<b>$name</b> @$name{0.0 %}<br>worker @name, @nthreads threads"
        self.root.add_tools(HoverTool(renderers=bars, tooltips=tooltips))
        self.root.xaxis.formatter = NumeralTickFormatter(format="0 %")


class FewWorkers:
    """The workers there is room for beside other figures, under a title that says which these are."""

    made_by = staticmethod(columns.few_workers)
    every_ns = SLOW_NS

    def __init__(self) -> None:
        #: Apart from its figure, for a title of that does not wrap.
        self.title = Div(sizing_mode="stretch_width", styles=_TITLE_STYLE, disable_math=True)
        self._bars = WorkerBars(fewest_rows=1, height=_height(0), min_width=330, sizing_mode="stretch_width")
        self.root = self._bars.root

    def draw(self, made: Bars) -> None:
        """Show it."""
        self.title.text = made.title
        self._bars.draw_rows(made.columns)
        self.root.height = _height(len(made.columns["name"]))


class AllWorkers(WorkerBars):
    """A bar for each worker, in the room there is; not there where they are too many for it."""

    made_by = staticmethod(columns.all_workers)

    def draw(self, made: Bars) -> None:
        """Show it."""
        self.draw_rows(made.columns)
        self.root.visible = bool(made.columns["name"])


class WorkerSpread(_Rows):
    """How the workers differ, by activity; there only where they are too many for a bar each.

    Parameters
    ----------
    options
        Of the figure: its size.
    """

    made_by = staticmethod(columns.worker_spread)

    def __init__(self, **options: Any) -> None:
        empty = columns.empty(columns.SPREAD)
        super().__init__("spread", empty, x_range=Range1d(0, 1), visible=False, **options)
        line = {"line_color": "colour", "source": self.source}
        self.root.segment(x0="q0", x1="q100", y0="y", y1="y", line_width=2, **line)
        self.root.hbar(y="y", left="q10", right="q90", height=0.56, fill_color="colour", **line)
        self.root.scatter(
            x="q50",
            y="y",
            marker="dash",
            angle=1.5708,
            size=18,
            line_color="#1f2328",
            line_width=2.5,
            source=self.source,
        )
        tooltips = (
            "<b>@name</b><br>half of the workers below @q50{0.0 %}, 8 of 10 within @q10{0.0 %} to @q90{0.0 %}"
            "<br>least @q0{0.0 %}: worker @least<br>most @q100{0.0 %}: worker @most"
        )
        reach = self.root.hbar(
            y="y", left="q0", right="q100", height=0.9, fill_alpha=0, line_alpha=0, source=self.source
        )
        self.root.add_tools(HoverTool(renderers=[reach], tooltips=tooltips))
        self.root.xaxis.formatter = NumeralTickFormatter(format="0 %")
        self.root.xgrid.visible = True

    def draw(self, made: Columns) -> None:
        """Show it."""
        self.draw_rows(made)
        self.root.visible = bool(made["name"])


class GpuBars(_Rows):
    """What each GPU did, a bar each.

    Parameters
    ----------
    options
        Of the figure: its size.
    """

    made_by: Callable[[Reading], Any] = staticmethod(columns.all_gpus)

    def __init__(self, **options: Any) -> None:
        super().__init__("gpus", columns.empty(columns.GPUS), x_range=Range1d(0, 1), **options)
        bars = self.root.hbar_stack(
            GPU_ACTIVITIES,
            y="y",
            height=0.8,
            line_color=None,
            fill_color=[GPU_COLOURS[name] for name in GPU_ACTIVITIES],
            source=self.source,
        )
        self.root.add_tools(HoverTool(renderers=bars, tooltips="<b>$name</b> @$name{0.0 %}<br>@name"))
        self.root.xaxis.formatter = NumeralTickFormatter(format="0 %")

    def draw(self, made: Columns) -> None:
        """Show it."""
        self.draw_rows(made)
        self.root.visible = bool(made["name"])


class FewGpus:
    """The GPUs there is room for beside other figures, under a title with their key; not there without any."""

    made_by = staticmethod(columns.few_gpus)
    every_ns = SLOW_NS

    def __init__(self) -> None:
        self.title = Div(sizing_mode="stretch_width", styles=_TITLE_STYLE, disable_math=True, visible=False)
        self._bars = GpuBars(
            fewest_rows=1, height=_height(0), min_width=330, sizing_mode="stretch_width", visible=False
        )
        self.root = self._bars.root

    def draw(self, made: Bars) -> None:
        """Show it."""
        self.title.text = made.title
        self.title.visible = bool(made.title)
        self._bars.draw(made.columns)
        self.root.height = _height(len(made.columns["name"]))


class PrefixBars(_Rows):
    """What became of the time of each prefix's tasks, a bar each, below a key.

    Parameters
    ----------
    key
        Where the key is written.
    options
        Of the figure: its size.
    """

    made_by = staticmethod(columns.by_prefix)

    def __init__(self, key: Any, **options: Any) -> None:
        self.key = key
        empty = columns.empty(columns.PREFIXES)
        super().__init__("prefixes", empty, x_range=DataRange1d(start=0, range_padding=0.04), **options)
        names = list(map(str, TASK_BUCKETS))
        bars = self.root.hbar_stack(
            names, y="y", height=0.8, line_color=None, fill_color=_colours(names), source=self.source
        )
        tooltips = "<b>$name</b> @$name{0,0.0} of @total{0,0.0} thread-seconds<br>@name"
        self.root.add_tools(HoverTool(renderers=bars, tooltips=tooltips))
        self.root.xaxis.formatter = NumeralTickFormatter(format="0.[0]a")
        self.root.xaxis.axis_label = "thread-seconds"
        self.root.xaxis.axis_label_text_font_size = "11px"

    def draw(self, made: ByPrefix) -> None:
        """Show it."""
        self.key.text = made.key
        self.draw_rows(made.columns)


_TITLE_STYLE = {"font-size": "13px", "font-weight": "bold", "color": "#444444", "margin": "12px 20px 0"}


def _colours(names: Sequence[str]) -> list[str]:
    return [COLOURS[Bucket(name)] for name in names]


def _height(rows: int) -> int:
    return 45 + 18 * max(1, rows)


def _send(source: ColumnDataSource, made: Columns) -> None:
    """Show these columns, and send the viewer only those that are new: most activities stay at zero."""
    shown = source.data
    # Copies, for what was made is every viewer's, and Bokeh patches columns in place.
    changed = {name: list(values) for name, values in made.items() if values != shown[name]}
    if changed:
        shown.update(changed)
