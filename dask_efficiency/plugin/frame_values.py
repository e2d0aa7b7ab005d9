"""values_of: values of variables of another thread's frame, by no means that the frame or its thread can notice.

``frame.f_locals`` makes a mapping that code may hold before Python 3.13, and that tracers write back: refreshing or
emptying it changes what a program computes. So 3.13 and later are asked by ``f_locals``, which is a proxy there, 3.12
by ``PyFrame_GetVarString``, and of 3.11 the memory of the frame is read, whose layout is tried on a known one first.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable
from types import CellType, CodeType, FrameType
from typing import Any

#: Variables of a frame that are found, at most: a bound for the layout of its memory.
MAX_VARIABLES = 10_000


class _Running(ctypes.Structure):
    """Frame as the interpreter of Python 3.11 has it: ``_PyInterpreterFrame``."""

    _fields_ = (
        ("function_to_previous", ctypes.c_void_p * 7),
        ("instruction", ctypes.c_void_p),
        ("stack", ctypes.c_int),
        ("flags", ctypes.c_char * 4),
        ("variables", ctypes.py_object * MAX_VARIABLES),
    )


class _FrameObject(ctypes.Structure):
    """Object of a frame in Python 3.11."""

    _fields_ = (("head", ctypes.c_void_p * 3), ("frame", ctypes.POINTER(_Running)))


def _by_memory(frame: FrameType, name: str) -> Any:
    at, index = _FrameObject.from_address(id(frame)), _variables(frame.f_code).index(name)
    # No call and no collection in between, in which another thread could go on: attributes and items alone.
    value = at.frame.contents.variables[index]
    return value.cell_contents if type(value) is CellType else value


def _variables(code: CodeType) -> list[str]:
    own = code.co_varnames
    return [*own, *(name for name in code.co_cellvars if name not in own), *code.co_freevars][:MAX_VARIABLES]


def _by_call(frame: FrameType, name: str) -> Any:
    return ctypes.pythonapi.PyFrame_GetVarString(ctypes.py_object(frame), name.encode())


def _by_proxy(frame: FrameType, name: str) -> Any:
    return frame.f_locals[name]


def _reader() -> Callable[[FrameType, str], Any] | None:
    """Way to read a variable; None where there is none that is safe."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    if sys.version_info >= (3, 13):
        return _by_proxy
    if sys.version_info >= (3, 12):
        ctypes.pythonapi.PyFrame_GetVarString.restype = ctypes.py_object
        ctypes.pythonapi.PyFrame_GetVarString.argtypes = [ctypes.py_object, ctypes.c_char_p]
        return _by_call
    return _by_memory if ctypes.sizeof(ctypes.c_void_p) == 8 and _has_that_layout() else None


def _has_that_layout() -> bool:
    """Compare the memory of a frame with what is known of it, before any of its variables is taken for an object."""
    frame = inspect.currentframe()
    assert frame is not None
    words = (ctypes.c_void_p * 5).from_buffer_copy(ctypes.string_at(id(frame), 40))
    if words[1] != id(type(frame)) or not words[3]:
        return False
    known = (ctypes.c_void_p * 10).from_buffer_copy(ctypes.string_at(words[3], 80))
    return (known[1], known[4], known[5]) == (id(frame.f_globals), id(frame.f_code), id(frame)) and known[9] == id(
        frame
    )


_READ = _reader()


def values_of(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """Values of variables of a frame, or of its module; those that cannot be had are left out.

    The caller holds the GIL; no code of the user's runs.
    """
    if _READ is None:
        return {}
    found: dict[str, Any] = {}
    known = frame.f_globals if type(frame.f_globals) is dict else {}
    if collects := gc.isenabled():  # else another thread may be about to put it on again
        gc.disable()
    try:
        # Variables of a module or a class are in a mapping of any kind.
        own = {*_variables(frame.f_code)} if frame.f_code.co_flags & inspect.CO_OPTIMIZED else set()
        for name in names:
            if name in own:
                try:
                    found[name] = _READ(frame, name)
                except (KeyError, NameError, ValueError):  # it has no value yet
                    continue
            elif name in known:
                found[name] = known[name]
    finally:
        if collects:
            gc.enable()
    return found
