"""Runs one workload of a benchmark in a process of its own, and reads what it has to say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def lacking(modules: Sequence[str]) -> str:
    """Why a workload is skipped that needs these modules; empty if it need not be."""
    missing = [module for module in modules if find_spec(module) is None]
    return f"skipped, as {' and '.join(missing)} cannot be imported here" if missing else ""


def in_a_process(module: str, name: str, *words: str, timeout: float) -> dict[str, Any] | str:
    """What ``python -m MODULE NAME --alone --json FILE`` writes; why there is nothing to tell, where there is not."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "said.json"
        command = [sys.executable, "-m", module, name, "--alone", "--json", str(file), *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            _, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return f"did not end within {timeout:g} s"
        finally:
            with suppress(ProcessLookupError):  # its workers, if they are still there
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not file.exists():
            return f"failed: {(errors.strip().splitlines() or ['no reason given'])[-1]}"
        said: dict[str, Any] = json.loads(file.read_text())
        return said
