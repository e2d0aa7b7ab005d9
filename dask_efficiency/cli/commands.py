"""The table of commands, and LazyGroup, which finds them there by name and imports those that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from dask_efficiency.cli.output import stoppable
from dask_efficiency.show.figures import harmless

#: Commands by name, whose first word may be a group: module and attribute, and the first line of their help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("dask_efficiency.report.cli:demo_command", "Report on 10 to 20 seconds of work on a local cluster."),
    "run": ("dask_efficiency.report.cli:run_command", "Run a script, and report on the clusters that it used."),
    "report": ("dask_efficiency.report.cli:report_command", "Show a saved report, or the past of a live cluster."),
    "explain": ("dask_efficiency.report.cli:explain_command", "Explain a finding, and what to do about it."),
    "top": ("dask_efficiency.live.cli:command", "Watch what the threads of a cluster do now."),
    "stacks": ("dask_efficiency.live.cli:stacks_command", "Show what every thread of a cluster does now."),
    "compare": ("dask_efficiency.report.cli:compare_command", "Show what changed between two saved reports."),
    "history": ("dask_efficiency.histories.cli:command", "Show runs over weeks, and which got worse."),
    "critical-path": ("dask_efficiency.runs.cli.critical_path:command", "Show what each second of a run was spent on."),
    "stragglers": ("dask_efficiency.report.cli:stragglers_command", "Find workers that are slower than their peers."),
    "simulate": ("dask_efficiency.simulation.cli:command", "Predict a recorded run on another cluster."),
    "advise": ("dask_efficiency.simulation.cli:advise_command", "Find the best settings for a recorded run."),
    "preflight": ("dask_efficiency.preflights.cli:command", "Find the slow workers of a cluster before a job starts."),
    "torch summary": (
        "dask_efficiency.torch_traces.cli:summary_command",
        "Show where the time of a PyTorch job went.",
    ),
    "torch path": ("dask_efficiency.torch_traces.cli:command", "Show what the GPUs and threads of PyTorch waited for."),
    "torch compare": (
        "dask_efficiency.torch_traces.cli:compare_command",
        "Show what changed between two traces of PyTorch.",
    ),
    "mpi record": ("dask_efficiency.mpi.cli.record:command", "Record the calls of an MPI program, for `mpi simulate`."),
    "mpi simulate": ("dask_efficiency.mpi.cli.simulate:command", "Predict a recorded program on other hosts."),
    "fleet watch": ("dask_efficiency.fleet.cli:watch_command", "Name the machines that are unlike their peers."),
    "fleet train": ("dask_efficiency.fleet.cli:train_command", "Learn how a fleet behaves while all is well."),
}

#: Groups of commands, with their line of help.
GROUPS: Mapping[str, str] = {
    "torch": "Explain what PyTorch's profiler recorded.",
    "mpi": "Record MPI programs, and simulate them on other hosts.",
    "fleet": "Watch the machines of a fleet, of Dask or in Prometheus.",
}


class LazyGroup(click.Group):
    """A group with a table of commands, as in :data:`COMMANDS`; it lists those whose folder is installed."""

    def __init__(
        self, *args: Any, table: Mapping[str, tuple[str, str]], groups: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self._groups = groups or {}

    def list_commands(self, context: click.Context) -> list[str]:
        """Installed names, in the order of the table."""
        return list(dict.fromkeys(name.split()[0] for name, (home, _) in self._table.items() if _is_installed(home)))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Command or group of a name, or None; ClickException if its folder is not installed."""
        homes = {known: home for known, (home, _) in self._table.items() if known.split()[0] == name}
        if not homes:
            return None
        if not any(map(_is_installed, homes.values())):
            folder = ".".join(next(iter(homes.values())).partition(":")[0].split(".")[:2])
            raise click.ClickException(f"{name!r} is not installed here: there is no {folder}")
        if name not in self._groups:
            module, _, attribute = self._table[name][0].partition(":")
            found: click.Command = getattr(import_module(module), attribute)
            return found
        table = {known.removeprefix(f"{name} "): self._table[known] for known in homes}
        return LazyGroup(name, table=table, help=self._groups[name])

    def invoke(self, context: click.Context) -> Any:
        """Run the command; Ctrl-C ends it in order, and messages of errors have control characters escaped."""
        try:
            with stoppable():
                return super().invoke(context)
        except click.ClickException as error:
            error.message = harmless(error.message)  # type: ignore[misc]  # what is shown, by whichever class
            raise

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, without importing it."""
        rows = [(name, self._groups.get(name) or self._table[name][1]) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _is_installed(home: str) -> bool:
    try:
        return find_spec(home.partition(":")[0]) is not None
    except ModuleNotFoundError:
        return False
