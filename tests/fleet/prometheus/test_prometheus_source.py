from __future__ import annotations

import inspect
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.prometheus import prometheus_source as module
from dask_efficiency.fleet.prometheus.prometheus_query import Answered, PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import Gathered, PrometheusSource, TooLargeError, metric_names
from dask_efficiency.fleet.rounds.exclusions import Exclusion
from dask_efficiency.fleet.rounds.metrics_file import READY, parse_metrics_file, read_metrics_file
from tests.fleet.prometheus.answering import Answer, answering
from tests.fleet.prometheus.test_prometheus_query import matrix_of, refusal
from tests.live.prometheus_process import needs_promtool


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("up", ["up"]),
        ("up > 1e9", ["up"]),
        ('1 - avg by (instance) (rate(cpu_total{mode=~"idle|x y"}[1m] offset 5m))', ["cpu_total"]),
        ("a:b:c / on (x) group_left (y) sum without (z) (d)", ["a:b:c", "d"]),
        ("label_replace(a, 'to', '$1', \"from\", '(.*)') or b", ["a", "b"]),
        ('{__name__="x"}', []),
    ],
)
def test_names_of_metrics_are_found_in_a_query(query: str, names: list[str]) -> None:
    assert metric_names(query) == names


@needs_promtool
def test_promtool_reads_the_queries_of_the_ready_files(tmp_path: Path) -> None:
    queries = [metric.query for name in READY for metric in read_metrics_file(name).metrics]
    rules = [{"record": f"r{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "ready", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_our_own_file_asks_for_metrics_that_are_exported() -> None:
    module = pytest.importorskip("dask_efficiency.live.prometheus", reason="prometheus_client is not installed")
    source = inspect.getsource(module)
    asked = {name for metric in read_metrics_file("dask-efficiency").metrics for name in metric_names(metric.query)}
    assert asked
    for name in asked:
        assert f'"{name.removeprefix("dask_efficiency_").removesuffix("_total")}"' in source


FILE = parse_metrics_file(
    "step: 5s\ngroup: rack\nmetrics:\n  cpu:\n    query: cpu\n  net:\n    query: sum by (instance) (net)\n", "m.yaml"
)


def filled(gathered: Gathered, number: int, at: list[float], values: list[float], **labels: str) -> None:
    gathered.add(number, Answered(labels, np.array(at), np.array(values, np.float32)))


def test_samples_lie_on_the_grid_and_missing_ones_are_missing() -> None:
    gathered = Gathered(FILE, start=100, samples=4)
    filled(gathered, 0, [100, 110.001], [1, 2], instance="b", rack="r1")
    filled(gathered, 1, [105], [3], instance="b")
    filled(gathered, 0, [115, 120], [4, 9], instance="a", rack="r2")
    series = gathered.series()
    assert series.workers == ("a", "b")
    assert series.groups == ("r2", "r1")
    assert (series.start, series.step_seconds) == (100, 5)
    np.testing.assert_array_equal(
        series.values,
        np.array([[[np.nan] * 3 + [4], [1, np.nan, 2, np.nan]], [[np.nan] * 4, [np.nan, 3, np.nan, np.nan]]], "f4"),
    )


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        ([{"rack": "r1"}], r"m.yaml, line 5: cpu: a series .* no label 'instance'.* 'rack'"),
        ([{"instance": "a", "job": "x"}], r"line 5: cpu: no series of 'a' has a label 'rack', its group; .* 'job'"),
        (
            [{"instance": "a", "rack": "r", "gpu": "0"}, {"instance": "a", "rack": "r", "gpu": "1"}],
            r"several series of 'a', which differ in gpu; .*avg by \(instance\)",
        ),
    ],
)
def test_an_error_of_series_without_one_machine_and_group_each_has_the_line(labels: list[Any], wrong: str) -> None:
    gathered = Gathered(FILE, start=0, samples=4)
    with pytest.raises(TextFileError, match=wrong):  # noqa: PT012  # in whichever call it is noticed
        for each in labels:
            filled(gathered, 0, [0, 5, 10], [1, 1, 1], **each)
        gathered.series()


