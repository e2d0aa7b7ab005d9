from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import combine
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster import closed_window
from dask_efficiency.accounts.cluster import windows as module
from dask_efficiency.accounts.cluster.closed_window import ClosedWindow, of_spans
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.idle import MAX_TURNS as MAX_INTERVALS
from dask_efficiency.accounts.cluster.idle import ClusterState, WorkerSlots
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.windows import ActiveIntervals, ClusterWindow
from dask_efficiency.accounts.details import SampleRow, WindowDetails
from dask_efficiency.accounts.facts import FactsBuilder, check_views
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.processors import Processors, ProcessorTime
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot
from dask_efficiency.accounts.worker.answer import WindowAnswer, answer_of
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Availability, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from tests.payloads import watched
from tests.strategies import idle_payload

OPENED, CLOSED = 1_000, 2_000


@dataclass(eq=False)
class SimulatedWorker:
    """A worker with a real ledger, whose clock is the scheduler's; the cluster hears of it at once."""

    cluster: ClusterLedger
    address: str
    nthreads: int
    joined: int = 0
    incarnation: str = "a"
    seq: int = 0
    presence: Presence = field(init=False)
    ledger: Ledger = field(init=False)
    gpu: GpuTotals | None = None
    window: ClusterWindow | None = None  # in which it joins

    def __post_init__(self) -> None:
        self.presence = self.cluster.worker_joined(self.address, f"name-{self.address}", self.nthreads, at=self.joined)
        self.ledger = Ledger(self.nthreads, at=self.joined)
        if self.window is not None:
            self.window.worker_joined(self.presence)
            self.ledger.open_window("w", at=self.joined)

    def heartbeat(self, at: int, *, final: bool = False, arrives: int | None = None) -> None:
        self.seq += 1
        balance = self.ledger.balance(at=at)
        snapshot = Snapshot(self.incarnation + self.address, self.seq, balance, final=final, gpu=self.gpu)
        self.cluster.receive(self.address, encode(snapshot), at=at if arrives is None else arrives)

    def restart(self, at: int) -> None:
        self.incarnation += "a"
        self.ledger = Ledger(self.nthreads, at=at)

    def open(self, at: int) -> None:
        self.heartbeat(at)
        self.ledger.open_window("w", at=at)

    def answer(self, at: int, **more: Any) -> WindowAnswer:
        """Its answer, with causes and so on as of :func:`answer_of`."""
        self.heartbeat(at)
        window = self.ledger.close_window("w", at=at)
        assert window is not None
        return answer_of(window, **more)

    def close(self, window: ClusterWindow, at: int) -> None:
        """It closes, with a final balance."""
        self.heartbeat(at, final=True)
        balance = self.ledger.close_window("w", at=at)
        assert balance is not None
        window.worker_closed(self.presence, answer_of(balance), at=at)

    def work(
        self, start: int, stop: int, prefix: str = "inc", outcome: Outcome = Outcome.SUCCEEDED, **used: int
    ) -> None:
        """A task that takes all its time as CPU, if it used nothing else."""
        self.ledger.reserve(start, prefix, "span", at=start)
        used = used or {"cpu": stop - start, "wall": stop - start}
        self.ledger.finalize(self.ledger.release(start, at=stop), outcome, **used)


def new_cluster(*, outstanding: bool = True) -> ClusterLedger:
    cluster = ClusterLedger(at=0)
    cluster.work.set(outstanding, at=0)
    return cluster


def alone(nthreads: int, *, outstanding: bool = True) -> tuple[ClusterLedger, SimulatedWorker]:
    cluster = new_cluster(outstanding=outstanding)
    return cluster, SimulatedWorker(cluster, "a", nthreads)


def opened(nthreads: int) -> tuple[ClusterLedger, SimulatedWorker, ClusterWindow]:
    """A window of a cluster of one worker, with work outstanding."""
    cluster, worker = alone(nthreads)
    return cluster, worker, window_of(worker)


def window_of(*workers: SimulatedWorker) -> ClusterWindow:
    """A window that opens on these workers."""
    for worker in workers:
        worker.open(OPENED)
    return ClusterWindow(workers[0].cluster, at=OPENED)


def lost(cluster: ClusterLedger, address: str, *, at: int) -> None:
    """A worker leaves without a final heartbeat, and the scheduler gives it up."""
    cluster.worker_left(address, at=at)
    cluster.close_departed(at=at, grace=0)


class Accounts:
    """A closed window, with views of its facts in nanoseconds."""

    def __init__(self, closed: ClosedWindow) -> None:
        self._closed = closed
        self.table = closed.facts.build()
        self.workers, self.prefixes, self.spans = (
            {name: row.to_nanoseconds() for name, row in rows.items()}
            for rows in (self.table.by_worker, self.table.by_prefix, self.table.by_span)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._closed, name)


def closed(window: ClusterWindow, answers: Mapping[str, WindowAnswer | str], *, at: int = CLOSED) -> Accounts:
    """The accounts of a window that ends, with these answers."""
    closing = window.stop(at=at)
    for address, answer in answers.items():
        closing.take(address, answer, at=at)
    return Accounts(closing.close())


def held(accounts: Accounts, worker: SimulatedWorker) -> dict[str, int]:
    """A worker's buckets that hold time."""
    return {bucket: ns for bucket, ns in accounts.workers[worker.presence.name].items() if ns}


