from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler
from distributed.core import Status
from distributed.scheduler import WorkerState

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.cluster.cluster import SILENT_NS, ClusterLedger
from dask_efficiency.accounts.cluster.memory_timeline import MemoryRecorder
from dask_efficiency.accounts.cluster.timeline import TimelineRecorder
from dask_efficiency.accounts.memory import MemoryLevels
from dask_efficiency.accounts.rows import MAX_NAMED
from dask_efficiency.accounts.wire.heartbeats import REPEATS, HeartbeatWriter, encode
from dask_efficiency.accounts.wire.snapshots import NUMBERS, Snapshot, SnapshotCauses, encode_not_measured
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.plugin.names import LEFT_OUT, METRIC, STAYS_OFF
from dask_efficiency.plugin.scheduler import accounts as module
from dask_efficiency.plugin.scheduler import heartbeats
from dask_efficiency.plugin.scheduler.accounts import Timelines
from dask_efficiency.plugin.scheduler.workers import WorkerHalves
from tests.plugin.loops import within


def worker(number: int, scheduler: Scheduler, *, server: str = "") -> WorkerState:
    address = f"tcp://10.0.0.{number}:40000"
    known: Any = {"pid": 0, "memory_limit": 0, "local_directory": "", "nanny": None, "scheduler": scheduler}
    name = f"worker-{number}"
    return WorkerState(
        address=address, status=Status.running, name=name, nthreads=2, server_id=server or address, **known
    )


def set_clock(monkeypatch: pytest.MonkeyPatch, **readings: Any) -> None:
    """Have functions of ``time`` give what others do, in the accounts."""
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **readings}))


@asynccontextmanager
async def registered() -> AsyncIterator[tuple[Any, Any]]:
    """A scheduler, with the plugin registered."""
    async with Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler:
        plugin = EfficiencyPlugin()
        await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
        yield scheduler, plugin
        scheduler.workers.clear()
        await plugin._meter.stop()  # type: ignore[union-attr]


def join(scheduler: Any, plugin: Any, number: int) -> WorkerState:
    """Have a worker join."""
    one = worker(number, scheduler)
    scheduler.workers[one.address] = one
    plugin.add_worker(scheduler, one.address)
    return one


@within(registered)
async def test_a_worker_is_known_when_it_joins_or_else_at_the_next_poll(scheduler, plugin, *, monkeypatch):
    accounts: Any = plugin._meter.accounts
    for number in (1, 2, 3):
        scheduler.workers[f"tcp://10.0.0.{number}:40000"] = worker(number, scheduler)
    plugin.add_worker(scheduler, "tcp://10.0.0.2:40000")
    assert [presence.name for presence in accounts.cluster.present.values()] == ["worker-2"]
    plugin.add_worker(scheduler, "tcp://10.0.0.2:40000")
    plugin.add_worker(scheduler, "tcp://10.0.0.99:40000")  # it is gone by now
    accounts.poll()
    names = [presence.name for presence in accounts.cluster.present.values()]
    assert names == ["worker-2", "worker-1", "worker-3"]
    # Another worker came to the same address.
    scheduler.workers["tcp://10.0.0.1:40000"] = worker(1, scheduler, server="another")
    former = accounts.cluster.present["tcp://10.0.0.1:40000"]
    accounts.poll()
    assert former.left is not None
    assert accounts.cluster.present["tcp://10.0.0.1:40000"] is not former
    # Of ten thousand, a heartbeat comes each 51 s.
    monkeypatch.setattr(heartbeats, "heartbeat_interval", lambda workers: 51.0)
    later = time.monotonic_ns() + 2 * SILENT_NS
    set_clock(monkeypatch, monotonic_ns=lambda: later)
    accounts.poll()
    assert not any(presence.off for presence in accounts.cluster.present.values())
    monkeypatch.setattr(heartbeats, "heartbeat_interval", lambda workers: 6.0)
    accounts.poll()
    reasons = [presence.reason for presence in accounts.cluster.present.values()]
    assert reasons == ["no snapshot in 30 s"] * 3