def test_later_a_machine_with_wrong_series_is_left_out_alone() -> None:
    left: list[Exclusion] = []
    gathered = Gathered(FILE, start=0, samples=4, strict=False)
    for number, labels in enumerate([{"gpu": "0"}, {"gpu": "1"}, {}, {}]):
        machine = "a" if number < 2 else "bc"[number - 2]
        rack = {"rack": "r"} if number != 3 else {}
        filled(gathered, 0, [0, 5, 10], [1, 1, 1], instance=machine, **rack, **labels)
    assert gathered.series(left.append).workers == ("b",)
    assert [(one.about, one.names) for one in left] == [("machine", ("c",)), ("machine", ("a",))]
    assert "several series of 'a'" in str(left[1])


def test_later_a_metric_whose_query_is_refused_is_left_out_alone() -> None:
    def answer(path: str, body: bytes) -> Answer:
        if b"query=cpu&" in body:
            return 400, refusal("execution", "vector cannot contain metrics with the same labelset")
        return 200, matrix_of({"a": [(0, 1), (5, 2)]})

    left: list[Exclusion] = []
    file = parse_metrics_file("step: 5s\nmetrics:\n  cpu:\n    query: cpu\n  net:\n    query: net\n", "m.yaml")
    with answering(answer) as server:
        source = PrometheusSource(PrometheusClient(server.url), file)
        with pytest.raises(TextFileError, match="line 4: cpu: Prometheus refuses the query"):
            source.pull(start=0, stop=5)
        series = source.pull(start=0, stop=5, leave_out=left.append)
    np.testing.assert_array_equal(series.values[:, 0], np.array([[np.nan, np.nan], [1, 2]], "f4"))
    assert [(one.about, one.names) for one in left] == [("metric", ("cpu",))]


def test_where_all_metrics_fail_it_is_an_error() -> None:
    with answering(lambda path, body: (400, refusal("execution", "wrong"))) as server:
        source = PrometheusSource(PrometheusClient(server.url), FILE)
        with pytest.raises(TextFileError, match="refuses the query: wrong"):
            source.pull(start=0, stop=5, leave_out=lambda left: None)


def test_a_machine_that_gets_other_labels_goes_on() -> None:
    gathered = Gathered(FILE, start=0, samples=6)
    filled(gathered, 0, [0, 5, 10], [1, 1, 1], instance="a", rack="r", pod="x")
    filled(gathered, 0, [10, 15, 20], [2, 2, 2], instance="a", rack="r", pod="y")
    np.testing.assert_array_equal(gathered.series().values[0, 0], np.array([1, 1, 2, 2, 2, np.nan], "f4"))


def test_more_values_than_can_be_held_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 1_000)
    gathered = Gathered(FILE, start=0, samples=600)
    filled(gathered, 0, [0], [1], instance="a", rack="r")
    with pytest.raises(TooLargeError, match="more than 1000 values; expected fewer labels, a longer step, or less"):
        filled(gathered, 0, [0], [1], instance="b", rack="r")


def test_labels_count_as_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 100_000)
    gathered = Gathered(FILE, start=0, samples=6)
    for _ in range(1_000):  # the same ones are held once
        filled(gathered, 0, [0], [1], instance="a", rack="r")
    with pytest.raises(TooLargeError, match="with their labels"):
        filled(gathered, 0, [0], [1], instance="b", rack="r", other="x" * 400_000)


def test_a_machine_without_a_name_that_can_be_shown_is_an_error() -> None:
    with pytest.raises(TextFileError, match="a machine's name has 1001 characters; expected at most 1000"):
        filled(Gathered(FILE, start=0, samples=6), 0, [0], [1], instance="a" * 1_001, rack="r")
