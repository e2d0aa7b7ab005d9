from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.wire.heartbeats import REPEATS
from dask_efficiency.straggler.task_rates import (
    MAX_PREFIXES,
    MAX_SENDERS,
    MIN_SECONDS_A_BYTE,
    MIN_WALL_SECONDS,
    PROCESS_SUMS,
    TASK_SUMS,
    TASK_UNITS,
    TRANSFER_UNITS,
    MissedRates,
    ReceivedRates,
    RunningTask,
    TaskRateCounter,
    TaskRateWriter,
    read_task_rates,
)
from tests.payloads import through_msgpack
from tests.straggler.rates import arrived
from tests.strategies import plain_data

# A failing state machine is shrunk for up to five minutes before it says how it failed.
pytestmark = pytest.mark.timeout(400)

MS = 1_000_000
PROCESS = (1.0, 2.0, 3.0, 4.0, 5.0)


def timed(*milliseconds: int) -> TaskRateCounter:
    counter = TaskRateCounter()
    for wall in milliseconds:
        counter.task("f", wall=wall * MS, cpu=wall * MS // 2, nbytes=math.e - 1)
    return counter


def test_the_first_task_of_a_prefix_and_those_that_measure_the_clock_are_left_out():
    counter = timed(900, 100, 300)
    counter.task("f", wall=50_000, cpu=50_000, nbytes=0)
    rates = arrived(counter, PROCESS, [RunningTask("f", 3.0, 10.0)])
    assert (rates.prefixes, rates.running) == (("f",), (RunningTask("f", 3.0, 10.0),))
    assert rates.process.tolist() == list(PROCESS)
    first, second = (math.log(seconds / MIN_WALL_SECONDS) for seconds in (0.1, 0.3))
    log_wall, log_wall2 = first + second, first**2 + second**2
    expected = [2, 0.4, 0.2, log_wall, log_wall2, 2, 2, log_wall, 1, 0.5]  # half of each task on the CPU, sizes of e
    assert rates.tasks[0].tolist() == pytest.approx(expected, abs=1e-3)


def test_a_task_that_takes_far_longer_than_usual_counts_as_a_few():
    rates = arrived(timed(100, *[100] * 5, 100_000), PROCESS)
    assert rates.tasks[0, 1] == pytest.approx(0.5 + 4 * 0.1, abs=1e-5)


@pytest.mark.parametrize(("times", "compared"), [(3.9, 11), (4.1, 10), (20, 10)])
def test_a_task_that_is_far_larger_than_usual_is_left_out_until_that_is_usual(times: float, compared: int):
    counter = timed(*[100] * 11)
    counter.task("f", wall=2_000 * MS, cpu=0, nbytes=times * math.e - 1)
    assert arrived(counter, PROCESS).tasks[0, 0] == compared
    for _ in range(20):
        counter.task("f", wall=2_000 * MS, cpu=0, nbytes=times * math.e - 1)
    assert arrived(counter, PROCESS).tasks[0, 0] > 20


def test_prefixes_and_senders_are_bounded_and_those_used_last_stay():
    counter = TaskRateCounter()
    for i in range(3 * MAX_PREFIXES):
        for name in ("kept", f"p{i}"):
            counter.task(name, wall=MS, cpu=0, nbytes=0)
            counter.transfer(name, seconds=1.0, nbytes=1_000_000)
    rates = arrived(counter, PROCESS)
    assert len(rates.prefixes) == MAX_PREFIXES
    assert len(rates.senders) == MAX_SENDERS
    assert "kept" in rates.prefixes
    assert rates.tasks[rates.prefixes.index("kept"), 0] == 3 * MAX_PREFIXES - 1


def test_small_transfers_tell_of_latency_and_are_left_out():
    counter = TaskRateCounter()
    counter.transfer("tcp://a", seconds=1.0, nbytes=65_535)
    counter.transfer("tcp://b", seconds=1.0, nbytes=65_536)
    rates = arrived(counter, PROCESS)
    assert rates.senders == ("tcp://b",)
    cost = math.log(1 / 65_536 / MIN_SECONDS_A_BYTE)
    assert rates.transfers[0].tolist() == pytest.approx([1, cost, cost**2, 1], abs=1e-3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e18))))
