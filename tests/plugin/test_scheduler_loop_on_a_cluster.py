"""What the scheduler's event loop spends its time on, by a plugin that computes and a handler that blocks."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_efficiency import efficiency_report
from dask_efficiency.accounts.lines import place_of
from dask_efficiency.plugin.names import PLUGIN
from dask_efficiency.plugin.scheduler.loop_meter import LoopMeter
from dask_efficiency.report.conditions_of import conditions_of
from tests.plugin.watch import eventually

pytestmark = pytest.mark.cluster

TASKS = 100


class Burner(SchedulerPlugin):
    """Computes for three milliseconds of CPU at each transition, and knows for how long it did."""

    name = "burner"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def transition(self, *args: Any, **kwargs: Any) -> None:
        began = time.thread_time()  # waiting for a core is not the loop's business
        while time.thread_time() < began + 0.003:
            pass
        self.seconds += time.thread_time() - began
        self.calls += 1


@pytest.fixture
def burner(cluster: LocalCluster, client: Client) -> Iterator[Burner]:
    """On the scheduler, which is in this process."""
    burner = Burner()
    cluster.scheduler.add_plugin(burner)
    yield burner
    cluster.scheduler.remove_plugin("burner")


def test_a_plugin_that_computes_at_each_transition_is_named_first_with_its_line(client: Client, burner: Burner) -> None:
    with efficiency_report(client=client) as found:
        client.gather(client.map(abs, range(TASKS), pure=False))
    loop = found.report.scheduler_loop
    hook = loop.hooks[0]
    line = Burner.transition.__code__.co_firstlineno
    assert (hook.name, hook.file, hook.line) == ("Burner.transition", __file__, line)
    # It is estimated from some of the calls; what it computed itself is the known answer.
    assert hook.seconds == pytest.approx(burner.seconds, rel=0.5)
    assert hook.calls == pytest.approx(burner.calls, rel=0.5)
    finished = next(part for part in loop.handlers if part.name == "task-finished")
    assert finished.calls == TASKS
    assert loop.busy_seconds is not None
    assert 0 < loop.hooks_seconds <= loop.handlers_seconds <= loop.busy_seconds <= loop.seconds
    named = {one.kind for one in found.report.findings if f"`{hook.name}` in {place_of(hook.stack[0])}" in one.where}
    # on a crowded host the scheduler may wait for a core for longer than the plugin computes
    assert named & {"idle/graph", "idle/scheduler"} or not conditions_of(found.report).loop_held, found.report.findings
    assert found.report.to_frame("scheduler").name.iloc[0] in ("Burner.transition", "update-graph")


def blocks_the_loop() -> None:
    time.sleep(2)
    gc.callbacks.append(lasts)
    gc.collect()
    gc.callbacks.remove(lasts)


def lasts(phase: str, _: dict[str, int]) -> None:
    """Garbage collection lasts as long as its callbacks."""
    if phase == "start":
        time.sleep(0.3)


def test_a_handler_that_blocks_the_loop_is_named_with_its_line(cluster: LocalCluster, client: Client) -> None:
    cluster.scheduler.handlers["block"] = blocks_the_loop
    try:
        loop_meter: LoopMeter = cluster.scheduler.plugins[PLUGIN]._meter.accounts.loop
        eventually(lambda: ("comm handler", "block") in loop_meter._handlers)
        with efficiency_report(client=client) as found:
            loop_meter._blocks.clear()
            client.sync(client.scheduler.block)
            eventually(lambda: any(hold.ns > 1.5e9 for _, hold in loop_meter._blocks))  # the next tick tells
    finally:
        del cluster.scheduler.handlers["block"]
    loop = found.report.scheduler_loop
    handler = loop.handlers[0]
    line = blocks_the_loop.__code__.co_firstlineno
    assert (handler.kind, handler.name, handler.file, handler.line) == ("comm handler", "block", __file__, line)
    assert handler.seconds > 2.2
    assert loop.lag_seconds > 2.2**2 / (2 * loop.seconds)  # a message that comes meanwhile waits for the rest of it
    assert loop.gc_seconds > 0.25
    longest = max(loop.blocks, key=lambda block: block.seconds)
    assert (longest.stack[-1].file, longest.stack[-1].line) == (__file__, line + 1), loop.blocks
