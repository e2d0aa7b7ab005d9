from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.losses import Loss, by_prefix, costs, in_window

small = st.integers(0, 50)
prefixes = st.sampled_from(["train", "load", "sum"])


def test_running_tasks_lose_their_time_and_their_slots_until_the_removal():
    # Four threads, silent for 10: two of `train` had held 30 by then, one of `load` 5, and one was free.
    holding = {"train": (30, 2), "load": (5, 1)}
    assert by_prefix(75, 4, holding, {"train": 4, "load": 1}) == {"train": 30 + 2 * 10, "load": 5 + 10}
    assert by_prefix(75, 4, holding, None) == {"train": 50, "load": 15}
    # The results of the others had come by the removal.
    assert by_prefix(75, 4, holding, {"train": 1}) == {"train": 30 + 10, "load": 5}
    assert by_prefix(40, 4, {}, {"train": 4}) == {}


@given(
    nthreads=st.integers(1, 4),
    silent=small,
    free=st.integers(0, 3),
    holding=st.dictionaries(prefixes, st.tuples(small, st.integers(0, 2))),
    assigned=st.none() | st.dictionaries(prefixes, small),
    share=st.fractions(0, 1),
)
def test_the_parts_of_a_loss_are_at_most_the_whole_and_a_window_has_exactly_its_part(
    nthreads, silent, free, holding, assigned, share
):
    lost = nthreads * silent + sum(ns for ns, _ in holding.values()) - min(free, silent)
    rows = by_prefix(max(0, lost), nthreads, holding, assigned)
    assert rows.keys() <= holding.keys()
    assert all(ns > 0 for ns in rows.values())
    assert sum(rows.values()) <= max(0, lost)
    part = int(share * max(0, lost))
    found = in_window(Loss(ns=max(0, lost), prefixes=rows), part)
    assert sum(found.values()) == part
    assert all(0 <= found[prefix] <= ns for prefix, ns in rows.items())


def test_recomputed_results_are_charged_to_the_worker_that_lost_them():
    killed = Loss("k", "w3", reason="killed by SIGKILL", noticed="its connection broke")
    left = Loss("l", "w5", in_order=True, reason="retired")
    spared = Loss("s", "w7", in_order=True, reason="retired")
    rows = costs(
        [(killed, {"train": 12, "": 3}), (left, {}), (spared, {})], {"k": (30, 14), "l": (5, 1), "x": (2, 1)}, 37, 16
    )
    assert [(row["worker"], row["reason"], row["in_order"]) for row in rows] == [
        ("w3", "killed by SIGKILL", False),
        ("w5", "retired", True),
        ("", "", False),
    ]
    assert [(row["ns"], row["prefixes"]) for row in rows] == [(15, {"train": 12}), (0, {}), (0, {})]
    # The rest, of no known worker, is a row of its own.
    assert [(row["recomputed_ns"], row["recomputed_tasks"]) for row in rows] == [(30, 14), (5, 1), (2, 1)]


def test_the_reason_of_a_loss_is_the_given_one_or_how_it_was_noticed_or_unknown():
    assert Loss(reason="killed by SIGKILL", noticed="its connection broke").why == "killed by SIGKILL"
    assert Loss(noticed="its connection broke").why == "its connection broke"
    assert Loss().why == "nobody knows why"


@given(
    marks=st.lists(st.tuples(small, small), max_size=4),
    lost=st.lists(small, min_size=4, max_size=4),
    others=small,
    cut=st.booleans(),
)
def test_the_rows_add_up_to_the_recomputed_time(marks, lost, others, cut):
    recomputed = {str(i): row for i, row in enumerate(marks)}
    known = sum(ns for ns, _ in marks)
    whole = max(0, known - others) if cut else known + others
    losses = [(Loss(str(i), f"w{i}"), {"inc": ns}) for i, ns in enumerate(lost)]
    rows = costs(losses, recomputed, whole, sum(tasks for _, tasks in marks))
    assert sum(row["recomputed_ns"] for row in rows) == whole
    assert sum(row["ns"] for row in rows) == sum(lost)
