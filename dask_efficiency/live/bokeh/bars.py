"""Figures with a named row for each worker, GPU or prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, DataRange1d, FixedTicker, HoverTool, NoOverlap, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.bokeh import columns
from dask_efficiency.live.bokeh.columns import Columns
from dask_efficiency.live.bokeh.part import SLOW_NS, send
from dask_efficiency.live.tab_view import TabView
from dask_efficiency.show.colours import COLOURS, GPU_COLOURS

#: A figure that fills its window has room for so many rows at least: one or two would be walls of colour.
MIN_ROWS = 6

#: As high as its rows, beside other figures on a page that scrolls.
BESIDE_OTHERS: dict[str, Any] = {"grows": True, "min_width": 330, "sizing_mode": "stretch_width"}


class NamedRows:
    """A figure with a named row for each row of its columns, the first on top; not there without any row.

    Parameters
    ----------
    name
        Of its columns in the document.
    made_by
        Gives the columns.
    names
        Of the columns.
    grows
        Whether its height follows the number of rows.
    x_range
        Shares, if not given.
    options
        Of the figure: its size.
    """

    every_ns = SLOW_NS

    def __init__(
        self,
        name: str,
        made_by: Callable[[TabView], Columns],
        names: Sequence[str],
        *,
        grows: bool = False,
        x_range: Any = None,
        **options: Any,
    ) -> None:
        self.made_by = made_by
        self._grows = grows
        self._min_rows = 1 if grows else MIN_ROWS
        self.source = ColumnDataSource(columns.empty(names), name=name)
        self.root = figure(
            x_range=x_range or Range1d(0, 1),
            y_range=Range1d(self._min_rows - 0.5, -0.5),
            # Half of the last tick's label is beyond the axis.
            min_border_right=24,
            toolbar_location=None,
            tools="",
            outline_line_color=None,
            visible=False,
            **options,
        )
        self.root.xaxis.formatter = NumeralTickFormatter(format="0 %")
        self.root.yaxis.ticker = FixedTicker(ticks=[])
        # Of more names than there is room for, some.
        self.root.yaxis.major_label_policy = NoOverlap(min_distance=2)
        self.root.yaxis.major_tick_line_color = None
        self.root.grid.visible = False

    def draw(self, made: Columns) -> None:
        """Show them."""
        names = made["name"]
        if names != self.source.data["name"]:
            axis = self.root.yaxis[0]
            axis.major_label_overrides = dict(enumerate(names))
            axis.ticker.ticks = list(range(len(names)))
            self.root.y_range.start = max(len(names), self._min_rows) - 0.5
            if self._grows:
                self.root.height = 45 + 18 * len(names)
            self.root.visible = bool(names)
        send(self.source, made)

    def stack(self, colours: Mapping[str, str], tooltips: str) -> None:
        """Fill the rows with bars, the columns with these names one after the other."""
        bars = self.root.hbar_stack(
            list(colours), y="y", height=0.8, line_color=None, fill_color=list(colours.values()), source=self.source
        )
        self.root.add_tools(HoverTool(renderers=bars, tooltips=tooltips))


def worker_bars(made_by: Callable[[TabView], Columns], **options: Any) -> NamedRows:
    """What the threads of each chosen worker did, a bar each."""
    rows = NamedRows("workers", made_by, columns.WORKERS, **options)
    colours = {name: COLOURS[Bucket(name)] for name in ACTIVITIES}
    rows.stack(colours, "<b>$name</b> @$name{0.0 %}<br>worker @name, @nthreads threads")
    return rows


def gpu_bars(made_by: Callable[[TabView], Columns], **options: Any) -> NamedRows:
    """What each chosen GPU did, a bar each."""
    rows = NamedRows("gpus", made_by, columns.GPUS, **options)
    rows.stack(GPU_COLOURS, "<b>$name</b> @$name{0.0 %}<br>@name")
    return rows


def prefix_bars(**options: Any) -> NamedRows:
    """What became of the time of each prefix's tasks, a bar each."""
    x_range = DataRange1d(start=0, range_padding=0.04)
    rows = NamedRows("prefixes", columns.prefixes, columns.PREFIXES, x_range=x_range, **options)
    colours = {str(bucket): COLOURS[bucket] for bucket in TASK_BUCKETS}
    rows.stack(colours, "<b>$name</b> @$name{0,0.0} of @total{0,0.0} thread-seconds<br>@name")
    rows.root.xaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    rows.root.xaxis.axis_label = "thread-seconds"
    rows.root.xaxis.axis_label_text_font_size = "11px"
    return rows


def worker_spread(**options: Any) -> NamedRows:
    """How the workers differ, an activity a row."""
    rows = NamedRows("spread", columns.worker_spread, columns.SPREAD, **options)
    line = {"line_color": "colour", "source": rows.source}
    rows.root.segment(x0="q0", x1="q100", y0="y", y1="y", line_width=2, **line)
    rows.root.hbar(y="y", left="q10", right="q90", height=0.56, fill_color="colour", **line)
    rows.root.scatter(
        x="q50",
        y="y",
        marker="dash",
        angle=1.5708,
        size=18,
        line_color="#1f2328",
        line_width=2.5,
        source=rows.source,
    )
    tooltips = (
        "<b>@name</b><br>half of the workers below @q50{0.0 %}, 8 of 10 within @q10{0.0 %} to @q90{0.0 %}"
        "<br>least @q0{0.0 %}: worker @least<br>most @q100{0.0 %}: worker @most"
    )
    reach = rows.root.hbar(y="y", left="q0", right="q100", height=0.9, fill_alpha=0, line_alpha=0, source=rows.source)
    rows.root.add_tools(HoverTool(renderers=[reach], tooltips=tooltips))
    rows.root.xgrid.visible = True
    return rows
