"""Memory of real workers: tasks that take, make, leave behind and share known amounts of it."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_worker, wait

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.report.memory_needs import needs_of
from dask_efficiency.report.values import HeldFor
from tests.plugin.watch import eventually, nothing_runs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell peaks of memory"),
]
MIB = 2**20
#: Seconds of a task, above those from which it is measured.
LONG = 0.05


def give(nbytes: int) -> Any:
    """A result."""
    made = np.ones(nbytes, "u1")
    time.sleep(LONG)
    return made


def use(*arrays: Any, nbytes: int) -> int:
    """A temporary array, of which nothing is left."""
    temporary = np.ones(nbytes, "u1")
    time.sleep(LONG)
    return len(arrays) + int(temporary[-1])


def leave(nbytes: int) -> int:
    """A bytearray that stays."""
    kept = vars(get_worker()).setdefault("kept_by_a_test", [])
    kept.append(bytearray(b"x") * nbytes)
    time.sleep(LONG)
    return len(kept)


def share(array: Any) -> Any:
    """A result that has its memory in common with another."""
    time.sleep(LONG)
    return array[:]


def together(folder: Path, number: int, nbytes: int) -> int:
    """Temporary memory at the same time as another task."""
    temporary = np.ones(nbytes, "u1")
    (folder / str(number)).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    time.sleep(LONG)
    return int(temporary[-1])


def until(path: Path, *inputs: Any) -> int:
    while not path.exists():
        time.sleep(0.01)
    return len(inputs)


def sub(part: Any, mean: int) -> int:
    return int(part[0]) - mean


@pytest.fixture(scope="module", params=[1, 2])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    options = {"n_workers": 1, "dashboard_address": ":0", "silence_logs": False, "memory_limit": "4 GiB"}
    with LocalCluster(threads_per_worker=request.param, **options) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        wait([client.submit(f, 10, pure=False) for f in (give, leave)])  # what they import is there
        yield client


def threads(client: Client) -> int:
    return sum(client.nthreads().values())


@pytest.fixture
def alone(client: Client) -> Client:
    if threads(client) > 1:
        pytest.skip("tasks run beside others")
    return client


def named(client: Client, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return client.submit(function, *args, key=f"{function.__name__}-{uuid.uuid4().hex}", **kwargs)


def test_a_task_takes_its_result_and_what_is_temporary(alone: Client) -> None:
    with efficiency_report(alone) as report:
        made = [named(alone, give, 20 * MIB) for _ in range(5)]
        wait(made)
        wait([named(alone, use, array, nbytes=60 * MIB) for array in made])
    skew = report.skew
    assert (skew["give"].working_count, skew["give"].working_alone) == (5, True)
    assert skew["give"].median_working == pytest.approx(20 * MIB, rel=0.1)
    assert skew["use"].median_working == pytest.approx(60 * MIB, rel=0.1)
    (memory,) = report.memory.values()
    assert memory.held_peak == pytest.approx(100 * MIB, rel=0.01)
    assert memory.at_peak["give"] == (sizes(alone, made), 0)
    assert 0 < memory.unmanaged_at_peak < memory.peak - 95 * MIB


def sizes(client: Client, futures: list[Any]) -> int:
    keys = [future.key for future in futures]
    return int(client.run_on_scheduler(lambda dask_scheduler: sum(dask_scheduler.tasks[key].nbytes for key in keys)))


def test_what_tasks_leave_behind_is_found_with_its_prefix(alone: Client) -> None:
    with efficiency_report(alone) as report:
        for _ in range(20):
            wait(named(alone, leave, 5 * MIB))
            wait(named(alone, use, nbytes=30 * MIB))
    assert report.skew["leave"].left_bytes == pytest.approx(100 * MIB, rel=0.1)
    assert abs(report.skew["use"].left_bytes) < 10 * MIB
    (memory,) = report.memory.values()
    assert memory.growth is not None
    # The slope times the window is what they left if they came at one pace, which a busy machine may change.
    assert 0 < memory.growth / 3600 * report.window_seconds < 1_000 * MIB


def test_what_a_client_scattered_is_held_once_however_many_tasks_use_it(alone: Client) -> None:
    with efficiency_report(alone) as report:
        frame = alone.scatter(pd.DataFrame({name: np.ones(MIB) for name in "abcd"}))
        wait([named(alone, use, frame, nbytes=1) for _ in range(10)])
    (memory,) = report.memory.values()
    assert memory.at_peak["DataFrame"] == (sizes(alone, [frame]), 0)
    assert memory.held_peak == pytest.approx(32 * MIB, rel=0.01)
    held, spilled = report.byte_seconds["DataFrame"]
    assert 10 * LONG * 32 * MIB < held <= 1.01 * 32 * MIB * report.window_seconds
    assert not spilled
    assert "ahead" not in {why for why, *_ in kept(report.report, "DataFrame")}


def test_what_each_task_carries_is_unmanaged_and_no_leak_of_theirs(alone: Client) -> None:
    """Dask keeps a task's arguments on its worker as long as its result, and counts them nowhere."""
    with efficiency_report(alone) as report:
        made = [named(alone, use, np.full(2**20, float(i)), nbytes=1) for i in range(30)]
        wait(made)
        wait(named(alone, use, nbytes=20 * MIB))
    (memory,) = report.memory.values()
    assert memory.held_peak < MIB
    assert memory.unmanaged_at_peak == memory.peak - sum(held for held, _ in memory.at_peak.values())
    del made
    eventually(lambda: not any(alone.run(lambda dask_worker: len(dask_worker.state.tasks)).values()))
    with efficiency_report(alone) as after:
        wait(named(alone, use, nbytes=1))
    (then,) = after.memory.values()
    assert memory.peak - then.peak > 0.9 * 30 * 8 * MIB
    assert not needs_of(report.report).grown


