import contextlib
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dask_efficiency.accounts.buckets import CAUSE_NAMES, CAUSES, Bucket, fit_causes
from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NAMES, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.checks import MAX_NAMES as MAX_ROWS
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, add_totals
from dask_efficiency.accounts.wire.heartbeats import (
    EVERYTHING,
    REPEATS,
    HeartbeatWriter,
    Received,
    decode,
    encode,
    header,
    read,
)
from dask_efficiency.accounts.wire.snapshots import NUMBERS, NotMeasured, Snapshot, SnapshotCauses, encode_not_measured
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from tests.accounts.wire.test_gpu import plain
from tests.payloads import ledger_with_everything, through_msgpack
from tests.strategies import SECOND, any_gpu_totals, idle_payload, names, nanoseconds, plain_data, snapshots

# A failing state machine is shrunk for up to five minutes before its failure is shown.
pytestmark = pytest.mark.timeout(400)


def snapshot(**changes: Any) -> Snapshot:
    """Of a worker of four threads that did something of everything; of changes, some are of its balance."""
    balance = ledger_with_everything().balance(at=600)
    of_balance = {name: changes.pop(name) for name in list(changes) if hasattr(balance, name)}
    made = Snapshot("a", 1, replace(balance, **of_balance), {"get-data": 3}, {"io": 4})
    return replace(made, **changes)


def payload(**changes: Any) -> dict[str, Any]:
    """The same as it travels in full, with some fields of that changed."""
    return {**encode(snapshot()), **changes}


def with_number(name: str, value: Any) -> dict[str, Any]:
    """A payload with another number in one place."""
    numbers = list(encode(snapshot())["a"])
    numbers[NUMBERS.index(name)] = value
    return payload(a=numbers)


def normal(found: Snapshot | NotMeasured) -> Snapshot:
    """As snapshots are compared: what is 0 may be missing, and kernels come in any order."""
    assert isinstance(found, Snapshot)

    def held(value: Any, *fields: str) -> Any:
        return replace(value, **{name: +Counter(getattr(value, name)) for name in fields})

    balance, causes = held(found.balance, "finalized", "tasks", "active"), held(found.causes, "finalized", "active")
    return replace(found, balance=balance, causes=causes, gpu=found.gpu and plain(found.gpu))


# -- what is in order ------------------------------------------------------------------------------


@given(snapshots())
def test_a_snapshot_survives_the_wire_and_can_be_shown_as_json_as_dask_does(made):
    assert normal(decode(encode(made))) == normal(made)
    assert normal(decode(through_msgpack(encode(made)))) == normal(made)
    json.dumps(encode(made))


@given(st.text(st.characters(codec="utf-8"), max_size=3 * MAX_NAME_LENGTH))
def test_a_reason_survives_the_wire_cut_to_length(reason):
    assert decode(through_msgpack(encode_not_measured(reason))) == NotMeasured(reason[:MAX_NAME_LENGTH])


def test_an_encoded_snapshot_is_a_fresh_object_that_shares_nothing():
    gpu = GpuTotals("cupti", devices=(DeviceTotals("GPU-0"),), readings={"GPU-0": {"power_watts": 1.0}})
    made = snapshot(gpu=gpu)
    writer = HeartbeatWriter()
    first, second = writer.heartbeat(made), writer.heartbeat(replace(made, seq=2))
    assert {**first, "n": 2} == second

    def empty(value: Any) -> None:
        for inner in value.values() if isinstance(value, dict) else value:
            if isinstance(inner, (dict, list)):
                empty(inner)
        value.clear()

    empty(first)
    assert normal(decode(second)) == normal(replace(made, seq=2))
    assert normal(decode(writer.everything(replace(made, seq=3)))) == normal(replace(made, seq=3))


def test_the_sender_of_a_payload_is_known_without_reading_it():
    assert header(payload()) == ("a", 1)
    assert header(encode_not_measured("x")) is None
    for garbage in (None, 3, {}, {"i": 1, "n": 1}, {"i": "a", "n": "1"}, {"i": "a", "n": True}):
        assert header(garbage) is None


# -- what changed ----------------------------------------------------------------------------------


