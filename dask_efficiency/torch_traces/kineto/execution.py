"""ExecutionTrace: which tensors operators read and wrote, as PyTorch or Chakra recorded it beside Kineto's times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import IO, Annotated, Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Column, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.kineto.lookup import first_with
from dask_efficiency.torch_traces.kineto.numbers import integer, integers, nanoseconds
from dask_efficiency.torch_traces.kineto.parse import Pieces
from dask_efficiency.torch_traces.kineto.tensors import Access, dependencies, tensors, written_arguments
from dask_efficiency.torch_traces.kineto.text import BLOCK, texts


@dataclass(frozen=True, slots=True, repr=False)
class ExecutionNodes(Table):
    """A row for each node, in the order in which they began (that of their numbers)."""

    #: The number that the file gives it.
    number: Int64
    #: Position in :attr:`ExecutionTrace.names`.
    name: Int32
    #: Row of the node that it ran in; missing for the outermost.
    parent: Int32
    #: ``rf_id``: Kineto's "Record function id" of the same operator.
    record_function: Int64
    #: Whether it is an operator that dependencies are said of: the outermost one that names what it reads and writes,
    #: not a range around several, and not what it calls itself. Of Chakra's nodes, all but those of metadata.
    operator: Bool
    #: Whether it names a tensor that is not in memory of the CPU.
    on_device: Bool
    #: As the file has it, if it does.
    duration: Annotated[Int64, Column(unit="nanoseconds")]


@dataclass(frozen=True, slots=True, repr=False)
class DataDependencies(Table):
    """A row for each pair of operators of which the second cannot begin before the first has ended."""

    #: Rows of :class:`ExecutionNodes`.
    producer: Int32
    reader: Int32


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """What one process's operators read and wrote."""

    path: str
    nodes: ExecutionNodes
    dependencies: DataDependencies
    #: Every name once.
    names: tuple[str, ...]


def read_execution(file: IO[bytes], path: str, *, block: int = BLOCK) -> ExecutionTrace:
    """Read what ``torch.profiler.ExecutionTraceObserver`` wrote, or a Chakra trace in JSON.

    Parameters
    ----------
    file
        Binary, at its beginning; JSON, or JSON in gzip. An object with ``nodes``, or the objects of Chakra's
        JSON printer, one after the other.
    path
        Where it is, for messages.
    block
        Bytes that are read at a time.

    Returns
    -------
    ExecutionTrace
        Where nodes say ``data_deps``, these are the dependencies. Otherwise they follow from the tensors that operators
        name, as :func:`~dask_efficiency.torch_traces.kineto.tensors.dependencies` says.

    Raises
    ------
    KinetoFileError
        If it is no such file, is damaged, or ends early; it says which file, what is wrong, and where.

    References
    ----------
    PyTorch's ``execution_trace_observer.cpp``, schemas 1.0.1 to 1.1.1; MLCommons Chakra's ``et_def.proto``. We differ
    from Chakra's converter: the order of operators on a thread is no dependency.
    """
    nodes = _Nodes()
    for batch in Pieces(texts(file, path, block), path, "nodes").objects():
        for node in batch:
            nodes.add(node)
    return nodes.build(path)


