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
from dask_efficiency.straggler.task_rate_heartbeats import (
    TASK_UNITS,
    TRANSFER_UNITS,
    MissedRates,
    ReceivedRates,
    TaskRateWriter,
    read_task_rates,
)
from dask_efficiency.straggler.task_rates import (
    MAX_PREFIXES,
    MAX_SENDERS,
    PROCESS_SUMS,
    TASK_SUMS,
    TRANSFER_SUMS,
    RunningTask,
    TaskRateCounter,
)
from tests.payloads import through_msgpack
from tests.strategies import plain_data

# A failing state machine is shrunk for up to five minutes before it says how it failed.
pytestmark = pytest.mark.timeout(400)

MS = 1_000_000
PROCESS = (1.0, 2.0, 3.0, 4.0, 5.0)


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


def test_units_are_those_of_the_sums():
    assert len(TASK_UNITS) == len(TASK_SUMS)
    assert len(TRANSFER_UNITS) == len(TRANSFER_SUMS)


class RatesMachine(RuleBasedStateMachine):
    """Heartbeats are lost, come late or twice: what is read is what the counter had then, but for the rounding."""

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
def test_numbers_that_are_not_finite_are_refused(number: float):
    with pytest.raises(RefusedPayload, match="process"):
        read_task_rates(TaskRateWriter().heartbeat(counted(), (0.0, 0.0, number, 0.0, 0.0)))


def test_too_many_names_are_refused():
    counter = counted()
    counter.tasks = {str(i): [0.0] * len(TASK_SUMS) + [1.0] for i in range(2 * MAX_PREFIXES)}
    with pytest.raises(RefusedPayload, match=f"expected at most {MAX_PREFIXES}"):
        read_task_rates(TaskRateWriter().heartbeat(counter, PROCESS))
