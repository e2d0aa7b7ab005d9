from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from dashboards.monitor.prometheus import free_port
from dask_efficiency.cli import main
from tests.fleet.generated import NAMES, generate
from tests.fleet.prometheus.answering import Answer, answering
from tests.fleet.prometheus.backfilled import metrics_file, open_metrics, prometheus_with
from tests.live.prometheus_process import needs_prometheus, needs_promtool

pytestmark = [needs_prometheus, needs_promtool, pytest.mark.xdist_group("watch_on_prometheus")]

MACHINES = 64
STEP = 10

#: An ECC error, in the last of two hours; see :func:`~tests.fleet.generated.generate`.
SEED = 30_007
QUIET, SECONDS = 4800, 2400

#: How much of the fault has passed when the live part begins.
SEEN = 500

EVERY = 480


@dataclass(frozen=True)
class Past:
    """What Prometheus has: from when, since when one machine is faulty, until when."""

    url: str
    metrics: Path
    start: float
    onset: float
    end: float
    faulty: str


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("prometheus")
    window = generate(SEED, machines=MACHINES, seconds=SECONDS, past_seconds=QUIET, faults=True)
    assert window.past is not None
    assert window.onset is not None
    (faulty,) = window.faulty
    onset = QUIET + int(window.onset)
    length = onset + SEEN
    values = dict(zip(NAMES, np.concatenate([window.past, window.values], axis=2)[:, :, :length], strict=True))
    start = time.time() - length
    last = {name: np.nanmedian(of_metric[:, -60:], axis=1) for name, of_metric in values.items()}
    began = time.time()
    random = np.random.default_rng(0)

    def scraped(path: str, body: bytes) -> Answer:
        lines = [
            f'fleet_{name}{"_total" if name == "throughput" else ""}{{instance="m{i:02}",job="fleet",rack="r1"}} '
            f"{0.5 * (time.time() - began) if name == 'throughput' else level[i] * random.normal(1, 0.02):.7g}"
            for name, level in last.items()
            for i in range(MACHINES)
        ]
        return 200, "\n".join([*lines, ""]).encode()

    with answering(scraped) as exporter:
        targets = [{"targets": [exporter.url.removeprefix("http://")]}]
        times = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        scrape = {"job_name": "fleet", "honor_labels": True, "static_configs": targets, **times}
        text = open_metrics(values, start=start, step=STEP)
        with prometheus_with(text, folder, scrape={"scrape_configs": [scrape]}) as server:
            file = folder / "metrics.yaml"
            file.write_text(metrics_file(step=STEP))
            yield Past(server.url, file, start, start + onset, start + length, f"m{faulty:02}")


def settings(past: Past, text: str) -> str:
    file = past.metrics.with_name("watch.yaml")
    file.write_text(text)
    return str(file)


def replayed(past: Past, first: float, last: float) -> list[dict[str, object]]:
    given = [past.url, "--metrics", str(past.metrics), "--between", str(first), str(last), "--json"]
    result = CliRunner().invoke(main, ["fleet", "watch", *given, "--settings", settings(past, "history: 30m")])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_no_machine_is_named_in_the_quiet_hours(past: Past) -> None:
    assert past.onset - past.start > 3600
    assert replayed(past, past.start + 900, past.onset - 1) == []


@pytest.mark.parametrize("after", [350, EVERY, EVERY + 10])
def test_the_faulty_machine_is_named_within_two_rounds(past: Past, after: int) -> None:
    """In the first round that sees enough of the fault, or the one after a round that sees hardly any of it."""
    last = past.onset + after
    events = replayed(past, last - 2 * EVERY, last)
    assert [(event["change"], event["slow_worker"]["worker"]) for event in events] == [("begins", past.faulty)]


def test_a_live_watch_names_it_to_its_webhook_its_command_and_prometheus(past: Past, tmp_path: Path) -> None:
    port = free_port()
    body_file = tmp_path / "body.json"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    with answering(lambda path, body: (200, b"")) as webhook:
        command = f"{sys.executable} -c {shlex.quote(code)} {body_file}"
        given = {"every": "1s", "history": "30m", "metrics-port": port, "webhook": webhook.url, "command": command}
        file = settings(past, yaml.safe_dump(given))
        main_of = [sys.executable, "-c", "from dask_efficiency.cli import main; main()", "fleet", "watch", past.url]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        watch = subprocess.Popen([*main_of, "--metrics", past.metrics, "--settings", file], text=True, **pipes)
        try:
            killer = threading.Timer(120, watch.kill)  # so that a line that does not come fails the test
            killer.start()
            assert watch.stdout is not None
            line = watch.stdout.readline()
            assert f"begins {past.faulty}: " in line
            until = time.monotonic() + 60
            while not (body_file.exists() and body_file.read_text()) and time.monotonic() < until:
                time.sleep(0.05)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                rounds = answer.read().decode()
        finally:
            killer.cancel()
            watch.terminate()
            watch.communicate(timeout=60)
    ((_, _, body),) = webhook.asked
    assert json.loads(body) == json.loads(body_file.read_text())
    (alert,) = json.loads(body)["alerts"]
    assert (alert["status"], alert["labels"]["machine"]) == ("firing", past.faulty)
    assert f"dask_efficiency_watch_machines {MACHINES}.0" in rounds


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("fleet_gpu", "Prometheus has no metric 'fleet_gpu'; there is: 'fleet_"),
        ("avg(fleet_cpu_usage", "Prometheus refuses the query"),
        ("fleet_cpu_usage > 1e9", "the query returned nothing for the last"),
    ],
)
def test_the_error_of_a_wrong_query_has_its_line(past: Past, tmp_path: Path, query: str, wrong: str) -> None:
    file = tmp_path / "metrics.yaml"
    file.write_text(f"step: 10s\ngroup: rack\nmetrics:\n  cpu:\n    query: {query}\n")
    result = CliRunner().invoke(main, ["fleet", "watch", past.url, "--metrics", str(file), "--once"])
    assert result.exit_code == 1
    assert f"metrics.yaml, line 5: cpu: {wrong}" in result.stderr
