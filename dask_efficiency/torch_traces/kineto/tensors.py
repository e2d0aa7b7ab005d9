"""Who wrote the memory that an operator reads: dependencies from the tensors that operators name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dask_efficiency.accounts.tables import MISSING


class Tensor(NamedTuple):
    """What PyTorch says of a tensor, but for its shape."""

    #: Of the tensor; views of it have others.
    number: int
    #: Of the memory, which views share.
    storage: int
    #: Where it is not memory of the CPU.
    on_device: bool


class Access(NamedTuple):
    """The tensors that a node names."""

    #: Of each argument.
    inputs: Sequence[Sequence[Tensor]]
    outputs: Sequence[Sequence[Tensor]]
    #: Positions of the arguments that it writes to.
    written: Collection[int]

    @property
    def on_device(self) -> bool:
        """Whether any of them is not in memory of the CPU."""
        return any(tensor.on_device for value in (*self.inputs, *self.outputs) for tensor in value)


def tensors(values: Any, types: Any) -> tuple[tuple[Tensor, ...], ...]:
    """The tensors in each value: one, or those of a list; none in anything else."""
    if not isinstance(values, list) or not isinstance(types, list):
        return ()
    return tuple(
        tuple(_tensors(value)) if "Tensor" in str(kind) else () for value, kind in zip(values, types, strict=False)
    )


def _tensors(value: Any) -> list[Tensor]:
    if not isinstance(value, list):
        return []
    # its number, its storage's, the offset in it, number and size of elements, and the device
    if len(value) >= 6 and type(value[0]) is int and type(value[1]) is int and isinstance(value[-1], str):
        # one that is not defined has no device
        return [Tensor(value[0], value[1], not value[-1].startswith("cpu"))] if value[-1] else []
    return [tensor for inner in value for tensor in _tensors(inner)]


@lru_cache(maxsize=4096)
def written_arguments(schema: str) -> frozenset[int]:
    """Positions of the arguments that an operator writes to, from its schema: those of a type with a ``!``.

    Of a schema without any whose name ends in an underscore, as in-place operators' names do: all arguments.
    """
    name, _, rest = schema.partition("(")
    arguments = [text for text in _split(rest.rpartition(" -> ")[0].removesuffix(")")) if text != "*"]
    marked = frozenset(position for position, text in enumerate(arguments) if "!" in text)
    if not marked and re.search(r"[a-z0-9]_$", name.partition(".")[0]):
        return frozenset(range(len(arguments)))
    return marked


def _split(arguments: str) -> list[str]:
    """At commas that are in no brackets."""
    found, depth, begun = [], 0, 0
    for at, character in enumerate(arguments):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            found.append(arguments[begun:at].strip())
            begun = at + 1
    return [*found, arguments[begun:].strip()] if arguments.strip() else []


def dependencies(accesses: Sequence[Access], operators: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of operators of which the second had to wait for the first, for the data alone.

    Parameters
    ----------
    accesses
        Of each node, in the order in which they began.
    operators
        The row of the operator that each node is part of; MISSING for a node that is part of none.

    Returns
    -------
    list of (producer, reader)
        Rows, perhaps several times. An operator waits for those that made the tensors it reads and for the last one
        that wrote to their memory; one that writes to memory that was there before it also waits for all that have
        read it since. Memory that is freed and handed out again makes no dependency: an output that is no input is
        new, whoever had its number before.
    """
    found: list[tuple[int, int]] = []
    # by all of the tensor: its number alone is soon another one's, which may have been made without an operator
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
        found.extend((maker.get(tensor, operator), operator) for tensor in inputs)
        found.extend((writer.get(storage, operator), operator) for storage in read)
        found.extend((reader, operator) for storage in written for reader in readers[storage])
        maker.update((tensor, operator) for tensor in outputs - inputs)
        writer.update((storage, operator) for storage in written | new)
        for storage in written | new:
            readers.pop(storage, None)
        # to make a view is not to read
        if new or written or not outputs:
            for storage in read - written:
                readers[storage].add(operator)
    return [(producer, reader) for producer, reader in found if producer != reader]
