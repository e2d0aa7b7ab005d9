"""Program of a script or a module, in a ``__main__`` like that of ``python``."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
from types import CodeType, ModuleType
from typing import Any


def prepared(script: str, *, is_module: bool) -> tuple[CodeType, dict[str, Any]]:
    """Compiled program, and the namespace of a ``__main__`` like that of ``python``."""
    module = ModuleType("__main__")
    if is_module:
        spec = _spec_of(script)
        assert spec.loader is not None
        code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
        if code is None:
            raise ImportError(f"No code object available for {spec.name}", name=spec.name)
        module.__spec__, module.__package__, module.__loader__ = spec, spec.parent, spec.loader
        module.__file__ = spec.origin
        sys.argv.insert(0, spec.origin or spec.name)
    else:
        sys.argv.insert(0, script)
        path = os.path.abspath(script)
        module.__file__ = path
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    vars(module).update(__builtins__=builtins, __cached__=None)
    if "__annotations__" in vars(sys.modules["__main__"]):  # set by CPython before 3.14
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    return code, module.__dict__


def _spec_of(name: str) -> importlib.machinery.ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError(f"No module named {name}", name=name)
    return spec
