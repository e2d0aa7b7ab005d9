"""Runs one workload of a benchmark in a process of its own, and reads what it has to say; and the options of both."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def parser_of(
    description: str | None, names: Collection[str], *, timeout_seconds: float | None = None
) -> argparse.ArgumentParser:
    """The options of a benchmark that runs some of these; with a timeout, each in a process of its own."""

    def name(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"there is no {text!r}; expected some of {', '.join(names)}")
        return text

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", type=name, help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--scale", type=_scale, default=1.0, help="size of the work, in (0, 1]")
    parser.add_argument("--json", metavar="FILE", help="where to write what was said, measured and found")
    if timeout_seconds is not None:
        parser.add_argument("--timeout", type=float, default=timeout_seconds, help="seconds that each may take")
        parser.add_argument("--alone", action="store_true", help="run one in this process")
    return parser


def _scale(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share; expected more than 0 and at most 1")
    return float(text)


def write(file: str | None, told: Any) -> None:
    """What was told of one workload, or of each by name, as JSON; nothing without a file."""
    if file:
        Path(file).write_text(json.dumps(told, indent=1, default=asdict))


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
