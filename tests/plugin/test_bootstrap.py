"""The worker half as it travels, where it cannot meter."""

from types import SimpleNamespace
from typing import Any

from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.names import METRIC, OP


def test_a_worker_with_another_version_answers_each_question_with_the_reason() -> None:
    """Without an answer, the worker would log a KeyError with its traceback at each report."""
    worker: Any = SimpleNamespace(metrics={}, handlers={})
    plugin = EfficiencyWorkerPlugin("0.0.0")
    plugin.setup(worker)
    answer = worker.handlers[OP](action="open", window="w")
    assert answer["off"].endswith("is installed; the scheduler has 0.0.0")
    assert worker.metrics[METRIC](worker)["off"] == worker.handlers[OP](action="close")["off"] == answer["off"]
    plugin.teardown(worker)
    assert (worker.metrics, worker.handlers) == ({}, {})
