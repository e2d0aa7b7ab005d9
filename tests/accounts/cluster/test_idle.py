import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Bucket
from dask_efficiency.accounts.cluster import idle
from dask_efficiency.accounts.cluster.idle import (
    NOTHING_RAN,
    SEEN,
    Alone,
    ClusterState,
    IdleWeights,
    WorkClock,
    WorkerSlots,
    paused_slots_by_cause,
    slots_by_cause,
)
from dask_efficiency.accounts.rows import OTHER

SECOND = 1_000_000_000


def state(free: dict[str, int] | None = None, nthreads: int = 4, **options) -> ClusterState:
    """Workers of four threads, some of which are free."""
    workers = {worker: WorkerSlots(n, nthreads) for worker, n in (free or {}).items()}
    return ClusterState(workers, sum(slots.free for slots in workers.values()), **options)


def weighed(*looks: tuple[ClusterState | None, int]) -> IdleWeights:
    """The weights after looks, each a state and the second until which it lasted."""
    weights = IdleWeights(at=0)
    for given_state, seconds in looks:
        weights.accrue(given_state, at=seconds * SECOND)
    return weights


def seen(given_state: ClusterState) -> dict[str, int]:
    return {cause: slots for cause, slots in zip(SEEN, slots_by_cause(given_state), strict=True) if slots}


# -- which slots are free for which cause, by hand --------------------------------------------------


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, {"parallelism": 8}),
        ({"graphs": True}, {"graph": 8}),
        ({"queued": 3}, {"scheduler": 3, "parallelism": 5}),
        ({"queued": 100, "waiting": 5}, {"scheduler": 8}),
        (
            {"queued": 2, "waiting": 3, "restricted": 1},
            {"scheduler": 2, "imbalance": 3, "restricted": 1, "parallelism": 2},
        ),
        ({"waiting": 3, "restricted": 100}, {"imbalance": 3, "restricted": 5}),
        ({"restricted": 1, "graphs": True}, {"restricted": 1, "graph": 7}),
        ({"queued": 5, "waiting": 5, "restricted": 5, "graphs": True}, {"scheduler": 5, "imbalance": 3}),
    ],
)
def test_free_slots_go_to_the_first_cause_that_there_is(held, expected):
    assert seen(state({"a": 3, "b": 4, "c": 1, "busy": 0}, **held)) == expected
    assert seen(state({"a": 0}, **held)) == {}


# -- what becomes of the time, by hand --------------------------------------------------------------


