"""Real parts of Prometheus for the tests: promtool, and a server of its own for a scrape target."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dashboards.monitor.prometheus import running

#: Where the tests' server keeps its scrapes apart, in seconds.
SCRAPE_INTERVAL = 0.5

needs_promtool = pytest.mark.needs("promtool")
needs_prometheus = pytest.mark.needs("prometheus")


def lint(text: str) -> str:
    """What promtool finds wrong with metrics in the text format; empty if nothing."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=120)
    return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else f"exit code {done.returncode}")


class Prometheus:
    """A server's HTTP API."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query."""
        found = self._get("query", {"query": expression})
        return [(series["metric"], float(series["value"][1])) for series in found["result"]]

    def query_range(
        self, expression: str, *, seconds: float, step: float = 1
    ) -> list[tuple[dict[str, str], list[float]]]:
        """Labels and values of each series of the last seconds."""
        now = time.time()
        found = self._get("query_range", {"query": expression, "start": now - seconds, "end": now, "step": step})
        return [(series["metric"], [float(value) for _, value in series["values"]]) for series in found["result"]]

    def label_values(self, label: str, series: str) -> list[str]:
        """Values of a label of the series that a selector finds."""
        values: list[str] = self._get(f"label/{label}/values", {"match[]": series})
        return values

    def _get(self, what: str, parameters: Mapping[str, Any]) -> Any:
        try:
            url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from error

    def value(self, expression: str) -> float | None:
        """The one value of an instant query; None if it has no series."""
        found = self.query(expression)
        return found[0][1] if found else None


@contextmanager
def scraping(
    target: str, folder: Path, *, jobs: Mapping[str, Mapping[str, str]] | None = None, rules: str = "groups: []"
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes ``host:port`` of one target, once for each job; jobs are names and labels."""
    interval = f"{round(SCRAPE_INTERVAL * 1000)}ms"
    (folder / "rules.yml").write_text(rules)
    configuration = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target], "labels": dict(labels)}]}
            for job, labels in (jobs or {"dask": {}}).items()
        ],
    }
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(configuration))  # which is YAML too
    with running(config) as server:
        yield Prometheus(server.url)
