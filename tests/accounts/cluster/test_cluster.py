import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dask_efficiency.accounts.buckets import CAUSE_NAMES, Bucket, causes_of, combine
from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.cluster.account import ACTIVITIES, between
from dask_efficiency.accounts.cluster.cluster import (
    DEPARTED,
    GRACE_NS,
    MAX_REFUSALS,
    RECENT_NS,
    SILENT_NS,
    ClusterLedger,
)
from dask_efficiency.accounts.cluster.presence import SLACK_NS, Presence
from dask_efficiency.accounts.memory import LEVELS, MemoryLevels, encode_levels
from dask_efficiency.accounts.rows import MAX_APART as MAX_ACTIVITIES
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.wire.heartbeats import HeartbeatWriter, encode
from dask_efficiency.accounts.wire.snapshots import Snapshot, SnapshotCauses, encode_not_measured
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, TASK_BUCKETS, Availability, Outcome, Used
from dask_efficiency.accounts.worker.ledger import Ledger
from tests.payloads import watched
from tests.strategies import SECOND, idle_payload, plain_data, snapshots, steps

# A failing state machine is shrunk for up to five minutes before its failure is shown.
pytestmark = pytest.mark.timeout(400)

ADDRESSES = ("tcp://a", "tcp://b", "tcp://c")
MAX_NAMES = 4
MAX_PREFIXES = 2


def held(row: Mapping[str, int]) -> dict[str, int]:
    return {name: ns for name, ns in row.items() if ns}


def totals(cluster: ClusterLedger) -> dict[str, int]:
    """Settled nanoseconds by bucket, those that hold time."""
    return held(cluster.part("finalized"))


@dataclass(eq=False)
class SimulatedWorker:
    """A worker with a clock of its own, and what the scheduler should know of it."""

    presence: Presence
    offset: int
    ledger: Ledger | None = None
    writer: HeartbeatWriter = field(default_factory=HeartbeatWriter)
    incarnation: str = ""
    seq: int = 0
    tasks: list[int] = field(default_factory=list)
    closing: bool = False
    #: What was recorded last: the incarnation, its seq, and the instant up to which time is accounted for.
    recorded: str | None = None
    recorded_seq: int = -1
    covered: int = 0
    running: int = 0
    closed_in_order: bool = False
    refusals: int = 0
    off: bool = False
    left: int | None = None
    closed: bool = False


class Letter(NamedTuple):
    """A snapshot on its way."""

    address: str
    payload: dict[str, Any]
    snapshot: Snapshot
    taken: int