class _Nodes:
    """Nodes in the order of the file, in which inner ones come before those they ran in."""

    def __init__(self) -> None:
        self.names: defaultdict[str, int] = defaultdict(count().__next__)
        self.columns: defaultdict[str, list[Any]] = defaultdict(list)
        self.accesses: list[Access] = []
        self.data_dependencies: list[Sequence[Any]] = []
        self.say_dependencies = False

    def add(self, node: Any) -> None:
        """Append a node; what has no number is none."""
        if not isinstance(node, dict) or not 0 <= integer(node.get("id")) < 1 << 63:
            return
        said = _attributes(node)
        parent = said.get("ctrl_deps", said.get("ctrlDeps", said.get("parent")))
        if isinstance(parent, list):
            parent = parent[0] if parent else None
        schema = str(said.get("op_schema", ""))
        columns = self.columns
        columns["number"].append(said["id"])
        columns["parent"].append(parent)
        columns["name"].append(self.names[str(said.get("name", ""))])
        columns["record_function"].append(said.get("rf_id"))
        columns["duration"].append(_duration(said))
        columns["has_schema"].append(bool(schema))
        columns["computes"].append(not str(said.get("type", "")).startswith("METADATA"))
        self.accesses.append(
            Access(
                tensors(said.get("inputs"), said.get("input_types")),
                tensors(said.get("outputs"), said.get("output_types")),
                written_arguments(schema),
            )
        )
        follows = said.get("data_deps", said.get("dataDeps"))
        self.say_dependencies |= isinstance(follows, list)
        self.data_dependencies.append(follows if isinstance(follows, list) else ())

    def build(self, path: str) -> ExecutionTrace:
        """All that was added."""
        if not self.accesses:
            raise KinetoFileError(f"{path}: it has no nodes: no execution trace of PyTorch's or Chakra's")
        numbers = integers(self.columns["number"])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        if (twice := numbers[1:][np.diff(numbers) == 0]).size:
            raise KinetoFileError(f"{path}: node {twice[0]} is there more than once")
        columns: dict[str, Any] = {
            "number": numbers,
            "name": np.array(self.columns["name"], np.int32)[order],
            "parent": first_with(numbers, integers(self.columns["parent"])[order]).astype(np.int32),
            "record_function": np.maximum(integers(self.columns["record_function"])[order], MISSING),
            "duration": nanoseconds(self.columns["duration"])[order],
        }
        # the outermost one is its own parent
        columns["parent"][columns["parent"] == np.arange(len(order))] = MISSING
        columns["duration"][columns["duration"] < 0] = MISSING
        columns["record_function"][columns["record_function"] == 0] = MISSING  # the observer's own
        if self.say_dependencies:
            operator = np.array(self.columns["computes"])[order]
            pairs = self._said(numbers, order.tolist())
        else:
            outermost = _outermost(columns["parent"], np.array(self.columns["has_schema"])[order])
            operator = outermost == np.arange(len(order))
            pairs = dependencies([self.accesses[position] for position in order.tolist()], outermost.tolist())
        on_device = np.array([access.on_device for access in self.accesses])[order]
        table = ExecutionNodes(**columns, operator=operator, on_device=on_device)
        return ExecutionTrace(path, table, _pairs(pairs), tuple(self.names))

    def _said(self, numbers: Int64, order: Iterable[int]) -> list[tuple[int, int]]:
        said = [
            (number, reader) for reader, position in enumerate(order) for number in self.data_dependencies[position]
        ]
        producers = first_with(numbers, integers([number for number, _ in said])).tolist()
        return [
            (producer, reader)
            for producer, (_, reader) in zip(producers, said, strict=True)
            if producer not in (MISSING, reader)
        ]


def _attributes(node: Mapping[str, Any]) -> dict[str, Any]:
    """What a node says, and what it says in its list of attributes; of inputs and outputs the values and the types."""
    said = dict(node)
    attributes = node.get("attrs", node.get("attr"))
    for attribute in attributes if isinstance(attributes, list) else ():
        if isinstance(attribute, dict) and "name" in attribute:
            said.setdefault(str(attribute["name"]), _value(attribute))
    for name in ("inputs", "outputs"):
        if isinstance(said.get(name), dict):
            said[f"{name[:-1]}_types"] = said[name].get("types")
            said[name] = said[name].get("values")
    return said


def _value(attribute: Mapping[str, Any]) -> Any:
    """An attribute's value, whose key says its type in Chakra's: ``int64Val``."""
    if "value" in attribute:
        return attribute["value"]
    return next((value for key, value in attribute.items() if key not in ("name", "docString", "doc_string")), None)


def _duration(said: Mapping[str, Any]) -> Any:
    """Microseconds, of nodes that say how long they took."""
    for name in ("durationMicros", "duration_micros"):
        if name in said:
            return said[name]
    return None


def _outermost(parent: Int32, operator: Bool) -> Int32:
    """For each node the outermost operator that it is or runs in; MISSING where there is none."""
    found: list[int] = []
    for row, (above, is_operator) in enumerate(zip(parent.tolist(), operator.tolist(), strict=True)):
        # a node has a higher number than the one it runs in
        inherited = found[above] if MISSING < above < row else MISSING
        found.append(inherited if inherited != MISSING else row if is_operator else MISSING)
    return np.array(found, np.int32)


def _pairs(pairs: Iterable[tuple[int, int]]) -> DataDependencies:
    unique = sorted(set(pairs), key=lambda pair: (pair[1], pair[0]))
    table = np.array(unique, np.int32).reshape(-1, 2)
    return DataDependencies(producer=table[:, 0], reader=table[:, 1])
