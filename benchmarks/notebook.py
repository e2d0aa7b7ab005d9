"""Claim: ``%%efficiency`` adds some 50 ms of CPU time of the notebook's process to a cell.

``python -m benchmarks.notebook`` runs a cell that submits one task that does nothing in IPython's shell, in turn
plainly, with the magic, and with the magic where the plugin stays registered. The scheduler is in the same process, two
workers are in others. It prints medians; what the magic adds has the HTML of the report in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from distributed import Client, LocalCluster
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, unregister


class Taken(NamedTuple):
    wall: float
    cpu: float


CELL = "client.submit(int, pure=False).result()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext dask_efficiency")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        shell.push({"client": client})

        def run(cell: str) -> Taken:
            began, cpu = time.perf_counter(), time.process_time()
            with capture_output():
                result = shell.run_cell(cell)
            result.raise_error()
            return Taken(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu))

        def registered() -> Taken:
            client.register_plugin(EfficiencyPlugin())
            taken = run(f"%%efficiency\n{CELL}")
            unregister(client)
            return taken

        ways: dict[str, Callable[[], Taken]] = {
            "plain": lambda: run(CELL),
            "%%efficiency": lambda: run(f"%%efficiency\n{CELL}"),
            "%%efficiency, registered": registered,
        }
        for way in ways.values():  # imports
            way()
        rows = [{name: way() for name, way in ways.items()} for _ in range(rounds)]
    for name in ways:
        wall, cpu = (statistics.median(row[name][i] for row in rows) for i in range(2))
        more_wall, more_cpu = (statistics.median(row[name][i] - row["plain"][i] for row in rows) for i in range(2))
        print(f"{name:26} {wall:7.1f} ms, {cpu:6.1f} of CPU; adds {more_wall:6.1f} ms, {more_cpu:6.1f} of CPU")
    for name in [*ways][1:]:
        figure(f"CPU added by {name}", [row[name].cpu - row["plain"].cpu for row in rows], "ms")


if __name__ == "__main__":
    main()
