"""KernelNames: turns the address of a mangled name into a name that a person can read."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

#: Longer names are cut.
MAX_LENGTH = 120

_NAMESPACE = re.compile(r"(?:\w+|\(anonymous namespace\)|\{lambda[^{}]*\}|<unnamed>)::")
_LITERAL = re.compile(r"\((?:unsigned )?(?:int|long|bool|char|short)\)(-?\w+)")


class KernelNames:
    """Reads, demangles and shortens names, and remembers the last few thousand of them."""

    def __init__(self) -> None:
        self._demangle = _demangler()
        self.readable = lru_cache(4096)(self._readable)

    def at(self, addresses: Sequence[int]) -> list[str]:
        """The names at addresses that CUPTI gave. They are read each time, as an address may be used again."""
        return [self.readable(ctypes.string_at(int(address))) if address else "" for address in addresses]

    def _readable(self, mangled: bytes) -> str:
        return shortened(self._demangle(mangled) if mangled.startswith(b"_Z") else mangled.decode(errors="replace"))


def shortened(name: str) -> str:
    """A demangled name without its return type, namespaces and parameters, cut to :data:`MAX_LENGTH`.

    Template arguments stay, as they distinguish the kernels of a library.
    """
    name = name.removeprefix("void ").replace(" >", ">")
    name = name[: _parameters(name)]
    name = _LITERAL.sub(r"\1", _NAMESPACE.sub("", name)).strip()
    return name if len(name) <= MAX_LENGTH else name[: MAX_LENGTH - 1] + "…"


def _parameters(name: str) -> int:
    """Where the parameters of a function begin: at the last parenthesis outside of template arguments."""
    if not name.endswith(")") or name.endswith("(anonymous namespace)"):
        return len(name)
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return at
    return len(name)


def _demangler() -> Callable[[bytes], str]:
    """The demangler of the C++ library, which torch brings along; one that changes nothing if it cannot be loaded."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return lambda mangled: mangled.decode(errors="replace")
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]

    def demangled(mangled: bytes) -> str:
        status = ctypes.c_int()
        address = demangle(mangled, None, None, ctypes.byref(status))
        if not address:
            return mangled.decode(errors="replace")
        try:
            return ctypes.string_at(address).decode(errors="replace")
        finally:
            free(address)

    return demangled
