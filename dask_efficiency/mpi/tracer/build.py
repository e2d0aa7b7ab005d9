"""Compiles ``tracer.c`` with the compiler of an MPI installation, as each has its own numbers for handles."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dask_efficiency.files.storage import writing

SOURCE = Path(__file__).with_name("tracer.c")
#: Folder for the files of a traced program; their list is next to it, with .txt after the folder's name.
FOLDER_VARIABLE = "DASK_EFFICIENCY_MPI_TRACE"

_FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-ftls-model=initial-exec"]
_LIBRARIES = ["-ldl", "-lpthread"]
#: Flags to compress the files, tried first; used if the compiler finds zlib.
_ZLIB = ["-DWITH_ZLIB"], ["-lz"]


class CannotCompileTracer(OSError):
    """The library cannot be compiled here; the message has the reason."""


def compile_tracer(mpicc: str, library: Path, flags: Sequence[str] = ()) -> bool:
    """Compile the tracer into a file, replaced atomically for running programs; True if traces are to be compressed."""
    command = shlex.split(mpicc)
    if not command or shutil.which(command[0]) is None:
        wanted = "expected the compiler of your MPI (Debian: mpich, libmpich-dev)"
        raise CannotCompileTracer(f"there is no {mpicc!r}; {wanted}")
    output = ""
    with tempfile.TemporaryDirectory(prefix="dask-efficiency-") as folder:
        unfinished = Path(folder, "tracer.so")
        for defined, linked in (_ZLIB, ([], [])):
            arguments = [*_FLAGS, *flags, *defined, str(SOURCE), "-o", str(unfinished), *linked, *_LIBRARIES]
            ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                with writing(library) as file:
                    file.write(unfinished.read_bytes())
                return bool(linked)
            output = ran.stderr.strip()
    raise CannotCompileTracer(f"{mpicc} failed: {output[:2000]}")


def preloaded(library: Path, folder: Path) -> dict[str, str]:
    """Variables for a traced program; ValueError if the library cannot be preloaded from its path."""
    if any(sign in str(library) for sign in " :"):
        raise ValueError(f"expected a path without spaces and colons, which part the files of LD_PRELOAD: {library}")
    others = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library}:{others}" if others else str(library), FOLDER_VARIABLE: str(folder)}