def test_a_worker_that_answers_counts_from_edge_to_edge():
    _, worker = alone(2)
    worker.ledger.reserve("before", "sum", "span", at=400)
    window = window_of(worker)
    hold = worker.ledger.release("before", at=1_200)
    # 800 held, 200 of them inside: 100 of its 400 CPU.
    worker.ledger.finalize(hold, Outcome.SUCCEEDED, cpu=400, wall=800)
    worker.ledger.reserve("after", "mul", "other", at=1_900)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"thread-cpu": 100, "thread-noncpu": 100, "running": 100, "idle": 1_700}
    assert accounts.prefixes == {"sum": {"thread-cpu": 100, "thread-noncpu": 100}, "mul": {"running": 100}}
    assert accounts.spans == {"span": {"thread-cpu": 100, "thread-noncpu": 100}, "other": {"running": 100}}
    assert (accounts.elapsed, accounts.outstanding) == (1_000, 1_000)
    assert (accounts.tasks, accounts.nthreads) == ({"succeeded": 1}, {"name-a": 2})
    assert (accounts.notes, accounts.not_measured) == ([], {})


def test_a_window_has_the_causes_of_its_own_time():
    _, worker, window = opened(2)
    worker.work(OPENED, OPENED + 200, "sum", cpu=50, wall=150)
    details = WindowDetails(profile={SampleRow("thread-noncpu", "gil", "sum", ()): 60})
    causes = {("span", "sum"): {"gil": 70, "lock": 30}}
    answer = worker.answer(CLOSED, causes=causes, overhead={"hand-over": 20}, details=details)
    accounts = closed(window, {"a": answer})
    waited = {"thread-noncpu/gil": 70, "thread-noncpu/lock": 30}
    idle = accounts.workers["name-a"]["idle"]
    assert accounts.table.causes_by_worker == {
        # Nobody looked at the scheduler, and of 50 of overhead the clocks explain 20.
        "name-a": {**waited, "overhead/hand-over": 20, "overhead/unknown": 30, "idle/unknown": idle}
    }
    assert accounts.table.causes_by_prefix == {"sum": waited}
    assert accounts.table.causes_by_span == {"span": waited}
    assert accounts.profiles.profile == details.profile


@pytest.mark.parametrize(
    ("sampled", "expected"),
    [
        ({"gil": 15, "unknown": 5}, {"thread-noncpu/gil": 60, "thread-noncpu/unknown": 20}),
        ({"gil": 15, "unknown": 4}, {"thread-noncpu/unknown": 80}),  # less than a quarter of 80
    ],
)
def test_waiting_without_a_sample_is_divided_as_on_other_workers_if_they_sampled_enough(sampled, expected):
    cluster = new_cluster()
    workers = {address: SimulatedWorker(cluster, address, 1) for address in "ab"}
    for worker in workers.values():
        worker.open(OPENED)
    window, answers = ClusterWindow(cluster, at=OPENED, is_own="span".__eq__), {}
    for address, causes in {"a": {"unknown": 80}, "b": sampled}.items():
        waited = sum(causes.values())
        workers[address].work(OPENED, OPENED + waited, "sum", wall=waited)
        answers[address] = workers[address].answer(CLOSED, causes={("span", "sum"): causes})
    accounts = closed(window, answers)
    own = of_spans(accounts.table, {"span"})
    assert own.causes_by_worker["name-a"] == expected
    assert own.causes_by_worker["name-b"] == {f"thread-noncpu/{cause}": ns for cause, ns in sampled.items()}
    for name, row in own.causes_by_worker.items():
        assert accounts.table.causes_by_worker[name] == {**row, "idle/unknown": accounts.workers[name]["idle"]}
    both = Counter(own.causes_by_worker["name-a"]) + Counter(own.causes_by_worker["name-b"])
    assert (
        accounts.table.causes_by_prefix["sum"]
        == accounts.table.causes_by_span["span"]
        == own.causes_by_prefix["sum"]
        == both
    )


def test_beyond_a_bound_of_rows_workers_prefixes_and_spans_have_their_time_and_causes(monkeypatch):
    cluster = new_cluster()
    workers = {address: SimulatedWorker(cluster, address, 2) for address in "abc"}
    window, answers = window_of(*workers.values()), {}
    of_each = {"a": ("span", {"unknown": 80}), "b": ("span", {"gil": 60, "lock": 20}), "c": ("other", {"unknown": 300})}
    for address, (span, causes) in of_each.items():
        waited = sum(causes.values())
        worker = workers[address]
        worker.ledger.reserve(1, "sum" if span == "span" else "mul", span, at=OPENED)
        hold = worker.ledger.release(1, at=OPENED + waited + 9)
        worker.ledger.finalize(hold, Outcome.SUCCEEDED, cpu=9, wall=waited + 9)
        key = (span, "sum" if span == "span" else "mul")
        answers[address] = worker.answer(CLOSED, causes={key: causes}, overhead={"hand-over": 2})
    found = []
    for most, new_rows in ((closed_window.MAX_FACTS, 0), (0, closed_window.MAX_NEW_ROWS), (0, 0)):
        monkeypatch.setattr(module, "MAX_FACTS", most)
        monkeypatch.setattr(closed_window, "MAX_NEW_ROWS", new_rows)
        table = closed(window, answers).table
        found.append((table, of_spans(table, {"span"})))
    (whole, own), *bounded = found
    assert whole.causes_by_worker["name-a"]["thread-noncpu/gil"] == 60
    for table, of_table in bounded:
        for view in ("by_worker", "by_span", "causes_by_worker", "causes_by_span"):
            assert getattr(table, view) == getattr(whole, view)
        assert of_table.by_span == own.by_span
        for each in (table, of_table):
            check_views(each)
    monkeypatch.setattr(closed_window, "MAX_FACTS", 2)
    table = closed(window, answers).table
    assert (table.whole, table.by_worker) == (whole.whole, whole.by_worker)
    assert {"(other)"} < table.by_prefix.keys()
    assert combine(table.by_prefix.values()) == combine(whole.by_prefix.values())
    check_views(table)


