from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client")
from prometheus_client import generate_latest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.prometheus.receivers import OwnMetrics
from tests.live.prometheus_process import lint, needs_promtool


@pytest.fixture
def metrics() -> OwnMetrics:
    """Metrics after a round with findings; :mod:`tests.fleet.test_watch` has their values."""
    own = OwnMetrics()
    found = SlowWorker("secret", "secret", Cause.GPU, 2.0, 0.9, 0.0, None, line="secret", workers=("secret",))
    own.judged([found], at=1000, pull=2.5, judge=0.5, machines=64, missing=7)
    return own


def test_metrics_are_served_on_the_address_that_was_given_and_on_no_other(metrics: OwnMetrics) -> None:
    server = metrics.serve(0, "127.0.0.1")
    try:
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.shutdown()
        server.server_close()


def test_an_address_of_another_host_is_refused_by_its_name(metrics: OwnMetrics) -> None:
    with pytest.raises(OSError, match=r"metrics-address 192\.0\.2\.1, metrics-port 9469: "):
        metrics.serve(9469, "192.0.2.1")


def test_metrics_name_no_machine(metrics: OwnMetrics) -> None:  # by default, they are on all addresses of the host
    assert b"secret" not in generate_latest(metrics.registry)


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_metrics(metrics: OwnMetrics) -> None:
    assert lint(generate_latest(metrics.registry).decode()) == ""
