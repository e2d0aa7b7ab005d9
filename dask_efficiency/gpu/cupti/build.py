"""Compiles ``callbacks.c``, for the build of a wheel and for tests. Needs the standard library only.

An installation from a pure wheel lacks the library; ``python -m dask_efficiency.gpu.cupti`` adds it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

#: File name of the compiled library. Python would take a file that ends in ``.so`` for a module.
LIBRARY_NAME = "libcallbacks.so.1"

SOURCE = Path(__file__).with_name("callbacks.c")
#: Environment variable; anything but 0 keeps the build from looking for a compiler.
NO_EXTENSION = "DASK_EFFICIENCY_NO_EXTENSION"
#: ``nodelete``: CUPTI may call the functions until the process ends, so the library must stay loaded.
_FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,nodelete"]


class CannotCompile(OSError):
    """The library cannot be compiled here; the text gives the reason."""


def compiler() -> list[str]:
    """Command of a C compiler: ``$CC``, or the first of cc, gcc and clang that is installed; else CannotCompile."""
    if os.environ.get(NO_EXTENSION, "0") not in ("", "0"):
        raise CannotCompile(f"{NO_EXTENSION} is set")
    if sys.platform != "linux":
        raise CannotCompile(f"CUPTI is used on Linux only, and this is {sys.platform}")
    for command in (shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    raise CannotCompile("no C compiler found: neither $CC, nor cc, gcc or clang")


def compile_callbacks(library: Path, *flags: str) -> None:
    """Compile the library and replace its file atomically."""
    command = compiler()
    unfinished = library.with_name(f"{library.name}.{os.getpid()}")
    try:
        arguments = [*_FLAGS, *flags, str(SOURCE), "-o", str(unfinished)]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True)
        if ran.returncode != 0:
            raise CannotCompile(f"{shlex.join(command)} failed: {ran.stderr.strip()}")
        unfinished.replace(library)
    finally:
        unfinished.unlink(missing_ok=True)