def test_free_slots_in_whose_place_libraries_computed_are_not_idle():
    _, worker, window = opened(2)
    worker.work(OPENED, OPENED + 600)
    worker.heartbeat(CLOSED)
    balance = worker.ledger.close_window("w", at=CLOSED)
    for beside, filled in ((500, 500), (5_000, 1_400)):
        answer = answer_of(balance, beside_free_slots={("span", "inc"): beside})
        accounts = closed(window, {"a": answer})
        rest = {"idle": 1_400 - filled} if filled < 1_400 else {}
        assert held(accounts, worker) == {"thread-cpu": 600, "library-threads": filled} | rest
        assert accounts.prefixes == {"inc": {"thread-cpu": 600, "library-threads": filled}}
        assert accounts.spans == {"span": {"thread-cpu": 600, "library-threads": filled}}


def test_the_length_of_the_window_is_the_worker_s_own():
    # It took the request 100 to arrive and the answer 50 to return, while the client waited.
    cluster, worker = alone(1, outstanding=False)
    window = ClusterWindow(cluster, at=OPENED)
    worker.open(1_100)
    cluster.work.set(True, at=1_200)
    cluster.work.set(False, at=1_900)
    accounts = closed(window, {"a": worker.answer(1_950)})
    # Of its 850, 700 were with work: no-work is 300 less the 150 that the worker did not see.
    assert held(accounts, worker) == {"idle": 700, "no-work": 150}
    assert accounts.outstanding == 700


def test_only_free_time_inside_the_window_may_be_without_work():
    cluster, worker, window = opened(2)
    worker.work(1_500, 2_000)
    cluster.work.set(False, at=1_800)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    # Both threads count as free for the 200 without work, though a (seceded) task held one: an estimate.
    assert held(accounts, worker) == {"thread-cpu": 500, "idle": 1_100, "no-work": 400}
    cluster, worker = alone(1, outstanding=False)
    cluster.work.set(True, at=OPENED)
    window = window_of(worker)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"idle": 1_000}
    cluster, worker, window = opened(1)
    worker.close(window, at=1_500)
    cluster.worker_left("a", at=1_500)
    cluster.work.set(False, at=1_600)
    accounts = closed(window, {})
    assert held(accounts, worker) == {"idle": 500}


def test_a_worker_that_joins_inside_counts_from_its_joining():
    # Joined at 1,200, metered from 1,300 on, when its ledger opened the window.
    cluster = new_cluster()
    window = ClusterWindow(cluster, at=OPENED)
    worker = SimulatedWorker(cluster, "a", 2, joined=1_200, window=window)
    worker.ledger = Ledger(2, at=1_300)
    worker.ledger.open_window("w", at=1_300)
    worker.work(1_500, 1_900)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"unmeasured": 200, "thread-cpu": 400, "idle": 1_000}
    worker.presence.first_task = 1_500
    assert window.arrivals(at=CLOSED) == {"name-a": (1_200, 1_500)}
    assert window.arrivals(at=1_200) == {}
    # No work until 1,400; the worker came at 1,500 and found no task, though there was work.
    cluster = new_cluster(outstanding=False)
    window = ClusterWindow(cluster, at=OPENED)
    cluster.work.set(True, at=1_400)
    worker = SimulatedWorker(cluster, "a", 1, joined=1_500, window=window)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"idle": 500}


