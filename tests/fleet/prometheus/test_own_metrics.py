from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("prometheus_client")
from prometheus_client import generate_latest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.prometheus.receivers import OwnMetrics
from tests.live.prometheus_process import lint, needs_promtool

FOUND = SlowWorker("a", "", Cause.GPU, 2.0, 0.9, 0.0, None)


def metrics() -> OwnMetrics:
    own = OwnMetrics()
    own.judged([FOUND, FOUND], at=1000, pull=2.5, judge=0.5, machines=64, missing=7)
    own.failed(pull=1.5)
    own.not_reached()
    return own


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("rounds_total", {"outcome": "judged"}, 1),
        ("rounds_total", {"outcome": "failed"}, 1),
        ("pull_seconds_total", {}, 4),
        ("judge_seconds_total", {}, 0.5),
        ("missing_samples_total", {}, 7),
        ("untold_total", {}, 1),
        ("machines", {}, 64),
        ("findings", {"cause": "gpu"}, 2),
        ("findings", {"cause": "disk"}, 0),
        ("last_success_timestamp_seconds", {}, 1000),
    ],
)
def test_rounds_are_counted(name: str, labels: dict[str, str], value: float) -> None:
    assert metrics().registry.get_sample_value(f"dask_efficiency_watch_{name}", labels) == value


def test_metrics_are_served_on_the_address_that_was_given_and_on_no_other() -> None:
    server = metrics().serve(0, "127.0.0.1")
    try:
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.shutdown()
        server.server_close()


def test_an_address_of_another_host_is_refused_by_its_name() -> None:
    with pytest.raises(OSError, match=r"metrics-address 192\.0\.2\.1, metrics-port 9469: "):
        metrics().serve(9469, "192.0.2.1")


def test_metrics_name_no_machine() -> None:  # by default, they are on all addresses of the host
    own = metrics()
    secret = replace(FOUND, worker="secret", host="secret", workers=("secret",), line="secret")
    own.judged([secret], at=1000, pull=2.5, judge=0.5, machines=64, missing=7)
    assert b"secret" not in generate_latest(own.registry)


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_metrics() -> None:
    assert lint(generate_latest(metrics().registry).decode()) == ""
