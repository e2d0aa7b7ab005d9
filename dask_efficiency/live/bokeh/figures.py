"""Figures over all threads: the pie, and the timeline."""

from __future__ import annotations

from typing import Any

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.plotting import figure
from bokeh.transform import stack

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.live.bokeh import columns
from dask_efficiency.live.bokeh.columns import Columns
from dask_efficiency.live.bokeh.growth import growth
from dask_efficiency.live.bokeh.part import send
from dask_efficiency.show.colours import COLOURS


class PieFigure:
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
        self.root.add_tools(HoverTool(tooltips="<b>@label</b> @percent<br>@seconds{0,0.0} thread-seconds<br>@causes"))

    def draw(self, made: Columns) -> None:
        """Show it."""
        send(self.source, made)


class TimelineFigure:
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
            send(self.source, made)
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