@within(registered)
async def test_the_reasons_of_departures_come_from_upstreams_events(scheduler, plugin):
    cluster = plugin._meter.accounts.cluster  # type: ignore[union-attr]
    losses = {}
    for number in range(1, 6):
        one = join(scheduler, plugin, number)
        losses[one.address] = cluster.present[one.address].loss
        losses[one.address].memory_limit = 1_000
    memory, silent, closing, retired, vanished = losses

    def removed(address: str, stimulus_id: str, *, expected: bool = False) -> None:
        event = {"action": "remove-worker", "stimulus_id": stimulus_id, "expected": expected}
        scheduler.log_event(address, {**event, "processing-tasks": {"gone"}})
        del scheduler.workers[address]
        plugin.remove_worker(scheduler, address, stimulus_id=stimulus_id)

    scheduler.log_event(memory, {"action": "closing-worker", "reason": "nanny-close"})
    scheduler.log_event("worker-restart-memory", {"worker": memory, "pid": 1, "rss": 960})
    scheduler.log_event("scheduler", {"action": "worker-ttl-timed-out", "workers": [silent], "ttl": 300.0})
    removed(silent, "check-worker-ttl-1.5")
    removed(closing, "worker-close-gracefully-1.5", expected=True)
    scheduler.log_event(closing, {"action": "closing-worker", "reason": "worker-lifetime-reached"})
    removed(retired, "retire-workers-1.5", expected=True)
    removed(vanished, "handle-worker-cleanup-1.5")
    assert {address: loss.why for address, loss in losses.items()} == {
        memory: "killed by its nanny at 96% of its memory limit",
        silent: "no heartbeat for 300 s",
        closing: "its lifetime was over",
        retired: "retired",
        vanished: "its connection broke; without a nanny, the reason is unknown",
    }
    assert [loss.in_order for loss in cluster.losses] == [False, True, True, False]
    # An event may come later than the removal, and when the accounts are closed.
    cluster.close_departed(at=time.monotonic_ns(), grace=0)
    scheduler.log_event("worker-restart-memory", {"worker": vanished, "pid": 1, "rss": 970})
    assert losses[vanished].why == "killed by its nanny at 97% of its memory limit"


@within(registered)
async def test_a_nanny_is_asked_again_until_it_has_noticed_that_its_worker_ended(scheduler, plugin, *, monkeypatch):
    logs = [(), (), [("INFO", "Worker process 7 was killed by signal 9")]]
    asked = asyncio.Event()

    async def ask_directly(address: str, op: str, **kwargs: Any) -> Any:
        if len(logs) == 1:
            asked.set()
        return logs.pop(0)

    monkeypatch.setattr(WorkerHalves, "ask_directly", lambda self, *args, **kwargs: ask_directly(*args, **kwargs))
    one = join(scheduler, plugin, 1)
    one.nanny, one.pid = "tcp://10.0.0.1:50000", 7
    loss = plugin._meter.accounts.cluster.present[one.address].loss  # type: ignore[union-attr]
    del scheduler.workers[one.address]
    plugin.remove_worker(scheduler, one.address, stimulus_id="handle-worker-cleanup-1.5")
    await asked.wait()
    await asyncio.sleep(0)  # its answer is read
    assert loss.why == "killed by SIGKILL"


@within(registered)
async def test_a_poll_that_was_cut_off_is_continued_by_the_next(scheduler, plugin, *, monkeypatch):
    accounts: Any = plugin._meter.accounts
    for number in (1, 2, 3):
        one = join(scheduler, plugin, number)
        one.metrics = {METRIC: encode_not_measured("its meter failed")}
        one.last_seen = time.time()

    def off() -> int:
        return sum(presence.off for presence in accounts.cluster.present.values())

    assert accounts.poll(at_most=-1.0) is False
    assert off() == 1
    # Each look at the clock is a second later.
    clock = itertools.count()
    set_clock(monkeypatch, thread_time=lambda: next(clock))
    assert accounts.poll(at_most=1.5) is False
    assert off() == 2
    first, *_ = scheduler.workers.values()
    first.metrics = {METRIC: encode_not_measured("once more")}
    assert accounts.poll(at_most=10.0) is True
    assert off() == 3
    # What came of those that this round had looked at is for the next one.
    assert accounts.cluster.stale == 0
    # One that was cut off may be followed by one that takes all that is there, and a scrape has a limit.
    for one in scheduler.workers.values():
        one.metrics = {METRIC: encode_not_measured("and again")}
    accounts.refresh()
    assert accounts.cluster.stale == 1
    assert accounts.poll() is True
    assert accounts.cluster.stale == 3


