from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.runs.path.kinds import COMPUTE, Kind
from dask_efficiency.runs.path.verdict import CAUSES, headline


def of(kinds: dict[str, float], **changes: Any) -> str:
    given = {"makespan": 10.0, "kinds": kinds, "compute": {"load": 6.0, "sum": 1.0}, "floor": 1.0, "slot_bound": 1.0}
    return headline(**(given | changes))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("transfer", "moving results between workers"),
        ("transfer-queue", "moving results between workers"),
        ("report", "the scheduler and its messages"),
        ("spill", "between memory and disk"),
        ("worker-loop", "the workers' event loops"),
        ("client-submit", "the client, which prepares graphs or runs your own code"),
        ("result-gather", "fetching results"),
        ("ready-wait", "free slots"),
        ("lost-worker", "lost with a worker"),
        ("unattributed", "cannot be explained"),
    ],
)
def test_the_largest_share_is_named(kind: str, words: str) -> None:
    sentence = of({kind: 6.0, "compute-cpu": 4.0})
    assert words in sentence
    assert "60 %" in sentence


def test_a_run_of_one_task_after_the_other_is_not_helped_by_more_workers() -> None:
    assert "more workers do not help" in of({"compute-cpu": 9.0, "report": 1.0}, floor=8.0)


def test_a_run_on_busy_slots_is_helped_by_more_threads() -> None:
    assert "more threads, or a faster 'load', 60 % of it" in of({"compute-cpu": 9.0}, slot_bound=8.0)


def test_otherwise_the_prefix_that_is_longest_on_the_path_is_what_helps() -> None:
    sentence = of({"compute-cpu": 7.0, "report": 3.0})
    assert sentence == (
        "The makespan is 10 s: 70 % of the critical path is tasks that compute: "
        "what helps most is a faster 'load', 60 % of it"
    )


def test_how_much_the_tasks_wait_is_said() -> None:
    assert "tasks that mostly compute (20 % waiting)" in of({"compute-cpu": 7.2, "compute-noncpu": 1.8})
    assert "tasks that are mostly off the CPU (20 % on it)" in of({"compute-cpu": 1.8, "compute-noncpu": 7.2})
    assert "tasks that mostly compute (20 % waiting)" in of({"gpu-compute": 7.2, "compute-noncpu": 1.8})


@pytest.mark.parametrize("bound", [{}, {"floor": 9.0}, {"slot_bound": 9.0}])
def test_tasks_that_wait_need_less_waiting_and_nothing_is_said_of_more_workers(bound: dict[str, float]) -> None:
    sentence = of({"compute-cpu": 1.0, "compute-noncpu": 8.0}, **bound)
    assert sentence.endswith(
        "see what 'load', 60 % of it, waits for: I/O, a lock, the GIL, a core, or threads of a library"
    )
    assert "more" not in sentence


def test_one_task_that_is_most_of_the_run_is_no_chain() -> None:
    sentence = of({"compute-cpu": 9.0}, floor=9.0, longest_task=8.0)
    assert "one of which takes 8 s, 80 %" in sentence
    assert "one after the other" not in sentence
    assert sentence.endswith("what helps most is to split that task of 'load'; more workers do not help")


def test_tasks_that_are_one_a_worker_are_not_told_to_be_split() -> None:
    sentence = of({"compute-cpu": 9.0}, floor=9.0, longest_task=8.0, one_a_worker=True)
    assert "one on each worker, of which the longest takes 8 s, 80 %" in sentence
    assert "a faster 'load'" in sentence
    assert "split" not in sentence
    assert "more workers" not in sentence
    own = of({"compute-cpu": 9.0}, floor=9.0, longest_task=8.0, own_threads={"load"})
    assert "one of which takes 8 s, 80 %, in threads of its own: what helps most is a faster 'load'" in own
    assert "split" not in own
    assert "split" in of({"compute-cpu": 9.0}, floor=9.0, longest_task=8.0, own_threads={"sum"})
    assert "one after the other" in of({"compute-cpu": 9.0}, floor=9.0, longest_task=2.0, one_a_worker=True)


def test_a_task_that_is_unlike_the_others_of_its_prefix_is_to_be_split_from_a_quarter_of_the_run_on() -> None:
    sentence = of({"compute-cpu": 9.0}, floor=4.0, longest_task=3.0, uneven=True)
    assert ", one of which takes 3 s, 30 %: what helps most is to split that task of 'load'" in sentence
    assert "more workers" not in sentence
    assert "a faster 'load'" in of({"compute-cpu": 9.0}, floor=4.0, longest_task=2.0, uneven=True)
    assert "a faster 'load'" in of({"compute-cpu": 9.0}, floor=4.0, longest_task=3.0)


def test_a_name_of_any_length_makes_one_sentence() -> None:
    assert len(of({"compute-cpu": 9.0}, compute={"x" * 10_000: 9.0})) < 250


def test_no_time_at_all_is_said() -> None:
    assert of({}, makespan=0.0) == "Nothing took any time"


def test_every_kind_belongs_to_one_cause() -> None:
    members = [kind for kinds, _ in CAUSES.values() for kind in kinds]
    assert len(members) == len(set(members))
    assert {*members, *COMPUTE, Kind.UNATTRIBUTED} == set(Kind)


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        (
            {"gil": 4.0},
            "event loops, while other threads kept the GIL: what helps most is tasks that let go of the GIL",
        ),
        ({"computing": 4.0}, "event loops, which computed: what helps most is shorter coroutines"),
        ({"call": 4.0}, "event loops, which stood in calls that block: what helps most is coroutines that await"),
        ({"core": 4.0}, "event loops, which waited for a core: what helps most is more cores"),
        # half of it is not known
        ({"gil": 2.0}, "event loops: what helps most is longer tasks"),
        ({}, "event loops: what helps most is longer tasks"),
    ],
)
def test_what_kept_the_event_loops_busy_is_said_where_it_is_known(busy: dict[str, float], said: str) -> None:
    assert said in of({"worker-loop": 6.0, "compute-cpu": 4.0}, loops=busy)
