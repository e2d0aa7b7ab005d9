"""Claim: 10,000 messages a second on a topology, and a million events of 64 ranks in at most 300 MB.

``python -m benchmarks.simulate_mpi`` runs three programs on the hosts of ``docs/lab/lab.yaml``, with the algorithms
that SimGrid has too, and ``smpirun -replay`` of the same traces beside it, where SimGrid is installed. Messages are
those that the collectives send as well. CPU seconds are of the run alone, after the trace has been read; SimGrid reads
while it replays, so its are of both.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.simulate_mpi_programs import PROGRAMS, stencil, written
from benchmarks.simulate_mpi_rival import replayed
from dask_efficiency.mpi import load_trace as from_mpi_trace
from dask_efficiency.mpi.calls import hosts_of_ranks
from dask_efficiency.mpi.result import run
from dask_efficiency.mpi.settings import MpiSettings
from dask_efficiency.simulation.model.cluster_file import read_cluster_file

LAB = Path(__file__).parents[1] / "docs" / "lab" / "lab.yaml"

#: The goals: of one core, and bytes of the process that reads and runs a million events.
MESSAGES_A_SECOND, MAX_NBYTES = 10_000, 300e6

#: Collectives by an algorithm that both have: ours, and the name that SimGrid has for it. Without all of them, SimGrid
#: 3.32 ends in a segmentation fault on the transposition of 64 ranks.
SAME = {
    "allreduce": ("recursive_doubling", "rdb"),
    "alltoall": ("pairwise", "pair"),
    "bcast": ("binomial", "binomial_tree"),
    "reduce": ("binomial", "binomial"),
}

#: Below both send at once.
EAGER = 16_384

#: Of a step of the stencil, for a rank with two neighbours.
EVENTS_A_STEP = 7


def measured(trace: Path, ranks: int) -> dict[str, float]:
    """Seconds of this process that a trace takes to be read and run, and what came out."""
    described = read_cluster_file(LAB)
    slots = {host.name: described.workers[host.name] for host in described.topology.hosts}
    hosts = hosts_of_ranks(described.topology, slots, ranks)
    algorithms = {call: ours for call, (ours, _) in SAME.items()}
    settings = MpiSettings(algorithms=algorithms, eager_bytes=EAGER, handshake=False, instructions_per_second=1e9)
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
        "makespan": found.makespan_seconds,
        "nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def in_process(trace: Path, ranks: int) -> dict[str, float]:
    """The same, of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.simulate_mpi", "--only", str(trace), "--ranks", str(ranks)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rival(trace: Path, ranks: int, folder: Path) -> tuple[float, float, float]:
    """Seconds and CPU seconds that SimGrid takes, and what it predicts."""
    described = read_cluster_file(LAB)
    slots = {host.name: described.workers[host.name] for host in described.topology.hosts}
    hosts = hosts_of_ranks(described.topology, slots, ranks)
    config = [f"smpi/{call}:{theirs}" for call, (_, theirs) in SAME.items()]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    makespan = replayed(trace, described.topology, hosts, folder, EAGER, config)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, makespan


def print_speed(ranks: int, repeats: int, events: int) -> None:
    """A line for each program, and one for a long one."""
    has_rival = shutil.which("smpirun") is not None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        heading = f"{'program':14} {'messages':>8} {'CPU s':>7} {'messages/s':>10}"
        print(f"{heading}  SimGrid: {'s':>6} {'CPU s':>6} {'differs':>8}" if has_rival else heading)
        for name, program in PROGRAMS.items():
            trace = written(folder, program(ranks))
            runs = [in_process(trace, ranks) for _ in range(repeats)]
            seconds = statistics.median(one["running"] for one in runs)
            line = f"{name:14} {runs[0]['messages']:8.0f} {seconds:7.2f} {runs[0]['messages'] / seconds:10.0f}"
            if has_rival:
                theirs = [rival(trace, ranks, folder) for _ in range(repeats)]
                took, used, makespan = (statistics.median(values) for values in zip(*theirs, strict=True))
                line += f"{'':10} {took:6.2f} {used:6.2f} {runs[0]['makespan'] / makespan - 1:+8.2%}"
            print(line, flush=True)
        long = in_process(written(folder, stencil(ranks, events // (ranks * EVENTS_A_STEP) + 1)), ranks)
        print(
            f"stencil of {long['events']:.0f} events and {long['messages']:.0f} messages: {long['reading']:.1f} CPU s "
            f"to read, {long['running']:.1f} to run ({long['messages'] / long['running']:.0f} messages/s), "
            f"{long['nbytes'] / 1e6:.0f} MB"
        )
    print(f"goals: {MESSAGES_A_SECOND} messages/s, {MAX_NBYTES / 1e6:.0f} MB")


def main() -> None:
    """Measure, or be measured."""
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
