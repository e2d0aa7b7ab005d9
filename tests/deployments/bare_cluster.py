"""A cluster without this package, whose programs have an environment each, as containers do."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Client

from dask_efficiency import snapshot
from tests.deployments.programs import HOST, eventually, program


@dataclass(slots=True)
class BareCluster:
    """A scheduler and workers without the package."""

    folder: Path
    stack: ExitStack
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.folder / "scheduler.json"
        self.start("scheduler", "scheduler", "--port", "0", "--dashboard-address", f"{HOST}:0")
        eventually(lambda: self.file.exists() and self.file.stat().st_size, what="the scheduler's file")

    def worker(self, name: str) -> None:
        """Start a worker with a nanny, as containers do."""
        place = self.folder / f"{name}-files"
        self.start("worker", name, "--name", name, "--nthreads", "1", "--local-directory", str(place))

    def start(self, kind: str, name: str, *options: str) -> None:
        """Start a program of Dask in an environment of its own."""
        python = environment(self.folder / f"{name}-environment")
        command = [python, "-m", "dask", kind, "--scheduler-file", str(self.file), "--host", HOST, *options]
        self.stack.enter_context(
            program(command, self.folder / f"{name}.log", environment={"PYTHONPATH": "", "PIP_NO_INPUT": "1"})
        )


@contextmanager
def bare_cluster(folder: Path) -> Iterator[BareCluster]:
    """A cluster whose processes have what is installed here, but not this package."""
    with ExitStack() as stack:
        cluster = BareCluster(folder, stack)
        for name in ("first", "second"):
            cluster.worker(name)
        yield cluster


def environment(folder: Path) -> str:
    """A Python that finds the packages of this one, but not those that are installed as links, as ours is here."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    # The links are lines of such files as this one, which are not read in folders that one of them names.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "bin" / "python")


def metered(client: Client, *names: str) -> bool:
    """True once these workers have reported and are measured."""
    report = snapshot(client)
    return all(name in report.by_worker and name not in report.not_measured for name in names)
