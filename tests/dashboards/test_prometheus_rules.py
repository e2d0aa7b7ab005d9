import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dask_efficiency.accounts.buckets import CAUSES, FINALIZED, GOOD, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from tests.docs.markdown import anchors
from tests.live.prometheus_process import needs_promtool

DASHBOARDS = Path(__file__).parent.parent.parent / "dashboards"
FOLDER = DASHBOARDS / "prometheus"
TESTS = sorted((FOLDER / "tests").glob("*.yml"))

#: The unit tests in which each alert is silent in all situations, and those in which it fires.
SILENCE = "silence.yml"
FIRING = ["cluster.yml", "gpu.yml", "plugin.yml"]

#: Where runbook_url points, relative to the repository.
RUNBOOK = "docs/alerts.md"
TEXT = (DASHBOARDS.parent / RUNBOOK).read_text(encoding="utf-8")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in load(FOLDER / name)["groups"] for rule in group["rules"]]


RECORDED = {rule["record"]: rule["expr"] for rule in rules("rules.yml")}
ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
EXPRESSIONS = "\n".join([*RECORDED.values(), *(alert["expr"] for alert in ALERTS.values())])


def promtool(*arguments: object, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


def unit_tests(names: Iterable[str], folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return promtool("test", "rules", *names, folder=folder / "tests")


@needs_promtool
@pytest.mark.parametrize(
    "arguments", ["check rules --lint=all --lint-fatal rules.yml alerts.yml", "check config prometheus.yml"]
)
def test_promtool_finds_nothing_wrong_with_the_rules_and_the_example_configuration(arguments):
    done = promtool(*arguments.split())
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_unit_tests_of_the_rules_pass():
    done = unit_tests(path.name for path in TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize(("expression", "names"), [("vector(0) > 1", FIRING), ("vector(1)", [SILENCE])])
def test_the_unit_tests_fail_where_alerts_never_or_always_fire(expression, names, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "prometheus")
    (folder / "rules.yml").write_text("groups: []")  # which such alerts do not read
    silence = load(folder / "tests" / SILENCE)
    silence["tests"] = silence["tests"][:1]  # one situation is enough to see each alert that fires
    (folder / "tests" / SILENCE).write_text(yaml.safe_dump(silence))
    alerts = load(folder / "alerts.yml")
    for group in alerts["groups"]:
        for rule in group["rules"]:
            rule["expr"] = expression
    (folder / "alerts.yml").write_text(yaml.safe_dump(alerts))
    done = unit_tests(names, folder)
    assert done.returncode != 0
    failed = set(re.findall(r"alertname: ?(\w+)", done.stdout + done.stderr))
    assert failed == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_unit_test_in_which_it_fires_and_silent_ones(name):
    checks = [
        (path.stem, bool(check.get("exp_alerts")))
        for path in TESTS
        for case in load(path)["tests"]
        for check in case.get("alert_rule_test", ())
        if check["alertname"] == name
    ]
    fires = {stem for stem, firing in checks if firing}
    assert fires
    assert (*fires, False) in checks
    assert ("silence", False) in checks


def test_the_silent_unit_tests_cover_all_alerts_in_all_situations():
    for case in load(FOLDER / "tests" / SILENCE)["tests"]:
        checks = [(check["alertname"], check["eval_time"]) for check in case["alert_rule_test"]]
        assert len({time for _, time in checks}) == 3
        assert sorted(checks) == sorted((name, time) for name in ALERTS for time in {time for _, time in checks})
        assert not any(check.get("exp_alerts") for check in case["alert_rule_test"])


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_severity_a_summary_and_a_section_of_the_runbook(name):
    alert = ALERTS[name]
    assert name.startswith("DaskEfficiency")
    assert alert["labels"]["severity"] in ("warning", "info")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert "{{ or $labels.cluster $labels.instance }}" in alert["annotations"]["summary"]
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOK}#{name.lower()}"
    assert anchors(TEXT).count(name.lower()) == 1
    section = re.split(rf"^#+ {name}$", TEXT, flags=re.MULTILINE)[1].split("\n#")[0]
    assert "**Look.**" in section
    assert "**Do.**" in section


def test_the_table_of_alerts_is_that_of_the_rules():
    table = re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \| (\w+) \|", TEXT, flags=re.MULTILINE)
    assert table == [(name, alert["labels"]["severity"]) for name, alert in ALERTS.items()]


def test_recording_rules_are_named_level_metric_operation():
    for name in RECORDED:
        level = "cluster(_activity|_bucket|_cause|_gpu)?"
        assert re.fullmatch(rf"{level}:dask_efficiency[a-z_]*:(ratio_)?rate(5m|1h)", name)
        assert set(re.findall(r"\[(\w+)\]", RECORDED[name])) <= {name[-2:]}
        assert set(re.findall(r"rate(5m|1h)", RECORDED[name])) <= {name[-2:]}


def test_every_series_that_a_rule_reads_is_recorded_or_exported(exported):
    series = set(re.findall(r"\b(?:\w+:)?dask_\w+(?::\w+)?", EXPRESSIONS))
    assert {name for name in series if ":" in name} <= RECORDED.keys()
    assert {name for name in series if ":" not in name} <= {*exported, "dask_scheduler_clients"}
    assert sum(":" not in name for name in series) >= 7


def test_every_activity_bucket_and_cause_that_a_rule_names_exists():
    waiting = CAUSES[Bucket.THREAD_NONCPU]
    for label, known in (("activity", (*ACTIVITIES, *GPU_ACTIVITIES)), ("bucket", FINALIZED), ("cause", waiting)):
        named = "|".join(re.findall(rf'{label}[=!~]+"([^"]*)"', EXPRESSIONS)).split("|")
        assert named
        assert set(named) <= set(map(str, known))


def test_every_rule_counts_all_useful_time_as_useful():
    named = re.findall(r'activity=~"(thread-cpu[^"]*)"', EXPRESSIONS)
    assert len(named) >= 3
    assert all({*named_here.split("|")} >= set(map(str, GOOD)) for named_here in named)