def test_a_worker_that_dies_inside_counts_until_its_removal_and_one_from_before_not_at_all():
    cluster, worker = alone(2)
    worker.ledger.reserve("x", "inc", at=800)
    window = window_of(worker)
    worker.heartbeat(1_500)
    lost(cluster, "a", at=1_700)
    accounts = closed(window, {})
    # 500 of one thread free; of the other 500 + 200 x 2 of silence, and none of the 200 before the window.
    assert held(accounts, worker) == {"idle": 500, "lost-worker": 900}
    # By the last heartbeat it held its thread for 700, and by the removal for 900, of 1,100 that were lost in all.
    assert accounts.prefixes == {"inc": {"lost-worker": 900 * 900 // 1_100}}
    why = "was lost (nobody knows why)"
    assert accounts.notes == [f"worker name-a {why}: its tasks count at its last heartbeat, and in no span"]
    cluster, worker = alone(1)
    worker.heartbeat(500)
    cluster.worker_left("a", at=900)
    window = ClusterWindow(cluster, at=OPENED)
    cluster.close_departed(at=CLOSED, grace=0)
    assert closed(window, {}, at=CLOSED).workers == {}


def test_reported_tasks_of_a_lost_worker_count_and_the_others_are_numbered():
    cluster, worker = alone(2)
    worker.work(100, 300)
    worker.ledger.reserve("long", "sum", "span", at=800)
    window = window_of(worker)
    worker.work(1_100, 1_200)
    long = worker.ledger.release("long", at=1_400)
    worker.ledger.finalize(long, Outcome.SUCCEEDED, cpu=600, wall=600)
    worker.heartbeat(1_500)
    worker.presence.finished = 7
    lost(cluster, "a", at=1_700)
    accounts = closed(window, {})
    assert accounts.tasks == {"succeeded": 2, "without account": 4}
    assert sum(sum(row.values()) for row in accounts.prefixes.values()) == accounts.workers["name-a"]["thread-cpu"]
    # The long task had run for 200 as the window began, which are taken out pro rata.
    assert 500 <= accounts.workers["name-a"]["thread-cpu"] < 700
    assert accounts.notes[0].endswith("; of 4 tasks that it finished since, only the number is known")
    assert accounts.attendance == {"workers": 1, "most_workers": 1, "most_threads": 2}


def test_results_that_were_computed_again_have_an_account():
    cluster, worker = alone(2)
    window = window_of(worker)
    for at in (1_100, 1_200, 1_300):
        worker.work(at, at + 50, outcome=Outcome.RECOMPUTED)
    worker.heartbeat(1_500)
    worker.presence.finished = 5
    lost(cluster, "a", at=1_700)
    assert closed(window, {}).tasks == {"recomputed": 3, "without account": 2}


def test_tasks_without_account_are_those_of_each_window():
    # A worker with another version of the package: 60 tasks before, then 40 and 50 in two windows.
    cluster, worker = alone(1)
    cluster.switch_off(worker.presence, "another version", at=500)
    worker.presence.finished = 60
    for opened, finished in ((1_000, 40), (2_000, 50)):
        window = ClusterWindow(cluster, at=opened)
        worker.presence.finished += finished
        cluster.accrue(at=opened + 900)
        accounts = closed(window, {"a": "another version"}, at=opened + 900)
        assert accounts.tasks == {"without account": finished}
        assert held(accounts, worker) == {"unmeasured": 900}
        assert accounts.notes[0].endswith(f"of {finished} tasks that it finished since, only the number is known")


def test_time_before_the_ledger_of_a_worker_that_joins_is_no_loss_while_there_is_no_work():
    # It joined at 1,200 and was metered from 1,500 on; work began at 1,400.
    cluster = new_cluster(outstanding=False)
    window = ClusterWindow(cluster, at=OPENED)
    worker = SimulatedWorker(cluster, "a", 1, joined=1_200, window=window)
    worker.ledger = Ledger(1, at=1_500)
    worker.ledger.open_window("w", at=1_500)
    cluster.work.set(True, at=1_400)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"no-work": 200, "unmeasured": 100, "idle": 500}


def test_a_worker_that_does_not_answer_counts_at_its_last_heartbeat_with_the_reason():
    _, worker, window = opened(2)
    worker.work(1_000, 1_300)
    worker.heartbeat(1_600)
    accounts = closed(window, {"a": "no answer in 5 s"})
    assert held(accounts, worker) == {"thread-cpu": 300, "idle": 900, "unmeasured": 800}
    assert accounts.table.causes_by_worker == {"name-a": {"idle/unknown": 900}}
    assert accounts.not_measured == {"name-a": "no answer in 5 s"}
    assert "counts at its last heartbeat: no answer in 5 s" in accounts.notes[0]
    _, worker, window = opened(1)
    accounts = closed(window, {})
    assert held(accounts, worker) == {"unmeasured": 1_000}
    assert accounts.not_measured == {"name-a": "no answer came"}
    cluster, worker, window = opened(2)
    cluster.receive("a", {"schema": 7, "off": "it failed"}, at=1_500)
    cluster.accrue(at=CLOSED)
    accounts = closed(window, {"a": "it is not metered"})
    assert held(accounts, worker) == {"unmeasured": 2_000}
    assert accounts.not_measured == {"name-a": "it failed"}


@pytest.mark.parametrize("dies", [False, True])
def test_a_worker_that_was_silent_at_the_opening_brings_no_time_of_before(dies):
    # Last heard of at 600: what it books at 1,600 (or as lost) reaches back to 600, the window to 1,000.
    cluster, worker = alone(1)
    worker.heartbeat(600)
    window = ClusterWindow(cluster, at=OPENED)
    worker.work(600, 1_600)
    if dies:
        lost(cluster, "a", at=1_600)
        expected = {"lost-worker": 600}
    else:
        worker.heartbeat(1_850)
        expected = {"thread-cpu": 800, "idle": 200}  # 1,000 and 250, scaled to 1,000
    accounts = closed(window, {"a": "no answer in 5 s"})
    assert held(accounts, worker) == expected


@pytest.mark.parametrize("removed", [1_600, 1_700, 1_800])
def test_a_worker_that_closes_counts_by_its_final_balance(removed):
    # It closes at 1,700 with a task running, and is removed before, just then, or after.
    cluster, worker, window = opened(2)
    worker.ledger.reserve("x", "inc", "span", at=1_500)
    if removed < 1_700:
        cluster.worker_left("a", at=removed)
    worker.ledger.finalize_all(Outcome.CANCELLED, at=1_700)
    worker.close(window, at=1_700)
    if removed >= 1_700:
        cluster.worker_left("a", at=removed)
    accounts = closed(window, {})
    rest = {"unmeasured": 200} if removed == 1_800 else {}
    assert held(accounts, worker) == {"cancelled": 200, "idle": 1_200, **rest}
    assert accounts.prefixes == {"inc": {"cancelled": 200}}
    assert accounts.tasks == {"cancelled": 1}


@pytest.mark.parametrize(("closes", "elapsed", "rest"), [(2_300, 1_150, {}), (1_700, 1_000, {"unmeasured": 600})])
def test_a_worker_that_closes_while_the_window_does_counts_by_its_own_length(closes, elapsed, rest):
    cluster = new_cluster()
    leaving, other = (SimulatedWorker(cluster, name, 2) for name in "ab")
    window = ClusterWindow(cluster, at=OPENED)
    for worker in (leaving, other):
        worker.open(OPENED)
        window.opened_on(worker.address)
    if closes < CLOSED:
        leaving.close(window, at=closes)
    closing = window.stop(at=CLOSED)
    closing.take("b", other.answer(CLOSED), at=CLOSED)
    if closes > CLOSED:
        leaving.close(window, at=closes)
        cluster.worker_left("a", at=closes)
    accounts = Accounts(closing.close())
    assert held(accounts, leaving) == {"idle": 2 * (closes - OPENED), **rest}
    assert accounts.elapsed == elapsed
    assert sum(sum(held(accounts, worker).values()) for worker in (leaving, other)) == 4 * elapsed


@pytest.mark.parametrize("closes", [False, True])
def test_a_meter_that_restarts_inside_counts_with_both_its_ledgers(closes):
    cluster, worker = alone(1)
    worker.work(100, 300)
    window = window_of(worker)
    worker.work(1_000, 1_400)
    worker.heartbeat(1_400)
    worker.restart(1_500)
    worker.ledger.open_window("w", at=1_500)
    worker.work(1_600, 1_700)
    if closes:
        worker.close(window, at=1_800)
        cluster.worker_left("a", at=1_800)
    accounts = closed(window, {} if closes else {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"thread-cpu": 500, "unmeasured": 100, "idle": 200 if closes else 400}
    assert accounts.tasks == {"succeeded": 1}  # of its last ledger
    assert accounts.not_measured == {"name-a": "its meter was restarted"}


def test_an_answer_is_of_the_worker_that_is_at_the_address_now():
    cluster = new_cluster()
    old = SimulatedWorker(cluster, "a", 1)
    window = window_of(old)
    lost(cluster, "a", at=1_400)
    new = SimulatedWorker(cluster, "a", 1, joined=1_600, incarnation="b", window=window)
    accounts = closed(window, {"a": new.answer(CLOSED)})
    # They have one name, so one row: 400 lost and 400 idle.
    assert held(accounts, new) == {"lost-worker": 400, "idle": 400}


def test_a_worker_that_leaves_after_its_answer_keeps_it():
    # The scheduler waits a moment before it closes the window's books.
    cluster, worker, window = opened(1)
    worker.work(1_000, 1_300)
    answer = worker.answer(CLOSED)
    lost(cluster, "a", at=2_100)
    SimulatedWorker(cluster, "a", 1, joined=2_150, incarnation="b", window=window)
    accounts = closed(window, {"a": answer})
    assert held(accounts, worker) == {"thread-cpu": 300, "idle": 700}
    assert accounts.prefixes == {"inc": {"thread-cpu": 300}}


def test_activities_outside_the_accounts_are_those_since_the_opening():
    cluster = new_cluster()
    cluster.worker_joined("a", "alice", 1, at=0)
    cluster.receive("a", idle_payload(1, 500, outside={"get-data": 3}, details={"io": 1}), at=500)
    window = ClusterWindow(cluster, at=OPENED)
    cluster.receive("a", idle_payload(1, 1_500, seq=2, outside={"get-data": 8}, details={"io": 1}), at=1_500)
    accounts = closed(window, {})
    assert (accounts.extras["outside"], accounts.extras["details"]) == ({"get-data": 5}, {})


# -- whatever the workers do -----------------------------------------------------------------------

instants = st.integers(OPENED, CLOSED)


@st.composite
def lives(draw: st.DrawFn) -> tuple[str, int, list[tuple[int, int, Outcome]], list[int], int]:
    """How a worker fares in the window: what becomes of it, its threads, its tasks, heartbeats, and the turn."""
    fate = draw(st.sampled_from(["answers", "is silent", "was silent", "joins", "dies", "closes", "restarts"]))
    edges = sorted(draw(st.lists(st.integers(0, CLOSED), max_size=8, unique=True)))
    outcomes = [draw(st.sampled_from(Outcome)) for _ in edges]
    tasks = list(zip(edges[::2], edges[1::2], outcomes, strict=False))
    return fate, draw(st.integers(1, 3)), tasks, draw(st.lists(instants, max_size=3)), draw(instants)


@given(
    st.lists(lives(), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, CLOSED), st.booleans()), max_size=4),
    st.sampled_from(Availability),
)
def test_every_worker_s_buckets_sum_to_its_threads_times_its_presence(all_lives, turns, availability):
    cluster = ClusterLedger(at=0)
    events = [(at, 0, partial(cluster.work.set, active, at=at)) for at, active in turns]
    workers: dict[str, SimulatedWorker] = {}
    expected: dict[str, int] = {}
    windows: list[ClusterWindow] = []
    events.append((OPENED, 2, lambda: windows.append(ClusterWindow(cluster, at=OPENED))))

    def join(address, nthreads, at):
        workers[address] = worker = SimulatedWorker(cluster, address, nthreads, joined=at)
        worker.ledger.observe(availability, 1, 1, at=at)
        if windows:
            windows[0].worker_joined(worker.presence)
            worker.ledger.open_window("w", at=at)

    def hold(address, key, at):
        if address in workers:
            workers[address].ledger.reserve(key, "inc", "span", at=at)

    def end(address, key, outcome, at):
        found = workers[address].ledger.release(key, at=at) if address in workers else None
        if found is not None:
            workers[address].ledger.finalize(found, outcome, cpu=found.ns // 2, wall=found.ns)

    def leave(address, at):
        workers[address].ledger.finalize_all(Outcome.CANCELLED, at=at)
        workers[address].close(windows[0], at=at)
        cluster.worker_left(address, at=at)

    def restart(address, at):
        workers[address].restart(at)
        workers[address].ledger.open_window("w", at=at)

    def beat(address, at):
        workers[address].heartbeat(at)

    def open_on(address, at):
        workers[address].open(at)

    def vanish(address, at):
        cluster.worker_left(address, at=at)

    for i, (fate, nthreads, tasks, heartbeats, turn) in enumerate(all_lives):
        address = f"tcp://{i}"
        joined = turn if fate == "joins" else 0
        until = turn if fate in ("dies", "closes") else CLOSED
        expected[f"name-{address}"] = nthreads * (until - max(OPENED, joined))
        events.append((joined, 3 if fate == "joins" else 0, partial(join, address, nthreads, joined)))
        if fate not in ("joins", "was silent"):
            events.append((OPENED, 1, partial(open_on, address, OPENED)))
        if fate == "was silent":
            events.append((600, 0, partial(beat, address, 600)))
        if fate in ("restarts", "dies", "closes"):
            order, what = {"restarts": (4, restart), "dies": (6, vanish), "closes": (6, leave)}[fate]
            events.append((turn, order, partial(what, address, turn)))
        for key, (start, stop, outcome) in enumerate(tasks):
            if stop <= until:
                events.append((start, 5, partial(hold, address, key, start)))
                events.append((stop, 4, partial(end, address, key, outcome, stop)))
        events += [(at, 5, partial(beat, address, at)) for at in heartbeats if joined < at < until]
    for _, _, happen in sorted(events, key=lambda event: event[:2]):
        happen()
    there = [f"tcp://{i}" for i, (fate, *_) in enumerate(all_lives) if fate in ("answers", "joins", "restarts")]
    answers = {address: workers[address].answer(CLOSED) for address in there}
    cluster.close_departed(at=CLOSED, grace=0)
    accounts = closed(windows[0], answers)

    for name, row in accounts.workers.items():
        assert min(row.values(), default=0) >= 0
        assert sum(row.values()) == expected[name]
    assert accounts.workers.keys() == {name for name in expected if expected[name] or name in accounts.workers}
    assert 0 <= accounts.outstanding <= accounts.elapsed == CLOSED - OPENED
    for rows in (accounts.prefixes, accounts.spans):
        with_parts = ("answers", "joins", "closes")
        answered = [f"name-tcp://{i}" for i, (fate, *_) in enumerate(all_lives) if fate in with_parts]
        for bucket in (*TASK_BUCKETS, "running"):
            found = sum(row.get(bucket, 0) for row in rows.values())
            known = sum(accounts.workers.get(name, {}).get(bucket, 0) for name in answered)
            if rows is accounts.spans:
                assert found == known
            else:  # of the others, what heartbeats had
                assert known <= found <= sum(row.get(bucket, 0) for row in accounts.workers.values())


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(0, 300), st.booleans()), min_size=1, max_size=4
    ),
    st.lists(st.integers(OPENED + 300, CLOSED + 300), max_size=4).map(sorted),
)
def test_the_buckets_sum_to_the_window_wherever_an_event_loop_stands_still(stops, turns):
    cluster = new_cluster()
    workers = [SimulatedWorker(cluster, str(i), nthreads) for i, (nthreads, *_) in enumerate(stops)]
    for worker in workers:
        worker.heartbeat(800)
    window = ClusterWindow(cluster, at=OPENED)
    for worker, (_, late, _, _) in zip(workers, stops, strict=True):
        worker.open(OPENED + late)
        window.opened_on(worker.address)
    for at, is_turn in sorted([(CLOSED, False), *((at, True) for at in turns)]):
        if is_turn:
            cluster.work.set(not cluster.work.outstanding, at=at)
        else:
            closing = window.stop(at=at)
    for worker, (_, _, late, answers) in zip(workers, stops, strict=True):
        closing.take(worker.address, worker.answer(CLOSED + late) if answers else "it was busy", at=CLOSED + late)
    accounts = Accounts(closing.close())
    threads = sum(worker.nthreads for worker in workers)
    rows = [held(accounts, worker) for worker in workers]
    whole = sum(sum(row.values()) for row in rows)
    assert threads * accounts.elapsed <= whole < threads * (accounts.elapsed + 1)
    if all(answers for *_, answers in stops):  # no thread had a task
        with_work = whole - sum(row.get("no-work", 0) for row in rows)
        assert threads * accounts.outstanding <= with_work < threads * (accounts.outstanding + 1)


