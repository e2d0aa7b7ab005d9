from __future__ import annotations

import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.outliers.metric_series import Metric
from dask_efficiency.fleet.rounds.metrics_file import (
    READY,
    duration_of,
    parse_metrics_file,
    read_metrics_file,
    shown_duration,
)
from tests.docs.markdown import ROOT, blocks

GOOD = """step: 1m30s
machine: host
group: rack
metrics:
  cpu:
    query: >-
      avg by (host)
      (cpu)
    worse: less
    cause: slow-cpu
    least: 10%
  errors:
    query: rate(errors_total[1m])
    machine: node
    least: 2.5
    optional: true
"""


def test_a_file_has_queries_and_their_meanings() -> None:
    file = parse_metrics_file(GOOD, "m.yaml")
    cpu, errors = file.metrics
    assert file.step_seconds == 90
    assert (cpu.name, cpu.query, cpu.machine, cpu.group, cpu.line) == ("cpu", "avg by (host) (cpu)", "host", "rack", 6)
    assert cpu.meaning == Metric(-1, Cause.SLOW_CPU, least=0.1)
    assert errors.meaning == Metric(least_value=2.5)
    assert (cpu.optional, errors.machine, errors.optional) == (False, "node", True)


@pytest.mark.parametrize("name", READY)
def test_the_files_that_come_with_the_package_can_be_read(name: str) -> None:
    file = read_metrics_file(name)
    assert file.step_seconds == 15
    assert len(file.metrics) >= 5
    assert any(not metric.optional for metric in file.metrics)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("1m30s", "15", "m.yaml, line 1: step: expected a duration above 0 such as 15s, 8m or 1h30m, got '15'"),
        ("1m30s", "5 parsecs", "line 1: step: expected a duration"),
        ("group: rack", "groups: rack", "m.yaml, line 3: 'groups' is unknown here; there is: 'group'"),
        ("less", "down", "m.yaml, line 9: worse: expected more, less, either, got 'down'"),
        ("slow-cpu", "slow", "m.yaml, line 10: cause: 'slow' is unknown; there is: 'slow-cpu'"),
        ("10%", "ten", "line 11: least: expected a number in the unit of the metric, or a share such as 10%"),
        ("2.5", "-1", "line 15: least: expected a number"),
        ("node", "no-de", "line 14: machine: expected the name of a label such as instance, got 'no-de'"),
        ("optional: true", "optional: maybe", "line 16: optional: expected true or false, got 'maybe'"),
        ("    query: rate(errors_total[1m])\n", "", "line 12: errors has no query"),
        ("errors:", "cpu:", "line 12: 'cpu' is given twice"),
        ("errors:", "'e r':", "line 12: 'e r' is no name"),
        (GOOD[GOOD.index("metrics:") :], "metrics:\n", "line 4: there are 0 metrics; expected 1 to 100"),
        ("metrics:", "metrics: [", "this is not YAML"),
    ],
)
def test_an_error_names_its_line(old: str, new: str, wrong: str) -> None:
    with pytest.raises(TextFileError) as caught:
        parse_metrics_file(GOOD.replace(old, new), "m.yaml")
    assert wrong in str(caught.value)


def test_the_error_of_a_missing_file_names_the_ready_ones() -> None:
    with pytest.raises(FileNotFoundError, match=r"no file 'nod'; expected .* node, dcgm, dask-efficiency"):
        read_metrics_file("nod")


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("8m", 480), ("1h30m", 5400), ("500ms", 0.5), ("1w", 604800), ("1.5m", 90)]
)
def test_durations_are_as_prometheus_writes_them(text: str, seconds: float) -> None:
    assert duration_of(text) == seconds
    assert [shown_duration(seconds) for seconds in (90, 480, 3600, 86_400)] == ["90s", "8m", "1h", "1d"]


@pytest.mark.parametrize("text", ["", "15", "0s", "-5s", "5 s", "1y", "s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration above 0"):
        duration_of(text)


def test_the_file_that_the_page_shows_can_be_read() -> None:
    (shown,) = (
        block.text for block in blocks((ROOT / "docs" / "watch.md").read_text()) if block.text.startswith("step:")
    )
    assert [metric.name for metric in parse_metrics_file(shown, "m.yaml").metrics] == ["temperature", "received"]
