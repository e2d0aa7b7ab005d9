"""Whatever users and libraries count and name on a worker, its messages travel and are accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from distributed import Scheduler, Worker
from distributed.worker_state_machine import TaskState
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.processors import decode_processors
from dask_efficiency.accounts.sensors import decode_sensors
from dask_efficiency.accounts.wire.heartbeats import Received, decode, read
from dask_efficiency.accounts.wire.snapshots import NotMeasured
from dask_efficiency.accounts.worker.answer import decode_answer
from dask_efficiency.plugin import names
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.worker import meter as module
from dask_efficiency.plugin.worker.meter import WorkerMeter
from dask_efficiency.runs.trace.batch import decode as decode_batch
from dask_efficiency.straggler.task_rates import ReceivedRates, read_task_rates
from tests.payloads import through_msgpack
from tests.plugin.loops import within
from tests.strategies import odd_names, odd_numbers


@asynccontextmanager
async def lone_worker() -> AsyncIterator[Worker]:
    """A worker without the plugin."""
    address: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
    async with Scheduler(**address) as scheduler, Worker(scheduler.address, nthreads=1, **address) as worker:
        yield worker


hashable = odd_names
labels = hashable | st.sampled_from(["disk-read", "disk-write", "thread-cpu", "memory-read", "loss"])
units = st.sampled_from(["seconds", "seconds", "bytes", "count"]) | hashable
contexts = st.sampled_from(["execute", "p2p", "gather-dep", "get-data", "memory-monitor"])
digests = st.tuples(
    st.tuples(contexts, hashable, hashable, labels, units) | st.tuples(contexts, labels, units) | hashable, odd_numbers
)
#: Keys as Dask takes them.
keys = st.text(st.characters(exclude_categories=()), min_size=1, max_size=9) | st.sampled_from(
    [("a-1", 2), b"key", "x" * 5_000, "\ud800-1", ("\udcff", 1.5), 7]
)
tasks = st.tuples(keys, hashable, odd_numbers, odd_numbers)


class Sent:
    """A worker's meter, and the scheduler's side of it."""

    def __init__(self, worker: Worker, messages: list[tuple[str, Any]]) -> None:
        worker.digests_total = defaultdict(int)
        half: Any = EfficiencyWorkerPlugin(
            "",
            session="s",
            max_prefixes=5,
            windows=["w"],
            recording=None,
            profile={},
            gpu="off",
            waiting=False,
            sensors=False,
        )
        self.worker, self.messages = worker, messages
        self.meter = WorkerMeter(worker, half)
        self.received: Received | None = None
        self.rates: ReceivedRates | None = None

    def heartbeat(self) -> None:
        """Send a heartbeat, and read it."""
        payload = carried(self.meter.heartbeat(self.worker))
        found = read(payload, self.received)
        assert isinstance(found, Received)
        self.received = found
        rates = read_task_rates(payload["pace"], payload["i"], self.rates)
        assert isinstance(rates, ReceivedRates)
        self.rates = rates
        if "sensors" in payload:
            decode_sensors(payload["sensors"])

    def answer(self, action: str, **asked: Any) -> Any:
        """Ask something, and read the answer."""
        answer = carried(now(self.meter.handle(action, **asked)))
        if "snapshot" in answer:
            assert not isinstance(decode(answer["snapshot"]), NotMeasured)
            decode_processors(answer["processors"])
        if "window" in answer:
            decode_answer(answer["window"])
        return answer

    def run(self, key: Any, span: Any, size: Any, of_input: Any) -> None:
        """Have a task run, with an input, whose sizes are these, and in a span of this id."""
        state, hooks = self.worker.state, self.meter.hooks
        ts, dependency = TaskState(key, run_id=1), TaskState("input", run_id=1)
        ts.span_id, dependency.nbytes = span, of_input
        ts.annotations = {names.RECOMPUTED: span} if isinstance(span, bytes) else {}
        ts.dependencies.add(dependency)
        state.tasks[key], ts.state = ts, "executing"
        state.executing.add(ts)
        hooks.transition(key, "ready", "executing")
        state.executing.remove(ts)
        ts.nbytes = size
        self.meter.threads.done[key] = (0, 10**9, 10**9, 1, -1)
        hooks.transition(key, "executing", "memory")
        del state.tasks[key]

    def check(self) -> None:
        """Nothing failed."""
        meter = self.meter
        guards = (
            meter._guard,
            meter._rates_guard,
            meter._threads_guard,
            meter._labels_guard,
            meter._pending.sizes.guard,
        )
        assert [guard.off for guard in guards] == [None] * len(guards)
        assert meter._parts.failures() == []


def carried(payload: Any) -> Any:
    """Through msgpack, without Dask's fallback to pickle."""
    return through_msgpack(payload)


def now(answering: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that waits for nothing."""
    try:
        answering.send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("it waits")


@within(lone_worker)
async def test_whatever_is_counted_and_named_every_message_travels_and_is_accepted(worker, *, monkeypatch):
    monkeypatch.setattr(module, "REPEAT_NS", 0)
    messages: list[tuple[str, Any]] = []
    monkeypatch.setattr(worker, "log_event", lambda topic, message: messages.append((topic, message)))

    @given(
        st.lists(st.lists(digests, max_size=6), min_size=1, max_size=3),
        st.lists(tasks, max_size=3),
        st.lists(st.tuples(hashable, odd_numbers), max_size=2),
        st.booleans(),
    )
    def check(counted: list[list[tuple[Any, Any]]], ran: list[Any], transfers: list[Any], record: bool) -> None:
        messages.clear()
        monkeypatch.setattr(worker, "transfer_outgoing_bytes_total", transfers[0][1] if transfers else 0)
        sent = Sent(worker, messages)
        sent.answer(names.OPEN, window="v")
        if record:
            sent.answer(names.RECORD, window="r")
        for round_of, task in zip(counted, [*ran, None, None, None], strict=False):
            worker.digests_total.update(round_of)
            if task is not None:
                sent.run(*task)
            worker.transfer_incoming_log.extend(
                {"who": who, "total": total, "duration": 0.5, "start": 0.0, "stop": 1.0} for who, total in transfers
            )
            sent.heartbeat()
            sent.check()
        sent.answer(names.SNAPSHOT)
        assert record == ("seq" in sent.answer(names.FLUSH))
        assert "window" in sent.answer(names.CLOSE, window="v")
        sent.check()
        final = carried(sent.meter._final_snapshot())
        assert decode(final["snapshot"]).final  # type: ignore[union-attr]
        decode_answer(final["windows"]["w"])
        for topic, message in messages:
            assert topic == names.BATCHES
            decode_batch(message)
        sent.meter.stop_measuring()
        sent.check()

    check()
