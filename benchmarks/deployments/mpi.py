"""MPI: dask-mpi under Debian's mpiexec, by its command and by `initialize()` in a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from distributed import Client

from benchmarks.deployments.checks import Check, of_fixed_cluster
from benchmarks.deployments.programs import Need
from dask_efficiency import EfficiencyPlugin
from tests.deployments.programs import HOST, eventually, mpi_libraries, program, python_path

NEEDS = (
    Need("mpich", debian="mpich", program="mpiexec"),
    Need("mpi4py", module="mpi4py"),
    Need("dask-mpi", module="dask_mpi"),
)

WORKERS, THREADS = 2, 2

MPIEXEC = ("mpiexec", "-launcher", "fork", "-iface", "lo")


def command(folder: Path) -> list[Check]:
    """The command `dask-mpi`: a rank for the scheduler, one for each worker, and a client outside."""
    file = folder / "scheduler.json"
    dask_mpi = ["--scheduler-file", str(file), "--interface", "lo", "--nthreads", str(THREADS)]
    dask_mpi += ["--dashboard-address", f"{HOST}:0", "--local-directory", str(folder)]
    ranks = [*MPIEXEC, "-n", str(1 + WORKERS), sys.executable, "-m", "dask_mpi.cli", *dask_mpi]
    with program(ranks, folder / "mpi.log", environment=mpi_libraries(folder)):
        eventually(lambda: file.exists() and file.stat().st_size, what="the scheduler's file")
        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(WORKERS, timeout=60)
            client.register_plugin(EfficiencyPlugin())
            return of_fixed_cluster(client, workers=WORKERS, threads=THREADS)


def script(folder: Path) -> list[Check]:
    """A script that every rank runs: one becomes the scheduler, one goes on as the client, others become workers."""
    result = folder / "checks.json"
    ranks = [*MPIEXEC, "-n", str(2 + WORKERS), sys.executable, "-m", __name__, str(result)]
    environment = {**os.environ, "PYTHONPATH": python_path(), **mpi_libraries(folder)}
    done = subprocess.run(ranks, env=environment, cwd=folder, capture_output=True, text=True, timeout=180)
    if done.returncode or not result.exists():
        raise RuntimeError(f"{' '.join(ranks)} ended with {done.returncode}: {done.stderr[-3000:]}")
    return [Check(**fields) for fields in json.loads(result.read_text())]


def main(result: Path) -> None:
    from dask_mpi import initialize

    initialize(interface="lo", nthreads=THREADS, local_directory=str(result.parent), dashboard_address=f"{HOST}:0")
    with Client() as client:
        client.wait_for_workers(WORKERS, timeout=60)
        client.register_plugin(EfficiencyPlugin())
        checks = of_fixed_cluster(client, workers=WORKERS, threads=THREADS)
    result.write_text(json.dumps([asdict(check) for check in checks]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
