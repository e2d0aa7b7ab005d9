from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.preflights.judge.readings import Component, Reading, Subject
from dask_efficiency.preflights.judge.result import PreflightResult
from dask_efficiency.preflights.judge.verdict import judge
from dask_efficiency.straggler.causes import BY_MEASUREMENT
from tests.preflights.judge.clusters import all_rounds, on_hosts_of_their_own, subject

RATES = {"cpu": 3e10, "python": 5e6, "memory_bandwidth": 8e9, "disk": 2e8}


def healthy(number: int, **others: object) -> list[Subject]:
    return [subject(f"w{i}", **{**RATES, **others}) for i in range(number)]


def causes(subjects: list[Subject]) -> dict[str, Cause]:
    return {finding.worker: finding.cause for finding in judge(subjects, [], at=0.0)}


@pytest.mark.parametrize(
    ("slow", "share", "cause"),
    [
        ({"cpu": 2e10}, 1.0, Cause.SLOW_CPU),
        ({"cpu": 1e10, "python": 2e6, "memory_bandwidth": 2.4e9}, 0.4, Cause.CONTENTION),
        ({"cpu": 1.4e10, "python": 2.1e6, "memory_bandwidth": 3e9, "disk": 4e7}, 0.4, Cause.CONTENTION),
        ({"cpu": 1.4e10, "disk": 2e6}, 0.4, Cause.DISK),
        ({"memory_bandwidth": 4e9, "cpu": 2.2e10}, 1.0, Cause.MEMORY_BANDWIDTH),
        ({"disk": 2e6}, 1.0, Cause.DISK),
        ({"disk": 2e6, "cpu": 2.2e10}, 1.0, Cause.DISK),
        ({"python": 2.5e6}, 1.0, Cause.CONTENTION),
    ],
)
def test_the_component_that_is_slow_by_itself_names_the_cause(slow, share, cause) -> None:
    victim = subject("victim", share=share, **{**RATES, **slow})
    assert causes([*healthy(3), victim]) == {"victim": cause}


def test_python_is_slow_for_the_gil_where_other_threads_of_its_process_compute() -> None:
    held = Subject("victim", "victim", "h", "", {Component.PYTHON: Reading(1e6, share=0.3, others=0.7)})
    assert causes([*healthy(3), held]) == {"victim": Cause.GIL}


@given(st.lists(st.floats(0.97, 1.03), min_size=3, max_size=20))
def test_no_worker_is_named_if_all_differ_by_little(speeds: list[float]) -> None:
    subjects = [subject(f"w{i}", cpu=3e10 * speed) for i, speed in enumerate(speeds)]
    assert not judge(subjects, [], at=0.0)


@given(
    st.lists(st.floats(0.98, 1.02), min_size=3, max_size=20),
    st.floats(1.5, 100),
    st.sampled_from(["cpu", "disk", "workload"]),
)
def test_one_worker_that_is_half_as_slow_again_is_named_among_any_number(speeds, slow, component) -> None:
    def reading(speed: float) -> float:
        return 1 / speed if component == "workload" else speed

    subjects = [subject(f"w{i}", **{component: reading(speed)}) for i, speed in enumerate(speeds)]
    subjects.append(subject("victim", **{component: reading(1 / slow)}))
    (finding,) = judge(subjects, [], at=0.0)
    assert finding.worker == "victim"
    assert finding.effect == pytest.approx(slow, rel=0.05)


def test_workers_are_compared_with_workers_of_equal_hardware() -> None:
    large = [subject(f"large{i}", group="large", cpu=6e10) for i in range(3)]
    small = [subject(f"small{i}", group="small", cpu=3e10) for i in range(3)]
    assert not judge([*large, *small], [], at=0.0)


def test_two_workers_have_a_ratio_and_no_blame() -> None:
    values = PreflightResult((subject("a", cpu=3e10), subject("b", cpu=1e10)))
    assert not values.findings
    assert values.ratios["b"][Component.CPU] == pytest.approx(3.0)
    assert values.too_few == (("a", "b"),)


def test_a_failure_on_one_worker_is_infinitely_slow_and_one_everywhere_is_no_workers_fault() -> None:
    failed = Subject("victim", "victim", "h", "", {Component.WORKLOAD: Reading(math.inf)})
    (finding,) = judge([*(subject(f"w{i}", workload=1.0) for i in range(3)), failed], [], at=0.0)
    assert (finding.worker, finding.effect, finding.score) == ("victim", None, math.inf)
    everywhere = [Subject(name, name, name, "", {Component.WORKLOAD: Reading(math.inf)}) for name in "abc"]
    assert not judge(everywhere, [], at=0.0)


def test_a_worker_that_does_not_answer_is_named_and_so_is_one_whose_memory_is_full() -> None:
    hung = Subject("hung", "hung", "h", broken="no answer in 5 s")
    full = Subject("full", "full", "h2", broken="it is paused", paused=True)
    assert causes([*healthy(2), hung, full]) == {"hung": Cause.UNRESPONSIVE, "full": Cause.MEMORY}


def test_a_host_is_named_in_place_of_all_its_workers() -> None:
    subjects = [subject(f"w{i}", host=f"h{i // 2}", **{**RATES, "disk": 2e6 if i < 2 else 2e8}) for i in range(8)]
    (finding,) = judge(subjects, [], at=0.0)
    assert (finding.worker, finding.host, finding.cause) == ("", "h0", Cause.DISK)
    assert PreflightResult(tuple(subjects)).slow == ("w0", "w1")


def test_a_slow_link_is_named_with_the_direction_that_is_slow() -> None:
    links, *_ = all_rounds(on_hosts_of_their_own(4), lambda pair: 3.0 if "w2" in pair else 1.0)
    subjects = [subject(f"w{i}", cpu=3e10) for i in range(4)]
    (finding,) = judge(subjects, [links], at=0.0)
    assert (finding.worker, finding.cause, finding.effect) == ("w2", Cause.NETWORK, pytest.approx(3.0))
    assert {item.signal for item in finding.evidence} == {"send", "receive"}


@pytest.mark.parametrize(
    ("slow", "held", "cause"),
    [
        (2.0, Reading(2.5e6), Cause.CONTENTION),
        (3.0, Reading(3.3e6, share=0.6, others=0.3), Cause.GIL),
        (30.0, Reading(3.3e6, share=0.6, others=0.3), Cause.NETWORK),  # too slow to be explained
    ],
)
def test_slow_messages_are_explained_by_a_process_that_is_held_up(slow: float, held: Reading, cause: Cause) -> None:
    links, *_ = all_rounds(on_hosts_of_their_own(4), lambda pair: slow if "w2" in pair else 1.0)
    subjects = [subject(f"w{i}", python=5e6) for i in range(4)]
    subjects[2] = replace(subjects[2], readings={Component.PYTHON: held})
    (finding,) = judge(subjects, [links], at=0.0)
    assert finding.cause == cause


def test_all_components_in_the_table_of_causes_are_known() -> None:
    named = {str(component): component.cause for component in Component if component.cause is not Cause.UNKNOWN}
    assert named == BY_MEASUREMENT