def paused_worker() -> tuple[ClusterLedger, SimulatedWorker]:
    """A worker with a ready task, two free slots more, and a window that opens and then is looked at."""
    cluster, worker = alone(3)
    worker.ledger.observe(Availability.PAUSED, 0, 0, 1, at=0)
    return cluster, worker


def looked(worker: SimulatedWorker, queued: int, *, until: int) -> None:
    state = ClusterState({worker.presence: WorkerSlots(2, 3, paused=True)}, 0, queued=queued, paused=2)
    worker.cluster.idle.accrue(state, at=until)


def test_a_paused_workers_window_counts_ready_tasks_and_those_that_would_have_been_sent():
    cluster, worker = paused_worker()
    looked(worker, 2, until=OPENED)
    window = window_of(worker)
    window.opened_on("a")
    looked(worker, 1, until=OPENED + 400)
    worker.heartbeat(OPENED + 400)
    looked(worker, 0, until=CLOSED)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"paused": 1_000 + 400, "idle": 400 + 1_200}
    assert accounts.table.causes_by_worker == {"name-a": {"idle/parallelism": 1_600}}
    # Before the window it was paused with all of its slots.
    assert cluster.part("finalized")["paused"] == 3 * OPENED + 1_400 == cluster.part("activity")["paused"]


