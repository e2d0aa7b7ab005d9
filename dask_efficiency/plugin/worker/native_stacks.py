"""Stacks of this process with its native frames, by py-spy where it is installed and allowed."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import Any

from dask_efficiency.accounts.details import MAX_DEPTH
from dask_efficiency.accounts.intake import fitting, whole_number
from dask_efficiency.accounts.lines import Frame, Stack

#: Seconds that py-spy may take: it reads the symbols of all libraries.
NATIVE_SECONDS = 20.0
#: Linux' PR_SET_PTRACER, by which a process lets another one look at it.
_SET_PTRACER = 0x59616D61
#: Characters of what py-spy says of its failure.
MAX_REASON = 200


def native_stacks() -> tuple[dict[int, Stack], str]:
    """Stacks by native id of their threads; or none, and the reason."""
    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    program = shutil.which("py-spy", path=os.pathsep.join(folders))
    if program is None:
        return {}, "py-spy is not installed"
    command = [program, "dump", "--native", "--json", "--pid", str(os.getpid())]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            _let_look(child.pid)
            try:
                out, error = child.communicate(timeout=NATIVE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                return {}, f"py-spy took more than {NATIVE_SECONDS:g} s"
            finally:
                _let_look(0)
        if child.returncode:
            said = error.decode(errors="replace").strip().partition("\n")[0]
            return {}, fitting(f"py-spy failed: {said or f'exit code {child.returncode}'}", MAX_REASON)
        return {whole_number(one["os_thread_id"]): _stack(one["frames"]) for one in json.loads(out)}, ""
    except (OSError, ValueError, LookupError, TypeError) as error:
        return {}, fitting(f"py-spy failed: {type(error).__name__}: {error}", MAX_REASON)


def _let_look(pid: int) -> None:
    """Let a process look at this one, where Linux keeps processes apart; 0 lets none."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PTRACER, pid, 0, 0, 0)


def _stack(frames: list[dict[str, Any]]) -> Stack:
    """Stack of frames that py-spy lists, the innermost first."""
    named = [
        Frame(fitting(one["name"]), fitting(one.get("filename") or one.get("module") or ""), whole_number(one["line"]))
        for one in frames[:MAX_DEPTH]
    ]
    return tuple(named[::-1])