class ClusterMachine(RuleBasedStateMachine):
    """Workers come, work, and go in every way; no nanosecond of theirs is lost or counted twice.

    Letters arrive at once, or never, or again, or after younger ones of the same ledger. The one
    thing kept out is a late *first* letter of a ledger: its start is known from its arrival alone.
    """

    workers_ = st.integers(0, 10)

    @initialize(at=st.integers(0, 10 * SECOND))
    def begin(self, at):
        self.now = at
        self.cluster = ClusterLedger(at=at, max_names=MAX_NAMES, max_prefixes=MAX_PREFIXES)
        self.alive: dict[str, SimulatedWorker] = {}
        self.ever: list[SimulatedWorker] = []
        self.letters: list[Letter] = []
        self.ended: set[str] = set()
        self.recorded: dict[str, dict[str, int]] = {}
        self.before = self.cluster.totals(at=at)
        self.first = self.then = self.before
        self.did = self.cluster.part("activity")
        self.numbers = iter(range(10**9))
        self.join(0, 2, 0)

    def pick(self, which):
        if not self.alive:
            self.join(which, 1, 0)
        workers = list(self.alive.values())
        return workers[which % len(workers)]

    # -- what happens on workers -------------------------------------------------------------

    @rule(
        which=st.integers(0, 2),
        nthreads=st.integers(1, 4),
        offset=st.integers(-(10**12), 10**12),
        metered=st.sampled_from([True, True, False]),
    )
    def join(self, which, nthreads, offset, metered=True):
        """A new worker, maybe at an address in use: then the old one left."""
        address = ADDRESSES[which % 3]
        if address in self.alive:
            self.gone(address)
        name = f"worker-{next(self.numbers)}"
        presence = self.cluster.worker_joined(address, name, nthreads, at=self.now)
        worker = SimulatedWorker(presence, offset, covered=self.now)
        self.alive[address] = worker
        self.ever.append(worker)
        if metered:
            self.meter(worker)

    @rule(which=workers_)
    def start_meter(self, which):
        """The worker's half arrives; or arrives anew, with a ledger that begins now."""
        self.meter(self.pick(which))

    def meter(self, worker):
        worker.ledger = Ledger(worker.presence.nthreads, at=self.now + worker.offset)
        worker.incarnation = f"ledger-{next(self.numbers)}"
        worker.writer = HeartbeatWriter()
        worker.seq = 0
        worker.tasks.clear()

    @rule(step=steps)
    def pass_time(self, step):
        self.now += step

    @rule(which=workers_, prefix=st.sampled_from(["inc", "sum", "mul"]), recomputed=st.sampled_from(["", "w3", "w5"]))
    def start_task(self, which, prefix, recomputed):
        worker = self.pick(which)
        if worker.ledger is not None:
            key = next(self.numbers)
            worker.ledger.reserve(key, prefix, recomputed=recomputed, at=self.now + worker.offset)
            worker.tasks.append(key)

    @rule(which=workers_, outcome=st.sampled_from(Outcome), share=st.integers(0, 100))
    def end_task(self, which, outcome, share):
        worker = self.pick(which)
        if worker.tasks:
            hold = worker.ledger.release(worker.tasks.pop(0), at=self.now + worker.offset)
            worker.ledger.finalize(hold, outcome, cpu=hold.ns * share // 100, wall=hold.ns)

    @rule(
        which=workers_,
        prefix=st.sampled_from(["inc", "sum", "mul"]),
        outcome=st.sampled_from(Outcome),
        steps_=st.lists(steps, min_size=1, max_size=3),
    )
    def run_tasks(self, which, prefix, outcome, steps_):
        """One after another, each followed by a heartbeat."""
        for step in steps_:
            self.start_task(which, prefix, "")
            self.pass_time(step)
            self.end_task(which, outcome, 50)
            self.heartbeat(which, "arrives")

    @rule(which=workers_, to=st.sampled_from(Availability), waiting=st.integers(0, 2), constrained=st.integers(0, 2))
    def observe(self, which, to, waiting, constrained):
        worker = self.pick(which)
        if worker.ledger is not None:
            worker.ledger.observe(to, waiting, constrained, at=self.now + worker.offset)

    @rule(which=workers_, ready=st.integers(0, 2), step=steps, delayed=st.booleans())
    def spill(self, which, ready, step, delayed):
        worker = self.pick(which)
        if worker.ledger is not None:
            start = self.now + worker.offset
            self.now += step
            worker.ledger.spilled(ready, start=start, stop=start + step)
            if delayed:
                worker.ledger.delayed(start)

    @rule(outstanding=st.booleans())
    def work(self, outstanding):
        self.cluster.work.set(outstanding, at=self.now)

    # -- what travels ------------------------------------------------------------------------

    def write(self, worker, *, final=False, answer=False):
        if worker.ledger is None:
            return None
        worker.seq += 1
        balance = worker.ledger.balance(at=self.now + worker.offset)
        snapshot = Snapshot(worker.incarnation, worker.seq, balance, {"get-data": worker.seq}, final=final)
        write = worker.writer.everything if final or answer else worker.writer.heartbeat
        letter = Letter(worker.presence.address, write(snapshot), snapshot, self.now)
        self.letters.append(letter)
        return letter

    def reader(self, letter):
        """Whose books a letter goes into: a departed worker's, if they are open and its ledger is known."""
        open_books = [w for w in self.ever if not w.closed and w.presence.address == letter.address]
        leaving = [w for w in open_books if w.left is not None]
        known = [w for w in leaving if w.recorded == letter.snapshot.incarnation]
        if known:
            return known[0]
        if letter.address in self.alive:
            return self.alive[letter.address]
        unknown = [w for w in leaving if w.recorded is None]
        return unknown[0] if unknown else None

    def is_stale(self, worker, letter):
        if worker is None or worker.off or letter.snapshot.incarnation in self.ended:
            return True
        return worker.recorded == letter.snapshot.incarnation and letter.snapshot.seq <= worker.recorded_seq

    def deliver(self, letter):
        worker, incarnation = self.reader(letter), letter.snapshot.incarnation
        is_stale = self.is_stale(worker, letter)
        first = not is_stale and worker.recorded != incarnation
        if first and (letter.taken != self.now or incarnation != worker.incarnation):
            return
        is_missed = not is_stale and self.cannot_be_read(worker, letter)
        stale, missed = self.cluster.stale, self.cluster.missed
        self.cluster.receive(letter.address, letter.payload, at=self.now)
        assert (self.cluster.stale, self.cluster.missed) == (stale + is_stale, missed + is_missed)
        assert is_stale or worker.presence.missed is is_missed
        if is_stale or is_missed:
            return
        sent, read = (
            replace(balance, finalized=+Counter(balance.finalized), active=+Counter(balance.active))
            for balance in (letter.snapshot.balance, worker.presence.received.snapshot.balance)
        )
        assert read == sent
        if worker.recorded is not None and first:
            self.ended.add(worker.recorded)
        worker.recorded, worker.recorded_seq = incarnation, letter.snapshot.seq
        worker.covered, worker.running = letter.taken, sent.running
        worker.closed_in_order = letter.snapshot.final
        worker.refusals = 0
        self.recorded[incarnation] = dict(sent.finalized)
        if letter.snapshot.final and worker.left is not None:
            self.close(worker)

    def cannot_be_read(self, worker, letter):
        """Whether it holds the changes since a state that the scheduler does not have."""
        since = letter.payload.get("s", -1)
        return since >= 0 and (worker.recorded != letter.snapshot.incarnation or worker.recorded_seq < since)

    @rule(which=workers_)
    def answer(self, which):
        """A worker is asked for a snapshot."""
        worker = self.pick(which)
        letter = None if worker.closing else self.write(worker, answer=True)
        if letter is not None:
            self.deliver(letter)

    @rule(which=workers_)
    def ask_for_everything(self, which):
        """Where a heartbeat could not be read, the next one can."""
        worker = self.pick(which)
        if worker.presence.missed and worker.ledger is not None and not worker.closing:
            worker.writer.begin_anew()
            letter = self.write(worker)
            assert "s" not in letter.payload
            self.deliver(letter)
            assert worker.off or not worker.presence.missed

    @rule(which=workers_, fate=st.sampled_from(["arrives", "arrives", "is lost", "arrives twice"]))
    def heartbeat(self, which, fate):
        worker = self.pick(which)
        letter = None if worker.closing else self.write(worker)
        if letter is not None and fate != "is lost":
            self.deliver(letter)
            if fate == "arrives twice":
                self.deliver(letter)

    @precondition(lambda self: getattr(self, "letters", None))
    @rule(which=st.integers(0, 1000))
    def old_letter(self, which):
        self.deliver(self.letters[which % len(self.letters)])

    @precondition(lambda self: getattr(self, "letters", None))
    @rule(which=st.integers(0, 1000))
    def corrupted_letter(self, which):
        letter = self.letters[which % len(self.letters)]
        worker = self.reader(letter)
        numbers = letter.payload["a"]
        payload = {**letter.payload, "a": [*numbers[:2], numbers[2] + 1, *numbers[3:]]}
        if self.is_stale(worker, letter) or self.cannot_be_read(worker, letter):
            self.cluster.receive(letter.address, payload, at=self.now)
            return
        refused = self.cluster.refused
        with pytest.raises(RefusedPayload):
            self.cluster.receive(letter.address, payload, at=self.now)
        assert self.cluster.refused == refused + 1
        worker.refusals += 1
        if worker.refusals == MAX_REFUSALS:
            self.switched_off(worker)

    @rule(which=workers_, how_rarely=st.integers(0, 4))
    def meter_fails(self, which, how_rarely):
        worker = self.pick(which)
        if how_rarely or worker.off:
            return
        self.cluster.receive(worker.presence.address, encode_not_measured("it failed"), at=self.now)
        self.switched_off(worker)

    def switched_off(self, worker):
        worker.off = True
        worker.covered = self.now if worker.left is None else max(worker.left, worker.covered)

    @rule()
    def poll(self):
        self.cluster.accrue(at=self.now)
        for worker in self.alive.values():
            if worker.recorded is None and self.now - worker.presence.joined > SILENT_NS:
                worker.off = True
            if worker.off:
                worker.covered = self.now

    # -- how workers go ----------------------------------------------------------------------

    def close(self, worker):
        worker.closed = True
        if worker.recorded is not None:
            self.ended.add(worker.recorded)

    def gone(self, address):
        worker = self.alive.pop(address)
        worker.left = self.now
        if worker.off or worker.closed_in_order:
            self.close(worker)

    @rule(which=workers_)
    def remove(self, which):
        address = self.pick(which).presence.address
        self.cluster.worker_left(address, at=self.now)
        self.gone(address)

    @rule(which=workers_, arrives=st.booleans())
    def close_in_order(self, which, arrives):
        """A worker closes by itself; it is removed some time later."""
        worker = self.pick(which)
        if worker.ledger is not None and not worker.closing:
            worker.closing = True
            worker.ledger.finalize_all(Outcome.CANCELLED, at=self.now + worker.offset)
            letter = self.write(worker, final=True)
            worker.tasks.clear()
            if arrives:
                self.deliver(letter)

    @rule(which=workers_, blocked=steps)
    def retire(self, which, blocked):
        """The scheduler removes a worker, whose final snapshot comes a moment later."""
        worker = self.pick(which)
        self.remove(which)
        self.now += blocked
        if worker.ledger is not None and not worker.closing:
            worker.ledger.finalize_all(Outcome.CANCELLED, at=self.now + worker.offset)
            self.deliver(self.write(worker, final=True))

    @rule(grace=st.sampled_from([0, GRACE_NS]))
    def close_departed(self, grace):
        leaving = [w for w in self.ever if w.left is not None and not w.closed]
        self.cluster.close_departed(at=self.now, grace=grace)
        for worker in leaving:
            if self.now - worker.left >= grace:
                self.close(worker)

    # -- what must hold ----------------------------------------------------------------------

    def expected(self, worker):
        """Thread-nanoseconds of a worker that should be accounted for now."""
        until = worker.covered if worker.left is None else max(worker.left, worker.covered)
        return worker.presence.nthreads * (until - worker.presence.joined)

    @invariant()
    def each_worker_is_accounted_for_from_joining_to_its_last_heartbeat_or_its_removal(self):
        for worker in self.ever:
            assert worker.presence.finalized_ns + worker.presence.running == self.expected(worker)
            assert worker.presence.running >= 0
        assert self.cluster.breakdown().total_ns == sum(map(self.expected, self.ever))
        assert bool(self.cluster.leaving) is any(w.left is not None and not w.closed for w in self.ever)

    @invariant()
    def the_activities_of_slots_add_up_too_without_running_tasks(self):
        for worker in self.ever:
            until = max(worker.left, worker.covered) if worker.closed else worker.covered
            did = worker.presence.nthreads * (until - worker.presence.joined)
            assert sum(worker.presence.part("activity").values()) == did
        found = self.cluster.part("activity")
        assert found.keys() == set(ACTIVITIES)
        of_all = sum((Counter(worker.presence.part("activity")) for worker in self.ever), Counter[str]())
        by_name = sum(map(Counter, self.cluster.part_by_worker("activity").values()), Counter[str]())
        assert of_all == by_name == +Counter(found)
        assert all(found[activity] >= ns for activity, ns in self.did.items())
        self.did = found

    @invariant()
    def no_total_shrinks(self):
        now = self.cluster.totals(at=self.now)
        assert all(now.finalized[bucket] >= ns for bucket, ns in self.before.finalized.items())
        assert now.without_work >= self.before.without_work
        self.before = now

    @invariant()
    def each_bucket_holds_the_last_figures_of_all_ledgers(self):
        recorded = sum(map(Counter, self.recorded.values()), Counter[str]())
        found = self.cluster.totals(at=self.now).finalized
        for bucket in {*FREE_BUCKETS, *TASK_BUCKETS} - {Bucket.IDLE}:
            assert found[bucket] == recorded[bucket]
        # Time of no ledger may have been without work, too.
        assert found["idle"] <= recorded["idle"] <= found["idle"] + found["no-work"]

    @invariant()
    def only_the_time_of_vanished_workers_is_lost(self):
        for worker in self.ever:
            lost = 0
            if worker.closed and worker.recorded is not None and not (worker.off or worker.closed_in_order):
                silence = max(worker.left - worker.covered, 0)
                lost = worker.presence.nthreads * silence + worker.running
            assert worker.presence.part("finalized").get("lost-worker", 0) == lost

    @invariant()
    def the_workers_add_up_to_the_cluster(self):
        workers = self.cluster.by_worker()
        assert combine(workers.values()) == self.cluster.breakdown()
        assert len(workers) <= MAX_NAMES + 1 + sum(not worker.closed for worker in self.ever)
        for worker in self.ever:
            if not worker.closed:
                whole = workers[worker.presence.name].total_ns
                assert whole == self.expected(worker)

    @invariant()
    def the_causes_of_idle_time_add_up_to_it(self):
        idle = self.cluster.totals(at=self.now)
        assert sum(causes_of(idle.causes, Bucket.IDLE).values()) == idle.finalized["idle"]
        assert (
            sum(causes_of(self.cluster.part("cause_activity"), Bucket.IDLE).values())
            == self.cluster.part("activity")["idle"]
        )
        workers = self.cluster.part_by_worker("causes")
        for name, row in self.cluster.by_worker().items():
            assert sum(causes_of(workers[name], Bucket.IDLE).values()) == row.ns("idle")

    @invariant()
    def the_prefixes_add_up_to_the_task_buckets(self):
        prefixes = self.cluster.by_prefix()
        assert len(prefixes) <= MAX_PREFIXES + 1
        whole = combine(prefixes.values())
        recorded = self.cluster.breakdown()
        assert all(whole.ns(bucket) == recorded.ns(bucket) for bucket in TASK_BUCKETS if bucket != "spill")
        # Free slots, which are no prefix's, wait for spilling too.
        assert whole.ns("spill") <= recorded.ns("spill")

    @invariant()
    def the_gain_since_the_last_look_adds_up(self):
        now = self.cluster.totals(at=self.now)
        for then in (self.first, self.then):
            gained = between(then, now)
            assert min(gained.values(), default=0) >= 0
            whole = sum(now.finalized.values()) + now.running
            assert sum(gained.values()) == whole - sum(then.finalized.values()) - then.running
        if self.now % 3 == 0:
            self.then = now


TestClusterMachine = ClusterMachine.TestCase
TestClusterMachine.settings = settings(max_examples=100, stateful_step_count=40)


class WildMachine(RuleBasedStateMachine):
    """Payloads that no worker sent, at instants that no clock shows: the totals only grow."""

    addresses = st.sampled_from(ADDRESSES)
    instants = st.integers(0, 100 * SECOND)

    @initialize()
    def begin(self):
        self.cluster = ClusterLedger(at=0, max_names=MAX_NAMES, max_prefixes=MAX_PREFIXES)
        self.before = self.cluster.totals(at=0)
        self.presences: list[Presence] = []
        self.did = self.cluster.part("activity")
        self.latest = 0

    def seen(self, at):
        self.latest = max(self.latest, at)
        return at

    @rule(address=addresses, name=st.sampled_from(["x", "y", DEPARTED, OTHER]), at=instants)
    def join(self, address, name, at):
        self.presences.append(self.cluster.worker_joined(address, name, 2, at=self.seen(at)))

    @rule(address=addresses, at=instants)
    def leave(self, address, at):
        self.cluster.worker_left(address, at=self.seen(at))

    @rule(address=addresses, snapshot=snapshots(nthreads=2), scale=st.sampled_from([1, 10, 10**3, 10**5]), at=instants)
    def receive(self, address, snapshot, scale, at):
        balance = snapshot.balance
        prefixes = {prefix: tuple(2 * (ns // scale) for ns in row) for prefix, row in balance.prefixes.items()}
        running = 2 * (balance.running // scale)
        tasks = [sum(row[i] for row in prefixes.values()) for i in range(len(TASK_BUCKETS))]
        finalized = {bucket: 2 * (balance.finalized[bucket] // scale) for bucket in FREE_BUCKETS}
        finalized.update(zip(map(str, TASK_BUCKETS), tasks, strict=True))
        elapsed, active = (sum(finalized.values()) + running) // 2, {"overhead": sum(tasks) + running}
        figures = {"finalized": finalized, "running": running, "elapsed": elapsed, "active": active}
        with contextlib.suppress(RefusedPayload):
            smaller = replace(snapshot, balance=replace(balance, prefixes=prefixes, **figures))
            self.cluster.receive(address, encode(smaller), at=self.seen(at))

    @rule(address=addresses, more=st.integers(0, 9 * SECOND), at=instants)
    def receive_more(self, address, more, at):
        """What a worker sent last, with some more of everything."""
        presence = self.cluster.present.get(address)
        if presence is None or presence.received is None:
            return
        last = presence.received.snapshot
        grown = Counter(last.balance.finalized) + Counter({"idle": more, "thread-cpu": more})
        active = Counter(last.balance.active) + Counter({"thread-cpu": more})
        prefixes = {"inc": (0,) * len(TASK_BUCKETS), **last.balance.prefixes}
        prefixes["inc"] = (prefixes["inc"][0] + more, *prefixes["inc"][1:])
        elapsed = last.balance.elapsed + more
        balance = replace(last.balance, finalized=grown, elapsed=elapsed, prefixes=prefixes, active=active)
        with contextlib.suppress(RefusedPayload):
            self.cluster.receive(address, encode(replace(last, seq=last.seq + 1, balance=balance)), at=self.seen(at))

    @rule(address=addresses, garbage=plain_data, at=instants)
    def receive_garbage(self, address, garbage, at):
        with contextlib.suppress(RefusedPayload):
            self.cluster.receive(address, garbage, at=self.seen(at))

    @rule(address=addresses, at=instants)
    def receive_off(self, address, at):
        self.cluster.receive(address, encode_not_measured("off"), at=self.seen(at))

    @rule(outstanding=st.booleans(), at=instants)
    def work(self, outstanding, at):
        self.cluster.work.set(outstanding, at=at)

    @rule(at=instants, grace=st.sampled_from([0, SECOND]))
    def poll(self, at, grace):
        self.cluster.accrue(at=self.seen(at))
        self.cluster.close_departed(at=at, grace=grace)
        self.cluster.remember(at=at)

    @invariant()
    def no_total_shrinks(self):
        now = self.cluster.totals(at=0)
        assert all(now.finalized[bucket] >= ns for bucket, ns in self.before.finalized.items())
        assert all(ns >= 0 for ns in now.finalized.values())
        assert now.running >= 0
        gained = between(self.before, now)
        assert min(gained.values(), default=0) >= 0
        self.before = now
        did = self.cluster.part("activity")
        assert all(did[activity] >= ns for activity, ns in self.did.items())
        self.did = did

    @invariant()
    def everything_adds_up(self):
        whole = self.cluster.breakdown()
        assert combine(self.cluster.by_worker().values()) == whole
        tasks = combine(self.cluster.by_prefix().values())
        assert all(tasks.ns(bucket) == whole.ns(bucket) for bucket in TASK_BUCKETS)

    @invariant()
    def no_worker_is_credited_with_more_than_clocks_that_run_apart_explain(self):
        for presence in self.presences:
            age = max(0, self.latest - presence.joined)
            # Once from joining to a first snapshot, and once for what that ledger claims itself.
            assert presence.finalized_ns + presence.running <= 2 * presence.nthreads * (age + SLACK_NS + age // 100)


TestWildMachine = WildMachine.TestCase
TestWildMachine.settings = settings(max_examples=100, stateful_step_count=30)


# -- worked by hand --------------------------------------------------------------------------------


def metered(ledger: Ledger, *, at: int, seq: int = 1, incarnation: str = "a", **rest: Any) -> dict[str, Any]:
    return encode(Snapshot(incarnation, seq, ledger.balance(at=at), **rest))


def cluster_with_worker(nthreads: int = 1, *, at: int = 0) -> tuple[ClusterLedger, Presence]:
    cluster = ClusterLedger(at=0)
    cluster.work.set(True, at=0)
    return cluster, cluster.worker_joined("tcp://a", "alice", nthreads, at=at)


def busy(nthreads: int, *, since: int) -> Ledger:
    """The accounts of a worker that holds one of its threads since an instant."""
    ledger = Ledger(nthreads, at=0)
    ledger.reserve("x", "inc", at=since)
    return ledger


def test_the_gap_of_a_restarted_meter_is_unmeasured_and_late_snapshots_of_the_former_are_stale():
    # One thread: idle to 10, held until the meter is lost at some time, metered anew from 35 on.
    cluster, presence = cluster_with_worker()
    first, second = busy(1, since=10), Ledger(1, at=35)
    cluster.receive("tcp://a", metered(first, at=20), at=20)
    assert presence.running == 10
    late = metered(first, at=25, seq=9)
    cluster.receive("tcp://a", metered(second, at=50, incarnation="b"), at=50)
    assert totals(cluster) == {"idle": 25, "unmeasured": 25}
    assert presence.running == 0
    cluster.receive("tcp://a", late, at=60)
    cluster.receive("tcp://a", metered(second, at=70, seq=2, incarnation="b"), at=70)
    assert totals(cluster) == {"idle": 45, "unmeasured": 25}
    assert cluster.stale == 1


def test_ever_new_ledgers_are_credited_no_more_than_the_time_there_was():
    cluster, _ = cluster_with_worker()
    cluster.receive("tcp://a", idle_payload(1, 100 * SECOND, incarnation="first"), at=100 * SECOND)
    for incarnation in "bcd":
        with pytest.raises(RefusedPayload, match=r"expected 94\.000 s less, for the rest is recorded already"):
            cluster.receive("tcp://a", idle_payload(1, 100 * SECOND, incarnation=incarnation), at=100 * SECOND)
    assert totals(cluster) == {"idle": 100 * SECOND}


@pytest.mark.parametrize(("in_order", "bucket"), [(False, "lost-worker"), (True, "retiring")])
def test_a_worker_without_a_final_snapshot_is_lost_unless_it_closed_in_order(in_order, bucket):
    # Two threads: one held from 10 on. Last snapshot at 30, removed at 50: 2 x 20 of silence, 20 that ran.
    cluster, presence = cluster_with_worker(2)
    cluster.receive("tcp://a", metered(busy(2, since=10), at=30), at=30)
    if in_order:
        cluster.worker_closing("tcp://a")
    cluster.worker_closing("tcp://somebody-else")
    assert cluster.closing == []
    cluster.worker_left("tcp://a", at=50)
    assert cluster.running == 60
    assert cluster.closing == [presence] * in_order
    cluster.close_departed(at=49 + GRACE_NS)
    assert cluster.leaving
    cluster.close_departed(at=50 + GRACE_NS)
    assert totals(cluster) == {"idle": 40, bucket: 60}
    assert (cluster.running, cluster.leaving, cluster.closing) == (0, [], [])


def test_workers_that_came_and_went_are_counted():
    cluster, _ = cluster_with_worker(2)
    cluster.worker_left("tcp://a", at=50)
    cluster.worker_joined("tcp://b", "bob", 1, at=60)
    cluster.close_departed(at=50 + GRACE_NS)
    assert cluster.attendance(start=0, stop=100) == {"workers": 2, "most_workers": 1, "most_threads": 2}
    assert cluster.attendance(start=55, stop=100) == {"workers": 1, "most_workers": 1, "most_threads": 1}


def test_a_worker_whose_ledger_began_before_it_was_asked_for_loses_all_its_silence():
    # Metered from 10 on, which is known at 40, when another one has answered; outstanding work from 20 on.
    cluster = ClusterLedger(at=0)
    cluster.work.set(True, at=20)
    presence = cluster.worker_joined("tcp://a", "alice", 2, at=40)
    cluster.receive("tcp://a", metered(Ledger(2, at=10), at=50), at=50)
    assert totals(cluster) == {"no-work": 20, "idle": 60}
    assert presence.joined == 10
    cluster.worker_left("tcp://a", at=55)
    cluster.close_departed(at=55 + GRACE_NS)
    assert totals(cluster) == {"no-work": 20, "idle": 60, "lost-worker": 10}
    # Metered from 10 on. The first snapshot is of 30 and comes at 45, the second of 50 comes at once; removed at 60.
    cluster = ClusterLedger(at=0)
    presence = cluster.worker_joined("tcp://a", "alice", 2, at=40)
    ledger = Ledger(2, at=10)
    ledger.reserve("x", "inc", at=20)
    cluster.receive("tcp://a", metered(ledger, at=30), at=45)
    assert presence.joined == 25
    cluster.receive("tcp://a", metered(ledger, at=50, seq=2), at=50)
    cluster.worker_left("tcp://a", at=60)
    assert presence.joined == 10
    cluster.close_departed(at=60 + GRACE_NS)
    assert totals(cluster)["lost-worker"] == 2 * 10 + 30
    assert cluster.by_prefix()["inc"].to_nanoseconds() == {"lost-worker": 30 + 10}


def test_a_final_snapshot_after_the_removal_settles_running_tasks_and_ends_the_presence():
    cluster, presence = cluster_with_worker()
    ledger = busy(1, since=0)
    cluster.receive("tcp://a", metered(ledger, at=10), at=10)
    ledger.finalize_all(Outcome.CANCELLED, at=20)
    cluster.worker_left("tcp://a", at=20)
    cluster.receive("tcp://a", metered(ledger, at=30, seq=2, final=True), at=30)  # its loop was blocked
    assert totals(cluster) == {"cancelled": 20, "idle": 10}
    assert (presence.left, cluster.leaving) == (30, [])
    # Silent since 10, removed at 40: 30 seem to run, until its final snapshot has 24 of them idle.
    cluster, _ = cluster_with_worker()
    ledger = Ledger(1, at=0)
    cluster.receive("tcp://a", metered(ledger, at=10), at=10)
    cluster.worker_left("tcp://a", at=40)
    then = cluster.totals(at=40)
    assert then.running == 30
    ledger.reserve("x", "inc", at=34)
    ledger.finalize_all(Outcome.CANCELLED, at=44)
    cluster.receive("tcp://a", metered(ledger, at=44, seq=2, final=True), at=44)
    gained = between(then, cluster.totals(at=44))
    # It was there for 4 longer than was known.
    assert sum(gained.values()) == 4
    assert min(gained.values()) >= 0


def test_a_worker_that_left_before_its_first_snapshot_is_unmeasured():
    cluster, _ = cluster_with_worker(3)
    cluster.worker_left("tcp://a", at=10)
    cluster.close_departed(at=10, grace=0)
    assert totals(cluster) == {"unmeasured": 30}
    assert cluster.reasons == {"alice": "it left before its first snapshot"}


def test_idle_time_is_split_by_outstanding_work_and_never_more_than_it_is():
    cluster, _ = cluster_with_worker(2)
    cluster.work.set(False, at=30)
    cluster.receive("tcp://a", idle_payload(2, 50), at=50)
    assert totals(cluster) == {"idle": 60, "no-work": 40}
    # Both threads were held until 40, and no work was outstanding from 10 on (a seceded task's, say).
    cluster, _ = cluster_with_worker(2)
    cluster.work.set(False, at=10)
    ledger = Ledger(2, at=0)
    for key in "xy":
        ledger.reserve(key, "inc", at=0)
    ledger.finalize_all(Outcome.SUCCEEDED, at=40)
    cluster.receive("tcp://a", metered(ledger, at=50), at=50)
    assert totals(cluster) == {"overhead": 80, "no-work": 20}


def test_an_older_instant_of_a_younger_snapshot_takes_no_time_back():
    # A heartbeat's age is a difference of wall clocks: the second seems to have come before the first.
    cluster = ClusterLedger(at=0)
    cluster.worker_joined("tcp://a", "alice", 1, at=0)
    ledger = Ledger(1, at=0)
    cluster.receive("tcp://a", metered(ledger, at=100), at=100)
    cluster.receive("tcp://a", metered(ledger, at=110, seq=2), at=60)
    assert totals(cluster) == {"no-work": 110}
    cluster.receive("tcp://a", metered(ledger, at=120, seq=3), at=120)
    assert totals(cluster) == {"no-work": 120}


def test_after_three_refusals_in_a_row_a_worker_is_not_measured():
    cluster, _ = cluster_with_worker()
    broken = idle_payload(1, 10, seq=2, running=1)
    for at in (1, 2, 11, 12, 13):
        if at == 11:
            cluster.receive("tcp://a", idle_payload(1, 10), at=10)
        with pytest.raises(RefusedPayload):
            cluster.receive("tcp://a", broken, at=at)
    assert cluster.refused == 5
    cluster.accrue(at=20)
    assert totals(cluster) == {"idle": 10, "unmeasured": 10}
    assert cluster.reasons["alice"].startswith("snapshots refused: the buckets hold 11 ns")
    # For good: later ones are not even read.
    cluster.receive("tcp://a", broken, at=21)
    assert cluster.stale == 1


def test_a_meter_that_is_off_is_unmeasured_from_its_last_snapshot_until_its_removal():
    cluster, presence = cluster_with_worker(2)
    cluster.receive("tcp://a", metered(busy(2, since=0), at=10), at=10)
    cluster.receive("tcp://a", encode_not_measured("it failed"), at=20)
    cluster.accrue(at=30)
    cluster.worker_left("tcp://a", at=40)
    # 10 of a free thread; what ran at 10 and everything after it.
    assert totals(cluster) == {"idle": 10, "unmeasured": 70}
    assert cluster.reasons == {"alice": "it failed"}
    assert presence.running == 0
    cluster, presence = cluster_with_worker()
    cluster.receive("tcp://a", idle_payload(1, 10), at=10)
    cluster.worker_left("tcp://a", at=20)
    cluster.switch_off(presence, "broken", at=500)
    cluster.close_departed(at=500, grace=0)
    assert totals(cluster) == {"idle": 10, "unmeasured": 10}
    # Known from 10 on, and metered from 0 on, as the second snapshot shows, which travelled quicker than the first.
    cluster, presence = cluster_with_worker(2, at=10)
    for seq, (taken, arrived) in enumerate([(20, 30), (40, 40)]):
        cluster.receive("tcp://a", metered(Ledger(2, at=0), at=taken, seq=seq), at=arrived)
    cluster.receive("tcp://a", encode_not_measured("it failed"), at=50)
    cluster.accrue(at=60)
    assert totals(cluster) == {"idle": 80, "unmeasured": 40}
    # Neither has sent a snapshot, so neither has a ledger that could tell them apart.
    cluster, first = cluster_with_worker()
    second = cluster.worker_joined("tcp://a", "bob", 1, at=20)
    cluster.receive("tcp://a", encode_not_measured("broken"), at=25)
    assert (first.off, second.off) == (False, True)
    assert cluster.reasons == {"bob": "broken"}


def test_memory_that_is_not_measured_any_more_is_unknown_and_answers_leave_it():
    cluster, presence = cluster_with_worker()
    levels = encode_levels(MemoryLevels(7, 7, 0, 0, 0, number=1), [7])
    for seq, (said, known) in enumerate([({LEVELS: levels}, True), ({}, True), ({LEVELS: None}, False)], 1):
        cluster.receive("tcp://a", idle_payload(1, 10 * seq, seq=seq) | said, at=10 * seq)
        assert (presence.memory is not None) is known


def test_a_worker_that_is_not_measured_counts_up_to_the_largest_number():
    day = 86_400 * SECOND
    cluster, presence = cluster_with_worker(10_000)
    cluster.switch_off(presence, "broken", at=0)
    for days in (1, 5, 30, 3_000):
        cluster.accrue(at=days * day)
    assert totals(cluster) == {"unmeasured": 10_000 * 5 * day}
    cluster.worker_left("tcp://a", at=4_000 * day)
    assert totals(cluster) == {"unmeasured": 10_000 * 5 * day}


def test_a_worker_that_was_turned_away_is_named_while_it_is_there():
    cluster = ClusterLedger(at=0)
    cluster.turn_away("tcp://a", "alice", "nthreads is 0")
    assert (cluster.not_measured, cluster.nthreads, totals(cluster)) == ({"alice": "nthreads is 0"}, 0, {})
    cluster.worker_left("tcp://a", at=10)
    assert (cluster.not_measured, list(cluster.losses)) == ({}, [])


@pytest.mark.parametrize(("silent", "seconds"), [({}, 30), ({"silent": 60 * SECOND}, 60)])
def test_a_silent_worker_is_given_up_on_after_a_while_that_grows_with_the_heartbeats(silent, seconds):
    cluster, presence = cluster_with_worker()
    cluster.accrue(at=seconds * SECOND, **silent)
    assert totals(cluster) == {}
    cluster.accrue(at=seconds * SECOND + 1, **silent)
    assert totals(cluster) == {"unmeasured": seconds * SECOND + 1}
    assert presence.reason == f"no snapshot in {seconds} s"


ROW = (0, 0, 0, 0, 0, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"elapsed": 9, "finalized": {"overhead": 1, "paused": 1, "idle": 16}}, "elapsed shrank from 10 to 9 ns$"),
        ({"finalized": {"overhead": 1, "idle": 39}}, r"finalized\['paused'\] shrank from 1 to 0"),
        ({"finalized": {"overhead": 1, "paused": 1, "idle": 17}, "running": 21}, r"finalized\['idle'\] shrank"),
        ({"tasks": {}}, r"tasks\['succeeded'\] shrank"),
        ({"active": {"spill": 1}}, r"activity\['overhead'\] shrank"),
        ({"prefixes": {"sum": ROW}}, r"prefixes\['inc'\] shrank"),
        ({"prefixes": {"sum": ROW, "inc": (0,) * 9}}, r"prefixes\['inc'\] shrank"),
        ({"nthreads": 4, "elapsed": 10}, "nthreads is 4; expected 2"),
    ],
)
def test_a_total_that_shrinks_is_refused_by_name(changes, message):
    cluster, _ = cluster_with_worker(2)
    first = {
        "finalized": {"overhead": 1, "paused": 1, "idle": 18},
        "prefixes": {"inc": ROW},
        "tasks": {"succeeded": 1},
        "active": {"overhead": 1},
    }
    cluster.receive("tcp://a", idle_payload(2, 10, **first), at=10)
    later = {**first, "seq": 2, "elapsed": 20, "finalized": {"overhead": 1, "paused": 1, "idle": 38}}
    later |= {"active": {"overhead": 1 + changes.get("running", 0)}, **changes}
    with pytest.raises(RefusedPayload, match=message):
        cluster.receive("tcp://a", idle_payload(later.pop("nthreads", 2), later.pop("elapsed"), **later), at=20)
    assert totals(cluster) == {"overhead": 1, "paused": 1, "idle": 18}


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (None, "gpu is missing; expected GPU accounts, as before"),
        (watched(29, 90), r"gpu\.kernel_ns shrank from 30 to 29"),
        (watched(30, 9), r"gpu\.devices\['GPU-0'\]\.idle shrank from 10 to 9"),
        (watched(30, 10, "GPU-1"), r"gpu\.devices\['GPU-0'\]\.kernels shrank from 30 to 0"),
    ],
)
def test_gpu_time_that_shrinks_is_refused_by_name(later, message):
    cluster, _ = cluster_with_worker()
    ledger = Ledger(1, at=0)
    cluster.receive("tcp://a", metered(ledger, at=10, gpu=watched(30, 10)), at=10)
    with pytest.raises(RefusedPayload, match=message):
        cluster.receive("tcp://a", metered(ledger, at=20, seq=2, gpu=later), at=20)
    assert cluster.gpu_by_worker() == {"alice": watched(30, 10)}


def test_gpu_time_is_kept_by_worker_name_over_all_its_ledgers():
    cluster, _ = cluster_with_worker()
    ledger = Ledger(1, at=0)
    cluster.receive("tcp://a", metered(ledger, at=10, gpu=watched(30, 10)), at=10)
    cluster.receive("tcp://a", metered(ledger, at=20, seq=2, gpu=watched(35, 15)), at=20)
    cluster.receive("tcp://a", metered(Ledger(1, at=20), at=30, incarnation="b", gpu=watched(5, 5)), at=30)
    assert cluster.gpu_by_worker() == {"alice": watched(40, 20)}
    assert cluster.gpu_workers() == {"GPU-0": 1}
    cluster.worker_left("tcp://a", at=40)
    assert cluster.gpu_workers() == {}
    cluster.close_departed(at=40, grace=0)
    assert cluster.gpu_by_worker() == {"alice": watched(40, 20)}


def test_departed_names_beyond_the_limit_are_one_and_keep_their_time_and_their_gpus():
    cluster = ClusterLedger(at=0, max_names=2)
    cluster.work.set(True, at=0)
    for i in range(5):
        cluster.worker_joined("tcp://a", f"worker-{i}", 1, at=10 * i)
        gpu = watched(10 + i, 5)
        cluster.receive("tcp://a", idle_payload(1, 10, incarnation=str(i), final=True, gpu=gpu), at=10 * i + 10)
        cluster.worker_left("tcp://a", at=10 * i + 10)
    workers, gpus = cluster.by_worker(), cluster.gpu_by_worker()
    assert len(workers) <= 3
    assert workers[DEPARTED].ns("idle") == 50 - sum(row.ns("idle") for name, row in workers.items() if name != DEPARTED)
    assert totals(cluster) == {"idle": 50}
    assert DEPARTED in gpus
    assert sum(device.kernels for gpu in gpus.values() for device in gpu.devices) == 60


def test_a_worker_cannot_be_older_than_its_presence_and_some_slack():
    cluster, _ = cluster_with_worker()
    most = 10 * SECOND + SLACK_NS + 10 * SECOND // 100
    with pytest.raises(RefusedPayload, match="expected at most the 10.000 s since it joined"):
        cluster.receive("tcp://a", idle_payload(1, most + 1), at=10 * SECOND)
    cluster.receive("tcp://a", idle_payload(1, most), at=10 * SECOND)
    assert totals(cluster) == {"idle": most}


@pytest.mark.parametrize(("asked", "taken"), [(0, True), (None, False)])
def test_a_worker_that_was_there_first_counts_from_the_question_however_late_others_answer(asked, taken):
    cluster = ClusterLedger(at=0)
    cluster.work.set(True, at=0)
    presence = cluster.worker_joined("tcp://a", "alice", 2, at=40 * SECOND, asked=asked)
    quick = metered(Ledger(2, at=1 * SECOND), at=41 * SECOND)
    if not taken:
        with pytest.raises(RefusedPayload, match="expected at most the 1.000 s since it joined"):
            cluster.receive("tcp://a", quick, at=41 * SECOND)
        return
    cluster.receive("tcp://a", quick, at=41 * SECOND)
    assert presence.joined == 1 * SECOND
    assert totals(cluster) == {"idle": 80 * SECOND}
    # From then on it is as old as its ledger.
    with pytest.raises(RefusedPayload, match="since it joined"):
        cluster.receive("tcp://a", metered(Ledger(2, at=-20 * SECOND), at=42 * SECOND, seq=2), at=42 * SECOND)


def test_a_slow_first_snapshot_is_made_up_for_by_quicker_ones_but_by_no_more_than_its_gap():
    # Taken at 10, arrived at 15; and the second one was there at once.
    cluster, _ = cluster_with_worker(2)
    ledger = Ledger(2, at=4)
    cluster.receive("tcp://a", metered(ledger, at=10), at=15)
    assert totals(cluster) == {"unmeasured": 18, "idle": 12}
    cluster.receive("tcp://a", metered(ledger, at=40, seq=2), at=40)
    assert totals(cluster) == {"unmeasured": 18, "idle": 62}
    # Metered from 0 on, and known to be there from 10 on; on their way for 30, 10 and 0.
    cluster, _ = cluster_with_worker(2, at=10)
    ledger = Ledger(2, at=0)
    for seq, (taken, arrived) in enumerate([(20, 50), (100, 110), (200, 200), (300, 300)]):
        cluster.receive("tcp://a", metered(ledger, at=taken, seq=seq), at=arrived)
    # As long as it was metered: 20 unmeasured each, and as much left out.
    assert totals(cluster) == {"unmeasured": 40, "idle": 560}


@pytest.mark.parametrize("ended", ["killed", "its meter fails", "its meter restarts"])
def test_a_slow_first_snapshot_leaves_no_total_behind_another_however_its_worker_ends(ended):
    # Busy throughout, so that nothing can be left out; the first snapshot travelled for 5, the second one not at all.
    cluster, _ = cluster_with_worker()
    ledger = busy(1, since=0)
    cluster.receive("tcp://a", metered(ledger, at=10), at=15)
    cluster.receive("tcp://a", metered(ledger, at=40, seq=2), at=40)
    assert cluster.breakdown().total_ns == sum(cluster.part("activity").values()) == 45
    if ended == "its meter restarts":
        cluster.receive("tcp://a", metered(busy(1, since=0), at=1, incarnation="b"), at=43)
    elif ended == "its meter fails":
        cluster.receive("tcp://a", encode_not_measured("it failed"), at=42)
    cluster.worker_left("tcp://a", at=44)
    assert cluster.breakdown().total_ns >= 45
    cluster.close_departed(at=44, grace=0)
    assert not cluster.leaving
    assert (
        cluster.breakdown().total_ns == sum(cluster.part("activity").values()) == cluster.by_worker()["alice"].total_ns
    )


def test_the_time_of_a_prefix_is_that_of_all_workers_and_ledgers_together():
    cluster, _ = cluster_with_worker()
    cluster.worker_joined("tcp://b", "bob", 1, at=0)
    ledgers = {"tcp://a": Ledger(1, at=0), "tcp://b": Ledger(1, at=0)}
    for at in (10, 20, 30):
        for address, ledger in ledgers.items():
            ledger.reserve(at, "inc", at=at - 4)
            ledger.finalize_all(Outcome.SUCCEEDED, at=at)
            cluster.receive(address, metered(ledger, at=at, seq=at, incarnation=address), at=at)
    again = Ledger(1, at=30)
    again.reserve("x", "inc", at=30)
    again.finalize_all(Outcome.FAILED, at=31)
    cluster.receive("tcp://a", metered(again, at=40, incarnation="again"), at=40)
    assert {p: row.to_nanoseconds() for p, row in cluster.by_prefix().items()} == {"inc": {"overhead": 24, "failed": 1}}
    assert cluster.tasks == {"succeeded": 6, "failed": 1}


def waits(cpu: int, wall: int, *, at: int, gil: int, **rest: Any) -> dict[str, Any]:
    """A worker of one thread whose one task ended at ``at``, and waited for the GIL so long and else for a lock."""
    ledger = busy(1, since=0)
    ledger.finalize(ledger.release("x", at=at), Outcome.SUCCEEDED, cpu=cpu, wall=wall)
    active = {"thread-noncpu/gil": gil, "thread-noncpu/lock": wall - cpu - gil}
    causes = SnapshotCauses({**active, "overhead/event-loop": at - wall}, active)
    return metered(ledger, at=at, causes=causes, **rest)


def test_causes_are_kept_by_worker_over_lost_heartbeats_and_former_ledgers():
    cluster, _ = cluster_with_worker()
    cluster.receive("tcp://a", waits(10, 30, at=40, gil=15), at=40)
    cluster.receive("tcp://a", waits(10, 90, at=100, gil=45, seq=3), at=100)
    cluster.receive("tcp://a", waits(10, 60, at=70, gil=15, seq=2), at=101)
    waited = {"thread-noncpu/gil": 45, "thread-noncpu/lock": 35}
    assert cluster.part_by_worker("causes") == {"alice": {**waited, "overhead/event-loop": 10}}
    assert held(cluster.part("cause_activity")) == waited
    assert cluster.part_by_worker("cause_activity") == {"alice": waited}
    assert cluster.totals(at=101).causes == {**dict.fromkeys(CAUSE_NAMES, 0), **waited, "overhead/event-loop": 10}
    cluster.receive("tcp://a", waits(10, 40, at=40, gil=20, incarnation="again"), at=150)
    again = {"thread-noncpu/gil": 65, "thread-noncpu/lock": 45}
    assert cluster.part_by_worker("causes") == {"alice": {**again, "overhead/event-loop": 10}}


def test_the_reason_why_a_worker_is_not_sampled_lasts_until_it_is():
    cluster, _ = cluster_with_worker()
    ledger = Ledger(1, at=0)
    cluster.receive("tcp://a", metered(ledger, at=5, causes=SnapshotCauses(not_sampled="no /proc")), at=5)
    assert cluster.not_sampled == {"alice": "no /proc"}
    cluster.receive("tcp://a", metered(ledger, at=9, seq=2), at=9)
    assert cluster.not_sampled == {}


def test_named_sums_of_many_workers_stay_as_large_as_may_travel():
    cluster, _ = cluster_with_worker()
    for incarnation in "abcde":
        details = {"in task: read": MAX_NANOSECONDS, "in task: io": 3}
        cluster.receive("tcp://a", metered(Ledger(1, at=0), at=5, incarnation=incarnation, details=details), at=5)
    assert cluster.extra("details") == {"in task: read": MAX_NANOSECONDS, "in task: io": 15}


def test_a_departed_name_is_recent_for_a_minute_and_goes_on_when_it_is_used_again():
    cluster, _ = cluster_with_worker()
    cluster.receive("tcp://a", idle_payload(1, 10, final=True), at=10)
    assert cluster.recent_names(at=10**15) == {"alice"}
    cluster.worker_left("tcp://a", at=10)
    assert cluster.recent_names(at=9 + RECENT_NS) == {"alice"}
    assert cluster.recent_names(at=10 + RECENT_NS) == set()
    cluster.worker_joined("tcp://b", "alice", 1, at=20)
    cluster.receive("tcp://b", idle_payload(1, 5, incarnation="b"), at=25)
    assert cluster.by_worker()["alice"].ns("idle") == 15


def test_numbers_outside_the_accounts_grow_and_their_names_are_bounded():
    cluster, _ = cluster_with_worker()
    many = {f"label-{i}": 1 for i in range(MAX_ACTIVITIES + 5)}
    cluster.receive("tcp://a", idle_payload(1, 10, outside={"get-data": 5}, details=many), at=10)
    details = cluster.extra("details")
    assert (len(details), details[OTHER]) == (MAX_ACTIVITIES + 1, 5)
    # A new ledger begins again at nothing; its activities are added.
    cluster.receive("tcp://a", idle_payload(1, 5, incarnation="b", outside={"get-data": 2}), at=20)
    assert cluster.extra("outside") == {"get-data": 7}


def test_a_task_shows_in_the_activity_before_it_settles_and_its_outcome_takes_nothing_back():
    cluster, _ = cluster_with_worker()
    ledger = busy(1, since=5)
    balance = ledger.balance(at=25, used={"x": Used(4, 15, 3)})
    cluster.receive("tcp://a", encode(Snapshot("a", 1, balance)), at=25)
    did = {"idle": 5, "thread-cpu": 4, "gpu": 3, "thread-noncpu": 8, "overhead": 5}
    assert held(cluster.part("activity")) == did
    assert cluster.part_by_worker("activity") == {"alice": did}
    ledger.finalize_all(Outcome.FAILED, at=25)
    cluster.receive("tcp://a", metered(ledger, at=25, seq=2), at=25)
    assert held(cluster.part("activity")) == did
    assert totals(cluster) == {"idle": 5, "failed": 20}


def test_the_history_is_bounded_and_finished_tasks_beyond_a_snapshot_are_unreported():
    cluster = ClusterLedger(at=0, history=3)
    for at in range(10):
        cluster.remember(at=at)
    assert [totals.at for totals in cluster.history] == [7, 8, 9]
    cluster, presence = cluster_with_worker(2)
    cluster.receive("tcp://a", idle_payload(2, 10, tasks={"succeeded": 2, "recomputed": 1, "failed": 1}), at=10)
    for finished, unreported in ((5, 2), (2, 0)):
        presence.finished = finished
        assert presence.unreported == unreported


def test_unmeasured_time_without_work_is_no_loss():
    # Metered after 40 ms, of which 30 ms had no work; then another that never is, for 30 ms with and 20 without work.
    cluster = ClusterLedger(at=0)
    cluster.worker_joined("tcp://a", "alice", 2, at=0)
    cluster.work.set(True, at=30)
    ledger = Ledger(2, at=40)
    cluster.receive("tcp://a", metered(ledger, at=50, seq=0), at=50)
    assert totals(cluster) == {"no-work": 60, "unmeasured": 20, "idle": 20}
    other = cluster.worker_joined("tcp://b", "bob", 1, at=50)
    cluster.switch_off(other, "it has another version", at=60)
    cluster.work.set(False, at=80)
    for at in (70, 90, 100):
        cluster.accrue(at=at)
    assert cluster.part_by_worker("finalized")["bob"] == {"unmeasured": 30, "no-work": 20}
    assert cluster.part_by_worker("activity")["bob"] == {"unmeasured": 30, "no-work": 20}


def test_a_worker_that_was_there_first_is_not_idle_because_its_first_snapshot_came_slowly():
    # There before the accounts, and metered from their beginning; ways of 400 and 0 ms, and never any work.
    cluster, ms = ClusterLedger(at=0), 1_000_000
    cluster.worker_joined("tcp://a", "alice", 2, at=600 * ms, asked=0)
    ledger = Ledger(2, at=0)
    for seq, (taken, way) in enumerate([(500, 400), (1000, 0)]):
        cluster.receive("tcp://a", metered(ledger, at=taken * ms, seq=seq), at=(taken + way) * ms)
    assert totals(cluster) == {"no-work": 2000 * ms}
    # Metered for 300 ms before the accounts, which begin then.
    cluster = ClusterLedger(at=300 * ms)
    cluster.worker_joined("tcp://a", "alice", 2, at=600 * ms, asked=0)
    cluster.receive("tcp://a", metered(Ledger(2, at=0), at=900 * ms), at=900 * ms)
    assert totals(cluster) == {"no-work": 1200 * ms}
    # Known 600 ms after the accounts began, and metered at 500: its first snapshot says at 900, and the next one 500.
    cluster = ClusterLedger(at=0)
    cluster.worker_joined("tcp://a", "alice", 2, at=600 * ms, asked=0)
    ledger = Ledger(2, at=500 * ms)
    for seq, (taken, way) in enumerate([(700, 400), (1500, 0)]):
        cluster.receive("tcp://a", metered(ledger, at=taken * ms, seq=seq), at=(taken + way) * ms)
    assert totals(cluster) == {"no-work": 2000 * ms}


@given(st.lists(st.integers(0, 400), min_size=2, max_size=20))
def test_where_there_never_was_any_work_no_thread_was_idle_however_late_snapshots_come(ways):
    cluster, ms = ClusterLedger(at=0), 1_000_000
    cluster.worker_joined("tcp://a", "alice", 2, at=0)
    ledger = Ledger(2, at=0)
    for seq, way in enumerate(ways):
        cluster.receive("tcp://a", metered(ledger, at=500 * (seq + 1) * ms, seq=seq), at=(500 * (seq + 1) + way) * ms)
    assert totals(cluster).keys() == {"no-work"}


def test_a_slow_snapshot_makes_no_idle_time_of_time_without_work():
    # Ways of 1, 400 and 1 ms; no work at all for 2 s, then work.
    cluster = ClusterLedger(at=0)
    cluster.worker_joined("tcp://a", "alice", 1, at=0)
    ledger, ms = Ledger(1, at=0), 1_000_000
    for seq, (taken, way) in enumerate([(500, 1), (1000, 400), (1500, 1), (2000, 1)]):
        cluster.receive("tcp://a", metered(ledger, at=taken * ms, seq=seq), at=(taken + way) * ms)
    cluster.work.set(True, at=2000 * ms)
    cluster.receive("tcp://a", metered(ledger, at=2500 * ms, seq=9), at=2900 * ms)
    found = totals(cluster)
    assert sum(found.values()) == 2501 * ms
    assert 1998 * ms <= found["no-work"] <= 2001 * ms
    assert 498 * ms <= found["idle"] <= 503 * ms
