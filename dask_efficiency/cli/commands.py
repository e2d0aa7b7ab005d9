"""The table of commands: each by its name, in the shape of entry points, with its line of help."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: By name, of which the first word may be a group: where the command is, and how its own help begins.
COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "demo": (
            "dask_efficiency.report.cli.demo:command",
            "Report on 10 to 20 seconds of work on a local cluster.",
        ),
        "report": (
            "dask_efficiency.report.cli.report:command",
            "Show a saved report, or what a scheduler kept of the past.",
        ),
        "top": (
            "dask_efficiency.live.cli:command",
            "Watch what the threads of a cluster do now.",
        ),
        "compare": (
            "dask_efficiency.report.cli.compare:command",
            "Say what changed from one saved report to another.",
        ),
        "critical-path": (
            "dask_efficiency.runs.cli.critical_path:command",
            "Say what each second of a run's wall clock was spent on.",
        ),
        "stragglers": (
            "dask_efficiency.report.cli.stragglers:command",
            "Find the workers that are slower than their peers.",
        ),
        "simulate": (
            "dask_efficiency.simulation.cli:command",
            "Say what a recorded run would take on another cluster.",
        ),
        "preflight": (
            "dask_efficiency.preflights.cli:command",
            "Find the slow workers of a cluster before a job starts.",
        ),
        "torch path": (
            "dask_efficiency.torch_traces.cli:command",
            "Say what the GPUs and threads of a PyTorch program waited for.",
        ),
        "mpi record": (
            "dask_efficiency.mpi.cli.record:command",
            "Record the calls of an MPI program, for `mpi simulate`.",
        ),
        "mpi simulate": (
            "dask_efficiency.mpi.cli.simulate:command",
            "Say what a recorded MPI program would take on other hosts.",
        ),
        "fleet watch": (
            "dask_efficiency.fleet.cli.watch:command",
            "Name, every few minutes, the machines that are unlike their peers.",
        ),
        "fleet train": (
            "dask_efficiency.fleet.cli.train:command",
            "Learn how a fleet behaves while all is well, for `fleet watch`.",
        ),
    }
)

#: Groups of commands, each with its line of help.
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "torch": "Explain what PyTorch's profiler recorded.",
        "mpi": "Record MPI programs, and simulate them on other hosts.",
        "fleet": "Watch the machines of a fleet, of Dask or in Prometheus.",
    }
)
