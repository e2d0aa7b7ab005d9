import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from dashboards.monitor.phases import LOOK_AT, PARTS
from dashboards.monitor.prometheus import RULES, SHORT, PrometheusError, configure, scraping, shorten
from tests.live.prometheus_process import Prometheus, needs_prometheus, needs_promtool
from tests.plugin.watch import eventually

ROOT = Path(__file__).parent.parent.parent
FILES = ("rules.yml", "alerts.yml")
DURATION = re.compile(r"(?<!\d)\d+(?:ms|[smhdwy])\b")


@pytest.mark.parametrize("name", FILES)
def test_short_rules_differ_from_the_real_ones_in_durations_only(name):
    text = (RULES / name).read_text()
    assert set() < set(DURATION.findall(text)) <= SHORT.keys()
    assert set(DURATION.findall(shorten(text))) <= set(SHORT.values())
    assert DURATION.sub("", shorten(text)) == DURATION.sub("", text)
    records = re.findall(r"record: (\S+)", shorten(text))
    assert len(set(records)) == len(records)


def test_durations_are_shortened_wherever_they_stand():
    assert shorten("x:ratio_rate1h{a='15m'}[5m] > 0 for: 10m 115m") == "x:ratio_rate2m{a='30s'}[30s] > 0 for: 20s 115m"


@needs_promtool
def test_promtool_accepts_the_short_rules_and_the_configuration(tmp_path):
    done = subprocess.run(["promtool", "check", "config", configure(tmp_path, "127.0.0.1:1")], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_prometheus_that_does_not_start_is_quoted(tmp_path, monkeypatch):
    old = tmp_path / "prometheus"
    old.write_text("#!/bin/sh\necho field keep_firing_for not found >&2\nexit 2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(PrometheusError, match="status 2:\nfield keep_firing_for not found"), scraping("127.0.0.1:1"):
        pass


def test_the_hints_of_all_parts_name_alerts_that_exist():
    assert {part.name for part in PARTS} == LOOK_AT.keys()
    named = set(re.findall(r"DaskEfficiency\w+", " ".join(LOOK_AT.values())))
    assert named
    assert all(f"alert: {name}\n" in (RULES / "alerts.yml").read_text() for name in named)


def status(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return int(answer.status)


@needs_prometheus
@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_the_monitor_has_data_shows_it_and_leaves_nothing_behind(tmp_path):
    monitor = subprocess.Popen(
        [sys.executable, "-m", "dashboards.monitor"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    processes: list[psutil.Process] = []
    try:
        assert monitor.stdout is not None
        lines: list[str] = []
        while "Ctrl-C" not in (lines or [""])[-1]:
            line = monitor.stdout.readline()
            assert line, "".join(lines)
            lines.append(line)
        graphs, alerts, tab = re.findall(r"http://\S+", "".join(lines))
        processes = psutil.Process(monitor.pid).children(recursive=True)
        assert "prometheus" in {process.name() for process in processes}

        server = Prometheus(graphs.partition("/graph")[0])
        shares = "cluster_activity:dask_efficiency_thread_activity_seconds:ratio_rate30s"
        eventually(lambda: server.query(shares), seconds=60)
        assert server.value(f"sum({shares})") == pytest.approx(1)
        eventually(lambda: server.query("cluster:dask_efficiency:ratio_rate2m"), seconds=60)
        assert [status(url) for url in (graphs, alerts, tab)] == [200, 200, 200]

        for _ in range(2):  # as impatient people do, to all of its processes, as a terminal does
            os.killpg(monitor.pid, signal.SIGINT)
        rest, _ = monitor.communicate(timeout=90)
        assert monitor.returncode == 0
        assert "Traceback" not in rest
        assert rest.endswith("Ended: the workers, Prometheus, and its data.\n")
        assert psutil.wait_procs(processes, timeout=60)[1] == []
        assert not list(tmp_path.glob("dask-efficiency-monitor-*"))
    finally:
        for process in [*processes, *([psutil.Process(monitor.pid)] if monitor.poll() is None else [])]:
            if process.is_running():
                process.kill()
