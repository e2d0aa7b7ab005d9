"""Dependencies between operators, from the tensors that they name."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.tensors import Access, Tensor, dependencies, tensors, written_arguments


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ("aten::mm(Tensor self, Tensor mat2) -> Tensor", set()),
        ("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", set()),
        ("aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt step=1) -> Tensor(a)", set()),
        ("aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", {0}),
        ("aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", {2}),
        ("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()", {0}),
        ("aten::sum.dim_IntList(Tensor self, int[1]? dim=[0, 1], bool keepdim=False) -> Tensor", set()),
        ("c10d::allreduce_(Tensor[] tensors, ProcessGroup group) -> (Tensor[], Work)", {0, 1}),
        ("aten::__and__.Tensor(Tensor self, Tensor other) -> Tensor", set()),
        ("prim::nothing() -> ()", set()),
        ("", set()),
        ("not a schema", set()),
    ],
)
def test_a_schema_says_which_arguments_are_written(schema: str, written: set[int]) -> None:
    assert written_arguments(schema) == written


def test_tensors_are_found_in_values_and_in_lists_of_them() -> None:
    one, other = [8, 9, 0, 90000, 4, "cpu"], [10, 11, 0, 8, 4, "cuda:0"]
    undefined = [0, 0, 0, 0, 0, ""]
    values = [one, [one, [other]], [1, 2, 3], 5, "x", undefined, []]
    types = ["Tensor(float)", "GenericList[Tensor(float),Tensor(float)]", "GenericList[Int,Int]", "Int", "String"]
    types += ["Tensor(nullptr (uninitialized))", "GenericList[]"]
    a, b = Tensor(8, 9, False), Tensor(10, 11, True)
    assert tensors(values, types) == ((a,), (a, b), (), (), (), (), ())
    assert tensors(None, None) == tensors([one], None) == ()


def access(inputs: list[int], outputs: list[int], written: set[int] = frozenset()) -> Access:  # type: ignore[assignment]
    """Tensors that are all of their memory."""
    return Access(*([(Tensor(100 + one, one, False),) for one in side] for side in (inputs, outputs)), written)


def test_memory_that_is_handed_out_again_makes_no_dependency() -> None:
    accesses = [access([], [1]), access([1], [2]), access([3], [1]), access([1], [4])]
    assert dependencies(accesses, [0, 1, 2, 3]) == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_a_view_is_made_of_what_was_written_and_not_waited_for_by_the_next_writer() -> None:
    view = Access([(Tensor(101, 1, False),)], [(Tensor(7, 1, False),)], ())
    reads_view = Access([(Tensor(7, 1, False),)], [(Tensor(8, 2, False),)], ())
    accesses = [access([], [1]), view, access([1], [1], {0}), reads_view]
    assert set(dependencies(accesses, [0, 1, 2, 3])) == {(0, 1), (0, 2), (2, 3), (1, 3)}


def test_what_an_operator_does_within_itself_is_one_with_it() -> None:
    accesses = [access([1], [3]), access([1], [2]), access([2], [3]), access([3], [4])]
    assert set(dependencies(accesses, [0, 0, 0, 3])) == {(0, 3)}
    assert dependencies(accesses, [MISSING] * 4) == []


class Step(NamedTuple):
    reads: list[int]
    in_place: bool
    makes: int | None


steps = st.builds(Step, st.lists(st.integers(0, 4), max_size=3), st.booleans(), st.none() | st.integers(0, 4))


@given(st.lists(steps, max_size=12), st.randoms(use_true_random=False))
def test_whoever_keeps_to_the_dependencies_computes_the_same(program: list[Step], random: object) -> None:
    # every operator's memory as the recorded order had it: a number that is made anew is other memory
    memory = {number: ("before", number) for number in range(5)}
    uses, accesses = [], []
    for row, step in enumerate(program):
        makes = step.makes if step.makes not in step.reads else None
        written = {0} if step.in_place and step.reads else set()
        reads = [memory[number] for number in step.reads]
        if makes is not None:
            memory[makes] = ("made", row)
        uses.append((reads, reads[0] if written else None, memory[makes] if makes is not None else None))
        accesses.append(access(step.reads, [makes] if makes is not None else [], written))

    def run(order: list[int]) -> dict[int, list[object]]:
        values: dict[object, object] = {}
        seen = {}
        for row in order:
            reads, in_place, made = uses[row]
            seen[row] = [values.get(place, place) for place in reads]
            for place in (in_place, made):
                if place is not None:
                    values[place] = (row, tuple(seen[row]))
        return seen

    pairs = set(dependencies(accesses, list(range(len(program)))))
    waiting, order = set(range(len(program))), []
    while waiting:
        free = sorted(row for row in waiting if not any(first in waiting for first, second in pairs if second == row))
        chosen = random.choice(free)  # type: ignore[attr-defined]
        waiting.remove(chosen)
        order.append(chosen)
    assert run(order) == run(list(range(len(program))))
