from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.plugin import names
from dask_efficiency.preflights.judge.readings import Component, Subject
from dask_efficiency.preflights.judge.result import PreflightResult, decode, encode
from dask_efficiency.preflights.scheduler.plan import Candidate, Plan
from dask_efficiency.preflights.scheduler.preflight import CONFIRMATIONS, Preflight
from tests.preflights.simulated import SimulatedLoop, Workers


class Asked(Workers):
    """Notes what is measured where at the same time; some answers are given."""

    def __init__(self, hosts: Mapping[str, str], slow: Mapping[str, Mapping[str, float]] | None = None) -> None:
        super().__init__(hosts, slow or {}, Random(1))
        self.now: list[str] = []
        self.most = 0
        self.steps: list[str] = []
        self.answers: dict[str, Any] = {}
        self.late: set[str] = set()

    async def ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
        if address not in self.present:
            raise OSError("connection refused")
        if address in self.late:
            self.late.remove(address)
            await asyncio.sleep(seconds)
            raise TimeoutError
        if step["step"] in self.answers and self.answers[step["step"]][0] in (address, "any"):
            answer = self.answers[step["step"]][1]
            if step["step"] == names.PAIR:  # once
                del self.answers[names.PAIR]
            return answer
        self.steps.append(step["step"])
        machines = [self.hosts[one] for one in {address, step.get("partner", address)}]
        if step["step"] != names.READY:
            self.now += machines
            self.most = max(self.most, *(self.now.count(machine) for machine in set(machines)))
        try:
            return await super().ask(address, step, seconds)
        finally:
            if step["step"] != names.READY:
                for machine in machines:
                    self.now.remove(machine)


def preflight(workers: Asked, **plan: Any) -> Preflight:
    candidates = [Candidate(Subject(worker, worker, host)) for worker, host in workers.hosts.items()]
    return Preflight(Plan("t", **plan), candidates, workers.ask, workers.present, Random(2))


def found_in(workers: Asked, **plan: Any) -> PreflightResult:
    test = preflight(workers, **plan)
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(test.run())
        took = runner.get_loop().time()
    links = [link for of_group in test.links.values() for link in of_group]
    return decode(encode([one.subject for one in test.workers], links, started=0.0, seconds=took, notes=test.notes))


def on_hosts(workers: int, hosts: int) -> dict[str, str]:
    return {f"w{i}": f"h{i % hosts}" for i in range(workers)}


@pytest.mark.parametrize(
    ("component", "cause"), [("cpu", Cause.SLOW_CPU), ("disk", Cause.DISK), ("send", Cause.NETWORK)]
)
def test_a_slow_worker_is_found_with_its_cause_and_no_other(component: str, cause: Cause) -> None:
    found = found_in(Asked(on_hosts(5, 5), {"w3": {component: 2.0}}))
    assert [(finding.worker, finding.cause) for finding in found.slow_workers] == [("w3", cause)]
    assert found.slow == ("w3",)
    assert not found.passed


class Training(Asked):
    """Workers whose pairs train, one of them slowly."""

    async def ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
        if "group" not in step:
            return await super().ask(address, step, seconds)
        self.steps.append(f"{step['group']['backend']} {step['group']['rank']} {step['group']['address']}")
        (component,) = step["components"]
        return {"measured": {component: {"value": 2.0 if address == "w3" else 1.0}}}


def test_a_worker_that_is_slow_only_when_it_trains_is_found_with_its_effect() -> None:
    workers = Training(on_hosts(5, 5))
    found = found_in(workers, training="gloo")
    assert [(one.worker, one.cause, one.effect) for one in found.slow_workers] == [("w3", Cause.UNKNOWN, 2.0)]
    assert {link.seconds[Component.TRAINING] for link in found.links if "w3" in (link.first, link.second)} == {2.0}
    assert not any(Component.COLLECTIVE in link.seconds for link in found.links)
    ranks = [step for step in workers.steps if step.startswith("gloo")]
    assert len(ranks) == 2 * sum(Component.TRAINING in link.seconds for link in found.links)


def test_pairs_of_a_worker_that_is_slow_alone_are_not_measured_again() -> None:
    def pairs(slow: dict[str, float]) -> int:
        workers = Asked(on_hosts(5, 5), {"w3": slow})
        assert found_in(workers).slow == ("w3",)
        return workers.steps.count(names.PAIR)

    assert pairs({"cpu": 2.0, "send": 2.0}) == pairs({"send": 2.0}) - CONFIRMATIONS


