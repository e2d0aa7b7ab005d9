"""The kinds of panel that the dashboards are made of, in one style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, piechart, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import table as grid
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import piechart as p
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.generator.queries import metrics
from dask_efficiency.show.drawn_buckets import OTHER_COLOUR

DATASOURCE = c.DataSourceRef(type_val="prometheus", uid="${datasource}")

#: Stands where there would be no number.
NO_TRAFFIC = "no traffic"

#: What Prometheus's number is called among the columns of a table.
VALUE = "Value"

#: What the slices are called that a pie folds into one.
OTHER = "other"

#: Colour of what is neither good nor bad: the theme's own, for light and dark.
PLAIN = "text"

GOOD_COLOUR, FAIR_COLOUR, BAD_COLOUR = "green", "yellow", "red"

#: From where on a number has a colour; None for all that is below the next step.
Step = tuple[float | None, str]

#: Shares that the POP methodology calls good are 0.8 and above.
EFFICIENCY_STEPS = ((None, BAD_COLOUR), (0.5, FAIR_COLOUR), (0.8, GOOD_COLOUR))


@dataclass(frozen=True, slots=True)
class Query:
    """Query of a panel, and the legend of its series."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class About:
    """Head of a panel; sentences that describe it follow, to which the metrics are added."""

    #: Never given to another panel of the dashboard: links and alerts name it.
    id: int
    title: str
    unit: str
    #: Columns, of 24, and rows.
    width: int
    height: int
    #: Instead of a number where there is none.
    no_value: str = NO_TRAFFIC


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    #: The label that it shows, or ``Value``.
    label: str
    title: str
    #: Pixels; 0 for all that is left.
    width: int = 0
    #: What stands for a value.
    words: Mapping[str, str] = field(default_factory=dict)
    #: The background of a value.
    colours: Mapping[str, str] = field(default_factory=dict)
    #: Whether a bar shows how large it is.
    bar: bool = False


def numbers(about: About, text: str, *queries: Query, steps: Sequence[Step] = (), decimals: int | None = None) -> Any:
    """A number for each query, over the whole time shown."""
    panel = stat.Panel().graph_mode(c.BigValueGraphMode.NONE).reduce_options(_last())
    panel.text_mode(c.BigValueTextMode.VALUE_AND_NAME if len(queries) > 1 else c.BigValueTextMode.VALUE)
    panel.color_mode(c.BigValueColorMode.VALUE).justify_mode(c.BigValueJustifyMode.CENTER).wide_layout(False)
    panel.orientation(c.VizOrientation.AUTO)
    if steps:
        panel.thresholds(_thresholds(steps)).color_scheme(_by_threshold())
        # What stands where there is no number has a colour of no meaning.
        blank = d.DashboardSpecialValueMapOptions(
            d.SpecialValueMatch.NULL_AND_NAN, d.ValueMappingResult(about.no_value, PLAIN)
        )
        panel.mappings([d.SpecialValueMap(blank)])
    else:
        panel.color_scheme(_fixed(PLAIN))
    if decimals is not None:
        panel.decimals(decimals)
    return _finished(panel, about, text, queries, instant=True)


def lines(
    about: About,
    text: str,
    *queries: Query,
    colours: Mapping[str, str] | None = None,
    limit: float | None = None,
    up_to: float | None = None,
) -> Any:
    """A line for each series. The axis ends at ``limit``, or at ``up_to`` where nothing is above it."""
    panel = _graph(limit, up_to).fill_opacity(10).line_width(2)
    _colour(panel, colours or {})
    return _finished(panel, about, text, queries)


def stack(
    about: About,
    text: str,
    *queries: Query,
    colours: Mapping[str, str],
    top: str | None = None,
    legend: str = "bottom",
    up_to: float | None = None,
) -> Any:
    """Areas on top of each other; a series called ``top`` is a dotted line that they should add up to."""
    panel = _graph(None, up_to).fill_opacity(100).line_width(0)
    panel.stacking(common.StackingConfig().mode(c.StackingMode.NORMAL).group("A"))
    panel.legend(_legend(legend))
    _colour(panel, colours)
    if top is not None:
        panel.override_by_name(
            top,
            [
                d.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": PLAIN}),
                d.DynamicConfigValue("custom.lineStyle", {"fill": "dot", "dash": [0, 8]}),
                d.DynamicConfigValue("custom.lineWidth", 2),
                d.DynamicConfigValue("custom.fillOpacity", 0),
                d.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "B"}),
            ],
        )
    return _finished(panel, about, text, queries)


def pie(about: About, text: str, *queries: Query, colours: Mapping[str, str]) -> Any:
    """Slices of the whole time shown."""
    panel = piechart.Panel().pie_type(p.PieChartType.PIE).reduce_options(_last())
    panel.display_labels([p.PieChartLabels.PERCENT])
    legend = piechart.PieChartLegendOptions().show_legend(True).values([p.PieChartLegendValues.PERCENT])
    panel.legend(legend.display_mode(c.LegendDisplayMode.TABLE).placement(c.LegendPlacement.RIGHT))
    panel.tooltip(common.VizTooltipOptions().mode(c.TooltipDisplayMode.SINGLE).sort(c.SortOrder.NONE))
    _colour(panel, {**colours, OTHER: OTHER_COLOUR})
    return _finished(panel, about, text, queries, instant=True)


