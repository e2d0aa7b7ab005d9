"""The table of commands: each by its name, in the shape of entry points, with its line of help."""

from __future__ import annotations

from collections.abc import Mapping

#: By name, of which the first word may be a group: where the command is, and how its own help begins.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("dask_efficiency.report.cli.run:demo_command", "Report on 10 to 20 seconds of work on a local cluster."),
    "run": ("dask_efficiency.report.cli.run:run_command", "Run a script, and report on the clusters that it used."),
    "report": (
        "dask_efficiency.report.cli.report:report_command",
        "Show a saved report, or the past of a live cluster.",
    ),
    "explain": (
        "dask_efficiency.report.cli.report:explain_command",
        "Explain a finding, and what to do about it.",
    ),
    "top": ("dask_efficiency.live.cli:command", "Watch what the threads of a cluster do now."),
    "compare": ("dask_efficiency.report.cli.compare:command", "Show what changed between two saved reports."),
    "critical-path": ("dask_efficiency.runs.cli.critical_path:command", "Show what each second of a run was spent on."),
    "stragglers": ("dask_efficiency.report.cli.stragglers:command", "Find workers that are slower than their peers."),
    "simulate": ("dask_efficiency.simulation.cli:command", "Predict a recorded run on another cluster."),
    "preflight": ("dask_efficiency.preflights.cli:command", "Find the slow workers of a cluster before a job starts."),
    "torch path": ("dask_efficiency.torch_traces.cli:command", "Show what the GPUs and threads of PyTorch waited for."),
    "mpi record": ("dask_efficiency.mpi.cli.record:command", "Record the calls of an MPI program, for `mpi simulate`."),
    "mpi simulate": ("dask_efficiency.mpi.cli.simulate:command", "Predict a recorded program on other hosts."),
    "fleet watch": ("dask_efficiency.fleet.cli:watch_command", "Name the machines that are unlike their peers."),
    "fleet train": ("dask_efficiency.fleet.cli:train_command", "Learn how a fleet behaves while all is well."),
}

#: Groups of commands, each with its line of help.
GROUPS: Mapping[str, str] = {
    "torch": "Explain what PyTorch's profiler recorded.",
    "mpi": "Record MPI programs, and simulate them on other hosts.",
    "fleet": "Watch the machines of a fleet, of Dask or in Prometheus.",
}