def test_without_a_look_only_a_paused_workers_own_tasks_count_as_paused():
    cluster, worker = paused_worker()
    window = window_of(worker)
    cluster.work.set(False, at=OPENED + 500)
    accounts = closed(window, {"a": worker.answer(CLOSED)})
    assert held(accounts, worker) == {"no-work": 1_500, "paused": 1_000, "idle": 500}
    assert accounts.table.causes_by_worker == {"name-a": {"idle/unknown": 500}}


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(
            st.integers(1, 200),  # how long it lasts
            st.sampled_from([*Availability, Availability.PAUSED]),
            st.integers(0, 5),  # ready
            st.none() | st.integers(0, 8),  # queued, where somebody looks
            st.booleans(),  # whether work is outstanding
            st.booleans(),  # whether a heartbeat follows
        ),
        min_size=2,
        max_size=12,
    ),
    st.data(),
)
def test_a_worker_s_free_time_is_divided_exactly_and_never_taken_back(nthreads, life, data):
    cluster, worker = alone(nthreads)
    opens = data.draw(st.integers(0, len(life) - 1))
    always = all(outstanding for *_, outstanding, _ in life)
    at, before, window, at_opening = 0, dict(cluster.part("finalized")), None, {}
    for i, (lasts, availability, ready, queued, outstanding, beats) in enumerate(life):
        if i == opens:
            worker.open(at)
            window = ClusterWindow(cluster, at=at)
            at_opening = dict(cluster.part("finalized"))
        worker.ledger.observe(availability, 0, 0, ready, at=at)
        cluster.work.set(outstanding, at=at)
        at += lasts
        paused = availability is Availability.PAUSED
        free = max(0, nthreads - ready) if paused else nthreads
        slots = {worker.presence: WorkerSlots(free, nthreads, paused=paused)}
        looks = queued is not None and outstanding
        counts = {"paused": free} if paused else {}
        cluster.idle.accrue(
            ClusterState(slots, 0 if paused else free, queued=queued or 0, **counts) if looks else None, at=at
        )
        if beats or i == len(life) - 1:
            worker.heartbeat(at)
            now, own = cluster.part("finalized"), worker.ledger.balance(at=at).finalized
            assert sum(now.values()) == nthreads * at == sum(cluster.part("activity").values())
            assert all(now[bucket] >= ns for bucket, ns in before.items())
            assert {b: ns for b, ns in now.items() if ns} == {b: ns for b, ns in cluster.part("activity").items() if ns}
            assert now["paused"] >= own["paused"]
            assert now["paused"] + now["idle"] + now["no-work"] == own["paused"] + own["idle"]
            causes = cluster.totals(at=at).causes
            assert sum(ns for name, ns in causes.items() if name.startswith("idle/")) == now["idle"]
            before = now
    balance = worker.answer(at)
    row = held(closed(window, {"a": balance}, at=at), worker)
    assert sum(row.values()) == nthreads * (at - window.opened)
    gained = {bucket: ns - at_opening[bucket] for bucket, ns in cluster.part("finalized").items()}
    assert balance.facts.sums("bucket").get(("paused",), 0) <= row.get("paused", 0) <= gained["paused"]
    if always:
        assert row == {bucket: ns for bucket, ns in gained.items() if ns}


