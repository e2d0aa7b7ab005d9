"""`dask-efficiency simulate-mpi`: a recorded MPI program on other hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.output import say
from dask_efficiency.files.storage import check_target

if TYPE_CHECKING:
    from dask_efficiency.mpi.compare import MpiPlacements
    from dask_efficiency.mpi.result import MpiPrediction


def algorithms(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Algorithms by collective."""
    found = {}
    for value in values:
        name, given, algorithm = value.partition("=")
        if not given:
            raise click.BadParameter(f"{value!r} is not a collective and its algorithm such as bcast=binomial")
        found[name.strip().lower()] = algorithm.strip()
    return found


@click.command("simulate-mpi")
@click.argument("trace")
@click.option("-n", "-np", "ranks", type=click.IntRange(min=1), help="So many ranks; the trace must have them.")
@click.option(
    "--cluster",
    required=True,
    metavar="FILE",
    help="The hosts, switches and links that this file describes.",
)
@click.option("--hostfile", "-f", metavar="FILE", help="Ranks where this file says.")
@click.option("--compare", is_flag=True, help="Say which of the HOSTFILES is the best, by how much and why.")
@click.argument("hostfiles", nargs=-1)
@click.option("--mpich", default="4.0.2", show_default=True, metavar="VERSION", help="Whose choice of algorithms.")
@click.option(
    "--algorithm",
    multiple=True,
    callback=algorithms,
    metavar="COLLECTIVE=ALGORITHM",
    help="This algorithm instead of MPICH's choice, such as bcast=binomial.",
)
@click.option("--eager", default="64 KiB", show_default=True, metavar="SIZE", help="Smaller messages go at once.")
@click.option("--overhead", default="0 s", metavar="TIME", help="Of each message, for its sender and its receiver.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="Instructions a second of a host of speed 1.  [default: the trace's, or 1e9]",
)
@click.option("--html", metavar="FILE", help="Write what is found to this file or URL as a page that works offline.")
@click.option("--chrome", metavar="FILE", help="Write what each rank does for ui.perfetto.dev or chrome://tracing.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    trace: str,
    ranks: int | None,
    compare: bool,
    hostfile: str | None,
    hostfiles: tuple[str, ...],
    html: str | None,
    chrome: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Say what a recorded MPI program would take on the hosts of a cluster.

    TRACE is a time-independent trace: the list of files, the folder or the file that
    `dask-efficiency mpi-tracer` or SimGrid's `smpirun -trace-ti` wrote.
    """
    if bool(hostfiles) != compare:
        raise click.UsageError("--compare and HOSTFILES go together; a single one is given by --hostfile")
    if compare and (hostfile or chrome):
        raise click.UsageError(f"{'--hostfile' if hostfile else '--chrome'} is not for --compare")
    with one_line_errors():
        for target in filter(None, (html, chrome)):
            check_target(target)
        found = _found(trace, ranks, hostfile, hostfiles, asked)
        if chrome is not None:
            found.to_chrome(chrome)  # type: ignore[union-attr]  # not of a comparison
        if html is not None:
            found.to_html(html)
    say(found, as_json=as_json, written=html is not None or chrome is not None)


def _found(
    trace: str, ranks: int | None, hostfile: str | None, hostfiles: tuple[str, ...], asked: dict[str, Any]
) -> MpiPrediction | MpiPlacements:
    """What was asked for."""
    from dask_efficiency.mpi.calls import place_mpi, simulate_mpi
    from dask_efficiency.mpi.trace_files import from_mpi_trace
    from dask_efficiency.simulation.model.units import seconds_of

    program = from_mpi_trace(trace)
    if ranks is not None and ranks != program.size:
        raise ValueError(f"-n is {ranks}, and {trace} has {program.size} ranks: a trace is of one number of ranks")
    common: dict[str, Any] = {
        "mpich": asked["mpich"],
        "algorithms": asked["algorithm"],
        "eager": asked["eager"],
        "overhead_seconds": seconds_of(asked["overhead"]),
        "instructions_per_second": asked["speed"] or 0.0,
    }
    if hostfiles:
        return place_mpi(program, asked["cluster"], hostfiles, **common)
    return simulate_mpi(program, asked["cluster"], hostfile, **common)
