"""Stacks of this process with its native frames, by py-spy where it is installed and allowed."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from typing import Any

from dask_efficiency.accounts.details import MAX_DEPTH
from dask_efficiency.accounts.intake import fitting, whole_number
from dask_efficiency.accounts.lines import Frame, Stack

#: Seconds that py-spy may take: it reads the symbols of all libraries.
NATIVE_SECONDS = 20.0
#: File that is 1 where Linux lets a process look only at its children.
_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
#: Linux' PR_SET_PTRACER, by which a process lets another one look at it, too.
_SET_PTRACER = 0x59616D61
#: Modules of libraries that let others look themselves, of which only the last one may.
_LET_OTHERS = ("mpi4py", "ucp", "ucxx")
#: Held by who lets py-spy look.
_LETTING = threading.Lock()
#: Characters of what py-spy says of its failure.
MAX_REASON = 200


def native_stacks() -> tuple[dict[int, Stack], str]:
    """Stacks by native id of their threads; or none, and the reason."""
    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    program = shutil.which("py-spy", path=os.pathsep.join(folders))
    if program is None:
        return {}, "py-spy is not installed"
    try:
        code, out, error = _looked(program)
        if code and _keeps_children_out():
            others = [name for name in _LET_OTHERS if name in sys.modules]
            if others:
                return {}, f"py-spy may not look at its parent, and {others[0]} may have let others look"
            code, out, error = _looked(program, let=True)
        if code:
            said = error.decode(errors="replace").strip().partition("\n")[0]
            return {}, fitting(f"py-spy failed: {said or f'exit code {code}'}", MAX_REASON)
        return {whole_number(one["os_thread_id"]): _stack(one["frames"]) for one in json.loads(out)}, ""
    except subprocess.TimeoutExpired:
        return {}, f"py-spy took more than {NATIVE_SECONDS:g} s"
    except (OSError, ValueError, LookupError, TypeError) as error:
        return {}, fitting(f"py-spy failed: {type(error).__name__}: {error}", MAX_REASON)


def _looked(program: str, *, let: bool = False) -> tuple[int, bytes, bytes]:
    """Exit code of py-spy and what it wrote; ``let`` it look meanwhile."""
    command = [program, "dump", "--native", "--json", "--pid", str(os.getpid())]
    with (
        _LETTING if let else nullcontext(),
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child,
    ):
        if let:
            _let_look(child.pid)
        try:
            out, error = child.communicate(timeout=NATIVE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        finally:
            if let:
                _let_look(0)
    return child.returncode, out, error


def _keeps_children_out() -> bool:
    """True if a child may look at this process only if that lets it."""
    with suppress(OSError), open(_SCOPE, "rb") as file:
        return file.read(10).strip() == b"1"
    return False


def _let_look(pid: int) -> None:
    """Let a process look at this one; 0 lets none."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PTRACER, pid, 0, 0, 0)


def _stack(frames: list[dict[str, Any]]) -> Stack:
    """Stack of frames that py-spy lists, the innermost first."""
    named = [
        Frame(fitting(one["name"]), fitting(one.get("filename") or one.get("module") or ""), whole_number(one["line"]))
        for one in frames[:MAX_DEPTH]
    ]
    return tuple(named[::-1])