def test_a_window_begins_for_each_worker_as_it_answers():
    cluster = new_cluster()
    early, late = (SimulatedWorker(cluster, name, 1, gpu=watched(100, 50)) for name in "ab")
    for worker in (early, late):
        worker.heartbeat(800)
    window = ClusterWindow(cluster, at=OPENED)
    early.work(850, 950)
    early.gpu = watched(150, 60)
    early.open(OPENED)
    window.opened_on("a")
    early.work(1_010, 1_060)
    early.gpu = watched(170, 90)
    early.heartbeat(1_100)  # while the other one has not answered
    late.open(OPENED)
    window.opened_on("b")
    window.opened_on("nobody")
    SimulatedWorker(cluster, "c", 1, joined=1_150)  # of which the window does not know
    window.opened_on("c")
    early.work(1_200, 1_300)
    early.gpu = watched(250, 110)
    early.heartbeat(1_900)
    accounts = closed(window, {"a": "it was busy", "b": late.answer(CLOSED)})
    assert held(accounts, early) == {"thread-cpu": 150, "idle": 750, "unmeasured": 100}
    assert accounts.prefixes == {"inc": {"thread-cpu": 150}}
    assert held(accounts, late) == {"idle": 1_000}
    assert accounts.gpu["name-a"] == watched(100, 50)
    assert (accounts.workers.keys(), window.arrivals(at=CLOSED)) == ({"name-a", "name-b"}, {})


def test_what_a_worker_opened_a_window_too_late_for_is_unmeasured():
    cluster = new_cluster()
    late, other = (SimulatedWorker(cluster, name, 2) for name in "ab")
    window = ClusterWindow(cluster, at=OPENED)
    for worker, at in ((late, OPENED + 300), (other, OPENED)):
        worker.open(at)
        window.opened_on(worker.address, late=worker is late)
    late.work(1_400, 1_600)
    accounts = closed(window, {worker.address: worker.answer(CLOSED) for worker in (late, other)})
    assert held(accounts, late) == {"thread-cpu": 200, "idle": 1_200, "unmeasured": 600}
    assert (held(accounts, other), accounts.elapsed) == ({"idle": 2_000}, 1_000)
    assert accounts.not_measured == {"name-a": "no answer came in time when the window opened"}


def test_the_share_of_other_processes_is_known_if_each_worker_reported_twice():
    cluster = new_cluster()
    workers = [SimulatedWorker(cluster, name, 1) for name in "ab"]

    def processors(worker, *used):
        worker.presence.processors = Processors("host", "", 0b11, used=ProcessorTime(*used))

    for answers, share in ((2, 0.3), (1, None)):
        window = ClusterWindow(cluster, at=OPENED, scheduler=Processors("host", "", 0b11, used=ProcessorTime(0, 0, 50)))
        for worker in workers:
            processors(worker, 1_000, 700, 100)
            worker.open(OPENED)
            window.opened_on(worker.address)
        closing = window.stop(at=CLOSED)
        for worker in workers[:answers]:
            processors(worker, 3_000, 2_300, 500)
            closing.take(worker.address, worker.answer(CLOSED), at=CLOSED)
        assert closing.close(Processors("host", "", 0b11, used=ProcessorTime(0, 0, 250))).others_share == share


def test_the_mean_of_cores_is_weighted_by_the_time_with_work_and_workers():
    # With work from 1,100 on: 2 cores of one worker, from 1,200 to 1,700 3 with another one, and 1 at the end.
    cluster = new_cluster(outstanding=False)
    presence = SimulatedWorker(cluster, "a", 1).presence
    presence.processors = Processors("host", "a", 0b11)
    window = ClusterWindow(cluster, at=OPENED)
    cluster.work.set(True, at=1_100)
    for address, joined, left in (("b", 1_200, 1_700), ("c", 1_900, None)):
        presence = SimulatedWorker(cluster, address, 1, joined=joined, window=window).presence
        presence.processors = Processors("host", address, 0b100)
        if left is not None:
            cluster.worker_left(address, at=left)
            cluster.worker_left("a", at=1_800)
    assert window.cores(cluster.work, at=CLOSED) == (100 * 2 + 500 * 3 + 100 * 2 + 100 * 1) / 800
    presence.processors = None
    assert window.cores(cluster.work, at=CLOSED) is None
    assert window.cores(cluster.work, at=1_050) is None  # no work until then


