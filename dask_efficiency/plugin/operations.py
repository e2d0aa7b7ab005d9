"""Operations: the C code in which a thread computes, and what it works on, such as ``@(array(int64),array(int64))``.

C code has no frame, and a line tells little of why it is slow: a product of integers is some ten times as slow as one
of floats, as it never reaches BLAS, and a list is searched from its start. So the types of what an operator, or a
function of C, works on are part of its name.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dask._task_spec import Task

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.rows import MAX_CACHED
from dask_efficiency.plugin.frame_values import values_of
from dask_efficiency.show.figures import DETAIL_LENGTH

#: Functions whose instructions are kept. A guess, to bound memory.
MAX_READ = 50
#: Operands that are named. A guess.
MAX_OPERANDS = 2
#: Elements from which work on all of them takes much longer than what Python does around it: some 10 us.
MANY = 1_000

#: Instructions that load a variable, an attribute, and a part of something.
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTES, _PARTS = frozenset({"LOAD_ATTR", "LOAD_METHOD"}), frozenset({"BINARY_SUBSCR", "BINARY_SLICE"})
#: Instructions that load a constant.
_NUMBERS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
#: Attributes that are another view of an array: the type of its elements stays the same.
_VIEWS = frozenset({"T", "flat"})
#: Instructions of operators, with names for those whose argument is none; and operators with names of their own.
_OPERATORS = {
    "BINARY_OP": "",
    "COMPARE_OP": "",
    "CONTAINS_OP": "in",
    "BINARY_SUBSCR": "getitem",
    "BINARY_SLICE": "getitem",
    "STORE_SUBSCR": "setitem",
}
_RENAMED = {"[]": "getitem"}
#: Instructions that do nothing by themselves.
_EMPTY = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "KW_NAMES", "EXTENDED_ARG", "NOP", "NOT_TAKEN"})
#: Instructions that make another order of values than that of the source.
_MOVES = frozenset({"COPY", "SWAP"})
#: Functions and methods that take longer for more elements; of those that do so at the start of a list alone.
_LONG = re.compile(
    "in|all|any|array|asarray|bytes|choice|compress|concatenate|copy|count|decode|decompress|dict|digest|dumps|encode"
    "|endswith|execute|executemany|extend|findall|finditer|format|fromiter|frozenset|fullmatch|index|intersection|join"
    "|list|load|loads|lower|match|max|md5|min|permutation|remove|replace|reverse|rsplit|search|set|sha1|sha256|shuffle"
    "|sort|sorted|split|splitlines|strip|sub|subn|sum|tolist|translate|tuple|union|update|upper"
)
_LONG_AT_START = frozenset({"pop", "insert"})
#: Functions that take long whatever they are given.
_LONG_ALWAYS = frozenset({"collect"})
#: Types that are searched from their start.
_SEARCHED = (list, tuple, np.ndarray)
#: Kinds of elements of an array, in words, where their type's name has their length or is none.
_OF_ELEMENTS = {"O": "object", "U": "text", "S": "bytes", "V": "record"}

#: Where Dask calls the function of a task; and types of functions of C, of which only the name is asked.
_CALLS_TASK = Task.__call__.__code__
_OF_C = (type(len), type(np.where), np.ufunc)
#: Start and end of an expression, each a line and a column.
_Span: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


class _Operand(NamedTuple):
    #: Variable; empty for what is neither one nor a view of one.
    name: str = ""
    #: True of a part of the variable, whose size is not known.
    is_part: bool = False
    #: A whole number that stands there.
    number: str = ""


class _Operation(NamedTuple):
    name: str
    operands: tuple[_Operand, ...] = ()


class _Plan(NamedTuple):
    #: What the instruction does; None for an instruction of Python alone.
    done: _Operation | None
    #: Searches of a container, in the loop around the instruction or, without one, in all of the function.
    searches: tuple[_Operation, ...]


class Operations:
    """Names the C code in which a thread computes."""

    def __init__(self) -> None:
        #: By code, equal for a function that travels anew with each task, and instruction.
        self._known: dict[tuple[CodeType, int], _Plan] = {}
        self._read: dict[CodeType, list[dis.Instruction]] = {}

    def name(self, frame: FrameType, *, without_gil: bool) -> str:
        """Name of the operator or function of C, with the types of its operands; empty if there is none.

        A thread that wants the GIL back was in C code, or executed Python before it called that: C code is named then
        if it works on :data:`MANY` elements, or else what is searched around it.
        """
        if frame.f_code is _CALLS_TASK:
            return _of_task(values_of(frame, ("self", "new_argspec")), without_gil=without_gil)
        plan = self._plan(frame.f_code, frame.f_lasti)
        wanted = {each.name for one in (plan.done, *plan.searches) if one is not None for each in one.operands} - {""}
        values = values_of(frame, wanted) if wanted else {}
        if plan.done is not None and (without_gil or _is_long(plan.done, values)):
            return _named(plan.done, values)
        searched = next((one for one in plan.searches if not without_gil and _searches_much(one, values)), None)
        return "" if searched is None else _named(searched, values)

    def _plan(self, code: CodeType, at: int) -> _Plan:
        found = self._known.get((code, at))
        if found is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            found = self._known[code, at] = _Plan(*_operations(self._instructions(code), at))
        return found

    def _instructions(self, code: CodeType) -> list[dis.Instruction]:
        found = self._read.get(code)
        if found is None:
            if len(self._read) >= MAX_READ:
                self._read.clear()
            found = self._read[code] = [one for one in dis.get_instructions(code) if one.opname not in _EMPTY]
        return found


def _of_task(values: Mapping[str, Any], *, without_gil: bool) -> str:
    """Name of the function of C that a task is of, as ``where`` of NumPy, with the types of its arguments."""
    task, given = values.get("self"), values.get("new_argspec")
    if type(task) is not Task or type(task.func) not in _OF_C or type(given) not in (list, tuple):
        return ""
    arguments = {str(i): each for i, each in enumerate(given or ())}
    operation = _Operation(task.func.__name__, tuple(map(_Operand, arguments)))
    return _named(operation, arguments) if without_gil or _is_long(operation, arguments) else ""


def _named(operation: _Operation, values: Mapping[str, Any]) -> str:
    """Name of an operation with the types of what it works on, as far as these are known."""
    # Not isinstance, which asks a proxy for what it stands for.
    named = [each for each in operation.operands if not issubclass(type(values.get(each.name)), ModuleType)]
    kinds = [each.number or _kind(values.get(each.name), each.is_part) for each in named[:MAX_OPERANDS]]
    while kinds and not kinds[-1]:
        kinds.pop()
    of = f"({','.join(kind or '?' for kind in kinds)})" if kinds else ""
    return fitting(f"{operation.name}{of}", DETAIL_LENGTH)


def _kind(value: object, is_part: bool) -> str:
    """Type of a value, of an array with that of its elements; empty where it is not known."""
    if type(value) is np.ndarray:
        elements = _OF_ELEMENTS.get(value.dtype.kind) or value.dtype.name
        # A part of it may be one element, which is an object of any kind.
        return f"array({elements})" if not is_part else "" if elements == "object" else elements
    if value is None or is_part:
        return ""
    name: str = type.__dict__["__name__"].__get__(type(value))  # a metaclass may answer otherwise
    return name


def _size(value: object) -> int:
    if type(value) is np.ndarray:
        return value.size
    return len(value) if type(value) in (list, tuple, set, dict, str, bytes, bytearray) else 0  # type: ignore[arg-type]


def _is_long(operation: _Operation, values: Mapping[str, Any]) -> bool:
    name = operation.name
    at_start = name in _LONG_AT_START and any(each.number == "0" for each in operation.operands)
    if not (_LONG.fullmatch(name) or at_start or not name.isidentifier()):
        return name in _LONG_ALWAYS
    return any(_size(values.get(each.name)) >= MANY for each in operation.operands if not each.is_part)


def _searches_much(operation: _Operation, values: Mapping[str, Any]) -> bool:
    """True if it looks for something in many elements, one by one."""
    where = operation.operands[-1] if operation.operands else _Operand()
    value = values.get(where.name)
    return not where.is_part and type(value) in _SEARCHED and _size(value) >= MANY


# -- plans -----------------------------------------------------------------------------------------


def _operations(found: Sequence[dis.Instruction], at: int) -> tuple[_Operation | None, tuple[_Operation, ...]]:
    """Operation of an instruction, and the searches in the loop around it that are made each time."""
    # Python 3.11 calls what is built in from the PRECALL before a CALL.
    index = next((i for i, one in enumerate(found) if one.offset >= at), None)
    if index is None:
        return None, ()
    searches = []
    for i in _loop(found, at):
        if found[i].opname == "CONTAINS_OP":
            searches.append(_operator(found, i))
        elif "JUMP" in found[i].opname and "_IF_" in found[i].opname:  # what follows is not done each time
            break
    opname = found[index].opname
    if opname.startswith("CALL"):
        return _call(found, index), tuple(searches)
    return _operator(found, index) if opname in _OPERATORS else None, tuple(searches)


def _loop(found: Sequence[dis.Instruction], at: int) -> range:
    """Positions of the innermost loop around an instruction, or without one of all."""
    ends: dict[int, int] = {}  # by start: several jumps may go back to it
    for one in found:
        if "JUMP_BACKWARD" in one.opname:
            ends[one.argval] = max(ends.get(one.argval, 0), one.offset)
    around = [(stop - start, start, stop) for start, stop in ends.items() if start <= at <= stop]
    _, start, stop = min(around, default=(0, 0, found[-1].offset))
    inside = [i for i, one in enumerate(found) if start <= one.offset <= stop]
    return range(inside[0], inside[-1] + 1)


def _operator(found: Sequence[dis.Instruction], index: int) -> _Operation:
    """Operator, and the expressions that it is between; of an assignment to a part, what that is a part of."""
    one = found[index]
    name = _OPERATORS[one.opname] or one.argrepr.removeprefix("bool(").removesuffix(")")
    name = _RENAMED.get(name, name)
    span, before = _span(one), found[index - 1]
    right = _span(before)
    if type(before.argval) is tuple and len(before.argval) == MAX_OPERANDS:  # one instruction that loads both
        return _Operation(name, tuple(map(_Operand, map(str, before.argval))))
    if span is None or right is None:
        return _Operation(name)
    last = span[1] if one.opname == "STORE_SUBSCR" else right[0]
    left = _last(found, index, lambda at: at[0] == span[0] and at[1] <= last and at != span)
    if left is not None and any(each.opname in _MOVES for each in found[left:index]):
        left = None
    if one.opname == "STORE_SUBSCR":
        return _Operation(name, (_operand(found, left),))
    return _Operation(name, (_operand(found, left), _operand(found, index - 1)))


def _call(found: Sequence[dis.Instruction], index: int) -> _Operation | None:
    """Function of the call, the object whose method it is, and its arguments; None if it has no name."""
    span = _span(found[index])
    if span is None:
        return None
    head = _part(found, index, span)
    if head is None or not isinstance(found[head].argval, str):
        return None
    its, object_at = _span(found[head]), None
    if found[head].opname in _ATTRIBUTES:
        object_at = None if its is None else _part(found, head, its)
    inside = [i for i in range(head + 1, index) if (at := _span(found[i])) is not None and at != span]
    arguments = [i for i in inside if not any(_is_within(found[i], found[j]) for j in inside if j > i)]
    parts = [*([object_at] if object_at is not None else []), *arguments]
    return _Operation(found[head].argval, tuple(_operand(found, i) for i in parts))


def _operand(found: Sequence[dis.Instruction], index: int | None) -> _Operand:
    """Variable that an instruction loads, or of which it takes a part or another view."""
    is_part = False
    while index is not None:
        one = found[index]
        if one.opname in _LOADS:
            return _Operand(one.argval, is_part) if isinstance(one.argval, str) else _Operand()
        if one.opname in _NUMBERS and type(one.argval) is int and not is_part:
            return _Operand(number=str(one.argval))
        if one.opname not in _PARTS and (one.opname not in _ATTRIBUTES or one.argval not in _VIEWS):
            break
        is_part = is_part or one.opname in _PARTS
        span = _span(one)
        index = None if span is None else _part(found, index, span)
    return _Operand()


def _part(found: Sequence[dis.Instruction], before: int, whole: _Span) -> int | None:
    """Position of the last instruction before another one whose expression is the first part of a whole one."""
    return _last(found, before, lambda at: at[0] == whole[0] and at[1] < whole[1])


def _last(found: Sequence[dis.Instruction], before: int, fits: Callable[[_Span], bool]) -> int | None:
    """Position of the last instruction before another one whose expression fits."""
    return next((i for i in range(before - 1, -1, -1) if (at := _span(found[i])) is not None and fits(at)), None)


def _is_within(one: dis.Instruction, other: dis.Instruction) -> bool:
    inner, outer = _span(one), _span(other)
    return inner is not None and outer is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


def _span(one: dis.Instruction) -> _Span | None:
    """Line and column of an expression's start and of its end; None if they are not known."""
    at = one.positions
    if at is None or at.lineno is None or at.col_offset is None or at.end_lineno is None or at.end_col_offset is None:
        return None
    return (at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)