def test_results_that_share_memory_count_twice_and_unmanaged_memory_shows_it(alone: Client) -> None:
    with efficiency_report(alone) as before:
        wait(named(alone, use, nbytes=1))
    with efficiency_report(alone) as report:
        array = named(alone, give, 400 * MIB)
        shared = named(alone, share, array)
        wait(shared)
        wait(named(alone, use, nbytes=10 * MIB))
    del array, shared
    (memory,), (first,) = report.memory.values(), before.memory.values()
    assert memory.held_peak == pytest.approx(800 * MIB, rel=0.01)
    assert memory.unmanaged_at_peak < first.unmanaged_at_peak - 350 * MIB


class Band:
    """An actor that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, nbytes: int) -> int:
        self.kept.append(np.ones(nbytes, "u1"))
        return len(self.kept)


def test_the_state_of_actors_grows_by_class(client: Client) -> None:
    actor = client.submit(Band, actor=True, key=f"Band-{uuid.uuid4().hex}").result()
    actor.keep(MIB).result()
    with efficiency_report(client) as report:
        assert actor.keep(20 * MIB).result() == 2
    (memory,) = report.memory.values()
    assert memory.actors["Band"] == pytest.approx(20 * MIB, rel=0.01)


def test_byte_seconds_are_bytes_times_the_time_of_the_window(client: Client) -> None:
    made = [named(client, give, MIB) for _ in range(3)]
    wait(made)
    eventually(lambda: nothing_runs(client))
    with efficiency_report(client) as report:
        time.sleep(0.1)
    (breakdown,) = report.by_worker.values()
    elapsed = breakdown.total_ns / threads(client) / 1e9
    held, spilled = report.byte_seconds["give"]
    assert spilled == 0
    assert held == pytest.approx(sizes(client, made) * elapsed, rel=1e-6)


def test_of_tasks_that_run_at_the_same_time_each_has_an_equal_share(client: Client, tmp_path: Path) -> None:
    if threads(client) < 2:
        pytest.skip("one task runs at a time")
    with efficiency_report(client) as report:
        wait([named(client, together, tmp_path, number, 60 * MIB) for number in range(2)])
    skew = report.skew["together"]
    assert not skew.working_alone
    if skew.working_count:  # neither began while the other's memory grew
        assert skew.median_working <= 1.1 * 60 * MIB
        assert skew.max_working > 25 * MIB


def kept(report: EfficiencyReport, prefix: str) -> dict[tuple[str, str, str], HeldFor]:
    return {(one.why, one.needed_by, one.waits_for): one for one in report.held_for if one.prefix == prefix}


def seen(client: Client) -> list[tuple[str, ...]]:
    def of_scheduler(dask_scheduler: Any) -> list[tuple[str, ...]]:
        meter = dask_scheduler.plugins["dask-efficiency"]._meter
        return [(*map(str, one),) for one in meter.accounts.kept._seen]

    found: list[tuple[str, ...]] = client.run_on_scheduler(of_scheduler)
    return found


def test_an_array_that_is_kept_for_a_second_use_waits_for_what_comes_between(client: Client, tmp_path: Path) -> None:
    """The centred array of dask/dask#874: each part waits for the mean of all."""
    with efficiency_report(client) as report:
        parts = [named(client, give, MIB) for _ in range(4)]
        means = [named(client, use, part, nbytes=1) for part in parts]
        mean = client.submit(until, tmp_path / "go", *means, key=f"mean-{uuid.uuid4().hex}")
        centred = [client.submit(sub, part, mean, key=f"sub-{uuid.uuid4().hex}") for part in parts]
        del parts, means
        eventually(lambda: ("give", "blocked", "sub", "mean") in seen(client))
        (tmp_path / "go").touch()
        wait(centred)
    assert kept(report.report, "give")["blocked", "sub", "mean"].byte_seconds > 0


def test_results_that_only_a_client_wants_are_futures(client: Client) -> None:
    """A collection that was persisted and named again, as in dask/distributed#333."""
    with efficiency_report(client) as report:
        made = [named(client, give, MIB) for _ in range(2)]
        eventually(lambda: ("give", "future", client.id, "") in seen(client))
    assert kept(report.report, "give")["future", client.id, ""].byte_seconds > 0
    del made


def test_roots_that_run_before_their_consumers_can_are_ahead(client: Client, tmp_path: Path) -> None:
    """Reads that run ahead, as in dask/distributed#5555: a sum waits for the last of them."""
    with efficiency_report(client) as report:
        first = [named(client, give, MIB) for _ in range(3)]
        last = client.submit(until, tmp_path / "go", key=f"give-{uuid.uuid4().hex}")
        total = client.submit(lambda *parts: len(parts), *first, last, key=f"sum-{uuid.uuid4().hex}")
        del first, last
        eventually(lambda: ("give", "ahead", "sum", "give") in seen(client))
        (tmp_path / "go").touch()
        wait(total)
    assert kept(report.report, "give")["ahead", "sum", "give"].at_peak >= 0
