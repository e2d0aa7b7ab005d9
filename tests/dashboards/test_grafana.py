"""The Grafana dashboards as files: the rules of Grafana's dashboard-linter, and those of this project."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
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
from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.live.prometheus import ClusterCollector, Export
from dask_efficiency.report.kinds import KINDS, advice
from dask_efficiency.show.drawn_buckets import COLOURS, OTHER_COLOUR
from tests.live.prometheus_process import needs_promtool
from tests.live.test_prometheus import SECOND, Source, straggler, watched

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
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    text: str = (FOLDER / f"{request.param}.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


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


def test_the_files_are_what_the_generator_makes():
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name} is out of date: python -m dashboards.generate"


def test_there_are_no_dashboards_that_the_generator_does_not_make():
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
    assert board["title"]
    assert board["description"]


# -- what can be chosen ------------------------------------------------------------------------


def test_the_data_source_is_a_variable_and_everything_uses_it(board):
    datasource = variables(board)["datasource"]
    assert (datasource["type"], datasource["query"], datasource["label"]) == ("datasource", "prometheus", "Data source")
    used = list(values_of(board, "datasource"))
    expected = {"type": "prometheus", "uid": "${datasource}"}
    assert all(reference == expected for reference in used)
    targets = [target for panel in shown(board) for target in panel["targets"]]
    assert len(used) >= len(shown(board)) + len(targets)
    assert all("datasource" in part for part in (*shown(board), *targets, *board["annotations"]["list"]))


def test_the_choices_are_in_the_order_in_which_one_narrows_the_next(board):
    names = list(variables(board))
    assert names[:4] == ["datasource", "cluster", "job", "instance"]
    assert names[4:] == (["worker"] if "workers" in board["uid"] else [])
    for position, name in enumerate(names[1:], start=1):
        narrowed_by = re.findall(r"\$(\w+)", variables(board)[name]["query"]["query"])
        assert narrowed_by == names[1:position]


def test_every_choice_takes_several_values_is_all_at_first_and_follows_the_time_shown(board):
    for variable in variables(board).values():
        if variable["type"] != "query":
            continue
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["current"]["value"] == ["$__all"]
        assert variable["label"] == variable["name"].capitalize()
        assert variable["refresh"] == model.VariableRefresh.ON_TIME_RANGE_CHANGED


def test_all_matches_any_value_and_for_the_cluster_an_absent_label_too(board):
    every = {name: variable.get("allValue") for name, variable in variables(board).items() if name != "datasource"}
    assert every.pop("cluster") == ".*"
    assert set(every.values()) == {".+"}


def test_every_query_keeps_to_what_is_chosen(board):
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


def exported() -> dict[str, dict[str, set[str]]]:
    """Every series that the exporter has, as metric, label and values."""
    source = Source()
    source.join("w")
    source.cluster.work.set(True, at=0)
    source.poll()
    source.report("w", 1, elapsed=4 * SECOND, gpu=watched("GPU-0", readings={"GPU-0": dict.fromkeys(READINGS, 1.0)}))
    source.poll()
    source.findings = (straggler("w"),)
    collector = ClusterCollector()
    collector._exports.append(Export(source))
    found: dict[str, dict[str, set[str]]] = {}
    for family in collector.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def test_every_metric_every_label_and_every_value_is_one_that_is_exported(board):
    ours = exported()
    assert len(ours) > 15
    for expr in expressions(board):
        for metric, matchers in SELECTOR.findall(expr):
            labels = ours[metric].keys() if metric in ours else OTHERS[metric]
            for label, _, values in MATCHER.findall(matchers):
                assert label in {*labels, *SCRAPED}, f"{metric} has no label {label}"
                if label in ("activity", "bucket", "cause", "outcome", "process"):
                    assert set(values.split("|")) <= ours[metric][label], f"{metric}: {values}"
        for by in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr):
            metrics = [metric for metric, _ in SELECTOR.findall(expr)]
            known = {label for metric in metrics for label in ours.get(metric, OTHERS.get(metric, ()))}
            assert set(by.split(", ")) <= known | SCRAPED, expr


def test_every_metric_stands_with_what_is_chosen(board):
    for expr in expressions(board):
        assert not re.findall(r"\bdask_\w+(?![\w{])", expr.replace("label_values(dask_efficiency_nthreads, ", "")), expr


def test_counters_are_taken_as_rates_or_increases_only(board):
    for expr in panel_expressions(board):
        for found in SELECTOR.finditer(expr):
            before = expr[: found.start()]
            if found[1].endswith("_total"):
                assert before.endswith(("rate(", "increase(")), expr
            else:
                assert not before.endswith(("rate(", "increase(")), expr


def test_rates_are_over_the_interval_that_grafana_finds_and_increases_over_the_time_shown(board):
    for expr in panel_expressions(board):
        for function, window in re.findall(r"\b(\w+)\(\w+\{[^}]*\}\[([^\]]*)\]", expr):
            expected = {"rate": "$__rate_interval", "sum_over_time": "$__range:$__interval"}.get(function, "$__range")
            assert window == expected, expr


def test_nothing_is_divided_by_what_may_be_zero(board):
    for expr in panel_expressions(board):
        for divisor in re.findall(r"(?<!\w) / (.*)", expr):
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


def test_every_panel_has_an_id_of_its_own_and_every_query_of_a_panel_a_letter(board):
    ids = [panel["id"] for panel in panels(board)]
    assert len(set(ids)) == len(ids)
    assert all(number > 0 for number in ids)
    for panel in shown(board):
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == list("ABCDEFGH"[: len(refs)])
        assert refs


def test_every_panel_says_what_it_shows_from_which_metrics_and_what_stands_there_without_data(board):
    for panel in shown(board):
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"]
        for target in panel["targets"]:
            for metric, _ in SELECTOR.findall(target["expr"]):
                assert f"`{metric}`" in panel["description"], panel["title"]
            assert target["legendFormat"], panel["title"]


def test_every_panel_has_a_unit_that_grafana_knows(board):
    known = {getattr(units, name) for name in vars(units) if isinstance(getattr(units, name), str)}
    assert {"s", "percentunit", "short"} <= known
    for panel in shown(board):
        assert panel["fieldConfig"]["defaults"]["unit"] in known, panel["title"]


def test_a_single_number_is_the_last_one_of_an_instant_query(board):
    for panel in shown(board):
        single = panel["type"] != "timeseries"
        assert all(target["instant"] is single for target in panel["targets"])
        assert all(target["range"] is not single for target in panel["targets"])
        if single and panel["type"] != "table":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]


def test_panels_lie_side_by_side_within_24_columns(board):
    for group in (board["panels"], *(panel["panels"] for panel in board["panels"] if "panels" in panel)):
        places = [panel["gridPos"] for panel in group]
        for place in places:
            assert place["x"] >= 0
            assert place["w"] > 0
            assert place["x"] + place["w"] <= 24
        for a, b in combinations(places, 2):
            beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
            above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
            assert beside or above, (a, b)


def test_folded_panels_come_below_their_row(board):
    for panel in board["panels"]:
        if panel["type"] == "row":
            assert panel["collapsed"]
            assert panel["panels"]
            assert all(inner["gridPos"]["y"] > panel["gridPos"]["y"] for inner in panel["panels"])


def test_buckets_have_the_colours_that_they_have_everywhere(board):
    seen = set()
    for panel in shown(board):
        if panel["type"] == "table":
            continue
        for override in panel["fieldConfig"]["overrides"]:
            name = override["matcher"]["options"]
            colours = [p["value"]["fixedColor"] for p in override["properties"] if p["id"] == "color"]
            if name in list(Bucket):
                assert colours == [COLOURS[Bucket(name)]]
                seen.add(name)
            elif name == OTHER:
                assert colours == [OTHER_COLOUR]
    assert seen >= {"thread-cpu", "idle", "lost-worker"}


def test_causes_have_colours_of_their_own_within_a_panel(board):
    found = [panel for panel in shown(board) if re.search(r"rate.* and on \(cause\)", panel["targets"][0]["expr"])]
    assert len(found) == (3 if "overview" in board["uid"] else 1)
    known = exported()
    for panel in found:
        ((metric, _), *_) = SELECTOR.findall(panel["targets"][0]["expr"])
        overrides = panel["fieldConfig"]["overrides"]
        assert {override["matcher"]["options"] for override in overrides} == known[metric]["cause"]
        colours = [p["value"]["fixedColor"] for o in overrides for p in o["properties"] if p["id"] == "color"]
        assert len(set(colours)) == len(overrides)


def test_the_number_of_threads_is_a_dotted_line_over_the_stack(board):
    (panel,) = [panel for panel in shown(board) if panel["title"] == "What the threads did"]
    assert panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    (line,) = [o for o in panel["fieldConfig"]["overrides"] if o["matcher"]["options"] == "threads"]
    properties = {p["id"]: p["value"] for p in line["properties"]}
    assert properties["custom.stacking"]["mode"] == "none"
    assert properties["custom.lineStyle"]["fill"] == "dot"
    assert properties["custom.fillOpacity"] == 0
    assert panel["targets"][-1]["legendFormat"] == "threads"


def test_the_layers_of_the_stack_hold_every_activity_once(board):
    (panel,) = [panel for panel in shown(board) if panel["title"] == "What the threads did"]
    layers = [re.search(r'activity=~"([^"]*)"', target["expr"]) for target in panel["targets"][:-1]]
    found = [activity for layer in layers if layer for activity in layer[1].split("|")]
    assert sorted(found) == sorted(exported()["dask_efficiency_thread_activity_seconds_total"]["activity"])


# -- what costs most ---------------------------------------------------------------------------


def overview() -> dict[str, Any]:
    (found,) = [json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES if "overview" in name]
    return found


def columns() -> dict[str, dict[str, Any]]:
    """What each column of the findings is told, by its title."""
    (panel,) = [panel for panel in shown(overview()) if panel["type"] == "table"]
    told = [{p["id"]: p["value"] for p in o["properties"]} for o in panel["fieldConfig"]["overrides"]]
    return {look["displayName"]: look for look in told}


def words(title: str) -> dict[str, dict[str, str]]:
    """What stands for each value in a column, and its colour."""
    (mapping,) = columns()[title]["mappings"]
    return mapping["options"]


def test_findings_and_efficiency_are_the_first_row_and_the_threads_the_second():
    by_height: dict[int, list[str]] = {}
    for panel in overview()["panels"]:
        by_height.setdefault(panel["gridPos"]["y"], []).append(panel["title"])
    first, *_ = by_height.values()
    assert first == ["Efficiency", "What costs most"]
    places = {panel["title"]: panel["gridPos"] for panel in overview()["panels"]}
    findings = places["What costs most"]
    assert places["What the threads did"]["y"] == findings["y"] + findings["h"]
    lost = places["Lost thread time"]
    assert (lost["x"], lost["y"] + lost["h"]) == (0, findings["h"])


def test_each_kind_of_finding_has_its_title_its_advice_and_the_colour_of_its_bucket():
    for kind, known in KINDS.items():
        assert words("What")[kind]["text"] == known.title
        assert words("What to do")[kind]["text"] == advice("idle/unknown" if kind == "idle" else kind)
        assert "nan" not in words("What to do")[kind]["text"].split()
        assert words("Kind")[kind]["color"] == COLOURS[Bucket(kind.partition("/")[0])]
        assert "text" not in words("Kind")[kind]


def test_a_finding_without_a_prefix_has_an_empty_cell():
    (panel,) = [panel for panel in shown(overview()) if panel["type"] == "table"]
    assert panel["fieldConfig"]["defaults"]["noValue"]
    assert columns()["Mostly in"]["noValue"] == ""


def test_the_largest_finding_stands_first():
    (panel,) = [panel for panel in shown(overview()) if panel["type"] == "table"]
    assert panel["targets"][0]["format"] == "table"
    (order,) = panel["options"]["sortBy"]
    assert order == {"displayName": "Saves up to", "desc": True}
    assert columns()[order["displayName"]]["custom.cellOptions"]["type"] == "gauge"
    (organize,) = panel["transformations"]
    assert organize["options"]["excludeByName"] == {"Time": True}
    places = organize["options"]["indexByName"]
    assert sorted(places, key=places.__getitem__) == ["kind", "finding", "where", "Value", "advice"]


# -- what there is no number of ----------------------------------------------------------------


def test_a_number_that_is_not_there_is_neither_good_nor_bad(board):
    for panel in shown(board):
        told = panel["fieldConfig"]["defaults"]
        if panel["type"] == "stat" and "thresholds" in told:
            (mapping,) = told["mappings"]
            assert mapping["options"] == {"match": "null+nan", "result": {"color": "text", "text": told["noValue"]}}


# -- links and annotations ---------------------------------------------------------------------


def test_the_dashboards_link_to_each_other_and_keep_the_time_and_the_choices(board):
    (link,) = board["links"]
    assert (link["type"], link["tags"]) == ("dashboards", [TAG])
    assert link["keepTime"]
    assert link["includeVars"]


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
    assert matched["alertstate"] == "firing"
    assert matched["cluster"] == "$cluster"
    alerts = yaml.safe_load((FOLDER.parent / "prometheus" / "alerts.yml").read_text())
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"] if "alert" in rule]
    assert names
    assert all(re.fullmatch(matched["alertname"], name) for name in names)


# -- provisioning ------------------------------------------------------------------------------


def provisioned(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "provisioning" / name).read_text())
    return found


def test_the_provisioning_files_name_a_prometheus_and_a_folder_of_dashboards():
    (datasource,) = provisioned("datasources/prometheus.yml")["datasources"]
    assert (datasource["type"], datasource["access"]) == ("prometheus", "proxy")
    assert datasource["jsonData"]["timeInterval"]
    (provider,) = provisioned("dashboards/dask-efficiency.yml")["providers"]
    assert provider["type"] == "file"
    assert Path(provider["options"]["path"]).is_absolute()
