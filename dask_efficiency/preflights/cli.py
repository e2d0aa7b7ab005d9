"""Command `dask-efficiency preflight`: finds slow workers of a cluster before a job starts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from dask_efficiency.cli.inputs import scheduler_address
from dask_efficiency.cli.options import Connection, json_option, scheduler_options, timedelta
from dask_efficiency.cli.output import NotJudgedError, answers_of, one_line_errors, say
from dask_efficiency.straggler.retirements import RETIRE_SHARE

if TYPE_CHECKING:
    from dask_efficiency.preflights.judge.result import PreflightResult


@click.command("preflight")
@click.option(
    "--fail", is_flag=True, help="End with exit code 1 if a worker or a path is slow, 2 if nothing was tested."
)
@click.option("--retire", is_flag=True, help="Retire the slow workers, the most certain first; two always stay.")
@click.option(
    "--retire-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=RETIRE_SHARE,
    show_default=True,
    help="Largest share of the workers that is retired, or one.",
)
@click.option("--force", is_flag=True, help="Test a busy cluster too.")
@click.option("--device", default="auto", show_default=True, type=click.Choice(("auto", "cpu", "gpu")))
@click.option("--workload", metavar="SCRIPT", help="A Python script to time on each worker as well.")
@click.option("--soak", is_flag=True, help="Fill each GPU with a training step.")
@click.option("--collective", type=click.Choice(("gloo", "nccl")), help="Pairs run an all-reduce of torch too.")
@click.option("--training", type=click.Choice(("gloo", "nccl")), help="Pairs train a small transformer too.")
@click.option(
    "--limit", default="60s", show_default=True, callback=timedelta, metavar="TIME", help="How long the test may take."
)
@json_option
@partial(scheduler_options, source="scheduler")
def command(scheduler: str, as_json: bool, fail: bool, limit: float, connection: Connection, **asked: Any) -> None:
    """Find the slow workers of a cluster before a job starts.

    SCHEDULER is tcp://host:8786, tls://host:8786 or host:8786. Processors, memory, disks, GPUs and
    networks are measured: each worker for about a second alone, and with another, longer if it seems slow;
    nothing runs as a task.

    \b
    Exit codes:
      0  tested; without --fail also where somebody is slow
      1  with --fail, a worker or a path between hosts is slow
      2  with --fail, nothing was tested; a wrong option, or no scheduler
    """  # noqa: D301 click wants the character
    with one_line_errors(kind=NotJudgedError):
        result = _tested(scheduler_address(scheduler), connection, timeout=limit, **asked)
        say(result, as_json=as_json)
    if fail and not result.passed:
        raise SystemExit(1 if result.findings else 2)


def _tested(address: str, connection: Connection, **asked: Any) -> PreflightResult:
    from dask_efficiency.preflights.client import preflight
    from dask_efficiency.preflights.light_client import LightClient

    address, security = connection.secured(address)
    connection.announce(address)
    with answers_of(address), LightClient(address, security, seconds=connection.timeout_seconds) as client:
        result: PreflightResult = preflight(cast("Any", client), **asked)
        return result
