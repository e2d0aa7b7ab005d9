"""The dashboards: which rows they have, what can be chosen on them, and how they link to each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d

from dashboards.generator import causes, findings, gpus, overview, workers
from dashboards.generator.by_worker import OVERVIEW_UID, WORKERS_UID
from dashboards.generator.panels import DATASOURCE
from dashboards.generator.queries import ALL_WORKERS, CHOSEN, CHOSEN_WORKERS, CLUSTERS, select
from dashboards.generator.thread_time import thread_time

#: Dashboards that carry it link to each other.
TAG = "dask-efficiency"

#: Of Grafana 12. Grafana brings older ones up to date, and takes newer ones as they are.
SCHEMA_VERSION = 42

WIDTH = 24

Panels = Callable[[], list[Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title that folds them away; rows without a title always show.

    Panels of a tuple stand below each other.
    """

    panels: Panels
    title: str = ""
    #: Of the title.
    id: int = 0


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]
    #: Whether single workers can be chosen.
    by_worker: bool = False


BOARDS = (
    Board(
        OVERVIEW_UID,
        "Dask efficiency / Overview",
        "Where the thread time of Dask clusters goes. Numbers, bars and findings are over the time shown.",
        (
            Row(findings.findings),
            Row(partial(thread_time, CLUSTERS)),
            Row(overview.strip),
            Row(causes.of_clusters),
            Row(overview.efficiency_and_workers),
            Row(overview.outcomes),
            Row(overview.memory_and_data, "Memory and data", 140),
            Row(overview.stragglers, "Stragglers", 145),
            Row(gpus.of_clusters, "GPUs", 148),
            Row(overview.the_plugin_itself, "The plugin itself", 150),
        ),
    ),
    Board(
        WORKERS_UID,
        "Dask efficiency / Workers",
        "Where the thread time of single Dask workers goes. Choose them at the top; all at first.",
        (
            Row(workers.strip),
            Row(partial(thread_time, CHOSEN_WORKERS)),
            Row(causes.of_workers),
            Row(workers.comparison),
            Row(workers.tasks),
            Row(workers.spill_and_pause, "Spill and pause", 140),
            Row(gpus.of_workers, "GPUs", 148),
        ),
        by_worker=True,
    ),
)


def build(board: Board) -> d.Dashboard:
    """The dashboard in Grafana's own model."""
    made = dashboard.Dashboard(board.title).uid(board.uid).description(board.text).tags([TAG, "dask"])
    made.time("now-1h", "now").refresh("30s").timezone("browser").editable()
    made.tooltip(d.DashboardCursorSync.CROSSHAIR).link(_to_the_others())
    for variable in _variables(board):
        made.with_variable(variable)
    made.annotation(_Alerts())
    _fill(made, board.rows)
    result = made.build()
    result.schema_version = SCHEMA_VERSION
    return result


def to_json(board: Board) -> str:
    """The dashboard as the file that Grafana imports."""
    return json.dumps(build(board), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _fill(made: dashboard.Dashboard, board_rows: Sequence[Row]) -> None:
    y = 0
    for row in board_rows:
        panels = row.panels()
        if not row.title:
            y = _place(panels, y)
            for panel in _each(panels):
                made.with_panel(panel)
            continue
        folded = dashboard.Row(row.title).id(row.id).collapsed(True).grid_pos(d.GridPos(h=1, w=WIDTH, x=0, y=y))
        y += 1
        _place(panels, y)  # below a folded row nothing moves down
        for panel in _each(panels):
            folded.with_panel(panel)
        made.with_row(folded)


def _place(panels: Sequence[Any], y: int) -> int:
    """Put panels beside each other, and below where the row is full; gives where the next row starts."""
    x = height = 0
    for column in map(_column, panels):
        places = [panel.build().grid_pos for panel in column]
        width = max(place.w for place in places)
        if x + width > WIDTH:
            x, y, height = 0, y + height, 0
        below = y
        for place in places:
            place.x, place.y = x, below
            below += place.h
        x += width
        height = max(height, below - y)
    return y + height


def _column(panel: Any) -> tuple[Any, ...]:
    return panel if isinstance(panel, tuple) else (panel,)


def _each(panels: Sequence[Any]) -> Iterator[Any]:
    return chain.from_iterable(map(_column, panels))


def _variables(board: Board) -> list[Any]:
    chosen = [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        # No cluster label at all: then "All" is the only choice, and matches what has none.
        _choice("cluster", "Cluster", CLUSTERS.nthreads, (), ".*"),
        _choice("job", "Job", CLUSTERS.nthreads, CHOSEN[:1], ".+"),
        _choice("instance", "Instance", CLUSTERS.nthreads, CHOSEN[:2], ".+"),
    ]
    if board.by_worker:
        chosen.append(_choice("worker", "Worker", ALL_WORKERS.nthreads, CHOSEN, ".+"))
    return chosen


def _choice(name: str, label: str, metric: str, chosen: Sequence[str], all_value: str) -> dashboard.QueryVariable:
    series = select(metric, chosen=chosen) if chosen else metric
    query = f"label_values({series}, {name})"
    variable = dashboard.QueryVariable(name).label(label).datasource(DATASOURCE)
    variable.query({"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 1})
    variable.refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(d.VariableSort.NATURAL_ASC)
    variable.multi(True).include_all(True).all_value(all_value)
    return variable.current(d.VariableOption(selected=True, text=["All"], value=["$__all"]))


def _to_the_others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("Dask efficiency").type(d.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.keep_time(True).include_vars(True).as_dropdown(False).icon("external link")


class _Alerts(dashboard.AnnotationQuery):
    """Alerts that fire, as marks in all graphs."""

    def build(self) -> d.AnnotationQuery:
        # An alert over a whole cluster may have no job or instance of its own.
        which = 'alertname=~"DaskEfficiency.*", alertstate="firing", cluster=~"$cluster", job=~"|$job"'
        return _PrometheusAnnotation(
            name="Alerts", datasource=DATASOURCE, enable=True, icon_color="red", expr=f"ALERTS{{{which}}}"
        )


class _PrometheusAnnotation(d.AnnotationQuery):
    """What the SDK's model lacks: how Prometheus's labels become a text."""

    def to_json(self) -> dict[str, object]:
        texts = {"titleFormat": "{{alertname}}", "textFormat": "{{severity}} {{cluster}}", "tagKeys": "severity"}
        return {**super().to_json(), **texts, "step": "60s"}
