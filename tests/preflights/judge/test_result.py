from __future__ import annotations

import math

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.preflights.judge.links import MeasuredPair
from dask_efficiency.preflights.judge.readings import Component, Reading, Subject, better
from dask_efficiency.preflights.judge.result import decode, encode


def test_measurements_survive_the_wire() -> None:
    readings = {
        Component.CPU: Reading(3e10, 0.9, 0.1, 6, (1.1, 0.9)),
        Component.WORKLOAD: Reading(math.inf, 1.0, 0.0, 1),
    }
    subjects = (
        Subject("a", "tcp://a", "h", "g", readings, {Component.DISK: "full"}),
        Subject("b", "tcp://b", "h", "g", not_tested="it left meanwhile"),
    )
    links = (
        MeasuredPair("tcp://a", "tcp://b", {Component.SEND: 1e-9}, 3),
        MeasuredPair("tcp://a", "tcp://b", {}, 1),
    )
    values = decode(encode(subjects, links, started=1.0, seconds=2.0, notes=["n"]))
    assert values.subjects == subjects
    assert values.links == links
    assert (values.started, values.seconds, values.notes) == (1.0, 2.0, ("n",))


@pytest.mark.parametrize("content", [{}, {"subjects": 3}, {"subjects": [{"readings": {"tpu": {}}}]}])
def test_a_message_that_is_no_result_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(RefusedPayload, match="not what a preflight measured"):
        decode(content)


def test_the_better_of_two_readings_counts_with_the_repetitions_of_both() -> None:
    one, other = Reading(2.0, 0.5, count=3), Reading(3.0, 0.9, count=3)
    best = better(Component.CPU, one, other)
    assert (best.value, best.share, best.count) == (3.0, 0.9, 6)
    assert better(Component.WORKLOAD, one, other).value == 2.0
    assert better(Component.CPU, None, other) is other