def test_rates_of_any_counts_are_finite(tasks: list[tuple[str, int, int, float]]):
    counter = TaskRateCounter()
    for prefix, wall, cpu, nbytes in tasks:
        counter.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)
    rates = arrived(counter, PROCESS)
    assert np.isfinite(rates.tasks).all()


@given(st.lists(st.lists(st.tuples(st.integers(50_000, 10**9), st.floats(0, 1.2), st.integers(0, 10**7)), max_size=40)))
def test_tasks_that_are_counted_together_count_like_one_by_one(batches):
    together, single = TaskRateCounter(), TaskRateCounter()
    for batch in batches:
        tasks = [("inc", wall, int(share * wall), float(nbytes)) for wall, share, nbytes in batch]
        together.add(tasks)
        for task in tasks:
            single.add([task])
        assert together.turn == single.turn
        assert together.cpu_seconds == pytest.approx(single.cpu_seconds)
        if "inc" in single.tasks:
            assert together._usual_size["inc"] == pytest.approx(single._usual_size["inc"])


def test_sums_of_tasks_that_are_counted_together_are_those_of_each():
    together, single = TaskRateCounter(), TaskRateCounter()
    tasks = [("inc", 2_000_000 + 1_000 * i, 1_000_000 + 500 * i, 10_000.0 + i) for i in range(200)]
    for first in range(0, 200, 50):
        together.add(tasks[first : first + 50])
    for task in tasks:
        single.add([task])
    assert together.tasks["inc"] == pytest.approx(single.tasks["inc"])


@pytest.mark.parametrize(("tasks", "compared"), [(15, 13), (16, 0)])
def test_the_usual_size_follows_within_few_tasks_and_after_many(tasks: int, compared: int):
    counter = TaskRateCounter()
    counter.task("inc", wall=MS, cpu=MS, nbytes=1e6)
    counter.add([("inc", MS, MS, 5e6)] * tasks)
    assert counter.tasks["inc"][0] == compared


def counted(*prefixes: str) -> TaskRateCounter:
    counter = TaskRateCounter()
    for prefix in prefixes:
        for i in range(4):
            counter.task(prefix, wall=(10 + i) * MS, cpu=5 * MS, nbytes=1e6)
    return counter


def received(payload: Any, last: ReceivedRates | None = None) -> ReceivedRates:
    found = read_task_rates(through_msgpack(payload), "a", last)
    assert isinstance(found, ReceivedRates)
    return found


