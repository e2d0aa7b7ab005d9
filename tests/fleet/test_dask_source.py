"""A Dask cluster that is watched: its workers are named by the command, and retired within limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.cli import main
from dask_efficiency.fleet.dask_source import Retiring, SchedulerSource, retire
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import NoAnswerError
from dask_efficiency.straggler.retirements import Retirements


def found(name: str, score: float) -> SlowWorker:
    return SlowWorker(name, "", Cause.GPU, score, 0.9, 0.0, None)


def test_of_a_host_that_is_found_no_worker_is_retired() -> None:
    said: list[str] = []
    host = SlowWorker("", "h", Cause.DISK, 3.0, 0.9, 0.0, None, workers=("w1", "w2"))
    Retiring(lambda question: pytest.fail("asked"), Retirements(share=0.5, every_seconds=600), said.append)(
        [host], [f"w{i}" for i in range(8)], at=0
    )
    assert said == []


def test_the_worst_is_retired_and_the_next_one_waits() -> None:
    asked: list[Any] = []
    said: list[str] = []

    def asking(question: Callable[[Any], Awaitable[Any]]) -> bool:
        asked.append(question)
        return True

    retiring = Retiring(asking, Retirements(share=0.5, every_seconds=600), said.append)
    fleet = [f"w{i}" for i in range(8)]
    retiring([found("w1", 2.0), found("w2", 3.0)], fleet, at=0)
    retiring([found("w1", 2.0)], fleet[:2] + fleet[3:], at=480)
    retiring([], fleet, at=500)
    assert [question.keywords for question in asked] == [{"name": "w2"}]
    assert said == ["w2 is retired", "w1 not retired: the last one was retired 480 s ago"]


def test_a_retirement_that_takes_long_is_not_asked_for_again() -> None:
    said: list[str] = []

    def asking(question: Any) -> bool:
        raise TimeoutError

    retiring = Retiring(asking, Retirements(share=0.5, every_seconds=0), said.append)
    retiring([found("w1", 2.0)], ["w0", "w1", "w2"], at=0)
    retiring([found("w1", 2.0)], ["w0", "w1", "w2"], at=480)
    assert said == [
        "w1 is not yet retired after 60 s",
        "w1 not retired: 1 of 3 were retired within a day; the most is 1",
    ]


def test_a_worker_that_has_gone_by_itself_counts_for_nothing() -> None:
    said: list[str] = []
    answers = iter([False, True])
    limit = Retirements(share=0.34, every_seconds=600)
    retiring = Retiring(lambda question: next(answers), limit, said.append)
    for name in ("w1", "w2"):
        retiring([found(name, 2.0)], ["w0", "w1", "w2"], at=0)
    assert said == ["w1 was not retired: the scheduler has no such worker", "w2 is retired"]


def a_scheduler(answer: Callable[..., Awaitable[Any]]) -> Callable[[Callable[[Any], Awaitable[Any]]], Any]:
    """Asks a scheduler whose handler is a function."""

    async def asked(question: Callable[[Any], Awaitable[Any]]) -> Any:
        return await question(SimpleNamespace(scheduler=SimpleNamespace(**{names.OP: answer})))

    return lambda question: asyncio.run(asked(question))


def test_metrics_end_now_by_the_clock_of_the_watch() -> None:
    async def answer(**asked: object) -> dict[str, Any]:
        blank = [""] * 2
        told = {"metrics": ["cpu"], "workers": ["a", "b"], "groups": blank, "hosts": blank, "step_seconds": 5.0}
        return told | {"start": 9_000.0, "values": np.zeros((1, 2, 12), np.float32)}

    series = SchedulerSource("here", a_scheduler(answer)).pull(start=940.0, stop=1_000.0)
    assert series.start == 940.0
    assert series.values.shape == (1, 2, 12)


def test_a_scheduler_that_stops_answering_is_given_up() -> None:
    async def answer(**asked: object) -> None:
        await asyncio.sleep(60)

    source = SchedulerSource("here", a_scheduler(answer), timeout_seconds=0.05)
    with pytest.raises(NoAnswerError, match=r"the scheduler at here gave no metrics in 0\.05 s"):
        source.pull(start=0.0, stop=60.0)


@pytest.mark.cluster
def test_a_cluster_is_watched_by_its_schedulers_address() -> None:
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": False}
    with LocalCluster(processes=False, protocol="tcp", **options) as cluster, Client(cluster) as client:
        refused = CliRunner().invoke(main, ["fleet", "watch", cluster.scheduler_address, "--once"])
        assert refused.exit_code == 1
        assert "dask_efficiency is not on this scheduler" in refused.stderr
        client.register_plugin(EfficiencyPlugin())
        source = SchedulerSource("here", lambda question: client.sync(_asked, client, question))
        while not source.pull(start=0, stop=60).workers:
            pass
        watched = CliRunner().invoke(main, ["fleet", "watch", cluster.scheduler_address, "--once", "--json"])
        assert watched.exit_code == 0, watched.output
        assert [json.loads(line) for line in watched.stdout.splitlines()] == []
        assert client.sync(retire, client, "0") is True
        assert sorted(worker["name"] for worker in client.scheduler_info()["workers"].values()) == [1, 2]
        assert client.sync(retire, client, "nobody") is False


async def _asked(client: Client, question: Callable[[Any], Awaitable[Any]]) -> Any:
    return await asyncio.wait_for(question(client), 30)
