"""Compiles ``tracer.c`` with the compiler of an MPI installation, as each has its own numbers for handles."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("tracer.c")

#: Set to a folder, it says where the files of a traced program go; beside it is the list of them, its name with .txt.
FOLDER_VARIABLE = "DASK_EFFICIENCY_MPI_TRACE"

_FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-ftls-model=initial-exec"]
_LIBRARIES = ["-ldl", "-lpthread"]

#: The files are compressed where the compiler finds zlib.
_ZLIB = ["-DWITH_ZLIB"], ["-lz"]


class CannotCompileTracer(OSError):
    """The library cannot be made here; the text says why."""


def compile_tracer(mpicc: str, library: Path, flags: Sequence[str] = ()) -> bool:
    """Compile the tracer into a file, which is replaced as a whole, whatever programs have loaded it.

    Parameters
    ----------
    mpicc
        The command of the compiler of the MPI that traced programs use.
    library
        The file to write.
    flags
        For the compiler, beside those that are needed.

    Returns
    -------
    bool
        Whether traces will be compressed.

    Raises
    ------
    CannotCompileTracer
        If there is no such command, or if it fails; with what it says.
    """
    command = shlex.split(mpicc)
    if not command or shutil.which(command[0]) is None:
        raise CannotCompileTracer(
            f"there is no {mpicc!r}; expected the compiler of your MPI (Debian: mpich, libmpich-dev)"
        )
    unfinished = library.with_name(f"{library.name}.{os.getpid()}")
    try:
        said = ""
        for defined, linked in (_ZLIB, ([], [])):
            arguments = [*_FLAGS, *flags, *defined, str(SOURCE), "-o", str(unfinished), *linked, *_LIBRARIES]
            ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                unfinished.replace(library)
                return bool(linked)
            said = ran.stderr.strip()
        raise CannotCompileTracer(f"{mpicc} failed: {said[:2000]}")
    finally:
        unfinished.unlink(missing_ok=True)


def preloaded(library: Path, folder: Path) -> dict[str, str]:
    """The environment in which programs are traced, beside what a process has.

    Parameters
    ----------
    library
        The compiled tracer.
    folder
        Where the files of the trace go.

    Raises
    ------
    ValueError
        If the library cannot be preloaded from there.
    """
    if any(sign in str(library) for sign in " :"):
        raise ValueError(f"expected a path without spaces and colons, which part the files of LD_PRELOAD: {library}")
    others = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library}:{others}" if others else str(library), FOLDER_VARIABLE: str(folder)}
