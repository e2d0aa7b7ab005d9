"""Claim: 10,000 messages a second on a topology, and a million events of 64 ranks in at most 300 MB.

``python -m benchmarks.simulate_mpi`` runs three programs on the hosts of ``docs/lab/lab.yaml``. Messages include those
that collectives send. CPU seconds are of the run alone, after the trace has been read.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import figure
from dask_efficiency.mpi import load_trace as from_mpi_trace
from dask_efficiency.mpi.calls import hosts_of_ranks
from dask_efficiency.mpi.machine import MpiSettings
from dask_efficiency.mpi.result import run
from dask_efficiency.simulation.model.cluster_file import read_cluster_file
from tests.mpi.programs import PROGRAMS, stencil, written

LAB = Path(__file__).parents[1] / "docs" / "lab" / "lab.yaml"

#: The goals: of one core, and bytes of the process that reads and runs a million events.
MESSAGES_A_SECOND, MAX_NBYTES = 10_000, 300e6

#: Algorithms of collectives, and the bytes below which a message is sent at once: those that SimGrid has too.
ALGORITHMS = {"allreduce": "recursive_doubling", "alltoall": "pairwise", "bcast": "binomial", "reduce": "binomial"}
EAGER = 16_384

#: Of a step of the stencil, for a rank with two neighbours.
EVENTS_A_STEP = 7


def measured(trace: Path, ranks: int) -> dict[str, float]:
    """Seconds of this process that a trace takes to be read and run, and what came out."""
    described = read_cluster_file(LAB)
    slots = {host.name: described.workers[host.name] for host in described.topology.hosts}
    hosts = hosts_of_ranks(described.topology, slots, ranks)
    settings = MpiSettings(algorithms=ALGORITHMS, eager_bytes=EAGER, handshake=False, instructions_per_second=1e9)
    began = time.process_time()
    program = from_mpi_trace(trace)
    read = time.process_time()
    found = run(program, described.topology, hosts, settings)
    ran = time.process_time()
    return {
        "reading": read - began,
        "running": ran - read,
        "messages": found.messages,
        "events": sum(map(len, program.ranks)),
        "nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def in_process(trace: Path, ranks: int) -> dict[str, float]:
    """:func:`measured` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.simulate_mpi", "--only", str(trace), "--ranks", str(ranks)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def print_speed(ranks: int, repeats: int, events: int) -> None:
    """A line for each program, and one for a long one."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        speeds = {}
        print(f"{'program':14} {'messages':>8} {'CPU s':>7} {'messages/s':>10}")
        for name, program in PROGRAMS.items():
            trace = written(folder, program(ranks))
            runs = [in_process(trace, ranks) for _ in range(repeats)]
            seconds = statistics.median(one["running"] for one in runs)
            messages = runs[0]["messages"]
            speeds[name] = messages / seconds
            print(f"{name:14} {messages:8.0f} {seconds:7.2f} {messages / seconds:10.0f}", flush=True)
        long = in_process(written(folder, stencil(ranks, events // (ranks * EVENTS_A_STEP) + 1)), ranks)
        print(
            f"stencil of {long['events']:.0f} events and {long['messages']:.0f} messages: {long['reading']:.1f} CPU s "
            f"to read, {long['running']:.1f} to run ({long['messages'] / long['running']:.0f} messages/s), "
            f"{long['nbytes'] / 1e6:.0f} MB"
        )
    figure("the slowest program", min(speeds.values()), "messages a second", at_least=MESSAGES_A_SECOND)
    figure("the fastest program", max(speeds.values()), "messages a second")
    figure("a million events", long["nbytes"] / 1e6, "MB", at_most=MAX_NBYTES / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--only", type=Path, help="a trace: measure this process with it")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options.only, options.ranks)))
    else:
        print_speed(options.ranks, options.repeats, options.events)


if __name__ == "__main__":
    main()