# -- heartbeats that are left out ------------------------------------------------------------------

MILLISECOND = 1_000_000


class Sender:
    """A worker that runs a task of 1 ms in each heartbeat, of one prefix after the other."""

    def __init__(self, number: int, scheduler: Scheduler) -> None:
        self.ws = worker(number, scheduler)
        self.address = self.ws.address
        self.sent = 0
        self._ledger = Ledger(2, at=0)
        self._writer = HeartbeatWriter()

    def _snapshot(self) -> Snapshot:
        self.sent += 1
        at = self.sent * MILLISECOND
        self._ledger.reserve("key", f"prefix-{self.sent}", at=at - MILLISECOND)
        self._ledger.finalize(self._ledger.release("key", at=at), Outcome.SUCCEEDED, cpu=MILLISECOND, wall=MILLISECOND)
        return Snapshot(self.address, self.sent, self._ledger.balance(at=at), {}, causes=SnapshotCauses())

    def heartbeat(self) -> None:
        """Have the scheduler hear of what it did."""
        self.ws.metrics = {METRIC: self._writer.heartbeat(self._snapshot())}
        self.ws.last_seen = time.time()

    def answer(self) -> dict[str, Any]:
        """All that it did."""
        return {"snapshot": self._writer.everything(self._snapshot())}


@asynccontextmanager
async def senders(count: int) -> AsyncIterator[tuple[Any, list[Sender]]]:
    """The accounts of a scheduler with workers, of which each fourth heartbeat is to be read."""
    async with registered() as (scheduler, plugin):
        meter: Any = plugin._meter
        meter._poller.stop()
        meter.accounts._arrivals.share.every = lambda longest: float(REPEATS)
        made = [Sender(number, scheduler) for number in range(1, count + 1)]
        for sender in made:
            scheduler.workers[sender.address] = sender.ws
            plugin.add_worker(scheduler, sender.address)
        yield meter.accounts, made


def tasks(accounts: Any) -> int:
    return int(accounts.cluster.tasks.get(Outcome.SUCCEEDED, 0))


def beat(accounts: Any, made: list[Sender], *, rounds: int = 1) -> None:
    """A heartbeat of each worker, and a poll."""
    for _ in range(rounds):
        for sender in made:
            sender.heartbeat()
        accounts.poll()


@pytest.mark.parametrize("between_two_polls", [1, 2, 3])
@within(senders, 8)
async def test_skipped_heartbeats_lose_nothing(accounts, made, *, between_two_polls):
    behind = 0
    for _ in range(40):
        for _ in range(between_two_polls):
            for sender in made:
                sender.heartbeat()
        accounts.poll()
        for sender in made:
            behind = max(behind, sender.sent - accounts.cluster.present[sender.address].received.seq)
    assert accounts.cluster.missed == accounts.cluster.refused == accounts.cluster.stale == 0
    assert (behind, bool(accounts._arrivals.unread)) == {1: (3, True), 2: (2, True), 3: (0, False)}[between_two_polls]
    await accounts.poll_all()
    assert tasks(accounts) == sum(sender.sent for sender in made)
    assert accounts.cluster.missed == accounts.cluster.stale == 0
    assert not accounts._arrivals.unread


@within(senders, 8)
async def test_a_report_that_reads_many_heartbeats_lets_the_event_loop_go_on(accounts, made, *, monkeypatch):
    beat(accounts, made, rounds=2)
    assert tasks(accounts) < 2 * len(made)
    monkeypatch.setattr(module, "MAX_REPORT_POLL_SECONDS", 0.0)
    reading = asyncio.create_task(accounts.poll_all())
    seen = set()
    while not reading.done():
        await asyncio.sleep(0)
        seen.add(before := tasks(accounts))
        accounts.poll(at_most=0.0)  # the timer's may come in between, and leaves it to the report
        assert tasks(accounts) == before
    assert len(seen) > 2
    assert tasks(accounts) == 2 * len(made)
    beat(accounts, made, rounds=2)
    reading = asyncio.create_task(accounts.poll_all())
    await asyncio.sleep(0)
    accounts.poll()  # a live view's leaves nothing out that the report has not read yet
    await reading
    assert tasks(accounts) == 4 * len(made)
    assert accounts.cluster.stale == 0


