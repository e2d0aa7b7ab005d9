from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from dask_efficiency import ClusterSpec, RunTrace, load_trace
from dask_efficiency.simulation.model.advice import (
    AS_IT_WAS,
    CHEAPEST,
    FASTEST,
    Limits,
    Setting,
    TasksByPrefix,
    choose,
    limits,
    own_setting,
    search,
)
from tests.simulated_traces import MS, Graph, repeated, simulate

SPILLING = Path(__file__).parents[2] / "data" / "diagnoses" / "spilling.trace"
MIB, GIB = 2**20, 2**30
OWN = Setting(4, 2, 4 * GIB)


class Sized(TasksByPrefix):
    """Tasks that may be so many times as large, in all or by worker."""

    def times(self, on: Setting) -> int:
        return int(self.seconds) // (on.workers if self.rounds > 1 else 1)


def sized(times: int, *, per_worker: bool = False) -> TasksByPrefix:
    return Sized({}, times, 2 if per_worker else 1)


def found(
    took: Callable[[Setting], float],
    limit: Limits = Limits(),  # noqa: B008  # frozen
    own: Setting = OWN,
) -> tuple[dict[str, Setting], list[Setting]]:
    """Settings that a search chooses and tries, given the seconds of each."""
    rounds, tried = search(own, limit), {own: took(own)}
    asked: Sequence[Setting] = next(rounds)
    while True:
        assert not tried.keys() & set(asked)
        tried |= {one: took(one) for one in asked}
        try:
            asked = rounds.send(tried)
        except StopIteration as ended:
            return dict(ended.value), list(tried)


def test_what_helps_alone_is_tried_together() -> None:
    def took(one: Setting) -> float:
        return 100.0 / (2.0 if one.nthreads == 1 else 1.0) / (2.0 if one.chunks == 30 else 1.0)

    chosen, tried = found(took, Limits(tasks=sized(30), saturation=1.1))
    # Four threads would do: as fast as eight.
    assert chosen[FASTEST] == Setting(2, 1, 2 * GIB, chunks=30)
    assert chosen[AS_IT_WAS] == OWN
    assert len(tried) <= 24


def test_the_fastest_and_the_cheapest_are_those_of_the_curve() -> None:
    chosen, _ = found(lambda one: 10.0 + 80.0 / one.threads)
    # Four times the workers, of twice the threads.
    assert chosen[FASTEST].threads == 64
    took = {OWN: 20.0, replace(OWN, workers=8): 11.0, replace(OWN, workers=16): 10.1, replace(OWN, workers=3): 20.2}
    assert {name: one.workers for name, one in choose(OWN, took).items()} == {AS_IT_WAS: 4, FASTEST: 16, CHEAPEST: 3}


def test_nothing_is_chosen_that_is_slower_or_saves_next_to_nothing() -> None:
    for took in (
        lambda one: 1.0 if one == OWN else 1.1,
        lambda one: 1.0 if one == OWN else inf,
        lambda one: 1.0 - one.threads / 1e4,
    ):
        chosen, _ = found(took)
        assert FASTEST not in chosen
        assert all(took(one) <= 1.03 for one in chosen.values())


def test_of_those_that_save_enough_the_one_that_costs_least_is_the_fastest() -> None:
    twice, larger = replace(OWN, nthreads=4), replace(OWN, chunks=2)
    assert choose(OWN, {OWN: 100.0, twice: 95.0, larger: 97.5}) == {AS_IT_WAS: OWN, FASTEST: twice}
    assert choose(OWN, {OWN: 100.0, twice: 95.0, larger: 96.5})[FASTEST] == larger
    assert choose(OWN, {OWN: 100.0, twice: 97.5}) == {AS_IT_WAS: OWN}


def test_memory_that_a_price_is_not_known_of_makes_nothing_the_cheapest() -> None:
    fewer, more = replace(OWN, workers=3), replace(OWN, workers=3, memory_limit=8 * GIB)
    assert choose(OWN, {OWN: 100.0, more: 102.0}) == {AS_IT_WAS: OWN}
    assert choose(OWN, {OWN: 100.0, more: 102.0, fewer: 101.0})[CHEAPEST] == fewer
    # All of a host's memory is there anyway.
    half = replace(OWN, workers=2, memory_limit=8 * GIB)
    assert choose(OWN, {OWN: 100.0, half: 101.0})[CHEAPEST] == half


