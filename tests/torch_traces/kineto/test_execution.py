"""Execution traces of PyTorch, in both of its forms, and of Chakra."""

import gzip
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError, UnknownRankError
from dask_efficiency.torch_traces.kineto.execution import (
    Access,
    ExecutionTrace,
    Tensor,
    dependencies,
    read_execution,
    tensors,
    written_arguments,
)
from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.path.data_flow import data_flow


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
def test_arguments_that_are_written_are_read_from_a_schema(schema: str, written: set[int]) -> None:
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


def test_a_view_needs_the_write_before_it_and_the_next_writer_does_not_wait_for_it() -> None:
    view = Access([(Tensor(101, 1, False),)], [(Tensor(7, 1, False),)], ())
    reads_view = Access([(Tensor(7, 1, False),)], [(Tensor(8, 2, False),)], ())
    accesses = [access([], [1]), view, access([1], [1], {0}), reads_view]
    assert set(dependencies(accesses, [0, 1, 2, 3])) == {(0, 1), (0, 2), (2, 3), (1, 3)}


def test_an_operator_and_the_operators_within_it_are_one() -> None:
    accesses = [access([1], [3]), access([1], [2]), access([2], [3]), access([3], [4])]
    assert set(dependencies(accesses, [0, 0, 0, 3])) == {(0, 3)}
    assert dependencies(accesses, [MISSING] * 4) == []


class Step(NamedTuple):
    reads: list[int]
    in_place: bool
    makes: int | None


steps = st.builds(Step, st.lists(st.integers(0, 4), max_size=3), st.booleans(), st.none() | st.integers(0, 4))


@given(st.lists(steps, max_size=12), st.randoms(use_true_random=False))
def test_any_order_that_keeps_to_the_dependencies_computes_the_same(program: list[Step], random: object) -> None:
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


MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"


def read(text: str, **options: Any) -> ExecutionTrace:
    return read_execution(io.BytesIO(text.encode()), "et.json", **options)


def tensor(number: int, device: str = "cpu") -> list[Any]:
    return [number, 100 + number, 0, 64, 4, device]


def node(number: int, parent: int, name: str, reads: list[Any], makes: list[Any], schema: str = MM) -> dict[str, Any]:
    """As PyTorch writes it since schema 1.0.2."""
    sides = {
        side: {"values": values, "shapes": [], "types": ["Tensor(float)" for _ in values], "strides": []}
        for side, values in (("inputs", reads), ("outputs", makes))
    }
    attributes = {"rf_id": number * 10, "tid": 1, "op_schema": schema}
    attrs = [{"name": key, "type": "", "value": value} for key, value in attributes.items()]
    return {"id": number, "name": name, "ctrl_deps": parent, **sides, "attrs": attrs}


# inner nodes come before those they ran in; 2 is a range around everything
NODES = [
    node(4, 3, "aten::resolve_conj", [tensor(1)], [tensor(1)]),
    node(3, 2, "aten::mm", [tensor(1), tensor(1)], [tensor(5)]),
    node(6, 2, "aten::mm", [tensor(5), tensor(1)], [tensor(7, "cuda:0")]),
    node(2, 1, "step", [], [], ""),
    node(1, 1, "[pytorch|profiler|execution_trace|process]", [], [], ""),
]


def old(new: dict[str, Any]) -> dict[str, Any]:
    """A node in the form of PyTorch up to schema 1.0.1."""
    attributes = {attribute["name"]: attribute["value"] for attribute in new["attrs"]}
    sides = {side: new[side]["values"] for side in ("inputs", "outputs")}
    types = {f"{side[:-1]}_types": new[side]["types"] for side in sides}
    return {"id": new["id"], "name": new["name"], "parent": new["ctrl_deps"], **sides, **types, **attributes}


@pytest.mark.parametrize("form", [lambda new: new, old])
@pytest.mark.parametrize("block", [7, 1 << 18])
def test_outermost_operators_depend_on_those_whose_results_they_read(form: Any, block: int) -> None:
    trace = read(json.dumps({"schema": "1.1.1", "nodes": [form(new) for new in NODES]}, indent=1), block=block)
    nodes = trace.nodes
    assert nodes.number.tolist() == [1, 2, 3, 4, 6]
    assert nodes.parent.tolist() == [MISSING, 0, 1, 2, 1]
    assert nodes.operator.tolist() == [False, False, True, False, True]
    assert nodes.on_device.tolist() == [False, False, False, False, True]
    assert nodes.record_function.tolist() == [10, 20, 30, 40, 60]
    assert [trace.names[name] for name in nodes.name[2:]] == ["aten::mm", "aten::resolve_conj", "aten::mm"]
    assert (trace.dependencies.producer.tolist(), trace.dependencies.reader.tolist()) == ([2], [4])


CHAKRA = [
    {"version": "0.0.4"},
    {"id": "1", "name": "metadata", "type": "METADATA_NODE", "dataDeps": []},
    {"id": "7", "name": "first", "type": "COMP_NODE", "durationMicros": "30", "dataDeps": []},
    {"id": "9", "name": "last", "type": "COMP_NODE", "ctrlDeps": ["7"], "dataDeps": ["7", "8"], "durationMicros": "5"},
    {"id": "8", "name": "all-reduce", "type": "COMM_COLL_NODE", "attr": [{"name": "rf_id", "int64Val": "12"}]},
]