@within(senders, 8)
async def test_workers_take_turns_and_the_first_heartbeat_of_each_is_read_at_once(accounts, made):
    read = []
    for _ in range(1 + 3 * REPEATS):
        for sender in made:
            sender.heartbeat()
        before = tasks(accounts)
        accounts.poll()
        read.append(sum(sender.address not in accounts._arrivals.unread for sender in made))
        assert tasks(accounts) > before
    assert read[0] == len(made)
    assert read[REPEATS:] == [len(made) // REPEATS] * (2 * REPEATS + 1)


@within(senders, 1)
async def test_a_skipped_heartbeat_counts_from_its_arrival(accounts, made, *, monkeypatch):
    (sender,) = made
    sender.heartbeat()
    accounts.poll()
    at = time.monotonic_ns()
    came = []
    monkeypatch.setattr(accounts.cluster, "receive", lambda address, payload, at: came.append(at))
    for later in (5, 11, 17):
        now = at + later * 1_000 * MILLISECOND
        set_clock(monkeypatch, monotonic_ns=lambda now=now: now)
        if later < 17:
            sender.heartbeat()
            accounts.poll()
    assert not came
    assert tasks(accounts) == 1
    await accounts.poll_all()
    assert [round((one - at) / 1e9) for one in came] == [11]


@within(senders, 8)
async def test_an_answer_has_all_that_skipped_heartbeats_had(accounts, made):
    beat(accounts, made, rounds=3)
    assert accounts._arrivals.unread
    for sender in made:
        accounts.take_answer(sender.address, sender.answer(), time.monotonic_ns())
    await accounts.poll_all()
    assert tasks(accounts) == 4 * len(made)
    assert accounts.cluster.stale == 0


def with_numbers(honest: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A heartbeat with other numbers."""
    numbers = [changes.get(name, number) for name, number in zip(NUMBERS, honest["a"], strict=False)]
    return {**honest, "a": [*numbers, *honest["a"][len(NUMBERS) :]]}


def more(honest: dict[str, Any], name: str, by: int) -> dict[str, int]:
    return {name: honest["a"][NUMBERS.index(name)] + by}


DAY = 24 * 3600 * 10**9
#: Payloads that must not be counted, one for each place where they are refused; `tests/accounts/wire` has all that is
#: wrong with a payload.
HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text": lambda honest: f"garbage {honest['n']}",
    "does not add up": lambda honest: with_numbers(honest, **more(honest, "running", 1)),
    "too many seconds": lambda honest: with_numbers(
        honest, **more(honest, "elapsed", DAY), **more(honest, "finalized['idle']", honest["a"][0] * DAY)
    ),
    "shrinking": lambda honest: encode(
        Snapshot(honest["i"], honest["n"] + 10**6, Ledger(honest["a"][0], at=0).balance(at=0))
    ),
    "deep": lambda honest: {**honest, "a": reduce(lambda deep, _: [deep], range(100), [])},
}


@pytest.mark.parametrize("kind", HOSTILE)
@within(senders, 2)
async def test_a_hostile_heartbeat_is_refused_counted_and_logged_and_costs_nothing(accounts, made, *, kind, caplog):
    accounts._arrivals.share.every = lambda longest: 1.0
    beat(accounts, made)
    liar, other = made
    for lies in (1, 2):
        liar.ws.metrics = {METRIC: HOSTILE[kind](liar.answer()["snapshot"])}
        liar.ws.last_seen = time.time()
        other.heartbeat()
        accounts.poll()
        assert (accounts.cluster.refused, tasks(accounts)) == (lies, 2 + lies)
    (warning,) = [record.getMessage() for record in caplog.records if "refused a snapshot" in record.getMessage()]
    assert liar.address in warning
    assert len(warning) < 2_000
    beat(accounts, made)
    assert tasks(accounts) == liar.sent + other.sent == 4 + 4


@within(senders, 8)
async def test_losses_of_workers_are_reported_once_and_bounded(accounts, made):
    for sender in made:
        accounts.take_answer(sender.address, {**sender.answer(), STAYS_OFF: ["no CPU time"]}, time.monotonic_ns())
    assert accounts.stays_off().count("no CPU time") == 1
    for wrong in (7, [7], ["x" * 10_000], [str(i) for i in range(9_999)]):
        accounts.take_answer(made[0].address, {**made[0].answer(), STAYS_OFF: wrong}, time.monotonic_ns())
    assert len(accounts._stays_off) == module.MAX_STAYS_OFF


@within(senders, 8)
async def test_unread_heartbeats_of_a_worker_that_leaves_are_read(accounts, made):
    beat(accounts, made, rounds=3)
    assert tasks(accounts) < 3 * len(made)
    made[0].heartbeat()  # nobody has looked since
    for sender in made:
        accounts.worker_left(sender.address, time.monotonic_ns())
    assert tasks(accounts) == 3 * len(made) + 1
    assert accounts.cluster.stale == 0
    assert not accounts._arrivals.unread


@within(senders, 1)
async def test_a_worker_waits_at_most_a_minute_for_its_turn(accounts, made, *, monkeypatch):
    del accounts._arrivals.share.every
    accounts._arrivals.share.spent(time.monotonic_ns(), 0.0, arrived=1_000, read=1_000, reading_seconds=10.0)
    found = {}
    assert accounts.read_interval_seconds == 2.0  # of one worker: four heartbeats of half a second
    accounts._arrivals.share.every = lambda longest: 1.0
    assert accounts.read_interval_seconds == 1.0  # every other one repeats the last
    del accounts._arrivals.share.every
    for workers in (1_000, 2_000, 5_000, 10_000, 20_000):
        interval = workers / 200 + 1
        monkeypatch.setattr(heartbeats, "heartbeat_interval", lambda _, interval=interval: interval)
        found[workers] = accounts.read_interval_seconds
    assert found == pytest.approx({1_000: 24.0, 2_000: 44.0, 5_000: 60.0, 10_000: 60.0, 20_000: 101.0})


@within(senders, 2)
async def test_a_large_cluster_has_fewer_rounds_than_polls(accounts, made, *, monkeypatch):
    begun = time.monotonic_ns()
    polls: list[int] = []
    monkeypatch.setattr(accounts.stragglers, "poll", lambda at, _: polls.append(at))

    def rounds(heartbeat_seconds: float) -> list[int]:
        """Which of some polls, half a second apart, have read something."""
        nonlocal begun
        monkeypatch.setattr(heartbeats, "heartbeat_interval", lambda _: heartbeat_seconds)
        begun += 100_000 * MILLISECOND
        found = []
        for poll in range(7):
            now = begun + poll * 490 * MILLISECOND
            set_clock(monkeypatch, monotonic_ns=lambda now=now: now)
            for sender in made:
                sender.heartbeat()
            before = tasks(accounts)
            assert accounts.poll(at_most=1e9)
            if tasks(accounts) > before:
                found.append(poll)
        return found

    accounts._arrivals.share.every = lambda longest: 1.0
    assert rounds(0.5) == rounds(3.0) == list(range(7))
    assert rounds(6.0) == rounds(51.0) == [0, 2, 4, 6]
    assert len(polls) == 4 * 7  # the comparison of workers goes on at each


def test_workers_that_were_there_first_count_as_asked_before_they_answered(monkeypatch):
    answered: list[int] = []

    async def send(halves: WorkerHalves) -> None:
        await asyncio.sleep(0.05)  # another one takes its time
        answered.append(time.monotonic_ns())

    async def check() -> None:
        async with Scheduler(port=0, host="127.0.0.1", dashboard=False, dashboard_address=":0") as scheduler:
            scheduler.workers["tcp://10.0.0.1:40000"] = worker(1, scheduler)
            monkeypatch.setattr(WorkerHalves, "send", send)
            plugin, before = EfficiencyPlugin(), time.monotonic_ns()
            await scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
            accounts: Any = plugin._meter.accounts  # type: ignore[union-attr]
            scheduler.workers["tcp://10.0.0.2:40000"] = worker(2, scheduler)
            accounts.poll()
            first, later = accounts.cluster.present.values()
            assert before <= first.asked <= answered[0] - 40_000_000 <= first.joined
            assert later.asked is None

    asyncio.run(check())


@within(senders, 8)
async def test_sensors_of_skipped_heartbeats_are_remembered_if_outliers_are_wanted(accounts, made):
    remembered: list[str] = []
    each = accounts._parts.each
    accounts._parts.each = lambda method, *args: (
        remembered.append(args[0]) if method == "take_heartbeat" else each(method, *args)
    )
    for outliers, expected in ((False, 0), (True, len(made))):
        accounts._meter.options = replace(accounts.options, outliers=outliers)
        beat(accounts, made)
        del remembered[:]
        beat(accounts, made)
        read = sum(sender.address not in accounts._arrivals.unread for sender in made)
        assert len(remembered) == (expected or read)


SECOND = 1_000_000_000


class OneWorker:
    """A worker of one thread, and the timelines of its cluster with one window."""

    def __init__(self) -> None:
        self.cluster = ClusterLedger(at=0)
        self.presence = self.cluster.worker_joined("tcp://a", "a", 1, at=0)
        self.windows: Any = {}
        self.timelines = Timelines(self.windows, at=0)
        self._ledger = Ledger(1, at=0)
        self._seq = 0

    def open(self, at: int) -> TimelineRecorder:
        recorder = TimelineRecorder(at=at)
        self.windows["window"] = SimpleNamespace(timeline=recorder, memory=MemoryRecorder(at=0))
        return recorder

    def report(self, at: int) -> None:
        self._seq += 1
        payload = encode(Snapshot("incarnation", self._seq, self._ledger.balance(at=at)))
        self.cluster.receive("tcp://a", payload, at=at)
        self.timelines.follow([self.presence], at=at)

    def covered(self, recorder: TimelineRecorder | None = None) -> int:
        at = self._seq * SECOND
        return sum(map(sum, self.timelines.timeline(recorder, at=at).activity.values()))


def test_a_window_has_the_activity_since_it_began_until_it_ends_and_the_life_has_all():
    one = OneWorker()
    one.report(SECOND)
    window = one.open(at=SECOND)
    one.report(2 * SECOND)
    assert (one.covered(), one.covered(window)) == (2 * SECOND, SECOND)
    one.windows.clear()
    one.report(3 * SECOND)
    assert (one.covered(), sum(map(sum, window.timeline(at=3 * SECOND).activity.values()))) == (3 * SECOND, SECOND)


def test_once_following_has_failed_there_is_no_timeline_and_nothing_raises(monkeypatch):
    def fail(self: object, stretches: object) -> None:
        raise SystemError("injected")

    one = OneWorker()
    with monkeypatch.context() as patch:
        patch.setattr(TimelineRecorder, "add", fail)
        one.report(SECOND)
    one.report(2 * SECOND)
    with pytest.raises(RuntimeError, match="injected"):
        one.covered()


def test_the_memory_that_was_followed_last_is_kept_and_none_once_that_has_failed(monkeypatch):
    def fail(self: object, *_: object, **__: object) -> None:
        raise SystemError("injected")

    one = OneWorker()
    assert one.timelines.reading is None
    one.presence.memory = MemoryLevels(process=7, peak=7, held=0, spilled=0, disk=0, prefixes={})
    one.report(SECOND)
    assert one.timelines.reading is not None
    assert one.timelines.reading.numbers[0] == 7
    monkeypatch.setattr(MemoryRecorder, "follow", fail)
    one.report(2 * SECOND)
    assert one.timelines.reading is None


@within(senders, 3)
async def test_labels_that_count_no_numbers_are_told_once_with_the_first_worker(accounts, made):
    first, second, third = made
    for sender, what in ((first, ["a"]), (first, ["a"]), (second, ["b", "a"]), (third, [])):
        accounts.take_answer(sender.address, {**sender.answer(), LEFT_OUT: what}, time.monotonic_ns())
    assert accounts.stays_off() == [f"a (on {first.address} and others)", f"b (on {second.address})"]
    for wrong in (7, [7], ["x" * 10_000], [str(i) for i in range(9_999)]):
        accounts.take_answer(first.address, {**first.answer(), LEFT_OUT: wrong}, time.monotonic_ns())
    assert len(accounts.stays_off()) == MAX_NAMED