def test_no_more_threads_than_cores_are_tried_for_tasks_that_compute() -> None:
    _, tried = found(lambda one: 1.0 / one.threads, Limits(threads=4))
    assert max(one.threads for one in tried if one != OWN) <= 4
    assert Setting(4, 1, 4 * GIB) in tried
    _, tried = found(lambda one: 1.0 / one.threads, Limits(threads=12))
    assert max(one.threads for one in tried) == 8


def test_settings_that_do_not_end_are_not_chosen() -> None:
    ends = replace(OWN, workers=2)
    assert choose(OWN, {OWN: inf, ends: inf, Setting(1, 1, GIB): inf}) == {AS_IT_WAS: OWN}
    assert choose(OWN, {OWN: 2.0, ends: 1.0, Setting(1, 1, GIB): inf}) == {AS_IT_WAS: OWN, FASTEST: ends}
    _, tried = found(lambda _: inf)
    assert not [one for one in tried if one.nthreads == 1 and one.workers < 8]  # no base of others


def test_more_workers_of_a_host_share_its_memory() -> None:
    _, tried = found(lambda one: 1.0 / one.workers)
    assert {one.workers for one in tried} >= {8, 16, 32}
    assert all(one.workers * one.memory_limit <= OWN.workers * OWN.memory_limit for one in tried)
    _, tried = found(lambda one: 1.0 / one.workers, Limits(one_host=False))
    assert Setting(16, 2, 4 * GIB) in tried


def test_workers_of_several_hosts_are_not_split_or_merged() -> None:
    _, tried = found(lambda one: 1.0, Limits(one_host=False))
    assert {one.nthreads for one in tried} == {OWN.nthreads}


