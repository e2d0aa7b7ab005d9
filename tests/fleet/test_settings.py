from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.prometheus_query import Answered
from dask_efficiency.fleet.prometheus.prometheus_source import Gathered
from dask_efficiency.fleet.rounds.metrics_file import parse_metrics_file
from dask_efficiency.fleet.rounds.past import parted
from dask_efficiency.fleet.settings import WatchSettings, outlier_detector, read_settings
from tests.docs.markdown import ROOT, blocks

GOOD = """every: 1m
window: 20m
history: 2h
model: minder.npz
http-config: web.yaml
webhook: http://host:5001/drain
command: {python} -c 'print("a b")'
metrics-port: 9469
metrics-address: 127.0.0.1
retire-share: 0.1
retire-every: 1h30m
"""


def read(folder: Path, text: str) -> WatchSettings:
    (folder / "watch.yaml").write_text(text)
    return read_settings(folder / "watch.yaml")


def test_a_file_has_the_settings_of_a_watch(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("http_headers: {x: {values: [y]}}")
    found = read(tmp_path, GOOD.format(python=sys.executable))
    assert (found.every, found.window, found.history, found.continuity) == (60, 1200, 7200, None)
    assert found.metrics_address == "127.0.0.1"
    assert (found.metrics_port, found.retire_share, found.retire_every) == (9469, 0.1, 5400)
    assert found.model == str(tmp_path / "minder.npz")
    assert found.http_config.headers == {"x": "y"}
    assert found.receivers == (found.webhook, found.command)
    assert found.command is not None
    assert found.command.arguments == (sys.executable, "-c", 'print("a b")')


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == WatchSettings()
    assert WatchSettings().receivers == ()


def test_the_file_on_the_page_has_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    (tmp_path / "web.yaml").touch()
    (text,) = (block.text for block in blocks((ROOT / "docs/watch.md").read_text()) if "retire-every" in block.text)
    found, usual = read(tmp_path, text), WatchSettings()
    for name in ("every", "window", "history", "continuity", "metrics_address", "retire_share", "retire_every"):
        assert getattr(found, name) == getattr(usual, name)
    assert len(found.receivers) == 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("every: 1m\nevry: 2m", "watch.yaml, line 2: 'evry' is unknown here; there is: 'every'"),
        ("every: 8parsecs", "line 1: every: expected a duration above 0 such as 15s, 8m or 1h30m, got '8parsecs'"),
        ("model:", "line 1: model: expected the name of a file"),
        ("model: x\ncontinuity: 4m", "line 2: 'continuity' is given along with 'model'"),
        ("webhook: host", "line 1: webhook: no URL of a webhook: expected http://"),
        ("command: nosuchprogram", "line 1: command: there is no program 'nosuchprogram' to run"),
        ("metrics-port: 70000", "line 1: metrics-port: expected a port from 1 to 65535, got '70000'"),
        ("metrics-address: ::1", "line 1: 'metrics-address' is given without 'metrics-port'"),
        ("metrics-port: 1\nmetrics-address:", "line 2: metrics-address: expected an address of this host, such as"),
        ("retire-share: 25%", "line 1: retire-share: expected a share above 0 and below 1 such as 0.25, got '25%'"),
        ("retire-share: 1", "line 1: retire-share: expected a share above 0 and below 1"),
    ],
)
def test_an_error_names_its_line(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(TextFileError) as raised:
        read(tmp_path, text)
    assert wrong in str(raised.value)


FILE = parse_metrics_file(
    """metrics:
  heat: {query: heat, worse: more, cause: gpu, least: 5}
  memory: {query: rate, worse: less, least: 10%}
  load: {query: load, cause: contention}
""",
    "m.yaml",
)


def judged(metric: str, change: float, *, level: float = 60.0) -> list[SlowWorker]:
    """Of eight machines that have been alike for half an hour, one changes in a metric."""
    gathered = Gathered(FILE, start=0, samples=540)
    number = [one.name for one in FILE.metrics].index(metric)
    random, at = np.random.default_rng(1), np.arange(540) * FILE.step_seconds
    for machine in range(8):
        values = level + random.normal(0, 0.5, 540) + change * ((at >= 7600) & (machine == 3))
        gathered.add(number, Answered({"instance": f"m{machine}"}, at, values.astype(np.float32)))
    past, window = parted(gathered.series(), window_start=7200)
    return outlier_detector()(window, past)


@pytest.mark.parametrize(
    ("metric", "change", "counts"),
    [
        ("heat", 12, True),
        ("heat", 3, False),
        ("heat", -12, False),
        ("memory", -15, True),
        ("memory", -3, False),
        ("memory", 15, False),
        ("load", 12, True),
        ("load", -12, True),
    ],
)
def test_a_change_that_is_better_or_too_small_is_nobodys_fault(metric: str, change: float, counts: bool) -> None:
    """A file's metric means what the file says, whatever a metric of that name means elsewhere."""
    assert [finding.worker for finding in judged(metric, change)] == ["m3"] * counts


@pytest.mark.parametrize(("metric", "cause"), [("heat", Cause.GPU), ("load", Cause.CONTENTION)])
def test_the_cause_is_that_of_the_file(metric: str, cause: Cause) -> None:
    (found,) = judged(metric, 12)
    assert found.cause is cause


def test_outliers_are_judged_with_the_continuity_of_the_settings() -> None:
    random = np.random.default_rng(1)
    values = random.normal(10, 1, (1, 8, 120)).astype(np.float32)
    values[0, 3, 84:] += 30
    series = MetricSeries.of(values, metrics=("load",), step_seconds=5.0)
    assert [found.worker for found in outlier_detector(120.0)(series, None)] == ["3"]
    assert outlier_detector(400.0)(series, None) == []
