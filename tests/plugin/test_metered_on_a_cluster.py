"""Bytes, counts, memory and users' labels of a report: those of Dask's own totals, and of results of known size."""

from __future__ import annotations

import inspect
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, get_worker, span, wait
from distributed.metrics import context_meter

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.report.metered import own_labels
from tests.plugin.tasks import burn
from tests.plugin.watch import between, eventually, nothing_runs, workers

pytestmark = pytest.mark.cluster
#: Bytes of each array and of a number. Workers keep four arrays in memory, with room for many numbers, and not five.
ARRAY, NUMBER, KEPT = 10_000_000, sizeof(1.0), 4

SETTINGS = {
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.memory.target": 0.15,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.spill-compression": "zlib",
}


def make(number: int) -> Any:
    return np.full(ARRAY // 8, float(number))


def weigh(*arrays: Any) -> float:
    return float(sum(array[-1] for array in arrays))


def hold(number: int, folder: Path) -> float:
    """An array that is there until the test says so, and that is no result."""
    array = make(number)
    (folder / "begun").touch()
    while not (folder / "go-on").exists():
        time.sleep(0.01)
    return float(array[-1])


def load(nbytes: int) -> dict[str, Any]:
    """A step with a label of the user's own: how long it took, by clocks inside it and around it."""
    start = time.monotonic()
    with context_meter.meter("download"):
        inside = time.monotonic()
        burn(0.05)
        time.sleep(0.6)  # on a busy machine two looks are up to some 0.3 s apart
        inside = time.monotonic() - inside
    around = time.monotonic() - start
    context_meter.digest_metric("download", nbytes, "bytes")
    context_meter.digest_metric("rows", 7, "count")
    return {"worker": get_worker().address, "inside": inside, "around": around}


async def sample(dask_worker: Any) -> None:
    """A heartbeat, at which memory is sampled."""
    await dask_worker.heartbeat()


def held(worker: Any) -> tuple[int, int]:
    """Bytes of results in memory and on disk, by our log."""
    meter = worker.plugins[EfficiencyWorkerPlugin.name].meter
    meter.hooks.catch_up()
    return meter._memory.results.held, meter._memory.results.spilled


def by_dask(dask_worker: Any) -> dict[str, Any]:
    """A worker's own totals since it began, and its memory."""
    found: Counter[Any] = Counter()
    for key, value in dask_worker.digests_total.items():
        if isinstance(key, tuple) and key[0] != "p2p" and len(key) > 2:
            found[key[-2:]] += value
    return {
        "digests": dict(found),
        "sent": (dask_worker.transfer_outgoing_bytes_total, dask_worker.transfer_outgoing_count_total),
        "received": [entry["total"] for entry in dask_worker.transfer_incoming_log],
        "sending": dask_worker.transfer_outgoing_count,
        "in memory": dask_worker.data.fast.total_weight,
        "managed": dask_worker.state.nbytes,
        "on disk": dask_worker.data.spilled_total.memory,
        "held": held(dask_worker),
    }


@dataclass(frozen=True)
class Run:
    """Eight arrays made and read on one worker, one on another, and both read there."""

    report: EfficiencyReport
    #: Dask's totals and the names of the workers.
    first: dict[str, Any]
    second: dict[str, Any]
    names: Sequence[str]
    #: Futures of numbers.
    numbers: int

    def both(self, label: str, unit: str) -> float:
        return float(sum(worker["digests"].get((label, unit), 0.0) for worker in (self.first, self.second)))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": False}
    with (
        dask.config.set(SETTINGS),
        LocalCluster(memory_limit="300 MB", **options) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        yield client


@pytest.fixture(scope="module")
def run(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, addresses = tmp_path_factory.mktemp("run"), sorted(workers(client))
    first, second = addresses
    with efficiency_report(client) as report:
        arrays = [client.submit(make, i, workers=[first], pure=False) for i in range(8)]
        wait(arrays)
        numbers = [client.submit(weigh, array, workers=[first], pure=False) for array in arrays]
        wait(numbers)
        other = client.submit(make, 99, workers=[second], pure=False)
        wait(other)
        numbers.append(client.submit(weigh, other, arrays[0], workers=[second], pure=False))
        wait(numbers)
        time.sleep(0.1)  # of a task right after a short one, memory is not measured
        numbers.append(client.submit(hold, 5, folder, workers=[second], pure=False))
        eventually((folder / "begun").exists)
        for _ in range(2):
            client.run(sample, workers=[second])
        (folder / "go-on").touch()
        wait(numbers)
        eventually(lambda: not any(worker["sending"] for worker in client.run(by_dask).values()))
    eventually(lambda: nothing_runs(client))
    dasks, known = client.run(by_dask), workers(client)
    names = [str(known[address]["name"]) for address in addresses]
    return Run(report.report, dasks[first], dasks[second], names, len(numbers))


def test_what_was_made_spilled_and_found_in_memory_is_as_much_as_dask_counts(run: Run) -> None:
    moved = run.report.moved
    assert (moved["made"].nbytes, moved["made"].count) == (9 * ARRAY + NUMBER * run.numbers, 9 + run.numbers)
    labels = {"spilled": "disk-write", "read-back": "disk-read", "found-in-memory": "memory-read"}
    for way, label in labels.items():
        assert (moved[way].nbytes, moved[way].count) == (run.both(label, "bytes"), run.both(label, "count"))
    # Each was read once by a task, one twice, and one by the other worker.
    assert moved["read-back"].count + moved["found-in-memory"].count == 8 + 2 + 1
    assert moved["spilled"].count >= 8 - KEPT


def test_what_was_spilled_and_read_back_has_its_size_in_memory_beside_the_compressed_one(run: Run) -> None:
    moved = run.report.moved
    for way in ("spilled", "read-back"):
        uncompressed = moved[f"{way}-uncompressed"]
        arrays, rest = divmod(uncompressed.nbytes, ARRAY)
        assert uncompressed.count == moved[way].count
        assert rest == NUMBER * (uncompressed.count - arrays)
        assert arrays >= KEPT
        assert moved[way].nbytes < uncompressed.nbytes / 10


def test_what_was_sent_is_known_by_the_pair_of_workers(run: Run) -> None:
    moved, (sender, receiver) = run.report.moved, run.names
    rows = [(row.worker, row.prefix, row.label, row.unit, row.value) for row in run.report.metered]
    assert (receiver, sender, "received", "bytes", ARRAY) in rows
    assert (receiver, sender, "received", "count", 1) in rows
    assert (sender, "", "sent", "bytes", ARRAY) in rows
    assert sum("received" in row for row in rows) == sum("sent" in row for row in rows) == 2
    assert run.second["received"] == [moved["received"].nbytes] == [ARRAY]
    assert run.first["sent"] == (moved["sent"].nbytes, moved["sent"].count) == (ARRAY, 1)


def test_the_peak_of_a_workers_results_is_of_what_it_kept(run: Run) -> None:
    for name, worker, arrays in zip(run.names, (run.first, run.second), (KEPT, 2), strict=True):
        memory = run.report.memory[name]
        assert worker["in memory"] // ARRAY == arrays
        assert worker["in memory"] <= memory.held_peak <= arrays * ARRAY + NUMBER * run.numbers
        assert memory.held_peak < memory.peak
        assert (memory.limit, memory.thresholds) == (300_000_000, {"target": 45_000_000})
    assert run.report.memory[run.names[1]].spilled_peak == 0
    assert run.report.memory[run.names[0]].spilled_peak >= (8 - KEPT) * ARRAY


def test_what_is_held_and_on_disk_are_as_many_bytes_as_dask_counts(run: Run) -> None:
    for worker in (run.first, run.second):
        assert worker["held"] == (worker["managed"] - worker["on disk"], worker["on disk"])
        assert worker["held"][0] == pytest.approx(worker["in memory"], rel=0.01)


def test_byte_seconds_are_of_the_tasks_that_made_the_results(run: Run) -> None:
    found = run.report.byte_seconds
    assert found["make"][0] > found["make"][1] > 0
    assert {*found} == {"make", "weigh", "hold"}
    by_worker = sum(memory.held + memory.spilled for memory in run.report.memory.values())
    assert by_worker == pytest.approx(sum(map(sum, found.values())), rel=1e-9)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell peaks")
def test_the_memory_of_a_task_is_what_it_takes_while_it_runs_without_results(run: Run) -> None:
    hold = run.report.skew["hold"]
    assert (hold.working_count, hold.working_alone) == (1, True)
    assert hold.max_working == pytest.approx(ARRAY, rel=0.1)
    make = run.report.skew["make"]
    if make.working_count:  # of tasks of 10 ms and more
        assert make.working_alone
        assert make.median_working == pytest.approx(ARRAY, rel=0.1)


def test_users_labels_are_by_prefix_worker_and_span_and_a_finding_has_their_line(client: Client, run: Run) -> None:
    known = workers(client)
    sizes = {("etl", "extract"): 1_000, ("etl", "parse"): 200, ("other", "parse"): 3}
    with efficiency_report(client) as report:
        futures = {}
        for (tag, prefix), nbytes in sizes.items():
            for address in known:
                with span(tag):
                    key = f"{prefix}-{uuid.uuid4().hex}", address  # all keys of one group are of one span
                    futures[tag, prefix, address] = client.submit(load, nbytes, key=key, workers=[address])
        results = client.gather(futures)
    rows = {
        (row.span.rpartition("/")[2], row.prefix, row.worker, row.label, row.unit): row.value
        for row in report.metered
        if row.context == "execute" and row.label in ("download", "rows")
    }
    for (tag, prefix, address), result in results.items():
        assert result["worker"] == address
        of = tag, prefix, str(known[address]["name"])
        assert rows.pop((*of, "download", "seconds")) == between(result["inside"], result["around"])
        assert rows.pop((*of, "download", "bytes")) == sizes[tag, prefix]
        assert rows.pop((*of, "rows", "count")) == 7
    assert not rows
    totals = own_labels(report.metered)
    assert totals["download", "bytes", "parse"] == 2 * (200 + 3)
    assert totals["rows", "count", "parse"] == 4 * 7
    parsed = [result for (_, prefix, _), result in results.items() if prefix == "parse"]
    assert totals["download", "seconds", "parse"] == between(
        sum(result["inside"] for result in parsed), sum(result["around"] for result in parsed)
    )
    lines, number = inspect.getsourcelines(load)
    number += next(i for i, line in enumerate(lines) if "sleep" in line)
    (found,) = (one for one in report.findings if one.kind == "thread-noncpu/sleep")
    assert f"{Path(__file__).name}:{number}" in found.where
    assert found.where.endswith(", in your label download")
