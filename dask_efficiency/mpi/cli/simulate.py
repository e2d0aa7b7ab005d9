"""`dask-efficiency mpi simulate`: a recorded MPI program on other hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dask_efficiency.cli.options import chrome_option, cluster_option, hostfile_option, html_option, json_option
from dask_efficiency.cli.output import one_line_errors, say

if TYPE_CHECKING:
    from dask_efficiency.mpi.result import MpiPlacements, MpiPrediction


def algorithms(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Algorithms by collective, from COLLECTIVE=ALGORITHM."""
    chosen = {}
    for value in values:
        name, given, algorithm = value.partition("=")
        if not given:
            raise click.BadParameter(f"{value!r} is not a collective and its algorithm such as bcast=binomial")
        chosen[name.strip().lower()] = algorithm.strip()
    return chosen


@click.command("simulate")
@click.argument("trace")
@click.option("-n", "-np", "ranks", type=click.IntRange(min=1), help="Number of ranks; the trace must have as many.")
@cluster_option(required=True)
@hostfile_option
@click.option("--mpich", default="4.0.2", show_default=True, metavar="VERSION", help="MPICH that chooses algorithms.")
@click.option(
    "--algorithm",
    multiple=True,
    callback=algorithms,
    metavar="COLLECTIVE=ALGORITHM",
    help="This algorithm instead of MPICH's choice, such as bcast=binomial.",
)
@click.option("--eager", default="64 KiB", show_default=True, metavar="SIZE", help="Smaller messages are sent at once.")
@click.option("--overhead", default="0 s", metavar="TIME", help="Of each message, for its sender and its receiver.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="Instructions a second of a host of speed 1.  [default: the trace's, or 1e9]",
)
@chrome_option
@html_option
@json_option
def command(
    trace: str,
    ranks: int | None,
    hostfile: tuple[str, ...],
    html: str | None,
    chrome: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Predict a recorded program on other hosts.

    It runs on the hosts of a cluster, in virtual time. TRACE is a time-independent trace: the list of files, the
    folder or the file that `dask-efficiency mpi record` or SimGrid's `smpirun -trace-ti` wrote.
    """
    if len(hostfile) > 1 and chrome is not None:
        raise click.UsageError("--chrome is not for several --hostfile")
    with one_line_errors():
        result = _found(trace, ranks, hostfile, asked)
        if chrome is not None:
            result.to_chrome(chrome)  # type: ignore[union-attr]  # not of a comparison
        if html is not None:
            result.to_html(html)
        say(result, as_json=as_json, written=html is not None or chrome is not None)


def _found(
    trace: str, ranks: int | None, hostfiles: tuple[str, ...], asked: dict[str, Any]
) -> MpiPrediction | MpiPlacements:
    """Run one simulation, or a comparison of several hostfiles."""
    from dask_efficiency.mpi.calls import place, simulate
    from dask_efficiency.mpi.trace_files import load_trace
    from dask_efficiency.simulation.model.units import parse_seconds

    program = load_trace(trace)
    if ranks is not None and ranks != program.size:
        raise ValueError(f"-n is {ranks}, and {trace} has {program.size} ranks: a trace is of one number of ranks")
    cluster, speed = asked.pop("cluster"), asked.pop("speed") or 0.0
    common = {"algorithms": asked.pop("algorithm"), "overhead_seconds": parse_seconds(asked.pop("overhead"))}
    common |= asked | {"instructions_per_second": speed}
    if len(hostfiles) > 1:
        return place(program, cluster, hostfiles, **common)
    return simulate(program, cluster, next(iter(hostfiles), None), **common)