def test_an_answer_counts_once_and_at_once():
    cluster = new_cluster()
    workers = [SimulatedWorker(cluster, name, 1) for name in "ab"]
    window = window_of(*workers)
    workers[0].work(1_200, 1_500)
    closing = window.stop(at=CLOSED)
    answer = workers[0].answer(CLOSED)
    closing.take("a", answer, at=CLOSED)
    closing.take("a", answer, at=CLOSED)
    closing.take("a", "it did not answer", at=CLOSED)
    workers[0].work(2_100, 2_200)
    workers[0].heartbeat(2_300)  # what it does afterwards is no part of the window
    closing.take("b", "it was busy", at=CLOSED)
    closing.take("nobody", answer, at=CLOSED)
    closing.take("b", workers[1].answer(CLOSED), at=CLOSED)
    accounts = Accounts(closing.close())
    assert [held(accounts, worker) for worker in workers] == [{"thread-cpu": 300, "idle": 700}, {"idle": 1_000}]
    assert (accounts.tasks, accounts.notes, accounts.not_measured) == ({"succeeded": 1}, [], {})


# -- intervals -------------------------------------------------------------------------------------


def test_intervals_run_from_each_start_to_the_next_end_and_the_last_stretches_at_the_limit():
    intervals = ActiveIntervals(at=0, active=True)
    intervals.set(True, at=5)
    intervals.set(False, at=10)
    intervals.set(False, at=15)
    intervals.set(True, at=20)
    assert intervals.until(30) == [(0, 10), (20, 30)]
    assert ActiveIntervals(at=0, active=False).until(10) == []
    intervals = ActiveIntervals(at=0, active=False)
    for i in range(MAX_INTERVALS + 3):
        intervals.set(True, at=10 * i)
        intervals.set(False, at=10 * i + 1)
    *others, last = intervals.until(10**9)
    assert others == [(10 * i, 10 * i + 1) for i in range(MAX_INTERVALS - 1)]
    assert last == (10 * (MAX_INTERVALS - 1), 10 * (MAX_INTERVALS + 2) + 1)


@given(st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_intervals_cover_the_active_time_and_never_overlap(active, turns):
    intervals, at, spent = ActiveIntervals(at=0, active=active), 0, 0
    for now_active, step in turns:
        spent += step * active
        at += step
        active = now_active
        intervals.set(active, at=at)
    found = intervals.until(at)
    assert sum(stop - start for start, stop in found) == spent
    assert all(stop <= start for (_, stop), (start, _) in pairwise(found))


def test_a_window_has_the_workers_gpu_time_from_edge_to_edge():
    cluster = new_cluster()
    before = SimulatedWorker(cluster, "a", 1, gpu=watched(300, 100))
    refused = SimulatedWorker(cluster, "b", 1, gpu=GpuTotals("none", "another profiler is attached"))
    without = SimulatedWorker(cluster, "c", 1)
    workers = [before, refused, without]
    window = window_of(*workers)
    joined = SimulatedWorker(cluster, "d", 1, joined=1_500, gpu=watched(40, 60), window=window)
    before.gpu = watched(450, 200)
    answers = {worker.address: worker.answer(CLOSED) for worker in [*workers, joined]}
    accounts = closed(window, answers)
    assert accounts.gpu == {
        "name-a": watched(150, 100),
        "name-b": GpuTotals("none", "another profiler is attached"),
        "name-d": watched(40, 60),
    }


def test_a_window_has_the_gpu_time_of_workers_that_left_and_of_meters_that_began_again():
    cluster = new_cluster()
    left = SimulatedWorker(cluster, "a", 1, gpu=watched(300, 100))
    restarted = SimulatedWorker(cluster, "b", 1, gpu=watched(10, 0))
    gone = SimulatedWorker(cluster, "c", 1, gpu=watched(7, 0))
    gone.heartbeat(900)
    lost(cluster, "c", at=900)
    window = window_of(left, restarted)
    left.gpu, restarted.gpu = watched(400, 150), watched(25, 5)
    left.heartbeat(1_400)
    restarted.heartbeat(1_400)
    lost(cluster, "a", at=1_500)
    restarted.restart(1_600)
    restarted.gpu = watched(3, 1)
    restarted.heartbeat(1_700)
    accounts = closed(window, {})
    assert accounts.gpu == {"name-a": watched(100, 50), "name-b": watched(15 + 3, 5 + 1)}


@pytest.mark.parametrize(
    ("claimed", "reason"),
    [
        ({"nthreads": 4}, "nthreads is 4; expected 2"),
        ({"elapsed": 10**12}, "the window took 1000.000 s; expected at most 0.000 s"),
    ],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_window_that_a_worker_cannot_have_had_changes_nothing_for_others(claimed, reason, ahead):
    cluster = new_cluster()
    liar, other = (SimulatedWorker(cluster, name, 2) for name in "ab")
    window = window_of(liar, other)
    answer = liar.answer(CLOSED)
    answer = replace(answer, **claimed)
    idle = FactsBuilder()
    idle.add(answer.nthreads * answer.elapsed, bucket="idle")
    answer = replace(answer, facts=idle.build())
    if ahead:
        with pytest.raises(RefusedPayload, match=reason):
            window.worker_closed(liar.presence, answer, at=CLOSED)
    accounts = closed(window, {"a": answer, "b": other.answer(CLOSED)})
    assert accounts.not_measured == {"name-a": f"its window was refused: {reason}"}
    assert accounts.elapsed == CLOSED - OPENED
    assert sum(held(accounts, liar).values()) == sum(held(accounts, other).values()) == 2 * (CLOSED - OPENED)