class Slowed(Asked):
    """All that is measured takes twice as long from some second on."""

    def __init__(self, hosts: Mapping[str, str], at: float, slow: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__(hosts, slow)
        self.at = at

    def seconds(self, worker: str, component: str) -> float:
        return super().seconds(worker, component) * (1 + (asyncio.get_running_loop().time() > self.at))


@pytest.mark.parametrize("at", [2.0, 4.0, 6.0, 8.0, 10.0])
def test_a_machine_that_becomes_slow_meanwhile_accuses_none_of_its_workers(at: float) -> None:
    assert found_in(Slowed(on_hosts(4, 1), at, {})).passed
    slow = Slowed(on_hosts(4, 1), at, {"w3": {"cpu": 1.6, "disk": 1.6}})
    assert set(found_in(slow).slow) <= {"w3"}


def test_a_suspect_is_measured_in_turns_with_others_until_it_is_confirmed_or_cleared() -> None:
    def measured(slow: dict[str, float]) -> int:
        workers = Asked(on_hosts(5, 5), {"w3": slow})
        assert found_in(workers).slow == ("w3",) * bool(slow)
        return workers.steps.count(names.MEASURE)

    assert measured({}) == 5
    assert measured({"cpu": 3.0}) == 10
    assert measured({"cpu": 1.6}) == 16


def test_healthy_workers_are_measured_once_and_in_one_pair_each() -> None:
    workers = Asked(on_hosts(64, 16))
    found = found_in(workers)
    assert found.passed
    assert (workers.steps.count(names.MEASURE), workers.steps.count(names.PAIR)) == (64, 32)
    assert {one.readings[Component.CPU].count for one in found.subjects} == {1}
    assert found.seconds < 7


@pytest.mark.parametrize("hosts", [16, 64])
def test_once_a_first_look_finds_a_slow_worker_all_are_measured_in_full(hosts: int) -> None:
    workers = Asked(on_hosts(64, hosts), {"w3": {"send": 2.0}})
    found = found_in(workers)
    assert found.slow == ("w3",)
    assert len({link.first for link in found.links if link.repeats > 1}) > 30


def test_a_worker_that_leaves_while_it_is_measured_in_turns_is_not_blamed() -> None:
    class Leaving(Asked):
        async def ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
            if self.steps.count(names.MEASURE) > 6 and address == "w3":
                self.present.pop(address, None)
            return await super().ask(address, step, seconds)

    found = found_in(Leaving(on_hosts(5, 5), {"w3": {"cpu": 1.6}}))
    assert found.not_tested == {"w3": "it left during the test"}
    assert found.passed


def test_workers_of_one_machine_take_turns() -> None:
    workers = Asked(on_hosts(12, 3))
    assert found_in(workers).passed
    assert workers.most == 1


def test_a_worker_that_hangs_is_named_and_the_others_are_tested() -> None:
    found = found_in(Asked(on_hosts(5, 5), {"w1": {"cpu": math.inf}}))
    assert [(finding.worker, finding.cause) for finding in found.slow_workers] == [("w1", Cause.UNRESPONSIVE)]
    assert sum(bool(one.readings) for one in found.subjects) == 4
    assert not any("w1" in (link.first, link.second) for link in found.links)


def test_no_worker_is_named_if_most_do_not_answer() -> None:
    found = found_in(Asked(on_hosts(4, 4), {f"w{i}": {"cpu": math.inf} for i in range(3)}))
    assert not found.findings
    assert set(found.not_tested) == {"w0", "w1", "w2"}
    assert found.notes[0].startswith("3 of 4 workers did not answer")


EXCUSES: dict[str, Callable[[Asked], object]] = {
    "it did not answer in 5 s, and did later": lambda workers: workers.late.add("w1"),
    "it left during the test": lambda workers: workers.present.pop("w1"),
    "it began to run tasks": lambda workers: workers.present["w1"].processing.add("task"),
}


@pytest.mark.parametrize("excuse", EXCUSES)
def test_a_worker_that_is_late_or_gone_or_gets_tasks_is_not_tested_and_not_blamed(excuse: str) -> None:
    workers = Asked(on_hosts(5, 5))
    EXCUSES[excuse](workers)
    found = found_in(workers)
    assert found.not_tested == {"w1": excuse}
    assert found.passed
    assert not any("w1" in (link.first, link.second) for link in found.links)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "it is not metered: it has no dask_efficiency of this version"),
        ({"busy": True}, "it began to run tasks"),
        ({"failed": "OSError: no"}, "OSError: no"),
        ({"measured": {"cpu": {"value": -1.0}}}, "its answer was refused: cpu is -1.0; expected a number from 0"),
        ({"measured": {"tpu": {}}}, "its answer was refused: unknown component 'tpu'"),
        ({"measured": 3}, "its answer was refused: measurements are 3; expected them by component"),
        ({"measured": {"cpu": {"value": "x"}}}, "its answer was refused: cpu is {'value': 'x'}; expected numbers"),
    ],
)
def test_an_unusable_answer_is_the_reason_why_a_worker_is_not_tested(answer: Any, why: str) -> None:
    workers = Asked(on_hosts(4, 4))
    workers.answers[names.MEASURE] = ("w1", answer)
    found = found_in(workers)
    assert found.not_tested["w1"].startswith(why)
    assert not found.findings


