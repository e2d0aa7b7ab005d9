"""Programs that a deployment needs, and their installation where that is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


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
