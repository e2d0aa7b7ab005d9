"""A minute of ``benchmarks/chaos.py``, and its seeds."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.chaos import chaos, schedule
from benchmarks.chaos_events import EVENTS

#: One whose first minute has a worker that is killed, damaged heartbeats, and a loop that is blocked.
SEED = 3558


@pytest.mark.cluster
@pytest.mark.timeout(1_800)  # however busy the machine is
def test_a_minute_of_chaos_leaves_results_right_sums_exact_and_every_loss_named():
    assert chaos(SEED, 60, [*EVENTS]) == []


def test_a_seed_brings_the_same_events_and_draws_again_and_all_before_any_comes_twice():
    def first(seed: int) -> list[tuple[str, float]]:
        return [(name, rng.random()) for name, rng in islice(schedule(seed, [*EVENTS]), 2 * len(EVENTS))]

    assert first(1) == first(1) != first(2)
    assert {name for name, _ in first(1)[: len(EVENTS)]} == set(EVENTS)