def test_a_paused_worker_is_named_for_its_memory() -> None:
    workers = Asked(on_hosts(4, 4))
    workers.answers[names.READY] = ("w0", {"machine": "h0", "paused": True})
    (finding,) = found_in(workers).slow_workers
    assert (finding.worker, finding.cause) == ("w0", Cause.MEMORY)


def test_a_pair_that_fails_once_accuses_no_worker() -> None:
    workers = Asked(on_hosts(6, 6))
    workers.answers[names.PAIR] = ("any", {"failed": "refused"})
    found = found_in(workers)
    assert any(not link.seconds for link in found.links)
    assert found.passed


def test_a_worker_without_a_turn_in_time_is_not_tested() -> None:
    found = found_in(Asked(on_hosts(20, 1)), seconds=15.0)
    assert found.seconds < 20
    assert set(found.not_tested.values()) == {"the 15 s were over before its turn"}
    assert 0 < len(found.not_tested) < 20


def test_two_workers_are_a_pair_once_and_neither_is_blamed() -> None:
    workers = Asked(on_hosts(2, 2), {"w0": {"cpu": 3.0, "send": 3.0}})
    found = found_in(workers)
    assert workers.steps.count(names.PAIR) == 1
    assert not found.findings
    assert found.too_few == (("w0", "w1"),)


def test_a_cancelled_test_leaves_nothing_running() -> None:
    workers = Asked(on_hosts(6, 6))

    async def cancelled() -> int:
        task = asyncio.ensure_future(preflight(workers).run())
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        return len(asyncio.all_tasks()) - 1

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(cancelled()) == 0
    assert not workers.now


@pytest.mark.parametrize(
    ("step", "answer", "why"),
    [
        (names.READY, {"machine": ["h0"], "gpu": False}, "its answer was refused: machine is ['h0']"),
        (names.READY, {"machine": "x" * 1_001}, "its answer was refused: machine is 'xxx"),
        (names.READY, {"gpu": "yes"}, "its answer was refused: gpu is 'yes'"),
        (names.READY, {"port": "x"}, "its answer was refused: port is 'x'"),
        (names.MEASURE, {"failed": [[1]]}, "[[1]]"),
        (names.MEASURE, {"measured": [1]}, "its answer was refused: measurements are [1]"),
    ],
)
def test_a_worker_that_answers_oddly_is_not_tested_and_others_are(step: str, answer: Any, why: str) -> None:
    workers = Asked(on_hosts(5, 5), {"w3": {"cpu": 2.0}})
    workers.answers = {step: ("w1", answer)}
    found = found_in(workers)
    assert found.slow == ("w3",)
    not_tested = {one.name: one.not_tested for one in found.subjects if one.not_tested}
    assert not_tested.keys() == {"w1"}
    assert not_tested["w1"].startswith(why)


@pytest.mark.parametrize("answer", [{}, {"measured": 1}, {"measured": {"training": 7}}, {"measured": {}}])
def test_a_pair_that_answers_oddly_after_it_trained_was_not_measured(answer: Any) -> None:
    class Odd(Training):
        async def ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
            found = await super().ask(address, step, seconds)
            return answer if "group" in step else found

    found = found_in(Odd(on_hosts(2, 2)), training="gloo")
    assert [one.missing.get(Component.TRAINING) for one in found.subjects] == ["it was not measured"] * 2
