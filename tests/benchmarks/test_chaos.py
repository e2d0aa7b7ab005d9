"""Tests of ``benchmarks/chaos.py``, and a minute of it."""

from __future__ import annotations

import copy
import random
from itertools import islice

import pytest

from benchmarks.chaos import chaos, kept, schedule
from benchmarks.chaos_bed import OURS
from benchmarks.chaos_events import EVENTS, damage
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.wire.heartbeats import encode, read
from dask_efficiency.accounts.wire.wire import Snapshot
from dask_efficiency.accounts.worker.ledger import Ledger

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


def test_damaged_heartbeats_are_not_what_was_sent_and_most_are_refused():
    honest = encode(Snapshot("ledger", 1, Ledger(2, at=0).balance(at=10**9)))
    before, refused = copy.deepcopy(honest), 0
    for seed in range(200):
        damaged = damage(honest, random.Random(seed))
        try:
            read(damaged)
        except RefusedPayload:
            refused += 1
    assert honest == before
    assert refused > 100


def test_failures_of_ours_are_distinguished_from_those_that_pass_through_us():
    assert OURS.search('File "/lib/dask_efficiency/accounts/cluster/cluster.py", line 1')
    assert not OURS.search('File "/lib/dask_efficiency/plugin/scheduler/loop_meter.py", line 217, in timed')


def test_what_is_kept_is_counted_once_and_without_what_is_not_ours():
    row = list(range(10_000))
    assert kept([row]) > 80_000
    assert kept([row, row, {"again": row}]) < kept([row]) + 1_000
    assert kept([random]) == 0
