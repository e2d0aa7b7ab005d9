import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, wait
from distributed.core import Status

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.names import PLUGIN
from dask_efficiency.report.scheduler_parts import SEVERAL, HeldResults
from tests.plugin.watch import eventually


class Some(SimpleNamespace):
    """Anything with these attributes, as hashable as a state of the scheduler."""

    __hash__ = object.__hash__


def result(prefix: str, nbytes: int, *clients: str, waiters: tuple[str, ...] = ()) -> Any:
    wanted = {Some(client_key=client) for client in clients}
    return Some(prefix=Some(name=prefix), nbytes=nbytes, who_wants=wanted or None, waiters=set(waiters))


def worker(*results: Any, status: Status = Status.running, disk: int = 0) -> Any:
    return Some(status=status, metrics={"spilled_bytes": {"memory": 0, "disk": disk}}, has_what=dict.fromkeys(results))


def part_of(*workers: Any, now: Callable[[], int] = lambda: 0) -> HeldResults:
    scheduler: Any = Some(workers=dict(enumerate(workers)))
    part = HeldResults(scheduler, now)
    asyncio.run(part.window_opens("w", {}))
    return part


def held(part: HeldResults) -> list[list[Any]] | None:
    reply: dict[str, Any] = {}
    asyncio.run(part.window_closes("w", 0, reply, []))
    return reply.get("held_results")


def test_results_that_a_client_wants_and_no_task_waits_for_are_held() -> None:
    kept, used, waited_for = result("load", 60, "c1"), result("sum", 10), result("load", 20, "c1", waiters=("mean",))
    part = part_of(worker(kept, used, waited_for, result("join", 10, "c1", "c2"), disk=5))
    part.look()
    part.look()
    assert held(part) == [["load", "c1", 60.0, 0.6], ["join", SEVERAL, 10.0, 0.1]]


@pytest.mark.parametrize(("client", "shown"), [(5, "5"), (None, "None"), ("x" * 10**6, "x" * 1_000)])
def test_a_client_of_any_id_is_named_by_a_text_of_bounded_length(client: Any, shown: str) -> None:
    part = part_of(worker(result("load", 60, client), disk=5))
    part.look()
    assert held(part) == [["load", shown, 60.0, 1.0]]


def test_only_workers_that_are_short_of_memory_are_looked_at() -> None:
    part = part_of(worker(result("load", 60, "c1")))
    part.look()
    assert held(part) is None
    part = part_of(worker(result("load", 60, "c1")), worker(result("join", 7, "c1"), status=Status.paused))
    part.look()
    assert held(part) == [["join", "c1", 7.0, 1.0]]


def test_a_window_has_its_own_looks_only() -> None:
    short = worker(result("load", 60, "c1"), disk=1)
    part = part_of(short)
    part.look()
    asyncio.run(part.window_opens("w", {}))
    assert held(part) is None
    short.has_what = dict.fromkeys([result("join", 30, "c1")])
    part.look()
    assert held(part) == [["join", "c1", 30.0, 1.0]]
    part.window_forgotten("w")
    assert held(part) is None


@pytest.mark.parametrize(("workers", "each"), [(1, 1001), (2, 501), (1001, 1)])
def test_a_look_is_at_a_thousand_results_of_all_workers_together(workers: int, each: int) -> None:
    part = part_of(*(worker(*(result("p", 1, "c") for _ in range(each)), disk=1) for _ in range(workers)))
    part.look()
    assert held(part) == [["p", "c", 1000.0, 1.0]]


@pytest.mark.parametrize(("before", "counted"), [(999, ["p0", "new"]), (1000, ["p0"])])
def test_a_thousand_prefixes_are_counted_and_after_that_only_these(before: int, counted: list[str]) -> None:
    short = worker(*(result(f"p{i}", 1, "c") for i in range(before)), disk=1)
    part = part_of(short)
    part.look()
    short.has_what = dict.fromkeys([result("new", 60, "c"), result("p0", 99, "c")])
    part.look()
    assert [row[0] for row in held(part) or () if row[2] > 1] == counted


def test_a_reply_has_the_ten_largest_holdings() -> None:
    part = part_of(worker(*(result(f"p{i}", 100 + i, "c") for i in range(11)), disk=1))
    part.look()
    assert [row[0] for row in held(part) or ()] == [f"p{i}" for i in range(10, 0, -1)]


def test_results_are_looked_at_once_a_second() -> None:
    clock = iter([0, 999_999_999, 1_000_000_000, 1_999_999_999])
    part = part_of(worker(result("load", 60, "c1"), disk=5), now=lambda: next(clock))
    looked = []
    part.look = lambda: looked.append(True)  # type: ignore[method-assign]
    for expected in (1, 1, 2, 2):
        part.round_over({})
        assert len(looked) == expected


@pytest.mark.cluster
def test_unreleased_futures_are_named_with_spilling(new_cluster: Any) -> None:
    def some_bytes(i: int) -> bytes:
        return bytes([i % 256]) * 8_000_000

    memory = {"target": 0.2, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{key}": value for key, value in memory.items()}),
        new_cluster(n_workers=1, threads_per_worker=2, memory_limit="200 MB") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        futures = client.map(some_bytes, range(12))
        wait(client.map(len, futures))
        with efficiency_report(client=client) as found:
            before = client.run_on_scheduler(looks)
            eventually(lambda: client.run_on_scheduler(looks) > before)
    assert found.report is not None
    most = found.report.held_results[0]
    assert (most.prefix, most.client) == ("some_bytes", client.id)
    assert most.share > 0.9
    assert 8_000_000 <= most.nbytes <= 12 * 8_000_100


def looks(dask_scheduler: Any) -> int:
    """Number of looks at a worker that had spilled."""
    return dask_scheduler.plugins[PLUGIN]._meter.parts.get("held-results")._looks
