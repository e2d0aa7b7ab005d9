"""Claim: the best of six hostfiles is named, Kendall's tau is at least 0.8, and times are within 15 % (median).

``python -m benchmarks.simulate_mpi_bed`` (as root; opt-in) builds ``benchmarks/simulate_mpi_lab.yaml`` from network
namespaces and runs MPI programs there that do little but communicate, with the MPICH that is installed. Each is traced
once, on this machine alone; :func:`~dask_efficiency.mpi.place` says from that trace what it takes with each hostfile.

Ranks that wait poll, and here all share a few cores: ``polite.c`` lets them sleep 200 us instead.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.figures import figure
from benchmarks.placement_bed import lacking, namespaces, network
from benchmarks.worker_bed import sh
from dask_efficiency.mpi import load_trace as from_mpi_trace
from dask_efficiency.mpi import place as place_mpi
from dask_efficiency.mpi.tracer.build import FOLDER_VARIABLE, compile_tracer
from dask_efficiency.simulation.model.cluster_file import ClusterFile, read_cluster_file

LAB = Path(__file__).with_name("simulate_mpi_lab.yaml")

SOURCES = Path(__file__).with_name("simulate_mpi_c")

RANKS = 8

#: By name: hosts, and how many ranks each takes, in the order of the file.
HOSTFILES: dict[str, dict[str, int]] = {
    "near": {"near1": 3, "near2": 3, "near3": 2},
    "two-near": {"near1": 4, "near2": 4},
    "near-slow": {"near1": 2, "near2": 2, "near3": 2, "slow1": 2},
    "one-far": {"near1": 2, "near2": 2, "near3": 2, "far1": 2},
    "half-far": {"near1": 2, "near2": 2, "far1": 2, "far2": 2},
    "mixed": {"near1": 2, "far1": 2, "near2": 2, "far2": 2},
    "spread": {"near1": 2, "near2": 1, "near3": 1, "slow1": 2, "far1": 1, "far2": 1},
}

#: Of MPICH 4.0.2 with UCX over TCP: only the namespace's card, and MPI's own collectives.
ENVIRONMENT = {
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
}

CONTROL = "reno"

#: Goals: of the errors, and of how alike hostfiles rank really and predicted.
MEDIAN_ERROR, TAU = 0.15, 0.8

#: Hostfiles whose real times are no further apart are equally good.
SAME = 0.03

#: A run that takes longer has failed.
MAX_SECONDS = 30

#: Of a run: on a machine with a load of 25, one of 60 did not get started.
MAX_TRIES = 3

#: After that time of its own, a program should have ended; UCX 1.13 sometimes waits for ever in ``MPI_Finalize``.
MAX_SECONDS_TO_END = 2.0


@dataclass(frozen=True, slots=True)
class Work:
    """A program, how many steps it makes, of how many bytes, and by which algorithms."""

    program: str
    steps: int
    nbytes: int
    algorithms: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {f"MPIR_CVAR_{name.upper()}_INTRA_ALGORITHM": kind for name, kind in self.algorithms.items()}

    @property
    def words(self) -> list[str]:
        return [self.program, str(self.steps), str(self.nbytes)]


WORKS = {
    "stencil": Work("stencil", 8, 200_000),
    "transposition": Work("transposition", 3, 100_000),
    "tree": Work("tree", 2, 1_000_000),
    "tree, binomial": Work("tree", 2, 1_000_000, {"bcast": "binomial"}),
    "sum": Work("sum", 2, 1_000_000),
    "gathering": Work("gathering", 2, 200_000),
    "ring": Work("ring", 10, 300_000),
    "dealing": Work("dealing", 3, 150_000),
    "parts": Work("parts", 4, 100_000),
    "sum, doubling": Work("sum", 2, 500_000, {"allreduce": "recursive_doubling"}),
}

#: Those on which nothing was chosen.
HELD_OUT = ("ring", "dealing", "parts", "sum, doubling")


# -- running ---------------------------------------------------------------------------------------


def built(folder: Path) -> None:
    """Compile the programs, the tracer, and what makes waiting ranks sleep."""
    sh("mpicc", "-O2", "-o", str(folder / "programs"), str(SOURCES / "programs.c"))
    sh("gcc", "-O2", "-shared", "-fPIC", "-o", str(folder / "polite.so"), str(SOURCES / "polite.c"), "-ldl")
    compile_tracer("mpicc", folder / "tracer.so")


def record(folder: Path, work: Work) -> Path:
    """Trace a program on this machine alone; the list of its files."""
    trace = folder / "trace-{}-{}-{}".format(*work.words)
    listed = trace.with_name(f"{trace.name}.txt")
    if not listed.exists():
        settings = {**ENVIRONMENT, "UCX_NET_DEVICES": "lo", FOLDER_VARIABLE: str(trace)}
        settings["LD_PRELOAD"] = f"{folder / 'tracer.so'}:{folder / 'polite.so'}"
        _output(folder, [], settings, work)
    return listed


@contextmanager
def bed(described: ClusterFile, folder: Path) -> Iterator[dict[str, str]]:
    """The hosts' addresses, and in the folder a launcher that enters them."""
    places = namespaces(described)
    hosts = [host for host in described.topology.hosts if host.name != described.scheduler]
    with network(described) as addresses:
        cases = "".join(f"{host.address}) place={places[host.name]};; " for host in hosts)
        launcher = folder / "launcher"
        # As ssh is called: options, the host, and a command for a shell.
        launcher.write_text(
            f"#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\nhost=$1; shift\n"
            f'case $host in {cases}esac\nexec ip netns exec "$place" sh -c "$*"\n'
        )
        launcher.chmod(0o755)
        for host in hosts:
            # On short ways Cubic, which most machines use, does as Reno; that may be set in any namespace.
            sh("ip", "netns", "exec", places[host.name], "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONTROL}")
        try:
            yield addresses
        finally:
            _end_all(described)


