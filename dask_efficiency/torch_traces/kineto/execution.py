"""ExecutionTrace: the tensors that operators read and wrote, from execution traces of PyTorch or Chakra."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import IO, Annotated, Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int32, Int64
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.kineto.numbers import first_with, integer, integers, nanoseconds
from dask_efficiency.torch_traces.kineto.parse import BLOCK, JsonStream, texts


class Tensor(NamedTuple):
    """A tensor as PyTorch records it, without its shape."""

    #: A view has another number.
    number: int
    #: Number of the memory, which views share.
    storage: int
    #: True if it is not in the CPU's memory.
    on_device: bool


class Access(NamedTuple):
    """The tensors that a node names, by argument."""

    inputs: Sequence[Sequence[Tensor]]
    outputs: Sequence[Sequence[Tensor]]
    #: Positions of the inputs that it writes to.
    written: Collection[int]

    @property
    def on_device(self) -> bool:
        """True if any of them is not in the CPU's memory."""
        return any(tensor.on_device for value in (*self.inputs, *self.outputs) for tensor in value)


def tensors(values: Any, types: Any) -> tuple[tuple[Tensor, ...], ...]:
    """Tensors of each value: one, or those of a list; other values have none."""
    if not isinstance(values, list) or not isinstance(types, list):
        return ()
    return tuple(
        tuple(_tensors(value)) if "Tensor" in str(kind) else () for value, kind in zip(values, types, strict=False)
    )


def _tensors(value: Any) -> list[Tensor]:
    if not isinstance(value, list):
        return []
    # [number, storage, offset, number of elements, size of one, ..., device]
    if len(value) >= 6 and type(value[0]) is int and type(value[1]) is int and isinstance(value[-1], str):
        # an undefined tensor has no device
        return [Tensor(value[0], value[1], not value[-1].startswith("cpu"))] if value[-1] else []
    return [tensor for inner in value for tensor in _tensors(inner)]


@lru_cache(maxsize=4096)
def written_arguments(schema: str) -> frozenset[int]:
    """Positions of the arguments that an operator writes to: those whose type has a ``!`` in its schema.

    Without any, all arguments of an operator whose name ends in an underscore, as those of in-place operators do.
    """
    name, _, rest = schema.partition("(")
    arguments = [text for text in _split(rest.rpartition(" -> ")[0].removesuffix(")")) if text != "*"]
    marked = frozenset(position for position, text in enumerate(arguments) if "!" in text)
    if not marked and re.search(r"[a-z0-9]_$", name.partition(".")[0]):
        return frozenset(range(len(arguments)))
    return marked