class RatesMachine(RuleBasedStateMachine):
    """Heartbeats are lost, come late or twice: the scheduler reads the counter's sums of then, but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = TaskRateCounter()
        self.writer = TaskRateWriter()
        self.last: ReceivedRates | None = None
        self.letters: list[tuple[Any, dict[str, list[float]], dict[str, list[float]]]] = []

    @rule(
        prefix=st.integers(0, MAX_PREFIXES + 5).map(str),
        wall=st.integers(0, 100_000 * MS),
        share=st.floats(0, 1),
        nbytes=st.floats(0, 1e15),
        times=st.integers(1, 9),
    )
    def run(self, prefix: str, wall: int, share: float, nbytes: float, times: int) -> None:
        for _ in range(times):
            self.counter.task(prefix, wall=wall, cpu=round(wall * share), nbytes=nbytes)

    @rule(first=st.integers(0, 99))
    def run_many_prefixes(self, first: int) -> None:
        for i in range(MAX_PREFIXES):
            self.counter.task(str(first + i), wall=MS, cpu=MS, nbytes=0)

    @rule(sender=st.integers(0, MAX_SENDERS + 3).map(str), seconds=st.floats(0, 1e6))
    def fetch(self, sender: str, seconds: float) -> None:
        self.counter.transfer(sender, seconds=seconds, nbytes=1_000_000)

    @rule(fate=st.sampled_from(["comes", "comes", "comes", "is lost", "comes twice"]))
    def send(self, fate: str) -> None:
        tasks, transfers = (
            {name: list(sums[:-1]) for name, sums in table.items()}
            for table in (self.counter.tasks, self.counter.transfers)
        )
        letter = through_msgpack(self.writer.heartbeat(self.counter, PROCESS)), tasks, transfers
        self.letters.append(letter)
        if fate != "is lost":
            self.deliver(*letter)
        if fate == "comes twice":
            self.deliver(*letter)

    @rule(which=st.integers(0, 100))
    def a_late_one_comes(self, which: int) -> None:
        if self.letters:
            self.deliver(*self.letters[which % len(self.letters)])

    @rule()
    def ask(self) -> None:
        self.writer.begin_anew()

    def deliver(self, sent: Any, tasks: dict[str, list[float]], transfers: dict[str, list[float]]) -> None:
        seq = 0 if self.last is None else self.last.seq
        found = read_task_rates(sent, "a", self.last)
        if "s" in sent and not (self.last is not None and sent["s"] <= seq < sent["n"]):
            assert isinstance(found, MissedRates)
            return
        assert isinstance(found, ReceivedRates)
        rates = found.rates
        for names, sums, expected, units in (
            (rates.prefixes, rates.tasks, tasks, TASK_UNITS),
            (rates.senders, rates.transfers, transfers, TRANSFER_UNITS),
        ):
            assert set(names) == set(expected)
            for name, row in zip(names, sums, strict=True):
                assert (np.abs(row - expected[name]) <= units).all()
        if sent["n"] > seq:
            self.last = found


TestRatesMachine = RatesMachine.TestCase
TestRatesMachine.settings = settings(max_examples=60, stateful_step_count=30)


def test_names_travel_only_when_they_are_new_and_are_the_same_object_while_none_is():
    writer, counter = TaskRateWriter(), counted("first", "second")
    for _ in range(REPEATS):
        last = received(writer.heartbeat(counter, PROCESS))
    counter.task("first", wall=MS, cpu=MS, nbytes=1)
    sent = writer.heartbeat(counter, PROCESS, [RunningTask("second", 3.0, 1.0), RunningTask("third", 3.0, 1.0)])
    assert "first" not in repr(sent)
    assert "second" not in repr(sent)
    found = received(sent, last)
    assert found.rates.prefixes is last.rates.prefixes
    assert found.rates.transfers is last.rates.transfers
    assert [task.prefix for task in found.rates.running] == ["second", "third"]


def test_rates_of_another_ledger_are_missed():
    writer, counter = TaskRateWriter(), counted("first")
    for _ in range(REPEATS):
        last = received(writer.heartbeat(counter, PROCESS))
    sent = through_msgpack(writer.heartbeat(counter, PROCESS))
    assert isinstance(read_task_rates(sent, "b", last), MissedRates)
    assert isinstance(read_task_rates(sent, "a", None), MissedRates)
    writer.begin_anew()
    assert received(writer.heartbeat(counter, PROCESS)).rates.prefixes == ("first",)


@given(plain_data)
def test_a_payload_that_holds_no_rates_is_refused(payload: object):
    with pytest.raises(RefusedPayload):
        read_task_rates(payload)


@given(st.sampled_from(["n", "s", "v", "r", "b", "c", "p", "t"]), plain_data)
def test_rates_with_one_wrong_field_are_refused_or_mean_something(field: str, value: object):
    payload = {**TaskRateWriter().heartbeat(counted("f"), PROCESS), field: value}
    try:
        found = read_task_rates(payload)
    except RefusedPayload:
        return
    if isinstance(found, ReceivedRates):
        assert len(found.rates.prefixes) == len(found.rates.tasks)
        assert len(found.rates.senders) == len(found.rates.transfers)
        assert len(found.rates.process) == len(PROCESS_SUMS)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_are_not_finite_and_too_many_names_are_refused(number: float):
    with pytest.raises(RefusedPayload, match="process"):
        read_task_rates(TaskRateWriter().heartbeat(counted(), (0.0, 0.0, number, 0.0, 0.0)))
    counter = counted()
    counter.tasks = {str(i): [0.0] * len(TASK_SUMS) + [1.0] for i in range(2 * MAX_PREFIXES)}
    with pytest.raises(RefusedPayload, match=f"expected at most {MAX_PREFIXES}"):
        read_task_rates(TaskRateWriter().heartbeat(counter, PROCESS))
