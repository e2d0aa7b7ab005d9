"""Claim: a cluster without the package gets it while it runs, by pip or by upload, and workers that join later too.

``python -m benchmarks.without_images`` starts a scheduler and two workers that have Dask and lack this package, each in
an environment of its own, as containers are; brings a wheel there in each of the ways that
``docs/deploy/without-images.md`` names, and prints what took how long, and which workers are metered in the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from distributed import Client, PipInstall

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin
from tests.deployments.bare_cluster import bare_cluster, metered
from tests.deployments.programs import ROOT, eventually


def wheel(folder: Path) -> Path:
    """A wheel of this checkout, without compiled parts."""
    settings = {**os.environ, "DASK_EFFICIENCY_NO_EXTENSION": "1"}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(ROOT)]
    subprocess.run([*command, "--wheel-dir", str(folder)], check=True, timeout=300, env=settings)
    (found,) = folder.glob("*.whl")
    return found


def by_pip(client: Client, wheel: Path, *, restart_workers: bool = False) -> None:
    """Have all install the wheel, whether or not pip believes that it is there."""
    options = ["--no-deps", "--ignore-installed"]
    client.register_plugin(PipInstall([str(wheel)], options, restart_workers=restart_workers))


def by_upload(client: Client, wheel: Path) -> None:
    archive = wheel.with_name("dask_efficiency.zip")
    archive.write_bytes(wheel.read_bytes())
    client.upload_file(str(archive))


def main() -> None:
    """Print the cost of each way."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    ways: dict[str, Callable[[Client, Path], None]] = {
        "PipInstall": by_pip,
        "PipInstall, restart_workers": lambda client, file: by_pip(client, file, restart_workers=True),
        "upload_file": by_upload,
    }
    print(f"{'':28}installing  registering  a worker that joins  metered")
    for name, bring in ways.items():
        with tempfile.TemporaryDirectory() as place, bare_cluster(Path(place)) as cluster:
            file = wheel(Path(place))
            with Client(scheduler_file=str(cluster.file)) as client:
                client.wait_for_workers(2, timeout=120)
                times = [time.monotonic()]
                bring(client, file)
                times.append(time.monotonic())
                client.register_plugin(EfficiencyPlugin())
                times.append(time.monotonic())
                cluster.worker("third")
                client.wait_for_workers(3, timeout=120)
                times.append(time.monotonic())
                eventually(lambda: metered(client, "first", "second", "third"), what="all workers to be metered")
                took = [f"{after - before:.1f} s" for before, after in pairwise(times)]
                print(f"{name:28}{took[0]:>10}{took[1]:>13}{took[2]:>21}  3 of 3", flush=True)
                figure(name, times[1] - times[0], "s")


if __name__ == "__main__":
    main()