def bars(
    about: About,
    text: str,
    query: Query,
    *,
    steps: Sequence[Step] = (),
    colour: str = PLAIN,
    limit: float | None = None,
    link: tuple[str, str] | None = None,
) -> Any:
    """A horizontal bar for each series; ``link`` is a title and a URL."""
    panel = bargauge.Panel().orientation(c.VizOrientation.HORIZONTAL).reduce_options(_last())
    panel.display_mode(c.BarGaugeDisplayMode.BASIC).value_mode(c.BarGaugeValueMode.TEXT).show_unfilled(True)
    panel.name_placement(c.BarGaugeNamePlacement.LEFT).sizing(c.BarGaugeSizing.MANUAL)
    panel.min_viz_width(8).min_viz_height(14).max_viz_height(32).min(0)
    # Else each number is as large as its room. A name's room is not of the name's size, so it has none.
    panel.text(common.VizTextDisplayOptions().value_size(14))
    if limit is not None:
        panel.max(limit)
    if steps:
        panel.thresholds(_thresholds(steps)).color_scheme(_by_threshold())
    else:
        panel.color_scheme(_fixed(colour))
    if link is not None:
        panel.data_links([dashboard.DashboardLink(link[0]).type(d.DashboardLinkType.LINK).url(link[1])])
    return _finished(panel, about, text, [query], instant=True)


def table(about: About, text: str, query: Query, *, columns: Sequence[Column]) -> Any:
    """A row for each series, the largest first."""
    panel = grid.Panel().show_header(True).cell_height(c.TableCellHeight.LG).min(0).color_scheme(_fixed(PLAIN))
    panel.align(c.FieldTextAlignment.AUTO).inspect(False)
    for column in columns:
        panel.with_override(*_dressed(column))
    value = next(column.title for column in columns if column.label == VALUE)
    panel.sort_by([common.TableSortByFieldState().display_name(value).desc(True)])
    places = {column.label: place for place, column in enumerate(columns)}
    options = {"excludeByName": {"Time": True}, "indexByName": places, "renameByName": {}}
    panel.with_transformation(d.DataTransformerConfig(id_val="organize", options=options))
    return _finished(panel, about, text, [query], instant=True, table=True)


def _dressed(column: Column) -> tuple[d.MatcherConfig, list[d.DynamicConfigValue]]:
    """The fields of a column, and how they look."""
    number = column.label == VALUE  # whatever Grafana calls it
    # What an empty panel says is not what an empty cell says.
    look: dict[str, Any] = {"displayName": column.title, "noValue": ""}
    if column.width:
        look["custom.width"] = column.width
    if column.words or column.colours:
        results = {
            name: d.ValueMappingResult(column.words.get(name), column.colours.get(name), index=index)
            for index, name in enumerate({**column.words, **column.colours})
        }
        look["mappings"] = [d.ValueMap(results)]
    if column.bar:
        look["custom.cellOptions"] = c.TableBarGaugeCellOptions(c.BarGaugeDisplayMode.BASIC, c.BarGaugeValueMode.TEXT)
    elif column.colours:
        look["custom.cellOptions"] = c.TableColoredBackgroundCellOptions(c.TableCellBackgroundDisplayMode.BASIC)
    else:
        look["custom.cellOptions"] = c.TableAutoCellOptions(wrap_text=True)
    matcher = d.MatcherConfig("byType", "number") if number else d.MatcherConfig("byName", column.label)
    return matcher, [d.DynamicConfigValue(name, value) for name, value in look.items()]


def _finished(
    panel: Any, about: About, text: str, queries: Sequence[Query], *, instant: bool = False, table: bool = False
) -> Any:
    used = dict.fromkeys(f"`{name}`" for query in queries for name in metrics(query.expr))
    panel.id(about.id).title(about.title).description(f"{text}\n\nFrom {', '.join(used)}.").unit(about.unit)
    panel.no_value(about.no_value).datasource(DATASOURCE).span(about.width).height(about.height)
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        target = prometheus.Dataquery().ref_id(ref).expr(query.expr).legend_format(query.legend)
        if table:
            target.format(PromQueryFormat.TABLE)
        panel.with_target((target.instant() if instant else target.range()).datasource(DATASOURCE))
    return panel


def _graph(limit: float | None, up_to: float | None) -> timeseries.Panel:
    panel = timeseries.Panel().draw_style(c.GraphDrawStyle.LINE).line_interpolation(c.LineInterpolation.LINEAR)
    panel.show_points(c.VisibilityMode.NEVER).min(0).legend(_legend("bottom"))
    tooltip = common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(c.SortOrder.DESCENDING).hide_zeros(True))
    if limit is not None:
        panel.max(limit)
    if up_to is not None:
        panel.axis_soft_max(up_to)
    return panel


def _legend(where: str) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True)
    if where == "right":
        legend.display_mode(c.LegendDisplayMode.TABLE).placement(c.LegendPlacement.RIGHT)
        return legend.calcs(["mean"]).sort_by("Mean").sort_desc(True)
    return legend.display_mode(c.LegendDisplayMode.LIST).placement(c.LegendPlacement.BOTTOM).calcs([])


def _colour(panel: Any, colours: Mapping[str, str]) -> None:
    for name, colour in colours.items():
        panel.override_by_name(name, [d.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})])


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().values(False).calcs(["lastNotNull"]).fields("")


def _fixed(colour: str) -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(d.FieldColorModeId.FIXED).fixed_color(colour)


def _by_threshold() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(d.FieldColorModeId.THRESHOLDS)


def _thresholds(steps: Sequence[Step]) -> dashboard.ThresholdsConfig:
    thresholds = [d.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(d.ThresholdsMode.ABSOLUTE).steps(thresholds)
