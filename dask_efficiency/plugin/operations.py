"""Operations: the C code in which a thread computes, and what it works on, such as ``@(int64,int64)``.

C code has no frame, and a line tells little of why it is slow: a product of integers is some ten times as slow as one
of floats, as it never reaches BLAS, and a list is searched from its start. So the types of what an operator, or a
function of C, works on are part of its name.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dask_efficiency.accounts.intake import fitting

#: Instructions whose plans are kept. A guess, to bound memory.
MAX_KNOWN = 5_000
#: Operands that are named. A guess.
MAX_OPERANDS = 2
#: Elements from which work on all of them takes much longer than what Python does around it: some 10 us.
MANY = 1_000
#: Characters of a name. A guess.
MAX_NAME = 80

#: Instructions that load a variable, an attribute, and a part of something.
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTES, _PARTS = frozenset({"LOAD_ATTR", "LOAD_METHOD"}), frozenset({"BINARY_SUBSCR", "BINARY_SLICE"})
#: Instructions that load a constant.
_NUMBERS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
#: Attributes that are another view of an array: the type of its elements stays the same.
_VIEWS = frozenset({"T", "flat"})
#: Instructions of operators, with names for those whose argument is none.
_OPERATORS = {
    "BINARY_OP": "",
    "COMPARE_OP": "",
    "CONTAINS_OP": "in",
    "BINARY_SUBSCR": "getitem",
    "BINARY_SLICE": "getitem",
    "STORE_SUBSCR": "setitem",
}
#: Instructions that do nothing by themselves.
_EMPTY = frozenset({"CACHE", "PRECALL", "KW_NAMES", "EXTENDED_ARG"})
#: Functions and methods that take no longer for more elements, and those that do so unless they are of the first one.
_CONSTANT = frozenset({"append", "add", "get", "len", "isinstance", "setdefault", "popleft", "appendleft", "next"})
_UNLESS_FIRST = frozenset({"pop", "insert"})
#: Functions by which code may keep the mapping of its own variables: it is left alone.
_KEEPS_VARIABLES = frozenset({"locals", "vars", "dir", "eval", "exec"})
#: Types that are searched from their start.
_SEARCHED = (list, tuple, np.ndarray)
#: Kinds of elements of an array, in words, where their type's name has their length or is none.
_OF_ELEMENTS = {"O": "object", "U": "text", "S": "bytes", "V": "record"}

#: Start and end of an expression, each a line and a column.
_Span: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


class _Operand(NamedTuple):
    #: Variable; empty for what is neither one nor a view of one.
    name: str = ""
    #: True of a part, or another view, of the variable.
    is_view: bool = False
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

    def name(self, frame: FrameType, *, without_gil: bool) -> str:
        """Name of the operator or function of C, with the types of its operands; empty if there is none.

        A thread that wants the GIL back was in C code, or executed Python before it called that: C code is named then
        if it works on :data:`MANY` elements, or else what is searched around it.
        """
        plan = self._plan(frame.f_code, frame.f_lasti)
        wanted = {each.name for one in (plan.done, *plan.searches) if one is not None for each in one.operands} - {""}
        values = _values(frame, wanted)
        if plan.done is not None and (without_gil or _is_long(plan.done, values)):
            return _named(plan.done, values)
        searched = next((one for one in plan.searches if not without_gil and _searches_much(one, values)), None)
        return "" if searched is None else _named(searched, values)

    def _plan(self, code: CodeType, at: int) -> _Plan:
        found = self._known.get((code, at))
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = self._known[code, at] = _Plan(*_operations(code, at))
        return found


def _values(frame: FrameType, wanted: set[str]) -> Mapping[str, Any]:
    """Values of variables of a frame, and of its module.

    Before Python 3.13 the frame keeps a mapping of them, which is emptied, lest they live as long as it does.
    """
    code = frame.f_code
    if not wanted or not _KEEPS_VARIABLES.isdisjoint(code.co_names) or frame.f_trace is not None:
        return {}
    if not code.co_flags & inspect.CO_OPTIMIZED:  # of a module or a class: its variables may be a mapping of any kind
        return {name: frame.f_globals.get(name) for name in wanted}
    own = frame.f_locals
    found = {name: own[name] if name in own else frame.f_globals.get(name) for name in wanted}
    if sys.version_info < (3, 13):
        own.clear()
    return found


def _named(operation: _Operation, values: Mapping[str, Any]) -> str:
    """Name of an operation with the types of what it works on, as far as these are known."""
    # Not isinstance, which asks a proxy for what it stands for.
    named = [each for each in operation.operands if not issubclass(type(values.get(each.name)), ModuleType)]
    kinds = [each.number or _kind(values.get(each.name), each.is_view) for each in named[:MAX_OPERANDS]]
    while kinds and not kinds[-1]:
        kinds.pop()
    of = f"({','.join(kind or '?' for kind in kinds)})" if kinds else ""
    return fitting(f"{operation.name}{of}", MAX_NAME)


def _kind(value: object, is_view: bool) -> str:
    """Type of a value, and of an array that of its elements; empty where it is not known."""
    if type(value) is np.ndarray:
        return _OF_ELEMENTS.get(value.dtype.kind) or value.dtype.name
    return "" if value is None or is_view else type(value).__name__


def _size(value: object) -> int:
    if type(value) is np.ndarray:
        return value.size
    return len(value) if type(value) in (list, tuple, set, dict, str, bytes, bytearray) else 0  # type: ignore[arg-type]


def _is_long(operation: _Operation, values: Mapping[str, Any]) -> bool:
    if operation.name in _CONSTANT:
        return False
    if operation.name in _UNLESS_FIRST and all(each.number != "0" for each in operation.operands):
        return False
    return any(_size(values.get(each.name)) >= MANY for each in operation.operands)


def _searches_much(operation: _Operation, values: Mapping[str, Any]) -> bool:
    """True if it looks for something in many elements, one by one."""
    where = values.get(operation.operands[-1].name) if operation.operands else None
    return type(where) in _SEARCHED and _size(where) >= MANY


# -- plans -----------------------------------------------------------------------------------------


def _operations(code: CodeType, at: int) -> tuple[_Operation | None, tuple[_Operation, ...]]:
    """Operation of an instruction, and the searches in the loop around it."""
    found = [one for one in dis.get_instructions(code) if one.opname not in _EMPTY]
    # Python 3.11 calls what is built in from the PRECALL before a CALL.
    index = next((i for i, one in enumerate(found) if one.offset >= at), None)
    if index is None:
        return None, ()
    searches = [_operator(found, i) for i in _loop(found, at) if found[i].opname == "CONTAINS_OP"]
    opname = found[index].opname
    if opname.startswith("CALL"):
        return _call(found, index), tuple(searches)
    return _operator(found, index) if opname in _OPERATORS else None, tuple(searches)


def _loop(found: Sequence[dis.Instruction], at: int) -> range:
    """Positions of the innermost loop around an instruction, or without one of all."""
    loops = [
        range(next(j for j, other in enumerate(found) if other.offset >= one.argval), i)
        for i, one in enumerate(found)
        if "JUMP_BACKWARD" in one.opname and one.argval <= at <= one.offset
    ]
    return min(loops, key=len, default=range(len(found)))


def _operator(found: Sequence[dis.Instruction], index: int) -> _Operation:
    """Operator, and the expressions that it is between; of an assignment to a part, what that is a part of."""
    one = found[index]
    name = _OPERATORS[one.opname] or one.argrepr
    span, right = _span(one), _span(found[index - 1])
    if span is None or right is None:
        return _Operation(name)
    last = span[1] if one.opname == "STORE_SUBSCR" else right[0]
    left = _last(found, index, lambda at: at[0] == span[0] and at[1] <= last and at != span)
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
    """Variable that an instruction loads, or of which it takes a view."""
    is_view = False
    while index is not None:
        one = found[index]
        if one.opname in _LOADS:
            return _Operand(one.argval, is_view) if isinstance(one.argval, str) else _Operand()
        if one.opname in _NUMBERS and type(one.argval) is int and not is_view:
            return _Operand(number=str(one.argval))
        if one.opname not in _PARTS and (one.opname not in _ATTRIBUTES or one.argval not in _VIEWS):
            break
        span, is_view = _span(one), True
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
