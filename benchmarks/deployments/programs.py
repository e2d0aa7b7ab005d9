"""Programs that a deployment needs, their installation where that is asked for, and their start and end."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Need:
    """A program of a Debian package, or a module from PyPI."""

    name: str
    debian: str = ""
    program: str = ""
    module: str = ""

    @property
    def there(self) -> bool:
        if self.program:
            return shutil.which(self.program) is not None
        return importlib.util.find_spec(self.module) is not None

    @property
    def how(self) -> str:
        return f"apt-get install {self.debian}" if self.debian else f"pip install {self.name}"


def missing(needs: Iterable[Need]) -> list[Need]:
    return [need for need in needs if not need.there]


def install(needs: Iterable[Need], folder: Path) -> None:
    """Install them: Debian's packages for the machine, which takes root; Python's into the folder."""
    needs = list(needs)
    packages = sorted({need.debian for need in needs if need.debian})
    modules = sorted({need.name for need in needs if need.module})
    if packages:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with _no_services():
            for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
                subprocess.run(["apt-get", "--quiet=2", *command], check=True, env=quiet, timeout=600)
    if modules:
        # Without what they depend on, so that no other Dask comes along.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *modules]
        subprocess.run(pip, check=True, timeout=600)
        importlib.invalidate_caches()


@contextmanager
def _no_services() -> Iterator[None]:
    """Debian starts no service that it installs, where this file forbids it."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    try:
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink()


#: Where our packages are, for processes that start elsewhere.
ROOT = Path(__file__).resolve().parents[2]

HOST = "127.0.0.1"


def python_path(*folders: Path) -> str:
    """PYTHONPATH with folders in front of our own and of what there was."""
    return os.pathsep.join([*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)


def eventually(condition: Callable[[], Any], *, seconds: float = 60, what: str = "it") -> Any:
    """Wait for what other processes do; gives the condition's value."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
    return value


@contextmanager
def program(
    command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that writes to a log; ended with the block, and its output shown if the block fails."""
    settings = {**os.environ, "PYTHONPATH": python_path(), **(environment or {})}
    with log.open("wb") as file:
        # A group of its own, so that its children can be ended with it.
        started = subprocess.Popen(
            command, env=settings, cwd=log.parent, stdout=file, stderr=file, stdin=subprocess.DEVNULL, process_group=0
        )
    try:
        yield started
    except BaseException:
        print(f"{' '.join(command)}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        end(started)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program, by force if it does not go."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:  # its children
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
