"""What a client does while there is no work on the cluster, by its line, in small programs after public reports."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import dask
import dask.array
import dask.bag
import numpy as np
import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.accounts.lines import blamed, place_of
from dask_efficiency.plugin.stacks import has_gil
from dask_efficiency.report.client_sampler import SAMPLER
from dask_efficiency.show.finding import Finding
from tests.plugin.watch import between, timed_report

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not has_gil(), reason="clients are not sampled without a GIL")]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, scheduler_port=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        client.gather(client.map(str, range(8)))
        yield client


def at_lines(report: EfficiencyReport) -> defaultdict[tuple[str, str], float]:
    """Seconds by activity and function at the lines of this file."""
    found = defaultdict[tuple[str, str], float](float)
    for row in report.client:
        place = blamed(row.stack)
        if place_of(place).startswith("test_client_on_a_cluster.py:"):
            found[row.activity, place.function.rpartition(".")[2]] += row.ns / 1e9
    return found


def address_of(client: Client) -> str:
    assert client.cluster is not None
    return str(client.cluster.scheduler_address)


def longest(report: EfficiencyReport) -> tuple[str, str]:
    found = at_lines(report)
    return max(found, key=found.__getitem__)


def a_second_of_computing(at_once: int = 1) -> Iterator[None]:
    """Turns until this thread has computed for a second: samples find it there, however busy the host is.

    Short ones come many at once, between two calls of the kernel: a busy host takes the core in these, and so samples
    find the thread at them.
    """
    until = time.thread_time() + 1.0
    while time.thread_time() < until:
        yield from repeat(None, at_once)


def of_client(report: EfficiencyReport) -> Finding:
    return next(one for one in report.findings if one.kind == "client")


def test_the_samples_add_up_to_the_window(client: Client) -> None:
    with timed_report(client) as (outer, long), timed_report(client) as (inner, short):
        client.submit(time.sleep, 1.0, pure=False).result()
    for report, window in ((outer.report, long), (inner.report, short)):
        whole = sum(row.ns for row in report.client) / 1e9
        assert whole == between(window.least, window.most)
        assert all(0 <= row.idle_ns <= row.ns for row in report.client)
        assert sum(seconds for (_, function), seconds in at_lines(report).items() if function == "result") > 0.2


def test_each_result_of_a_loop_is_waited_for_at_the_loops_line(client: Client) -> None:
    with efficiency_report(client) as report:
        for seconds in np.linspace(0.05, 0.06, 20):
            client.submit(time.sleep, seconds).result()
    found = next(one for one in report.findings if one.kind == "one-by-one")
    assert found.where.startswith("20 computations one after the other, `result` in test_client_on_a_cluster.py:")


def test_a_large_array_is_hashed_at_the_line_that_makes_it_dasks(client: Client) -> None:
    # after dask/dask issues 4169 and 4275
    numbers = np.arange(2_000_000).astype(object)
    with efficiency_report(client) as report:
        for _ in a_second_of_computing():
            dask.array.from_array(numbers, chunks=500_000)
    most = longest(report.report)
    assert most == ("hash", "from_array")
    assert "hashing" in of_client(report.report).title.lower()
    assert "name=" in of_client(report.report).advice


def test_a_graph_that_a_loop_builds_takes_its_time_at_the_loops_line(client: Client) -> None:
    # after dask/distributed issue 2611 and dask/dask issue 7851
    with efficiency_report(client) as report:
        total = dask.delayed(0)
        for _ in a_second_of_computing(at_once=100):
            total = total + 1
    most = longest(report.report)
    assert most[0] in ("build", "hash")
    assert "on the client" in of_client(report.report).title


def test_objects_are_received_and_unpickled_at_the_line_that_asks_for_them(client: Client) -> None:
    # after dask/dask issue 1707
    bag = dask.bag.from_sequence(range(4), npartitions=4).map(lambda i: [{"i": i, "n": n} for n in range(200_000)])
    with efficiency_report(client) as report:
        bag.compute()
    found = at_lines(report.report)
    assert found["unpickle", "compute"] + found["receive", "compute"] > 0.1


def test_tasks_that_do_not_run_on_the_cluster_are_the_clients_own(client: Client) -> None:
    slow = [dask.delayed(time.sleep)(0.3) for _ in range(4)]
    with efficiency_report(client) as report:
        dask.compute(slow, scheduler="threads")
    most = longest(report.report)
    assert most == ("local", "compute")
    assert "Compute with the client" in of_client(report.report).advice


def test_a_client_on_an_event_loop_is_at_the_lines_of_its_coroutine(client: Client) -> None:
    async def work() -> EfficiencyReport:
        async with (
            Client(address_of(client), asynchronous=True) as its_own,
            efficiency_report(its_own) as report,
        ):
            await its_own.submit(time.sleep, 0.6, pure=False)
            await asyncio.sleep(0.5)
            sum(range(10_000_000))
        return report.report

    found = at_lines(asyncio.run(work()))
    assert sum(seconds for (activity, _), seconds in found.items() if activity in ("wait", "receive")) > 0.2
    assert found["sleep", "sleep"] > 0.1


def test_the_samples_end_with_the_block_also_where_there_is_no_report(client: Client) -> None:
    before = SAMPLER._windows
    another = Client(address_of(client), set_as_default=False)
    report = efficiency_report(another)
    report.__enter__()
    assert len(SAMPLER._windows) == len(before) + 1
    another.close()
    with pytest.warns(RuntimeWarning, match="there is no report"):
        report.__exit__(None, None, None)
    assert before == SAMPLER._windows


def test_what_a_thread_pool_waits_for_is_what_the_block_waits_for(client: Client) -> None:
    def one(seconds: float) -> None:
        client.submit(time.sleep, seconds).result()

    with efficiency_report(client) as report, ThreadPoolExecutor(2) as pool:
        list(pool.map(one, [0.41, 0.42, 0.43, 0.44]))
    assert at_lines(report.report)["wait", "result"] > 0.3


def test_the_users_own_code_is_named_by_its_line(client: Client) -> None:
    with efficiency_report(client) as report:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            sorted(range(100_000))
    found = of_client(report.report)
    assert found.title == "No work on the cluster, on the client, computing"
    assert "in test_client_on_a_cluster.py:" in found.where
