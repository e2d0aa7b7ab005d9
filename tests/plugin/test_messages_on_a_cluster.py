"""What travels on a real cluster: tasks that carry an object, results between workers and to the client."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyReport, efficiency_report
from dask_efficiency.accounts.metered import COUNT, MESSAGES
from dask_efficiency.plugin.names import PLUGIN
from dask_efficiency.plugin.scheduler.loop_meter import LoopMeter
from dask_efficiency.report.messages import Load, loads
from tests.plugin.watch import eventually

pytestmark = pytest.mark.cluster


class Table:
    """Many small objects, which take long to pickle."""

    def __init__(self) -> None:
        self.rows = {f"row-{i}": [i] for i in range(60_000)}

    def look_up(self, i: int) -> int:
        return self.rows[f"row-{i}"][0]


def count_rows(table: Table, i: int) -> int:
    return len(table.rows) + i


def load_of(report: EfficiencyReport, what: str, prefix: str) -> Load:
    (load,) = (load for load in loads(report) if (load.what, load.prefix) == (what, prefix))
    return load


@pytest.fixture
def every_turn(cluster: LocalCluster, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each turn of the scheduler's event loop looked at: some are unlike the others on a busy machine."""
    meter: LoopMeter = cluster.scheduler.plugins[PLUGIN]._meter.accounts.loop
    end = LoopMeter._end_steps

    def go_on(meter: LoopMeter, at: int) -> None:
        end(meter, at)
        meter._left_out = 0
        meter._begin_steps(time.monotonic_ns())

    def goes_on() -> int:
        meter._step_due = meter._left_out = 0
        return meter._step_began

    monkeypatch.setattr(LoopMeter, "_end_steps", go_on)
    eventually(goes_on)


@pytest.mark.usefixtures("every_turn")
def test_tasks_that_carry_an_object_have_its_type_bytes_and_their_function(client: Client) -> None:
    with efficiency_report(client=client) as found:
        client.gather(client.map(Table().look_up, range(20), pure=False))
    load = load_of(found.report, "tasks", "look_up")
    assert (load.type_name, load.count) == ("Table", 20)
    assert 500_000 < load.each < 5_000_000
    assert (load.function.function, load.function.file) == ("Table.look_up", __file__)
    assert len(load.seconds) > 1  # of the scheduler and of workers
    loop = found.report.scheduler_loop
    assert loop is not None
    assert loop.busy_seconds is not None
    assert loop.handlers_seconds >= 0.9 * loop.busy_seconds


def test_results_are_told_by_type_and_receiver(client: Client) -> None:
    first, second = client.scheduler_info()["workers"]
    with efficiency_report(client=client) as found:
        table = client.submit(Table, workers=[first], pure=False)
        assert client.submit(count_rows, table, 1, workers=[second], pure=False).result() == 60_001
        table.result()
    to_worker, to_client = (load_of(found.report, what, "Table") for what in ("results", "results to a client"))
    assert (to_worker.type_name, to_worker.count) == ("Table", 1)
    assert (to_client.type_name, to_client.count) == ("Table", 1)
    assert len(to_worker.seconds) == 2  # one pickled it, the other one unpickled it
    assert any((row.context, row.unit) == (MESSAGES, COUNT) for row in found.report.metered)


def blocks_the_loop() -> None:
    time.sleep(0.7)


def schedule(dask_worker: Any) -> None:
    dask_worker.loop.call_later(0.2, blocks_the_loop)


def wait_for_the_loop(seconds: float) -> int:
    time.sleep(seconds)
    return threading.get_ident()


def test_a_callback_that_blocks_one_workers_event_loop_is_named_with_the_worker(client: Client) -> None:
    _, second = client.scheduler_info()["workers"]
    with efficiency_report(client=client) as found:
        for _ in range(4):
            client.run(schedule, workers=[second])
            futures = client.map(wait_for_the_loop, [0.3] * 4, pure=False)
            client.gather(futures)
            eventually(lambda: client.run(lambda: True, workers=[second]))
    report = found.report
    blocks = [block for block in report.loop_blocks if block.stack and block.stack[-1].function == "blocks_the_loop"]
    name = client.scheduler_info()["workers"][second]["name"]
    assert blocks
    assert {block.worker for block in blocks} == {str(name)}
