from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.runs.path.findings import EVENT_LOOPS, MEMBERS, TITLES, parts
from dask_efficiency.runs.path.kinds import COMPUTE, KINDS, Kind
from dask_efficiency.runs.path.parts import SHARE, PathPart, headline, worth_finding
from dask_efficiency.show.figures import lower_first
from dask_efficiency.show.finding import MAX_HEADLINE, Basis, Finding

#: What keeps event loops busy, as traces call it; the last one is not known.
LOOPS = [*(kind.removeprefix(f"{EVENT_LOOPS}-") for kind in TITLES if kind.startswith(f"{EVENT_LOOPS}-")), ""]


def found_in(kinds: dict[str, float], **changes: Any) -> list[PathPart]:
    """The parts of a path of 10 s on four slots, of which one prefix and one worker of two have most."""
    names = {"prefix": {"load": 6.0, "sum": 1.0}, "worker": {"w0": 6.0, "w1": 1.0}}
    known = SimpleNamespace(prefixes=("load", "sum"), workers=[SimpleNamespace(name=name) for name in ("w0", "w1")])
    path: Any = SimpleNamespace(
        makespan_seconds=10.0, floor_seconds=1.0, slot_bound_seconds=1.0, longest_task_seconds=0.0, slots=4.0
    )
    vars(path).update(seconds=lambda by: kinds, seconds_of=lambda members, by: names[by], trace=known, loop_causes={})
    vars(path).update(
        {"seconds_computing": lambda: names["prefix"], "is_one_a_worker": False, "is_uneven": False} | changes
    )
    return parts(path)


def first(kinds: dict[str, float], **changes: Any) -> Finding:
    return found_in(kinds, **changes)[0][0]


def headline_of(kinds: dict[str, float], **changes: Any) -> str:
    return headline(found_in(kinds, **changes), "10 s", "the critical path")


@pytest.mark.parametrize("kind", MEMBERS)
def test_the_largest_share_is_the_first_finding_and_the_headline(kind: str) -> None:
    kinds = {str(MEMBERS[kind][-1]): 6.0, "compute-cpu": 4.0}
    title = TITLES[kind][0]
    assert first(kinds).kind == kind
    assert headline_of(kinds) == f"10 s; 60 % of the critical path is {lower_first(title)}"


def test_a_finding_saves_at_most_its_seconds_and_leaves_the_longest_chain() -> None:
    kinds = {"transfer": 6.0, "compute-cpu": 4.0}
    assert str(first(kinds)) == (
        "Moving results between workers: saves up to 6.0 s. Mostly for tasks of load\n"
        "Return smaller results, use fewer and larger workers, or run tasks where their inputs are."
    )
    assert first(kinds, floor_seconds=7.0).saves_seconds == 3.0
    assert first({"ready-wait": 6.0}).where == "mostly on worker w0"
    unknown = first({"unattributed": 6.0})
    assert unknown.lines == ("Time that nothing recorded explains. 60 % of the critical path",)
    assert (unknown.saves_seconds, unknown.basis) == (None, Basis.UNKNOWN)
    # event loops that spill are helped by memory
    spilling = {one.kind: one for one, _ in found_in({"spill": 5.0, "worker-loop": 1.0, "report": 1.0})}
    assert {one.advice for one in spilling.values()} == {spilling["path/spill"].advice}
    # a prefix that has nearly all is named
    assert headline_of({"compute-cpu": 6.5}) == "10 s; 65 % of the critical path is tasks of load that compute"
    assert first({"compute-cpu": 9.0}).where == "`load`, 60 % of the critical path"


def test_a_small_share_is_no_finding() -> None:
    kinds = {"compute-cpu": 9.4, "report": 0.31, "spill": 0.29}
    assert [one.kind for one in worth_finding(found_in(kinds), 10.0)] == ["path/task", "path/scheduler"]
    chained = found_in(kinds, floor_seconds=9.9)
    assert [one.kind for one in worth_finding(chained, 10.0)] == ["path/chain"], "messages are hardly in its way"