class Worker:
    """A worker that has some prefixes, and sends heartbeats."""

    def __init__(self, prefixes: int) -> None:
        self.ledger = Ledger(2, at=0)
        self.writer = HeartbeatWriter()
        self.seq = 0
        self.at = 0
        for i in range(prefixes):
            self.run(f"read-parquet-{i}")

    def run(self, prefix: str) -> None:
        self.ledger.reserve("task", prefix, at=self.at)
        self.at += SECOND // 10
        hold = self.ledger.release("task", at=self.at)
        self.ledger.finalize(hold, Outcome.SUCCEEDED, cpu=hold.ns // 2, wall=hold.ns)

    def snapshot(self) -> Snapshot:
        self.seq += 1
        self.at += SECOND // 2
        return Snapshot("a", self.seq, self.ledger.balance(at=self.at), {"get-data": self.seq})

    def heartbeat(self) -> dict[str, Any]:
        made: dict[str, Any] = through_msgpack(self.writer.heartbeat(self.snapshot()))
        return made


def received(payload: Any, last: Received | None = None) -> Received:
    found = read(payload, last)
    assert isinstance(found, Received)
    return found


def reported(prefixes: int) -> tuple[Worker, Received]:
    """A worker of so many prefixes, and what its first heartbeats said; the next ones have changes."""
    worker = Worker(prefixes)
    return worker, [received(worker.heartbeat()) for _ in range(REPEATS)][-1]


def test_a_heartbeat_has_only_changes_and_each_name_once():
    worker, last = reported(50)
    worker.run("read-parquet-7")
    worker.run("new")
    heartbeat = worker.heartbeat()
    assert "s" in heartbeat
    assert "read-parquet" not in repr(heartbeat)
    assert "new" in repr(heartbeat)
    last = received(heartbeat, last)
    assert last.snapshot.balance.prefixes == worker.ledger.balance(at=worker.at).prefixes
    for _ in range(REPEATS):
        heartbeat = worker.heartbeat()
        last = received(heartbeat, last)
    assert "new" not in repr(heartbeat)
    assert len(msgpack.packb(heartbeat)) < 500


def test_the_first_heartbeats_and_one_every_so_often_are_complete_and_as_many_after_a_request():
    worker = Worker(1)
    whole = [i for i in range(1, 2 * EVERYTHING + 1) if "s" not in worker.heartbeat()]
    assert whole == [*range(1, REPEATS + 1), EVERYTHING, 2 * EVERYTHING]
    worker.writer.begin_anew()
    assert ["s" in worker.heartbeat() for _ in range(REPEATS + 1)] == [False] * REPEATS + [True]


@pytest.mark.parametrize("lost", range(REPEATS + 1))
def test_some_heartbeats_in_a_row_can_be_lost_and_one_more_is_noticed(lost):
    worker = Worker(3)
    last = None
    for _ in range(2 * REPEATS):
        last = received(worker.heartbeat(), last)
    for i in range(lost):
        worker.run(f"read-parquet-{i % 3}")
        worker.heartbeat()
    heartbeat = worker.heartbeat()
    if lost < REPEATS:
        found = received(heartbeat, last).snapshot
        assert normal(found) == normal(replace(found, balance=worker.ledger.balance(at=worker.at)))
    else:
        assert read(heartbeat, last) is None


def test_a_heartbeat_of_another_ledger_or_for_a_new_scheduler_is_missed():
    worker, last = reported(1)
    heartbeat = worker.heartbeat()
    assert isinstance(read(heartbeat, last), Received)
    assert read(heartbeat) is None
    assert read({**heartbeat, "i": "b"}, last) is None
    with pytest.raises(RefusedPayload, match="expected all of a snapshot"):
        decode(heartbeat)


class HeartbeatMachine(RuleBasedStateMachine):
    """Heartbeats and answers are lost, or come late or twice: what is read is always what the worker had sent then."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Received | None = None
        self.incarnation = 0
        self.new_ledger()

    @rule()
    def new_ledger(self) -> None:
        self.writer = HeartbeatWriter()
        self.incarnation += 1
        self.seq = self.at = 0
        self.ledger = Ledger(1, at=0)
        self.counts: dict[str, int] = {}
        self.gpu: GpuTotals | None = None
        self.letters: list[tuple[dict[str, Any], Snapshot]] = []

    @rule(prefix=names, mark=names, outcome=st.sampled_from(Outcome), ns=nanoseconds)
    def work(self, prefix: str, mark: str, outcome: Outcome, ns: int) -> None:
        self.ledger.reserve("task", prefix, recomputed=mark, at=self.at)
        self.at += ns
        hold = self.ledger.release("task", at=self.at)
        assert hold is not None
        self.ledger.finalize(hold, outcome, cpu=ns // 2, wall=ns)

    @rule(name=names, n=st.integers(0, 1 << 40))
    def count(self, name: str, n: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    @rule()
    def forget_counts(self) -> None:
        self.counts.clear()

    @rule(more=any_gpu_totals())
    def use_gpu(self, more: GpuTotals) -> None:
        self.gpu = more if self.gpu is None else add_totals(self.gpu, more)

    def snapshot(self) -> Snapshot:
        """One while a task runs, every other time."""
        self.seq += 1
        if self.seq % 2:
            self.ledger.reserve("running", "x", at=self.at)
        self.at += 1
        balance = self.ledger.balance(at=self.at)
        self.ledger.finalize_all(Outcome.FAILED, at=self.at)
        details = {name: n // 2 for name, n in self.counts.items()}
        return Snapshot(str(self.incarnation), self.seq, balance, dict(self.counts), details, gpu=self.gpu)

    @rule(fate=st.sampled_from(["comes", "comes", "is lost", "comes twice"]), answer=st.integers(0, 3))
    def send(self, fate: str, answer: int) -> None:
        made = self.snapshot()
        sent = through_msgpack(self.writer.heartbeat(made) if answer else self.writer.everything(made))
        self.letters.append((sent, made))
        if fate != "is lost":
            self.deliver(sent, made)
        if fate == "comes twice":
            self.deliver(sent, made)

    @rule(which=st.integers(0, 100))
    def a_late_one_comes(self, which: int) -> None:
        if self.letters:
            self.deliver(*self.letters[which % len(self.letters)])

    @rule()
    def ask(self) -> None:
        self.writer.begin_anew()

    def deliver(self, sent: dict[str, Any], made: Snapshot) -> None:
        last = self.last
        of_it = last if last is not None and last.incarnation == made.incarnation else None
        if of_it and made.seq <= of_it.seq:
            return  # as presence.is_stale has it
        found = read(sent, last)
        since = sent.get("s", -1)
        if since >= 0 and not (of_it and of_it.seq >= since):
            assert found is None
            return
        assert isinstance(found, Received)
        assert normal(found.snapshot) == normal(made)
        then_balance = of_it.snapshot.balance if of_it else replace(made.balance, prefixes={}, recomputed={})
        gained = dict(zip(places(found), found.gain.prefixes.tolist(), strict=True))
        for place, name in enumerate(found.prefixes.names):
            assert name is not None
            now, then = made.balance.prefixes[name], then_balance.prefixes.get(name, (0,) * 9)
            assert gained.get(place, [0] * 9) == [a - b for a, b in zip(now, then, strict=True)]
        now_again, then_again = (sum(ns for ns, _ in b.recomputed.values()) for b in (made.balance, then_balance))
        assert sum(found.gain.recomputed[:, 0].tolist()) == now_again - then_again
        self.last = found

    @invariant()
    def what_is_held_is_a_snapshot_of_a_worker(self) -> None:
        if self.last is not None:
            balance = self.last.snapshot.balance
            assert sum(balance.finalized.values()) + balance.running == balance.nthreads * balance.elapsed


def places(found: Received) -> list[int]:
    """Places of the rows that were sent."""
    return found.gain.at.tolist()


TestHeartbeatMachine = HeartbeatMachine.TestCase
TestHeartbeatMachine.settings = settings(max_examples=150, stateful_step_count=40)


# -- what is not in order --------------------------------------------------------------------------

NO_NUMBERS = [None, "1", -1, 1.0, float("nan"), float("inf"), True, 1 << 63, MAX_NANOSECONDS + 1, [], {}]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_a_number_out_of_order_is_refused_by_name(value):
    for name in ("nthreads", "elapsed", "running", "finalized['idle']", "tasks['failed']", "activity['spill']"):
        with pytest.raises(RefusedPayload) as refusal:
            decode(with_number(name, value))
        assert str(refusal.value).startswith(f"{name} is ")
    numbers = payload()["a"]
    for name, broken in (
        ("details", {"a": [*numbers[:-1], value]}),
        ("outside", {"a": [*numbers[:-2], value, numbers[-1]]}),
        ("n", {"n": value}),
    ):
        with pytest.raises(RefusedPayload, match=f"^{name} is "):
            decode(payload(**broken))


NO_NAMES = [1, b"a", "a" * (MAX_NAME_LENGTH + 1)]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        *(({field: None}, f"^{'prefixes' if field == 'b' else field} is None") for field in "inabt"),
        *(({"schema": value}, "^schema is .*; expected 7") for value in (None, 0, 1, 3, "1", 1.0, True, [1])),
        *(({"off": value}, "^off is ") for value in NO_NAMES),
        *(({"i": value}, "^i is ") for value in NO_NAMES),
        *(({"t": [[value], ["io"], [], ""]}, "^outside is ") for value in NO_NAMES),
        *(({"t": [["get-data"], [value], [], ""]}, "^details is ") for value in NO_NAMES),
        *(({"t": [["get-data"], ["io"], [], value]}, r"^causes\.not_sampled is ") for value in NO_NAMES),
        *(({"p": [0, value, 1, "b", 2, "c"]}, "^names of prefixes is ") for value in NO_NAMES),
        *(({"f": value}, "^f is ") for value in (None, [], "x", 3, b"")),
        ({"p": [0, "a", 1, "a"]}, "prefixes has a name in two places"),
        ({"p": [0, "a"]}, "prefixes has a row at 1; expected one of 1"),
        ({"t": [["x", "x"], [], [], ""]}, "outside has a name twice"),
        ({"t": [["x"], ["y", "z"], [], ""]}, r"^a is .*; expected \d+ \+ 1 \+ 2 \+ 0 numbers"),
        ({"h": ["inc", 59, 1]}, "h holds 59 ns on 1 slots; expected 60 ns, as running, on 4 at most"),
        ({"h": ["inc", 60, 5]}, "h holds 60 ns on 5 slots"),
        ({"h": ["inc", 30, 1, "inc", 30, 1]}, "h has a name twice"),
        ({"h": ["inc", 60]}, "expected prefixes, nanoseconds and slots in turn"),
        ({"h": ["inc", 60, -1]}, "h is -1; expected a whole number"),
        ({"r": [[0, 99, 1], [0, "w3"]]}, "recomputed holds 99 ns; expected 100, as settled"),
        ({"r": [[0, 100, 1]]}, "expected rows and names"),
        ({"r": [[0, 100], [0, "w3"]]}, "recomputed is .*; expected rows of a place and 2 numbers"),
    ],
    ids=lambda item: repr(item)[:40],
)
def test_a_field_out_of_order_is_refused_by_name(broken, message):
    given = snapshot().balance
    assert (given.running, given.holding, given.recomputed) == (60, {"inc": (60, 1)}, {"(other)": (100, 1)})
    with pytest.raises(RefusedPayload, match=message):
        decode(payload(**broken))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_accounts_that_are_off_by_one_are_refused(off_by):
    balance = snapshot().balance
    for field in ("running", "elapsed", "nthreads"):
        with pytest.raises(RefusedPayload, match="^the buckets hold .* expected nthreads x elapsed = "):
            decode(with_number(field, getattr(balance, field) + off_by))
    for bucket, ns in balance.finalized.items():
        if ns:
            with pytest.raises(RefusedPayload, match="^the buckets hold "):
                decode(with_number(f"finalized[{bucket!r}]", ns + off_by))
    with pytest.raises(RefusedPayload, match="^active holds "):
        decode(with_number("activity['overhead']", balance.active["overhead"] + off_by))


def with_prefix_time(bucket: int, more: int) -> dict[str, Any]:
    """A payload in which one prefix has more time in a bucket."""
    prefixes = {prefix: list(row) for prefix, row in snapshot().balance.prefixes.items()}
    next(row for row in prefixes.values() if row[bucket])[bucket] += more
    return encode(snapshot(prefixes=prefixes))


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("bucket", [i for i in range(9) if TASK_BUCKETS[i] != "spill"])
def test_prefixes_that_do_not_add_up_to_the_buckets_are_refused(bucket, off_by):
    with pytest.raises(RefusedPayload, match="^prefixes hold "):
        decode(with_prefix_time(bucket, off_by))


def test_changes_must_add_up_too():
    worker, last = reported(3)
    worker.run("read-parquet-1")
    sent = worker.heartbeat()
    rows = sent["b"]
    assert len(rows) == 1 + len(TASK_BUCKETS)
    for i in range(1, len(rows)):
        for number in (rows[i] + 1, rows[i] - 1, 1 << 62):
            with pytest.raises(RefusedPayload):
                read({**sent, "b": [*rows[:i], number, *rows[i + 1 :]]}, last)
    for broken in (rows[:-1], [*rows, 0], [], None, "x"):
        with pytest.raises(RefusedPayload):
            read({**sent, "b": broken}, last)
    with pytest.raises(RefusedPayload, match=r"prefixes\['read-parquet-0'\] shrank"):
        read({**sent, "p": [0, "other"]}, last)
    # Any name is as good.
    assert places(received({**sent, "b": [0, *rows[1:]]}, last)) == [0] != places(received(sent, last))


def test_prefixes_hold_at_most_the_spilling_for_free_slots_wait_for_it_too():
    balance, i = snapshot().balance, TASK_BUCKETS.index(Bucket.SPILL)
    assert balance.finalized["spill"] - sum(row[i] for row in balance.prefixes.values()) == 2  # of free slots
    assert isinstance(decode(with_prefix_time(i, 2)), Snapshot)
    with pytest.raises(RefusedPayload, match="^prefixes hold "):
        decode(with_prefix_time(i, 3))


def test_too_many_names_are_refused_and_a_name_may_be_as_long_as_the_limit():
    assert decode(encode(snapshot(outside={"a" * MAX_NAME_LENGTH: 1})))
    many = {str(i): 0 for i in range(MAX_NAMES)}
    for field in ("outside", "details"):
        assert decode(idle_payload(1, 5, **{field: many}))
        with pytest.raises(RefusedPayload, match=f"expected a list of at most {MAX_NAMES}"):
            decode(idle_payload(1, 5, **{field: {**many, "more": 0}}))
    rows = {str(i): (0,) * 9 for i in range(MAX_ROWS)}
    assert decode(idle_payload(1, 5, prefixes=rows))
    with pytest.raises(RefusedPayload, match="expected places and names in turn"):
        decode(payload(p=[0, "a"] * (MAX_ROWS + 1)))


def test_a_refusal_of_any_payload_is_short():
    longest = ["x" * 900 + str(i) for i in range(MAX_NAMES)]
    fields = {"t": [longest, [], [], ""], "p": longest, "b": "y" * 10**6}
    numbers = [with_number("running", long) for long in ("y" * 10**6, [0] * 10**6)]
    for broken in (*(payload(**{field: long}) for field, long in fields.items()), *numbers):
        with pytest.raises(RefusedPayload) as refusal:
            decode(broken)
        assert len(str(refusal.value)) < 1_000


def test_a_value_that_cannot_be_printed_is_refused():
    nested: Any = []
    for _ in range(200_000):  # from Python 3.13 on, lists beyond the recursion limit are printed
        nested = [nested]
    huge = with_number("running", 1 << 100_000)
    for broken in (huge, with_number("running", nested), payload(schema=nested), payload(i=nested)):
        with pytest.raises(RefusedPayload, match="too large to show"):
            decode(broken)


@pytest.mark.parametrize("value", [None, [], "x", 3, b"", object()])
def test_a_payload_that_is_no_mapping_is_refused(value):
    with pytest.raises(RefusedPayload, match="^snapshot is .*; expected a mapping"):
        decode(value)


@given(st.sampled_from(sorted([*payload(), "f", "g", "s"])), plain_data, st.booleans())
def test_garbage_in_a_field_is_read_or_refused(field, garbage, after):
    worker, last = reported(3)
    with contextlib.suppress(RefusedPayload):
        read({**(worker.heartbeat() if after else payload()), field: garbage}, last if after else None)


def causes_of(**changes: int) -> SnapshotCauses:
    balance = snapshot().balance
    whole = {
        cause: ns
        for bucket in (Bucket.THREAD_NONCPU, Bucket.OVERHEAD)
        for cause, ns in fit_causes({CAUSES[bucket][0]: 3}, bucket, balance.finalized[bucket]).items()
    }
    return SnapshotCauses({**whole, **changes})


def test_causes_add_up_to_the_accounts_or_are_missing():
    found = decode(encode(snapshot(causes=causes_of())))
    assert isinstance(found, Snapshot)
    assert found.causes == causes_of()
    for name in causes_of().finalized:
        broken = causes_of(**{name: causes_of().finalized[name] + 1})
        with pytest.raises(RefusedPayload, match="^causes of finalized hold "):
            decode(encode(snapshot(causes=broken)))
    assert set(causes_of().finalized) <= set(CAUSE_NAMES)
