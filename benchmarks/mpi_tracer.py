"""What the tracer of MPI programs costs: less than 2 µs a call.

``python -m benchmarks.mpi_tracer`` compiles ``mpi_programs/own_messages.c`` and the tracer with ``mpicc``, and runs the
program with and without the tracer in turn. One rank exchanges messages with itself, so that no other one is waited
for. The figure is the median of the paired differences; it has the work of compressing and writing the trace in it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from dask_efficiency.mpi.tracer.build import compile_tracer, preloaded

PROGRAM = Path(__file__).with_name("mpi_programs") / "own_messages.c"

#: Microseconds that a call may take longer.
MAX_COST = 2.0


def main() -> None:
    """Print what a call takes, and what the tracer adds to it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpicc", default="mpicc")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=200_000, help="of three calls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, library, trace = folder / "own_messages", folder / "tracer.so", folder / "trace"
        subprocess.run([options.mpicc, "-O2", "-w", str(PROGRAM), "-o", str(program)], check=True)
        compressed = compile_tracer(options.mpicc, library)
        plain, added = [], []
        for _ in range(options.pairs):
            without = _nanoseconds(program, options.rounds, {})
            plain.append(without)
            added.append(_nanoseconds(program, options.rounds, preloaded(library, trace)) - without)
        nbytes = sum(file.stat().st_size for file in trace.iterdir())
    calls = 3.3 * options.rounds
    cost = statistics.median(added) / 1e3
    print(f"a call takes {statistics.median(plain) / 1e3:.2f} µs, and {cost:.2f} µs more when it is traced")
    print(f"from {min(added) / 1e3:.2f} to {max(added) / 1e3:.2f} µs in {options.pairs} pairs of runs")
    print(f"{nbytes / calls:.1f} bytes a call{'' if compressed else ', not compressed'}")
    print(f"{'met' if cost <= MAX_COST else 'NOT MET'}: at most {MAX_COST} µs a call")


def _nanoseconds(program: Path, rounds: int, environment: dict[str, str]) -> float:
    ran = subprocess.run(
        [str(program), str(rounds)], env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )
    return float(ran.stdout)


if __name__ == "__main__":
    main()