def seconds_of(described: ClusterFile, addresses: Mapping[str, str], folder: Path, hosts: str, work: Work) -> float:
    hostfile = folder / "addresses"
    hostfile.write_text("".join(f"{addresses[host]}:{count}\n" for host, count in HOSTFILES[hosts].items()))
    where = ["-launcher", "ssh", "-launcher-exec", str(folder / "launcher"), "-f", str(hostfile)]
    where += ["-localhost", addresses[described.scheduler]]
    settings = {**ENVIRONMENT, **work.environment, "LD_PRELOAD": str(folder / "polite.so")}
    for _ in range(MAX_TRIES):
        printed = _output(folder, where, settings, work)
        _end_all(described)
        if found := re.search(r"seconds ([0-9.]+)", printed):
            return float(found[1])
        print(f"{work.program} on {hosts} did not say its time: {printed[-2000:]}", flush=True)
    raise SystemExit(f"{work.program} on {hosts} failed {MAX_TRIES} times")


def _output(folder: Path, where: Sequence[str], settings: Mapping[str, str], work: Work) -> str:
    variables = [word for name, value in settings.items() for word in ("-genv", name, value)]
    command = ["mpiexec", *where, *variables, "-n", str(RANKS), str(folder / "programs"), *work.words]
    file = folder / "printed"
    with file.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    began, printed_at = time.monotonic(), 0.0
    try:
        while process.poll() is None and time.monotonic() < began + MAX_SECONDS:
            time.sleep(0.05)
            if not printed_at and "seconds" in file.read_text():
                printed_at = time.monotonic()
            if printed_at and time.monotonic() > printed_at + MAX_SECONDS_TO_END:
                break
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return file.read_text()


def _end_all(described: ClusterFile) -> None:
    """End what is left in the hosts' namespaces."""
    places = namespaces(described)
    for host in described.topology.hosts:
        if host.name != described.scheduler:
            for pid in sh("ip", "netns", "pids", places[host.name]).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def measure(folder: Path, works: Sequence[str], repeats: int) -> None:
    """Run all works with all hostfiles, in turn; times that are in the folder already are not measured again."""
    described = read_cluster_file(LAB)
    file = folder / "seconds.json"
    taken: dict[str, dict[str, list[float]]] = json.loads(file.read_text()) if file.exists() else {}
    with bed(described, folder) as addresses:
        for repeat in range(repeats):
            for name in works:
                for hosts in HOSTFILES:
                    times = taken.setdefault(name, {}).setdefault(hosts, [])
                    if len(times) > repeat:
                        continue
                    times.append(seconds_of(described, addresses, folder, hosts, WORKS[name]))
                    print(f"{name}, {hosts}: {times[-1]:.3f} s", flush=True)
                    file.write_text(json.dumps(taken))