def _split(arguments: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, begun = [], 0, 0
    for at, character in enumerate(arguments):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(arguments[begun:at].strip())
            begun = at + 1
    return [*parts, arguments[begun:].strip()] if arguments.strip() else []


def dependencies(accesses: Sequence[Access], operators: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs (producer, reader) of operators' rows, perhaps repeated, of which the reader needs data of the producer.

    An operator waits for those that made the tensors it reads, and for the last one that wrote to their memory. One
    that writes to existing memory also waits for all that have read it since. Memory that is freed and reused makes no
    dependency: an output that is no input is new, whoever had its number before. ``accesses`` are by node, in the order
    in which they began; ``operators`` has the row of the operator that each node is part of, or MISSING.
    """
    pairs: list[tuple[int, int]] = []
    # The key is the whole tensor: its number is soon reused, even by one that no operator made.
    maker: dict[Tensor, int] = {}
    writer: dict[int, int] = {}
    readers: defaultdict[int, set[int]] = defaultdict(set)
    for access, operator in zip(accesses, operators, strict=True):
        if operator == MISSING:
            continue
        inputs = {tensor for argument in access.inputs for tensor in argument}
        outputs = {tensor for value in access.outputs for tensor in value}
        read = {tensor.storage for tensor in inputs}
        new = {tensor.storage for tensor in outputs} - read
        written = {tensor.storage for at in access.written if at < len(access.inputs) for tensor in access.inputs[at]}
        pairs.extend((maker.get(tensor, operator), operator) for tensor in inputs)
        pairs.extend((writer.get(storage, operator), operator) for storage in read)
        pairs.extend((reader, operator) for storage in written for reader in readers[storage])
        maker.update((tensor, operator) for tensor in outputs - inputs)
        writer.update((storage, operator) for storage in written | new)
        for storage in written | new:
            readers.pop(storage, None)
        # making a view reads nothing
        if new or written or not outputs:
            for storage in read - written:
                readers[storage].add(operator)
    return [(producer, reader) for producer, reader in pairs if producer != reader]


@dataclass(frozen=True, slots=True, repr=False)
class ExecutionNodes(ColumnTable):
    """A row for each node, in the order of their numbers, which is the order in which they began."""

    #: Number in the file.
    number: Int64
    #: Position in :attr:`ExecutionTrace.names`.
    name: Int32
    #: Row of the node around it; missing for the outermost.
    parent: Int32
    #: ``rf_id``: Kineto's "Record function id" of the same operator.
    record_function: Int64
    #: True for operators that dependencies are between: the outermost that name what they read and write. Ranges around
    #: them and operators that they call are none. Of Chakra's nodes, all but metadata.
    operator: Bool
    #: True if it names a tensor outside of the CPU's memory.
    on_device: Bool
    #: Missing where the file has none.
    duration: Annotated[Int64, Column(unit="nanoseconds")]


@dataclass(frozen=True, slots=True, repr=False)
class DataDependencies(ColumnTable):
    """A row for each pair of operators of which the second cannot begin before the first has ended."""

    #: Rows of :class:`ExecutionNodes`.
    producer: Int32
    reader: Int32


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """The operators of one process, and which needs whose data."""

    path: str
    nodes: ExecutionNodes
    dependencies: DataDependencies
    #: Every name once.
    names: tuple[str, ...]


def read_execution(file: IO[bytes], path: str, *, block: int = BLOCK) -> ExecutionTrace:
    """Read an execution trace of ``torch.profiler.ExecutionTraceObserver``, or a Chakra trace in JSON, perhaps in gzip.

    Dependencies are the nodes' ``data_deps``, if there are any; otherwise they follow from the operators' tensors.
    KinetoFileError has file, position and reason. Source: PyTorch's ``execution_trace_observer.cpp``, schemas 1.0.1 to
    1.1.1; MLCommons Chakra's ``et_def.proto``. Unlike in Chakra's converter, the order of operators on a thread is no
    dependency.
    """
    nodes = _Nodes()
    for batch in JsonStream(texts(file, path, block), path, "nodes").objects():
        for node in batch:
            nodes.add(node)
    return nodes.build(path)


class _Nodes:
    """Nodes in the order of the file, where inner ones come before those around them."""

    def __init__(self) -> None:
        self.names: defaultdict[str, int] = defaultdict(count().__next__)
        self.columns: defaultdict[str, list[Any]] = defaultdict(list)
        self.accesses: list[Access] = []
        self.data_dependencies: list[Sequence[Any]] = []
        self.has_dependencies = False

    def add(self, node: Any) -> None:
        """Append a node, unless it has no number."""
        if not isinstance(node, dict) or not 0 <= integer(node.get("id")) < 1 << 63:
            return
        attributes = _attributes(node)
        parent = _first(attributes, "ctrl_deps", "ctrlDeps", "parent")
        if isinstance(parent, list):
            parent = parent[0] if parent else None
        schema = str(attributes.get("op_schema", ""))
        columns = self.columns
        columns["number"].append(attributes["id"])
        columns["parent"].append(parent)
        columns["name"].append(self.names[str(attributes.get("name", ""))])
        columns["record_function"].append(attributes.get("rf_id"))
        columns["duration"].append(_first(attributes, "durationMicros", "duration_micros"))
        columns["has_schema"].append(bool(schema))
        columns["computes"].append(not str(attributes.get("type", "")).startswith("METADATA"))
        read, made = (
            tensors(attributes.get(f"{side}s"), attributes.get(f"{side}_types")) for side in ("input", "output")
        )
        self.accesses.append(Access(read, made, written_arguments(schema)))
        follows = _first(attributes, "data_deps", "dataDeps")
        self.has_dependencies |= isinstance(follows, list)
        self.data_dependencies.append(follows if isinstance(follows, list) else ())

    def build(self, path: str) -> ExecutionTrace:
        """Build the trace."""
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
        # the outermost node is its own parent
        columns["parent"][columns["parent"] == np.arange(len(order))] = MISSING
        columns["duration"][columns["duration"] < 0] = MISSING
        columns["record_function"][columns["record_function"] == 0] = MISSING  # the observer's own
        if self.has_dependencies:
            operator = np.array(self.columns["computes"])[order]
            follows = [self.data_dependencies[position] for position in order.tolist()]
            readers = np.repeat(np.arange(len(order)), [len(producers) for producers in follows]).tolist()
            producers = first_with(
                numbers, integers([number for producers in follows for number in producers])
            ).tolist()
            pairs = [pair for pair in zip(producers, readers, strict=True) if pair[0] not in (MISSING, pair[1])]
        else:
            outermost = _outermost(columns["parent"], np.array(self.columns["has_schema"])[order])
            operator = outermost == np.arange(len(order))
            pairs = dependencies([self.accesses[position] for position in order.tolist()], outermost.tolist())
        on_device = np.array([access.on_device for access in self.accesses])[order]
        table = ExecutionNodes(**columns, operator=operator, on_device=on_device)
        unique = np.array(sorted(set(pairs), key=lambda pair: (pair[1], pair[0])), np.int32).reshape(-1, 2)
        return ExecutionTrace(path, table, DataDependencies(unique[:, 0], unique[:, 1]), tuple(self.names))


def _attributes(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node's members and its list of attributes as one dict; inputs and outputs are split into values and types."""
    members = dict(node)
    attributes = _first(node, "attrs", "attr")
    for attribute in attributes if isinstance(attributes, list) else ():
        if isinstance(attribute, dict) and "name" in attribute:
            # Chakra names the value by its type, such as ``int64Val``.
            others = (value for key, value in attribute.items() if key not in ("name", "docString", "doc_string"))
            members.setdefault(
                str(attribute["name"]), attribute["value"] if "value" in attribute else next(others, None)
            )
    for name in ("inputs", "outputs"):
        if isinstance(members.get(name), dict):
            members[f"{name[:-1]}_types"] = members[name].get("types")
            members[name] = members[name].get("values")
    return members


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    """The first of some members that is there, or None."""
    return next((attributes[name] for name in names if name in attributes), None)


def _outermost(parent: Int32, operator: Bool) -> Int32:
    """By node, the outermost operator that it is or runs in, or MISSING."""
    outermost: list[int] = []
    for row, (above, is_operator) in enumerate(zip(parent.tolist(), operator.tolist(), strict=True)):
        # a node has a higher number than the one around it
        inherited = outermost[above] if MISSING < above < row else MISSING
        outermost.append(inherited if inherited != MISSING else row if is_operator else MISSING)
    return np.array(outermost, np.int32)
