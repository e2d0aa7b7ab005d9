"""Software that a deployment needs, how to get it, and, where that is asked for, its installation."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
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
        """Whether it can be used now."""
        if self.program:
            return shutil.which(self.program) is not None
        return importlib.util.find_spec(self.module) is not None

    @property
    def how(self) -> str:
        """The command that brings it."""
        return f"apt-get install {self.debian}" if self.debian else f"pip install {self.name}"


def missing(needs: Iterable[Need]) -> list[Need]:
    """Those that are not there."""
    return [need for need in needs if not need.there]


def install(needs: Iterable[Need], folder: Path) -> None:
    """Install them: Debian's for the machine, which takes root; Python's in the folder, for this process and its own."""
    needs = list(needs)
    packages = sorted({need.debian for need in needs if need.debian})
    modules = sorted({need.name for need in needs if need.module})
    if packages:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
        subprocess.run(["apt-get", "update"], check=True, capture_output=True, env=quiet, timeout=300)
        subprocess.run(command, check=True, capture_output=True, env=quiet, timeout=600)
    if modules:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *modules]
        subprocess.run(pip, check=True, timeout=600)
