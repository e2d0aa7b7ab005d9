"""Queries of the files that come with the package: promtool can read them, and our own metrics are there."""

from __future__ import annotations

import inspect
import subprocess
from pathlib import Path

import pytest
import yaml

from dask_efficiency.fleet.prometheus.prometheus_source import metric_names
from dask_efficiency.fleet.rounds.metrics_file import READY, read_metrics_file
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