@pytest.mark.parametrize(
    ("floor", "slots", "longest", "is_a", "kind", "limit"),
    [
        (1.0, 1.0, 0.0, "", "task", " that compute"),
        (8.0, 1.0, 0.0, "", "chain", ", one after the other"),
        (1.0, 8.0, 0.0, "", "full-slots", ", on slots that were nearly all busy"),
        # One task that is most of a chain is no chain.
        (9.0, 1.0, 8.0, "", "long-task", ", one of them most of the run"),
        (9.0, 1.0, 8.0, "is_one_a_worker", "task-per-worker", ", one on each worker"),
        (1.0, 1.0, 3.0, "is_uneven", "uneven-task", ", one far longer than its like"),
        (1.0, 1.0, 3.0, "", "task", " that compute"),
        (1.0, 1.0, 2.0, "is_uneven", "task", " that compute"),
    ],
)
def test_the_limit_of_tasks_that_compute_is_named(floor, slots, longest, is_a, kind, limit):
    kinds, changes = {"compute-cpu": 9.0, "report": 1.0}, {is_a: True} if is_a else {}
    changes |= {"floor_seconds": floor, "slot_bound_seconds": slots, "longest_task_seconds": longest}
    assert first(kinds, **changes).kind == f"path/{kind}"
    assert headline_of(kinds, **changes) == f"10 s; 90 % of the critical path is tasks{limit}"


def test_splitting_a_long_task_saves_no_more_than_the_slots_allow() -> None:
    long = first({"compute-cpu": 9.0}, longest_task_seconds=8.0)
    assert (long.saves_seconds, long.basis) == (6.0, Basis.BOUNDED)  # a quarter of it on each of four slots
    assert long.where == "`load`, 60 % of the critical path, the longest 8.0 s"
    assert first({"compute-cpu": 9.0}, longest_task_seconds=8.0, slot_bound_seconds=6.0).saves_seconds == 4.0
    assert first({"compute-cpu": 9.0}, longest_task_seconds=8.0, slots=1.0).saves_seconds is None
    assert first({"compute-cpu": 9.0}).saves_seconds is None


@pytest.mark.parametrize("limit", [{}, {"floor_seconds": 9.0}, {"longest_task_seconds": 8.0}])
def test_of_tasks_off_the_cpu_nothing_is_promised(limit: dict[str, float]) -> None:
    found = first({"compute-cpu": 2.0, "compute-noncpu": 8.0}, **limit)
    assert (found.kind, found.saves_seconds) == ("path/task-noncpu", None)
    assert "20 % of it on the CPU" in found.where
    assert found.advice == "See what they wait for: I/O, a lock, the GIL, a core, or a library's threads."
    assert first({"gpu-compute": 7.2, "compute-noncpu": 1.8}).kind == "path/task"


@pytest.mark.parametrize("busy", LOOPS)
def test_the_cause_of_busy_event_loops_is_named_if_known(busy: str) -> None:
    kinds = {"worker-loop": 6.0, "compute-cpu": 4.0}
    found = first(kinds, loop_causes={busy: 4.0})
    assert found.kind == (f"path/event-loop-{busy}" if busy else "path/event-loop")
    assert first(kinds, loop_causes={busy: 2.0}).kind == "path/event-loop", "half of it is not known"


def test_every_kind_belongs_to_one_cause() -> None:
    members = [kind for kinds in MEMBERS.values() for kind in kinds]
    assert len(members) == len(set(members))
    assert {*members, *COMPUTE} == set(Kind)


@given(
    st.dictionaries(st.sampled_from([str(kind) for kind in KINDS]), st.floats(1e-9, 1e6), min_size=1),
    st.text(),
    st.floats(0, 2),
    st.floats(0, 2),
    st.sampled_from(LOOPS),
)
def test_any_path_has_a_headline_of_one_line_and_findings_within_the_makespan(kinds, name, floor, longest, busy):
    whole = sum(kinds.values())
    seconds = {"makespan_seconds": whole, "floor_seconds": floor * whole, "longest_task_seconds": longest * whole}
    found = found_in(kinds, loop_causes={busy: whole}, seconds_computing=lambda: {name: whole}, **seconds)
    assert len(headline(found, "119.4 min", "the critical path")) <= MAX_HEADLINE
    assert sum(one.evidence[SHARE] for one, _ in found) == pytest.approx(1.0)
    for one in worth_finding(found, whole):
        assert len(one.lines) <= 2
        assert str(one).replace("\n", "").isprintable()
        assert one.saves_seconds is None or 0.0 < one.saves_seconds <= whole * max(1.0, longest)
