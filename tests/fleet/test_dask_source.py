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
from dask_efficiency.fleet.dask_source import SchedulerSource, retire
from dask_efficiency.fleet.watch import Retiring
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import NoAnswerError
from dask_efficiency.straggler.retirements import Retirements


def found(name: str, score: float) -> SlowWorker:
    return SlowWorker(name, "", Cause.GPU, score, 0.9, 0.0, None)


class Retirees:
    """Retires workers of a fleet of some; the scheduler's answers are given."""

    def __init__(self, workers: int, share: float, every: float, *answers: bool | Exception) -> None:
        self.fleet = [f"w{i}" for i in range(workers)]
        self.asked: list[str] = []
        self.lines: list[str] = []
        self._answers = list(answers)
        limit = Retirements(share=share, every_seconds=every)
        self._retiring = Retiring(self._ask, limit, self.lines.append)

    def _ask(self, question: Any) -> bool:
        self.asked.append(question.keywords["name"])
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def retire(self, *findings: SlowWorker, at: float = 0) -> None:
        watch: Any = SimpleNamespace(found=findings, present=self.fleet)
        self._retiring(watch, at)


def test_the_worst_is_retired_and_the_next_one_waits_but_no_worker_of_a_host_that_is_found() -> None:
    retirees = Retirees(8, 0.5, 600, True)
    retirees.retire(SlowWorker("", "h", Cause.DISK, 3.0, 0.9, 0.0, None, workers=("w1", "w2")))
    assert retirees.asked == retirees.lines == []
    retirees.retire(found("w1", 2.0), found("w2", 3.0))
    retirees.fleet.remove("w2")
    retirees.retire(found("w1", 2.0), at=480)
    retirees.retire(at=500)
    assert retirees.asked == ["w2"]
    assert retirees.lines == ["w2 is retired", "w1 not retired: the last one was retired 480 s ago"]


def test_a_retirement_that_takes_long_is_not_asked_for_again() -> None:
    retirees = Retirees(3, 0.5, 0, TimeoutError())
    for at in (0, 480):
        retirees.retire(found("w1", 2.0), at=at)
    limit = "w1 not retired: 1 of 3 were retired within a day; the most is 1"
    assert retirees.lines == ["w1 is not yet retired after 60 s", limit]


def test_a_worker_that_has_gone_by_itself_counts_for_nothing() -> None:
    retirees = Retirees(3, 0.34, 600, False, True)
    for name in ("w1", "w2"):
        retirees.retire(found(name, 2.0))
    assert retirees.lines == ["w1 was not retired: the scheduler has no such worker", "w2 is retired"]


def a_scheduler(answer: Callable[..., Awaitable[Any]]) -> Callable[[Callable[[Any], Awaitable[Any]]], Any]:
    """Asks a scheduler whose handler is a function."""

    async def asked(question: Callable[[Any], Awaitable[Any]]) -> Any:
        return await question(SimpleNamespace(scheduler=SimpleNamespace(address="inproc://here", **{names.OP: answer})))

    return lambda question: asyncio.run(asked(question))


def test_metrics_end_now_by_the_clock_of_the_watch() -> None:
    async def answer(**asked: object) -> dict[str, Any]:
        blank = [""] * 2
        reply = {"metrics": ["cpu"], "workers": ["a", "b"], "groups": blank, "hosts": blank, "step_seconds": 5.0}
        return reply | {"start": 9_000.0, "values": np.zeros((1, 2, 12), np.float32)}

    series = SchedulerSource("here", a_scheduler(answer)).pull(start=940.0, stop=1_000.0)
    assert series.start == 940.0
    assert series.values.shape == (1, 2, 12)


def test_samples_at_another_step_are_refused_before_tables_grow() -> None:
    async def answer(**asked: object) -> dict[str, Any]:
        reply = {"metrics": ["cpu"], "workers": ["a"], "groups": [""], "hosts": [""], "step_seconds": 1e-5}
        return reply | {"start": 9_000.0, "values": [[[1e300]]]}

    with pytest.raises(ValueError, match="the scheduler at here has a sample in 1e-05 s; expected one in 5 s"):
        SchedulerSource("here", a_scheduler(answer)).pull(start=940.0, stop=1_000.0)


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