def test_partitions_are_as_large_as_each_cluster_allows() -> None:
    _, tried = found(lambda one: 1.0 / one.chunks, Limits(tasks=sized(64, per_worker=True)))
    assert Setting(4, 2, 4 * GIB, chunks=16) in tried
    assert all(one.chunks <= 64 // one.workers for one in tried)
    assert {one.workers for one in tried if one.chunks > 1} == {1, 2, 4, 8}


def test_processes_have_all_of_the_memory_and_need_some_each() -> None:
    _, tried = found(lambda one: 1.0)
    assert Setting(8, 1, 2 * GIB) in tried
    small = replace(OWN, memory_limit=GIB // 2)
    rounds = search(small, Limits())
    next(rounds)
    assert all(one.nthreads > 1 for one in rounds.send({small: 1.0}))


def recorded(
    tasks: int = 400, ns: int = 3 * MS, nbytes: int = 1 << 20, cpu: float = 1.0, cores: float = 4.0
) -> RunTrace:
    graph = Graph(["work"] * tasks, [[]] * tasks, [ns] * tasks, [nbytes] * tasks, set(range(tasks)))
    trace = simulate(graph, workers=1, nthreads=4, cpu_share=cpu)
    return replace(trace, workers=tuple(replace(one, host="here", cores=cores) for one in trace.workers))


def test_chunks_are_as_large_as_a_tenth_of_a_second_memory_and_threads_allow() -> None:
    own = Setting(1, 4, 8 * GIB)
    assert TasksByPrefix.of(recorded()).times(own) == 20  # four tasks for each thread, and one digit
    assert TasksByPrefix.of(recorded()).times(replace(own, memory_limit=GIB // 10)) == 3
    assert TasksByPrefix.of(recorded(ns=200 * MS)).times(own) == 0


def test_partitions_of_graphs_one_after_the_other_are_not_joined() -> None:
    own = Setting(1, 4, 8 * GIB)
    once, many = recorded(tasks=64), repeated(recorded(tasks=64), 7)
    # Of 64 tasks, 4 for each of 4 threads are left.
    assert TasksByPrefix.of(many).times(own) == TasksByPrefix.of(once).times(own) == 4


def test_small_tasks_are_joined_though_long_ones_take_more_time() -> None:
    graph = Graph(["small"] * 400 + ["fit"] * 2, [[]] * 402, [MS] * 400 + [900 * MS] * 2, [MIB] * 402, set(range(402)))
    trace = simulate(graph, workers=1, nthreads=4)
    assert TasksByPrefix.of(trace).times(Setting(1, 4, 8 * GIB)) > 1


@pytest.mark.parametrize(("cpu", "cores", "threads"), [(1.0, 4.0, 4.0), (0.1, 4.0, inf), (1.0, 0.0, inf)])
def test_cores_limit_tasks_that_compute_on_them(cpu: float, cores: float, threads: float) -> None:
    trace = recorded(cpu=cpu, cores=cores)
    cluster = ClusterSpec.from_trace(trace)
    assert limits(trace, cluster).threads == threads
    assert limits(trace, cluster).one_host
    assert own_setting(cluster).threads == 4


def test_limits_are_those_of_each_setting_and_of_the_hosts() -> None:
    trace = recorded()
    here = limits(trace, ClusterSpec.from_trace(trace))
    assert here.tasks.times(Setting(1, 4, 8 * GIB)) > here.tasks.times(Setting(4, 4, 8 * GIB)) > 1
    apart = replace(trace.workers[0], name="other", address="tcp://other:1", host="there")
    assert not limits(trace, ClusterSpec((*trace.workers, apart))).one_host


def test_the_recorded_cluster_stays_as_it_was_and_its_workers_have_as_many_threads() -> None:
    cluster = ClusterSpec.from_trace(recorded()).with_workers(2, memory_limit=4 * GIB)
    first, second = cluster.workers
    uneven = replace(cluster, workers=(first, replace(second, memory_limit=3 * GIB)))
    own = own_setting(uneven)
    assert own == Setting(2, 4, 3 * GIB)
    assert replace(own, chunks=2).job(uneven).cluster == uneven
    with pytest.raises(ValueError, match="workers have 1 or 4 threads; expected as many each"):
        own_setting(replace(cluster, workers=(first, replace(second, nthreads=1))))


def test_a_setting_is_a_job_with_its_cluster_chunks_and_saturation() -> None:
    job = Setting(2, 3, GIB, 5, 2.0).job(ClusterSpec.from_trace(recorded()))
    assert [(one.nthreads, one.memory_limit) for one in job.cluster.workers] == [(3, GIB)] * 2
    assert job.chunks == 5
    assert job.cluster.config == {"distributed.scheduler.worker-saturation": 2.0}


def test_more_memory_is_tried_where_a_worker_spilled_and_hosts_are_several() -> None:
    more = replace(OWN, memory_limit=6 * GIB)
    chosen, _ = found(lambda one: 5.0 if one.memory_limit > 4 * GIB else 10.0, Limits(memory=6 * GIB, one_host=False))
    assert chosen[FASTEST].memory_limit == 6 * GIB
    for limit in (Limits(memory=6 * GIB), Limits(one_host=False), Limits(memory=2 * GIB, one_host=False)):
        assert more not in found(lambda _: 1.0, limit)[1]


def test_memory_without_spilling_is_that_of_the_fullest_heartbeat() -> None:
    trace = load_trace(SPILLING)
    needed = limits(trace, ClusterSpec.from_trace(trace)).memory
    assert needed > max(worker.memory_limit for worker in trace.workers)
    assert limits(recorded(), ClusterSpec.from_trace(recorded())).memory == 0


@pytest.mark.parametrize(("given", "share"), [({}, 0.6), ({"target": False}, 0.7), ({"target": 0.9}, 0.7)])
def test_a_worker_spills_by_the_size_of_results_or_else_by_its_memory(given: dict, share: float) -> None:
    trace = load_trace(SPILLING)
    every = {"target": 0.6, "spill": 0.7} | given
    settings = {f"distributed.worker.memory.{name}": value for name, value in every.items()}
    needed, least = (
        limits(replace(trace, config={**trace.config, **settings, **more}), ClusterSpec.from_trace(trace)).memory
        for more in ({}, dict.fromkeys(settings, False))
    )
    assert needed == pytest.approx(least / share, abs=2 * MIB)


def test_no_larger_partitions_where_memory_is_short_and_no_processes_where_cores_are_full() -> None:
    trace = recorded(cores=2.0)
    limit, own = limits(trace, ClusterSpec.from_trace(trace)), Setting(1, 4, GIB)
    _, tried = found(lambda _: 1.0, limit, own)
    assert max(one.chunks for one in tried) > 1
    assert all(one.threads <= 2 for one in tried if replace(one, chunks=1, saturation=None) != own)
    _, tried = found(lambda _: 1.0, limit, replace(own, memory_limit=GIB // 32))
    assert {one.chunks for one in tried} == {1}
