"""Claim: on real deployments a report has every task, thread and thread-second of work whose totals are known.

``python -m benchmarks.deployments`` starts Dask under TLS, MPI and adaptive scaling; ``ssh`` and ``slurm`` are started
when they are named, or with ``all``. For each it prints what must come out, what was reported, and whether they agree,
and ends with exit code 1 where they do not. What needs software that is not there is skipped, and it says how to get
it; ``--install`` gets it: from Debian for the machine (as root), from PyPI into a temporary folder.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.deployments import adaptive, mpi, slurm, ssh, tls
from benchmarks.deployments.checks import Check, table
from benchmarks.deployments.programs import Need, install, missing
from benchmarks.figures import figure

#: For one cluster, started, examined and ended.
LIMIT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Deployment:
    needs: Sequence[Need]
    #: What is tried on it, each in a folder of its own.
    runs: dict[str, Callable[[Path], list[Check]]]
    root: bool = False
    #: True if it is only started when it is asked for.
    opt_in: bool = False


DEPLOYMENTS = {
    "tls": Deployment(
        tls.NEEDS,
        {
            "TLS by the command line, the plugin preloaded": partial(tls.run, preload=True),
            "TLS by the command line, the plugin registered": partial(tls.run, preload=False),
        },
    ),
    "mpi": Deployment(mpi.NEEDS, {"MPI by the command dask-mpi": mpi.command, "MPI by a script": mpi.script}),
    "adaptive": Deployment(
        (),
        {
            "adapt(), and workers go as soon as they may": lambda folder: adaptive.come_and_go(eagerly=True),
            "adapt(), and workers go when their work is in the accounts": lambda folder: adaptive.come_and_go(
                eagerly=False
            ),
            "scale(2), 2 s after the tasks": lambda folder: adaptive.from_zero(waiting_seconds=2),
        },
    ),
    "ssh": Deployment(ssh.NEEDS, {"SSHCluster": ssh.run}, opt_in=True),
    "slurm": Deployment(
        slurm.NEEDS,
        {
            "SLURMCluster": slurm.fixed,
            "SLURMCluster, scale(jobs=2) after the tasks and scale(0) within the report": slurm.from_zero_to_zero,
        },
        root=True,
        opt_in=True,
    ),
}


def main() -> None:
    """Examine the deployments that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="|".join([*DEPLOYMENTS, "all"]))
    parser.add_argument("--install", action="store_true", help="get the software that is not there")
    given = parser.parse_args()
    unknown = set(given.names) - {*DEPLOYMENTS, "all"}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    # So that what was started is ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    names = given.names or [name for name, deployment in DEPLOYMENTS.items() if not deployment.opt_in]
    names = list(DEPLOYMENTS) if "all" in names else names
    with tempfile.TemporaryDirectory() as place:
        sys.path.insert(0, place)
        os.environ["PYTHONPATH"] = os.pathsep.join([place, os.environ.get("PYTHONPATH", "")])
        results = [examine(name, DEPLOYMENTS[name], Path(place) if given.install else None) for name in names]
    figure("deployments that agree or are skipped", sum(results), of=len(results), at_least=len(results))
    sys.exit(0 if all(results) else 1)


def examine(name: str, deployment: Deployment, packages: Path | None) -> bool:
    """True if all checks agree or the deployment was skipped; a folder takes packages that are missing."""
    if deployment.root and os.geteuid() != 0:
        print(f"{name}: skipped, as it takes root\n")
        return True
    lacking = missing(deployment.needs)
    if lacking and packages is not None:
        try:
            install(lacking, packages)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{name}: not installed: {error}")
        lacking = missing(deployment.needs)
    if lacking:
        how = "; ".join(dict.fromkeys(need.how for need in lacking))
        print(f"{name}: skipped, as {', '.join(need.name for need in lacking)} is not there: {how}, or --install\n")
        return True
    results = [_agrees(what, run) for what, run in deployment.runs.items()]
    return all(results)


def _agrees(what: str, run: Callable[[Path], list[Check]]) -> bool:
    began = time.monotonic()
    print(what)
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, limit(LIMIT_SECONDS):
            checks = run(Path(folder))
    except Exception:
        traceback.print_exc()
        print("did not come to an end\n")
        return False
    different = sum(not check.ok for check in checks)
    took = f"{time.monotonic() - began:.0f} s"
    print(
        f"{table(checks)}\n{f'{different} of {len(checks)} differ' if different else 'all agree'}, {took}\n", flush=True
    )
    return not different


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """A block that ends with an error when it takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    main()