def test_idle_time_is_split_by_the_states_meanwhile_and_free_slots_share_the_tasks():
    weights = weighed((state({"a": 4, "b": 0}, graphs=True), 1), (state({"a": 3, "b": 0}), 3))
    assert weights.split("a", 10 * SECOND) == {"graph": 4 * SECOND, "parallelism": 6 * SECOND}
    assert weights.split("b", 0) == {}
    # The tasks that they could run are of all free slots.
    weights = weighed((state({"a": 1, "b": 3}, queued=2), 1))
    assert weights.split("a", SECOND) == {"scheduler": SECOND // 2, "parallelism": SECOND // 2}
    assert weights.split("b", 3 * SECOND) == {"scheduler": 3 * SECOND // 2, "parallelism": 3 * SECOND // 2}
    # The worker was less idle than believed.
    weights = weighed((state({"a": 4}, queued=1), 1))
    assert weights.split("a", SECOND) == {"scheduler": SECOND // 4, "parallelism": 3 * SECOND // 4}


def test_idle_slots_in_use_wait_for_the_scheduler_or_for_round_trips_if_it_is_at_rest():
    weights = weighed((state({"a": 1}), 1))
    assert weights.split("a", 3 * SECOND) == {"scheduler": 2 * SECOND, "parallelism": SECOND}
    weights = IdleWeights(at=0)
    # All slots were believed to be in use; for three quarters of a second with queued tasks the event loop slept.
    weights.accrue(state({"a": 0}, queued=9), at=SECOND, at_rest=3 * SECOND // 4)
    assert weights.split("a", 2 * SECOND) == {"scheduler": SECOND // 2, "round-trips": 3 * SECOND // 2}
    weights.accrue(state({"a": 0}), at=2 * SECOND, at_rest=SECOND)  # nothing was queued
    assert weights.split("a", 2 * SECOND) == {"scheduler": 2 * SECOND}
    # Slots that the saturation leaves free.
    weights = IdleWeights(at=0)
    weights.accrue(state({"a": 2}, queued=1), at=SECOND, at_rest=SECOND // 2)
    assert weights.split("a", 2 * SECOND) == {
        "scheduler": SECOND // 2,
        "round-trips": SECOND // 2,
        "parallelism": SECOND,
    }


def test_idle_time_without_a_look_is_unknown_and_a_split_uses_weights_up():
    assert weighed().split("a", 5) == {UNKNOWN: 5}
    weights = weighed((None, 1), (state({"a": 1, "b": 4}), 2), (None, 3))
    assert weights.split("b", 9 * SECOND) == {"parallelism": 4 * SECOND, UNKNOWN: 5 * SECOND}
    assert weights.split("a", 9 * SECOND) == {"scheduler": 3 * SECOND, "parallelism": SECOND, UNKNOWN: 5 * SECOND}
    weights = weighed((state({"a": 4}), 1))
    weights.split("a", 0)
    assert weights.split("a", 1) == {UNKNOWN: 1}


def test_a_worker_may_report_to_an_instant_that_is_over():
    weights = weighed((state({"a": 4}, graphs=True), 1), (state({"a": 2}), 3))
    assert weights.split("a", 6 * SECOND, at=2 * SECOND) == {"graph": 4 * SECOND, "parallelism": 2 * SECOND}
    assert weights.split("a", 0, at=SECOND) == {}  # it was further already
    assert weights.split("a", 2 * SECOND, at=9 * SECOND) == {"parallelism": 2 * SECOND}
    weights.accrue(state({"a": 2}, queued=2), at=4 * SECOND)
    assert weights.split("a", 2 * SECOND) == {"scheduler": 2 * SECOND}
    weights = weighed((state({"a": 1}), 1), (None, 9), (state({"a": 1}, graphs=True), 10))
    assert weights.split("a", SECOND, at=2 * SECOND) == {"parallelism": SECOND}
    assert weights.split("a", SECOND) == {"graph": SECOND}


def test_time_between_forgotten_instants_is_in_proportion_and_equal_looks_forget_nothing(monkeypatch):
    monkeypatch.setattr(idle, "MAX_INSTANTS", 2)
    weights = IdleWeights(at=0)
    for i, held in enumerate((state({"a": 1}), None, state({"a": 1}, graphs=True), None)):
        weights.accrue(held, at=(i + 1) * SECOND)
    # Only 3 s and 4 s are remembered, and that it began at 0.
    half = {"graph": SECOND // 2, "parallelism": SECOND // 2}
    assert weights.split("a", SECOND, at=3 * SECOND // 2) == half
    assert weights.split("a", SECOND) == half
    monkeypatch.setattr(idle, "MAX_INSTANTS", 3)
    weights = IdleWeights(at=0)
    for held, until in ((state({"a": 1}), 10), (None, 20), (state({"a": 1}, graphs=True), 30)):
        for at in range(until - 9, until + 1):
            weights.accrue(held, at=at * SECOND)
    assert weights.split("a", 10 * SECOND, at=15 * SECOND) == {"parallelism": 10 * SECOND}
    assert weights.split("a", 10 * SECOND) == {"graph": 10 * SECOND}


def test_the_time_before_a_worker_came_and_after_it_left_is_not_weighed():
    weights = weighed((state({"a": 4}), 1), (state({"a": 4, "b": 1}), 2), (state({"b": 1}), 3))
    assert weights.split("b", 2 * SECOND) == {"parallelism": 2 * SECOND}
    assert weights.split("a", 9 * SECOND) == {"parallelism": 8 * SECOND, UNKNOWN: SECOND}
    weights = weighed((state({"a": 4}), 1))
    weights.worker_left("a")
    weights.accrue(state({"a": 4, "b": 1}), at=2 * SECOND)
    assert weights.split("a", SECOND) == {UNKNOWN: SECOND}


def test_a_clock_that_stands_still_counts_nothing_and_negative_idle_time_is_refused():
    weights = IdleWeights(at=SECOND)
    for at in (SECOND, 0):
        weights.accrue(state({"a": 4}), at=at)
    assert (weights.at, weights.split("a", 1)) == (SECOND, {UNKNOWN: 1})
    with pytest.raises(ValueError, match="'a' reports -1 ns of idle time; expected 0 or more"):
        IdleWeights(at=0).split("a", -1)


def test_many_changes_are_summed_up():
    weights = IdleWeights(at=0)
    for i in range(5 * idle.MAX_CHANGES):
        weights.accrue(state({"a": 1 + i % 2}, graphs=i % 3 == 0), at=i + 1)
    n = 5 * idle.MAX_CHANGES
    graph = sum(1 + i % 2 for i in range(n) if i % 3 == 0)
    whole = sum(1 + i % 2 for i in range(n))
    assert weights.split("a", whole) == {"graph": graph, "parallelism": whole - graph}


# -- what all waited for ----------------------------------------------------------------------------


def test_slots_that_lack_parallelism_wait_for_the_prefixes_that_run_and_a_task_may_be_alone():
    weights = IdleWeights(at=0)
    weights.accrue(state({"a": 4, "b": 2}, queued=1, running={"inc": 3, "sum": 1}), at=4)
    weights.accrue(state({"a": 4}, graphs=True, running={"inc": 1}), at=8)
    weights.accrue(state({"a": 1}), at=9)
    assert weights.parallelism == {"inc": 15, "sum": 5, NOTHING_RAN: 1}
    weights = IdleWeights(at=0)
    alone = {"running": {"train": 1}, "only": ("train-1", "train")}
    weights.accrue(state({"a": 3}, **alone), at=5)
    weights.accrue(state({"a": 3}, **alone, queued=3), at=10)
    weights.accrue(state({"a": 0}, **alone), at=20)
    weights.accrue(state({"a": 3}, **alone, graphs=True), at=30)
    weights.accrue(state({"a": 3}, **alone), at=32)
    assert weights.alone == {"train-1": Alone("train", 7)}


def test_the_prefixes_and_keys_that_are_kept_apart_are_bounded(monkeypatch):
    def weights_of(most: int) -> IdleWeights:
        monkeypatch.setattr(idle, "MAX_APART", most)
        weights, at = IdleWeights(at=0), 0
        for i, ns in enumerate([100, 4, 3, 2, 1]):
            at += ns
            weights.accrue(state({"a": 1}, running={f"p{i}": 1}, only=(f"p{i}-1", f"p{i}")), at=at)
        return weights

    weights = weights_of(2)
    assert weights.parallelism == {"p0": 100, "p1": 4, OTHER: 6}
    weights = weights_of(4)
    # One that has only begun to be alone is not forgotten for the little that it has.
    assert set(weights.alone) == {"p0-1", "p1-1", "p2-1", "p4-1"}


# -- whatever happens -------------------------------------------------------------------------------

workers = st.sampled_from("abc")
slots = st.builds(
    lambda a, b, paused: WorkerSlots(min(a, b), max(a, b), paused), st.integers(0, 8), st.integers(0, 8), st.booleans()
)
counts = st.integers(0, 30)


@st.composite
def states(draw) -> ClusterState:
    there = draw(st.dictionaries(workers, slots))
    return ClusterState(
        there,
        sum(s.free for s in there.values() if not s.paused),
        paused=sum(s.free for s in there.values() if s.paused),
        held_up=draw(counts),
        queued=draw(counts),
        waiting=draw(counts),
        restricted=draw(counts),
        graphs=draw(st.booleans()),
        running=draw(st.dictionaries(st.sampled_from(["inc", "sum"]), st.integers(1, 9))),
        only=draw(st.none() | st.just(("inc-1", "inc"))),
    )


@given(states(), st.integers(1, 10**9))
def test_the_causes_of_free_slots_add_up_to_them(given_state, step):
    found = slots_by_cause(given_state)
    assert sum(found) == given_state.free
    assert min(found) >= 0
    assert found[SEEN.index("scheduler")] <= given_state.queued
    *of_paused, paused = paused_slots_by_cause(given_state)
    assert sum(of_paused) + paused == given_state.paused
    assert min(*of_paused, paused) >= 0
    work = given_state.queued + given_state.waiting + given_state.held_up
    # Each task makes one slot free for it, of whichever worker.
    assert found[SEEN.index("scheduler")] + found[SEEN.index("imbalance")] + paused <= work
    # Slots without parallelism wait for the running prefixes.
    weights = IdleWeights(at=0)
    weights.accrue(given_state, at=step)
    lacking = sum(causes[SEEN.index("parallelism")] for causes in (found, of_paused))
    assert sum(weights.parallelism.values()) == lacking * step


moves = st.lists(
    st.one_of(
        st.tuples(st.just("accrue"), st.none() | states(), st.integers(-2, 10**6), st.integers(0, 10**6)),
        st.tuples(st.just("split"), workers, st.integers(0, 10**7), st.none() | st.integers(-(10**6), 10)),
        st.tuples(st.just("leave"), workers),
    ),
    max_size=40,
)


@given(moves)
def test_splits_add_up_exactly_and_causes_never_have_more_than_the_free_slots(given_moves):
    weights = IdleWeights(at=0)
    used: dict[str, int] = {}
    #: By cause, the most that it can have: its slots' time; and the time of all slots while somebody looked.
    free = dict.fromkeys((*SEEN, "paused"), 0)
    whole = 0
    at = 0
    for move in given_moves:
        if move[0] == "accrue":
            _, given_state, step, at_rest = move
            weights.accrue(given_state, at=at + step, at_rest=at_rest)
            if given_state is not None and step > 0:
                whole += step * sum(s.all for s in given_state.workers.values())
                for causes, there in (
                    (slots_by_cause(given_state), given_state.free),
                    (paused_slots_by_cause(given_state), given_state.paused),
                ):
                    for cause, n in zip(free, causes, strict=False):
                        # A slot's share of a stretch is rounded to a nanosecond, once for each of the free slots.
                        free[cause] += n * step + there
            at = max(at, at + step)
        elif move[0] == "split":
            _, worker, ns, back = move
            found = weights.split(worker, ns, at=None if back is None else at + back)
            assert sum(found.values()) == ns
            assert set(found) <= {*CAUSES[Bucket.IDLE], "paused"}
            assert all(n > 0 for n in found.values())
            for cause, n in found.items():
                used[cause] = used.get(cause, 0) + n
        else:
            weights.worker_left(move[1])
    cuts = sum(move[0] == "split" for move in given_moves) * 8 * len(SEEN)
    for cause in free.keys() - {"scheduler", "round-trips"}:
        assert used.get(cause, 0) <= free[cause] + cuts
    assert sum(used.get(cause, 0) for cause in free) <= whole + cuts
    assert sum(weights.parallelism.values()) <= free["parallelism"]


@given(st.lists(st.tuples(states(), st.integers(1, 10**6)), min_size=1, max_size=10), st.integers(1, 5))
def test_splits_at_any_instants_add_up_to_one(held, pieces):
    once, often = IdleWeights(at=0), IdleWeights(at=0)
    at = 0
    for given_state, step in held:
        at += step
        once.accrue(given_state, at=at)
        often.accrue(given_state, at=at)
    much = 100 * at
    expected = once.split("a", much)
    found: dict[str, int] = {}
    for i in range(1, pieces + 1):
        for cause, ns in often.split("a", much, at=at * i // pieces).items():
            found[cause] = found.get(cause, 0) + ns
    for cause in SEEN:
        assert found.get(cause, 0) == pytest.approx(expected.get(cause, 0), abs=8 * len(SEEN) * pieces, rel=0)


def test_the_work_clock_counts_time_without_work_and_without_workers_until_recent_instants():
    clock = WorkClock(at=10)
    assert clock.without_work(at=15) == 5
    clock.set(True, at=20)
    clock.set(True, at=25)
    assert (clock.outstanding, clock.without_work(at=100)) == (True, 10)
    clock.set(False, at=100)
    clock.set(False, at=105)
    assert clock.without_work(at=107) == 17
    clock = WorkClock(at=0)
    clock.set(True, at=10)
    clock.set(False, at=30)
    assert [clock.without_work(at=at) for at in (-5, 5, 10, 20, 30, 40)] == [0, 5, 10, 10, 10, 20]
    # Work without any worker is distinct from no work.
    clock = WorkClock(at=0)
    clock.set(True, at=10)  # work, and nobody there
    clock.set_workers(True, at=16)
    clock.set(False, at=20)
    clock.set_workers(False, at=25)
    clock.set(True, at=30)
    assert (clock.without_work(at=40), clock.without_workers(at=40)) == (20, 16)
    assert [clock.without_workers(at=at) for at in (5, 10, 13, 16, 29, 31)] == [0, 0, 3, 6, 6, 7]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100))))
def test_the_work_clock_never_runs_backwards(turns):
    clock, before, latest = WorkClock(at=0), 0, 0
    for outstanding, at in turns:
        clock.set(outstanding, at=at)
        latest = max(latest, at)
        now = clock.without_work(at=latest)
        assert before <= now <= latest
        before = now


@given(st.lists(st.tuples(st.sampled_from(["set", "set_workers"]), st.booleans(), st.integers(0, 100))))
def test_no_instant_is_both_without_work_and_without_workers(turns):
    clock, latest = WorkClock(at=0), 0
    for method, value, at in turns:
        getattr(clock, method)(value, at=at)
        latest = max(latest, at)
    for at in range(latest + 2):
        both = clock.without_work(at=at + 1) + clock.without_workers(at=at + 1)
        assert both - clock.without_work(at=at) - clock.without_workers(at=at) in (0, 1)