# -- judging ---------------------------------------------------------------------------------------


def tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's: the part of pairs in the same order less the part in the other."""
    pairs = list(combinations(range(len(one)), 2))
    same = [(one[i] - one[j]) * (other[i] - other[j]) for i, j in pairs]
    return (sum(product > 0 for product in same) - sum(product < 0 for product in same)) / len(pairs)


def judge(folder: Path, works: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Predict all works with all hostfiles, and print that with the real times."""
    taken = json.loads((folder / "seconds.json").read_text())
    hostfiles = []
    for name, counts in HOSTFILES.items():
        hostfiles.append(folder / f"{name}.hosts")
        hostfiles[-1].write_text("".join(f"{host}:{count}\n" for host, count in counts.items()))
    all_errors: list[float] = []
    held_out: list[float] = []
    good, named, alikes = True, 0, []
    for name in works:
        work = WORKS[name]
        program = from_mpi_trace(record(folder, work))
        placed = place_mpi(program, LAB, hostfiles, algorithms=work.algorithms, **settings)
        predicted = {one.name.removesuffix(".hosts"): one.makespan_seconds for one in placed.ranked}
        real = {hosts: statistics.median(taken[name][hosts]) for hosts in HOSTFILES}
        errors = []
        for hosts in HOSTFILES:
            errors.append(predicted[hosts] / real[hosts] - 1)
            times = taken[name][hosts]
            print(
                f"{name:14} {hosts:10} really {real[hosts]:7.3f} s ({min(times):.3f} to {max(times):.3f}), "
                f"predicted {predicted[hosts]:7.3f} s ({errors[-1]:+6.1%})"
            )
        alike = tau([real[hosts] for hosts in HOSTFILES], [predicted[hosts] for hosts in HOSTFILES])
        best = real[min(predicted, key=predicted.__getitem__)] <= min(real.values()) * (1 + SAME)
        sizes = [abs(error) for error in errors]
        print(
            f"{name:14} best {'named' if best else 'not named'}, tau {alike:.2f}, median error "
            f"{statistics.median(sizes):.1%}, at most {max(sizes):.1%}\n"
        )
        all_errors += sizes
        held_out += sizes if name in HELD_OUT else []
        good &= best and alike >= TAU
        named += best
        alikes.append(alike)
    if held_out:
        print(f"held out: median error {statistics.median(held_out):.1%}, at most {max(held_out):.1%}")
    print(f"all: median error {statistics.median(all_errors):.1%}, at most {max(all_errors):.1%}")
    good &= statistics.median(all_errors) <= MEDIAN_ERROR
    figure("best hostfile named", named, of=len(works), at_least=len(works))
    figure("least of Kendall's tau", min(alikes), at_least=TAU)
    figure("median error", 100 * statistics.median(all_errors), "%", at_most=100 * MEDIAN_ERROR)
    print(f"the claim {'holds' if good else 'does not hold'}")


def main() -> None:
    """Make the runs that are missing, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keeps traces and times; those that are in it are not made again")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--works", nargs="*", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument("--eager", type=int, help="bytes from which on a message waits for its receiver")
    parser.add_argument("--overhead", type=float, help="seconds that each message takes sender and receiver")
    options = parser.parse_args()
    settings = {"eager": options.eager, "overhead_seconds": options.overhead}
    settings = {name: value for name, value in settings.items() if value is not None}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not options.judge_only:
            if reason := lacking() or ("" if shutil.which("mpiexec") else "mpiexec is not installed"):
                raise SystemExit(f"no bed: {reason}")
            built(folder)
            # So that nothing is left where this is ended from outside.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            # What else the machine does shall not count; ranks that wait sleep, so that this takes little from it.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            measure(folder, options.works, options.repeats)
        judge(folder, options.works, settings)


if __name__ == "__main__":
    main()
