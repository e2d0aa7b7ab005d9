"""The Grafana dashboards as files: the rules of Grafana's dashboard-linter, and those of this project."""

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from dashboards.generate import FOLDER, files
from dashboards.generator.boards import BOARDS, TAG
from dashboards.generator.panels import OTHER
from dashboards.prove import BUILT_IN, panels, questions
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.kinds import KINDS, advice
from dask_efficiency.show.drawn_buckets import COLOURS, OTHER_COLOUR
from tests.live.prometheus_process import needs_promtool

NAMES = [board.uid for board in BOARDS]

#: Grafana's own variables, which are in every dashboard.
GRAFANAS = {*BUILT_IN, "__url_time_range", "__field"}

#: Labels that the scrape adds.
SCRAPED = {"cluster", "job", "instance"}

#: Metrics that are not ours, and their labels.
OTHERS = {"up": set(), "ALERTS": {"alertname", "alertstate"}, "dask_scheduler_workers": {"state"}}

SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


@pytest.fixture(params=NAMES)
def board(request: pytest.FixtureRequest) -> Any:
    return json.loads((FOLDER / f"{request.param}.json").read_text())


def shown(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels with data."""
    return [panel for panel in panels(board) if panel["type"] != "row"]


def expressions(board: dict[str, Any]) -> list[str]:
    return [question.expr for question in questions(board)]


def panel_expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in shown(board) for target in panel["targets"]]


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Everything that stands under a key, at any depth."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for inner in value.values():
            yield from values_of(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from values_of(inner, key)


# -- the files ---------------------------------------------------------------------------------


def test_the_files_are_those_that_the_generator_makes():
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name} is out of date: python -m dashboards.generate"
    assert {path.name for path in FOLDER.rglob("*.json")} == {path.name for path in files()}


def test_grafanas_own_model_holds_all_that_is_in_a_dashboard(board):
    register_default_plugins()
    for annotation in board["annotations"]["list"]:
        for key in ("titleFormat", "textFormat", "tagKeys", "step"):  # Prometheus's, which the model lacks
            assert annotation.pop(key)
    again = json.loads(json.dumps(model.Dashboard.from_json(board), cls=JSONEncoder))
    for panel in shown(again):
        if panel["type"] == "piechart":
            assert panel["fieldConfig"]["defaults"].pop("custom") == {}
    assert again == board


def test_a_dashboard_is_of_the_classic_kind_and_needs_no_answers_to_be_imported(board):
    assert board["schemaVersion"] == 42
    assert not {"__inputs", "__requires", "id", "version", "kind", "apiVersion"} & board.keys()
    assert 8 <= len(board["uid"]) <= 40
    assert TAG in board["tags"]
    assert all(board[key] for key in ("title", "description"))


# -- choices -----------------------------------------------------------------------------------


def test_the_data_source_is_a_variable_and_everything_uses_it(board):
    datasource = variables(board)["datasource"]
    assert (datasource["type"], datasource["query"], datasource["label"]) == ("datasource", "prometheus", "Data source")
    used = list(values_of(board, "datasource"))
    assert all(reference == {"type": "prometheus", "uid": "${datasource}"} for reference in used)
    targets = [target for panel in shown(board) for target in panel["targets"]]
    assert len(used) >= len(shown(board)) + len(targets)
    assert all("datasource" in part for part in (*shown(board), *targets, *board["annotations"]["list"]))


def test_each_variable_narrows_the_next_has_several_values_and_is_all_at_first(board):
    names = list(variables(board))
    assert names == ["datasource", "cluster", "job", "instance", *["worker"] * ("workers" in board["uid"])]
    for position, name in enumerate(names[1:], start=1):
        variable = variables(board)[name]
        assert re.findall(r"\$(\w+)", variable["query"]["query"]) == names[1:position]
        assert variable["current"]["value"] == ["$__all"]
        assert (
            variable.items()
            >= {
                "type": "query",
                "multi": True,
                "includeAll": True,
                "label": name.capitalize(),
                "refresh": model.VariableRefresh.ON_TIME_RANGE_CHANGED,
                "allValue": ".*" if name == "cluster" else ".+",  # which matches an absent label too
            }.items()
        )


def test_every_query_keeps_to_the_choices(board):
    for expr in panel_expressions(board):
        found = SELECTOR.findall(expr)
        assert found
        for metric, matchers in found:
            chosen = {label: value for label, operator, value in MATCHER.findall(matchers) if operator == "=~"}
            assert chosen.items() >= {"cluster": "$cluster", "job": "$job", "instance": "$instance"}.items(), expr
            if metric.startswith("dask_efficiency_worker_") and "worker" in variables(board):
                assert metric == "dask_efficiency_worker_metrics_limited" or chosen["worker"] == "$worker", expr


def test_every_variable_that_is_used_is_defined(board):
    text = json.dumps({**board, "templating": [v.get("query") for v in board["templating"]["list"]]})
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__all"}
    assert used <= variables(board).keys() | GRAFANAS


# -- queries -----------------------------------------------------------------------------------


def test_every_metric_every_label_and_every_value_is_one_that_is_exported(board, exported):
    assert len(exported) > 15
    for expr in expressions(board):
        for metric, matchers in SELECTOR.findall(expr):
            labels = exported[metric].keys() if metric in exported else OTHERS[metric]
            for label, _, values in MATCHER.findall(matchers):
                assert label in {*labels, *SCRAPED}, f"{metric} has no label {label}"
                if label in ("activity", "bucket", "cause", "outcome", "process"):
                    assert set(values.split("|")) <= exported[metric][label], f"{metric}: {values}"
        for by in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr):
            metrics = [metric for metric, _ in SELECTOR.findall(expr)]
            known = {label for metric in metrics for label in exported.get(metric, OTHERS.get(metric, ()))}
            assert set(by.split(", ")) <= known | SCRAPED, expr


def test_counters_are_taken_as_rates_or_increases_only_over_the_windows_that_grafana_gives(board):
    for expr in panel_expressions(board):
        assert not re.findall(r"\bdask_\w+(?![\w{])", expr), expr  # without choices
        for found in SELECTOR.finditer(expr):
            grows = expr[: found.start()].endswith(("rate(", "increase("))
            assert grows == found[1].endswith("_total"), expr
        for function, window in re.findall(r"\b(\w+)\(\w+\{[^}]*\}\[([^\]]*)\]", expr):
            expected = {"rate": "$__rate_interval", "sum_over_time": "$__range:$__interval"}.get(function, "$__range")
            assert window == expected, expr
        for divisor in re.findall(r"(?<!\w) / (.*)", expr):  # which is never zero
            assert re.match(r"\d|avg_over_time\(\(.* > 0\)\[|\(.* > 0(\.01)?\)", divisor), expr


@needs_promtool
def test_promtool_can_read_every_query(board, tmp_path):
    rules = [
        {"record": f"proof:{number}", "expr": question.substituted({})}
        for number, question in enumerate(questions(board))
        if question.kind != "values"
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "proof", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


# -- panels ------------------------------------------------------------------------------------


def test_every_panel_has_an_id_a_description_with_its_metrics_a_unit_and_a_text_without_data(board):
    ids = [panel["id"] for panel in panels(board)]
    assert len(set(ids)) == len(ids)
    assert min(ids) > 0
    known = {getattr(units, name) for name in vars(units) if isinstance(getattr(units, name), str)}
    for panel in shown(board):
        defaults, refs = panel["fieldConfig"]["defaults"], [target["refId"] for target in panel["targets"]]
        assert refs == list("ABCDEFGH"[: max(len(refs), 1)])
        assert all((panel["title"], defaults["noValue"]))
        assert defaults["unit"] in known, panel["title"]
        for target in panel["targets"]:
            assert target["legendFormat"], panel["title"]
            for metric, _ in SELECTOR.findall(target["expr"]):
                assert f"`{metric}`" in panel["description"], panel["title"]


def test_a_single_number_is_the_last_one_of_an_instant_query(board):
    for panel in shown(board):
        single = panel["type"] != "timeseries"
        assert all((target["instant"], target["range"]) == (single, not single) for target in panel["targets"])
        if single and panel["type"] != "table":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "stat" and "thresholds" in defaults:  # no number is neither good nor bad
            (mapping,) = defaults["mappings"]
            assert mapping["options"] == {"match": "null+nan", "result": {"color": "text", "text": defaults["noValue"]}}


def test_panels_lie_side_by_side_within_24_columns_and_folded_ones_below_their_row(board):
    rows = [panel for panel in board["panels"] if panel["type"] == "row"]
    for group in (board["panels"], *(row["panels"] for row in rows)):
        places = [panel["gridPos"] for panel in group]
        assert all(place["x"] >= 0 < place["w"] and place["x"] + place["w"] <= 24 for place in places)
        for a, b in combinations(places, 2):
            beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
            above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
            assert beside or above, (a, b)
    for row in rows:
        assert row["collapsed"]
        assert min(inner["gridPos"]["y"] for inner in row["panels"]) > row["gridPos"]["y"]


def colours(panel: dict[str, Any]) -> dict[str, list[str]]:
    """Fixed colours by the name of the series."""
    return {
        override["matcher"]["options"]: [p["value"]["fixedColor"] for p in override["properties"] if p["id"] == "color"]
        for override in panel["fieldConfig"]["overrides"]
    }


def test_buckets_have_the_colours_that_they_have_everywhere(board):
    graphs = [panel for panel in shown(board) if panel["type"] != "table"]
    seen = {name: found for panel in graphs for name, found in colours(panel).items()}
    assert seen.keys() >= {"thread-cpu", "idle", "lost-worker"}
    assert seen.pop(OTHER) == [OTHER_COLOUR]
    buckets = {name: found for name, found in seen.items() if name in list(Bucket)}
    assert buckets == {name: [COLOURS[Bucket(name)]] for name in buckets}


def test_causes_have_colours_of_their_own_within_a_panel(board, exported):
    found = [panel for panel in shown(board) if re.search(r"rate.* and on \(cause\)", panel["targets"][0]["expr"])]
    assert len(found) == (3 if "overview" in board["uid"] else 1)
    for panel in found:
        ((metric, _), *_) = SELECTOR.findall(panel["targets"][0]["expr"])
        assert colours(panel).keys() == exported[metric]["cause"]
        assert len(set(map(tuple, colours(panel).values()))) == len(colours(panel))


def test_the_stack_holds_every_activity_once_below_a_dotted_line_of_the_threads(board, exported):
    (panel,) = [panel for panel in shown(board) if panel["title"] == "What the threads did"]
    assert panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    (line,) = [o for o in panel["fieldConfig"]["overrides"] if o["matcher"]["options"] == "threads"]
    look = {p["id"].removeprefix("custom."): p["value"] for p in line["properties"]}
    assert (look["stacking"]["mode"], look["lineStyle"]["fill"], look["fillOpacity"]) == ("none", "dot", 0)
    *layers, threads = panel["targets"]
    assert threads["legendFormat"] == "threads"
    found = [re.findall(r'activity=~"([^"]*)"', layer["expr"])[0].split("|") for layer in layers]
    assert sorted(chain(*found)) == sorted(exported["dask_efficiency_thread_activity_seconds_total"]["activity"])


# -- findings ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def overview() -> dict[str, Any]:
    (found,) = [json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES if "overview" in name]
    return found


@pytest.fixture(scope="module")
def table(overview) -> dict[str, Any]:
    (panel,) = [panel for panel in shown(overview) if panel["type"] == "table"]
    return panel


@pytest.fixture(scope="module")
def columns(table) -> dict[str, dict[str, Any]]:
    """Properties of each column of the findings, by its title."""
    looks = [{p["id"]: p["value"] for p in o["properties"]} for o in table["fieldConfig"]["overrides"]]
    return {look["displayName"]: look for look in looks}


def test_findings_and_efficiency_are_the_first_row_and_the_threads_the_second(overview):
    places = {panel["title"]: panel["gridPos"] for panel in overview["panels"]}
    assert [title for title, place in places.items() if place["y"] == 0] == ["Efficiency", "What costs most"]
    findings, lost = places["What costs most"], places["Lost thread time"]
    assert places["What the threads did"]["y"] == findings["y"] + findings["h"]
    assert (lost["x"], lost["y"] + lost["h"]) == (0, findings["h"])


def test_each_kind_of_finding_has_its_title_its_advice_and_the_colour_of_its_bucket(columns):
    words, advices, found = (columns[title]["mappings"][0]["options"] for title in ("What", "What to do", "Kind"))
    for kind, known in KINDS.items():
        assert words[kind]["text"] == known.title
        assert advices[kind]["text"] == advice("idle/unknown" if kind == "idle" else kind)
        assert "nan" not in advices[kind]["text"].split()
        assert found[kind]["color"] == COLOURS[Bucket(kind.partition("/")[0])]
        assert "text" not in found[kind]


def test_the_largest_finding_stands_first_and_one_without_a_prefix_has_an_empty_cell(table, columns):
    assert table["targets"][0]["format"] == "table"
    assert table["options"]["sortBy"] == [{"displayName": "Saves up to", "desc": True}]
    assert columns["Saves up to"]["custom.cellOptions"]["type"] == "gauge"
    assert columns["Mostly in"]["noValue"] == ""
    (organize,) = table["transformations"]
    assert organize["options"]["excludeByName"] == {"Time": True}
    places = organize["options"]["indexByName"]
    assert sorted(places, key=places.__getitem__) == ["kind", "finding", "where", "Value", "advice"]


# -- links and annotations ---------------------------------------------------------------------


def test_the_dashboards_link_to_each_other_and_keep_the_time_and_the_choices(board):
    (link,) = board["links"]
    expected = {"type": "dashboards", "tags": [TAG], "keepTime": True, "includeVars": True}
    assert {key: link[key] for key in expected} == expected


def test_a_bar_of_a_worker_leads_to_that_worker_with_the_time_and_the_choices_kept(board):
    links = [link for links in values_of([p["fieldConfig"] for p in shown(board)], "links") for link in links]
    assert links
    for link in links:
        path, query = link["url"].split("?")
        assert path.removeprefix("/d/") in NAMES
        assert query.split("&") == [
            "var-worker=${__field.labels.worker:percentencode}",
            *(f"${{{name}:queryparam}}" for name in ("datasource", "cluster", "job", "instance")),
            "${__url_time_range}",
        ]


def test_alerts_that_fire_are_marked(board):
    (annotation,) = board["annotations"]["list"]
    assert annotation["enable"]
    ((metric, matchers),) = SELECTOR.findall(annotation["expr"])
    assert metric == "ALERTS"
    matched = {label: value for label, _, value in MATCHER.findall(matchers)}
    assert (matched["alertstate"], matched["cluster"]) == ("firing", "$cluster")
    alerts = yaml.safe_load((FOLDER.parent / "prometheus" / "alerts.yml").read_text())
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"] if "alert" in rule]
    assert names
    assert all(re.fullmatch(matched["alertname"], name) for name in names)