def snake(node: dict[str, Any]) -> dict[str, Any]:
    """As protobuf writes it with the names of the fields, and numbers as such."""
    names = {"dataDeps": "data_deps", "ctrlDeps": "ctrl_deps", "durationMicros": "duration_micros"}
    return {names.get(key, key): value for key, value in node.items()}


@pytest.mark.parametrize(
    "text",
    [
        "".join(json.dumps(part, indent=2) for part in CHAKRA),
        "\n".join(json.dumps(snake(part)) for part in CHAKRA[1:]),
        json.dumps({"nodes": [snake(part) for part in CHAKRA[1:]]}),
        json.dumps(CHAKRA),
    ],
)
def test_the_dependencies_that_chakra_names_are_those(text: str) -> None:
    trace = read(text)
    assert trace.nodes.number.tolist() == [1, 7, 8, 9]
    assert trace.nodes.duration.tolist() == [MISSING, 30_000, MISSING, 5_000]
    assert trace.nodes.record_function.tolist() == [MISSING, MISSING, 12, MISSING]
    assert trace.nodes.parent.tolist() == [MISSING, MISSING, MISSING, 1]
    assert trace.nodes.operator.tolist() == [False, True, True, True]
    assert trace.dependencies.producer.tolist() == [1, 2]
    assert trace.dependencies.reader.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("{}", "it has no nodes: no execution trace"),
        ('{"traceEvents": [{"ph": "X"}]}', "it has no nodes: no execution trace"),
        ('{"nodes": [{"id": 1}, {"id": 2}, {"id": 1}]}', "node 1 is there more than once"),
        ('{"nodes": [{"id": 1}, {"id": ', "ends early"),
        ('{"id": 1} {"id": ?', "at character 17"),
    ],
)
def test_other_files_than_execution_traces_are_refused(text: str, message: str) -> None:
    with pytest.raises(KinetoFileError, match="^et.json: ") as raised:
        read(text)
    assert message in str(raised.value)


def written(path: Path, rank: int, function: int) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 3, "dur": 5}
    events = [event | {"args": {"Record function id": function}}]
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}))
    return path


def test_execution_traces_belong_to_their_ranks(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{rank}.json", rank, 30 + 30 * rank) for rank in range(2)]
    recorded = tmp_path / "et.json.gz"
    recorded.write_bytes(gzip.compress(json.dumps({"nodes": NODES}).encode()))
    alone = load_kineto(files[1], execution_trace=recorded).ranks[0].execution
    assert alone is not None
    assert alone.path == str(recorded)
    both = load_kineto(files, execution_trace={1: recorded})
    assert both.rank(0).execution is None
    assert both.rank(1).execution is not None
    with pytest.raises(ValueError, match=r"one execution_trace for ranks \(0, 1\)"):
        load_kineto(files, execution_trace=recorded)
    with pytest.raises(UnknownRankError, match="no rank 3"):
        load_kineto(files, execution_trace={3: recorded})
    with pytest.raises(KinetoFileError, match=r"et.json.gz: none of its operators is in .*0.json"):
        load_kineto(written(tmp_path / "0.json", 0, 7), execution_trace=recorded)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.floats() | st.sampled_from(["cpu", "Tensor", "1", "x_("]),
    lambda inside: st.lists(inside, max_size=6) | st.dictionaries(st.sampled_from(["name", "value", "id"]), inside),
    max_leaves=8,
)
KEYS = ["id", "name", "ctrl_deps", "parent", "inputs", "input_types", "outputs", "attrs", "attr", "data_deps"]
KEYS += ["op_schema", "rf_id", "type", "durationMicros"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), anything) | anything, max_size=4))
def test_nodes_of_any_content_are_read_or_refused(nodes: list[Any]) -> None:
    try:
        trace = read(json.dumps({"nodes": nodes}))
    except KinetoFileError:
        return
    count = len(trace.nodes)
    assert count <= len(nodes)
    assert (trace.dependencies.producer < count).all()
    assert (trace.nodes.parent < count).all()


PUBLIC = Path(__file__).parents[2] / "data" / "kineto" / "public"


def test_an_old_execution_trace_belongs_to_a_trace_by_external_id() -> None:
    files = PUBLIC / "09-kineto-external-id.json", PUBLIC / "09-execution-trace-1.0.1.json"
    found = data_flow(load_kineto(files[0], execution_trace=files[1]).ranks[0])
    assert found.operators.event.tolist() == [0, 1]
    assert found.floor_seconds == pytest.approx(200e-6)


def test_equal_numbers_of_operators_of_other_names_are_no_match(tmp_path: Path) -> None:
    other = tmp_path / "et.json"
    other.write_text((PUBLIC / "09-execution-trace-1.0.1.json").read_text().replace('"aten::', '"other::'))
    with pytest.raises(KinetoFileError, match=r"none of its operators is in .*, by record function or external id"):
        load_kineto(PUBLIC / "09-kineto-external-id.json", execution_trace=other)
