"""`dask-efficiency stragglers`: workers slower than their peers, in a recorded run or on a cluster now."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.inputs import Input, InputKind, look_at
from dask_efficiency.cli.options import Connection, json_option, scheduler_options
from dask_efficiency.cli.output import one_line_errors
from dask_efficiency.runs.cli.recorded import run_or_table

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.plugin.client import Caller
    from dask_efficiency.runs.stragglers.offline import Judgement
    from dask_efficiency.runs.trace.run_trace import RunTrace


@click.command("stragglers")
@click.argument("source")
@click.option("--history", multiple=True, metavar="FILE", help="A healthy run of the same kind.")
@click.option("--factor", type=float, help="Higher finds fewer, lower finds more.  [default: 1.0]")
@json_option
@scheduler_options
def command(source: str, history: tuple[str, ...], factor: float | None, as_json: bool, connection: Connection) -> None:
    """Find workers that are slower than their peers.

    A slow worker takes longer for the same work; the reason is given with it. SOURCE is the file or URL of a recorded
    run, or of a table (CSV, Parquet) with a row for each task: worker, prefix, start and stop in seconds, and where
    known cpu_seconds, io_wait_seconds, disk_seconds, transfer_seconds, input_bytes, group, host and key. A saved report
    shows its own findings. A scheduler (tcp://host:8786, tls://host:8786, host:8786, or its scheduler file) judges what
    it recorded, or shows its current findings if it does not record.
    """
    with one_line_errors():
        found = _judgement(look_at(source), history, factor, connection)
        from dask_efficiency.report.sections.stragglers import document, to_dict

        if as_json:
            click.echo(json.dumps(to_dict(found), indent=1))
        else:
            from dask_efficiency.show.terminal import show

            show(document(found, source))


def _judgement(source: Input, history: tuple[str, ...], factor: float | None, connection: Connection) -> Judgement:
    from dask_efficiency.runs.stragglers.offline import FACTOR, Judgement, judge

    found: Judgement | RunTrace | pd.DataFrame
    if source.kind is InputKind.SCHEDULER:
        found = connection.ask(source.where, _judge_cluster)
    elif source.kind is InputKind.REPORT:
        found = _judge_report(source)
    else:
        found = run_or_table(source)
    if not isinstance(found, Judgement):
        return judge(
            found,
            history=[run_or_table(look_at(file)) for file in history],
            factor=FACTOR if factor is None else factor,
        )
    if history or factor is not None:
        raise click.ClickException(
            f"--history and --factor judge a recorded run or a table of tasks; {source.given} gives neither: "
            "EfficiencyPlugin(trace=True) and efficiency_report(trace=True) record"
        )
    return found


async def _judge_cluster(caller: Caller) -> Judgement | RunTrace:
    """Recorded run of the cluster, or the scheduler's own findings if it does not record."""
    from dask_efficiency.accounts.slow_worker import SlowWorker
    from dask_efficiency.plugin.client import ask
    from dask_efficiency.runs.questions import ask_trace
    from dask_efficiency.runs.stragglers.offline import Judgement

    answer = await ask(caller, "stragglers")
    with suppress(RuntimeError):  # it does not record
        return await ask_trace(caller)
    findings = tuple(map(SlowWorker.from_dict, answer["stragglers"]))
    note = "As the scheduler finds them now, by heartbeats; EfficiencyPlugin(trace=True) records for a closer look."
    return Judgement(findings, answer["workers"], notes=(note,))


def _judge_report(source: Input) -> Judgement:
    from dask_efficiency.report.files import load_report
    from dask_efficiency.runs.stragglers.offline import Judgement

    report = load_report(source.where)
    note = "As the scheduler found them during the run, by heartbeats; a recorded run can be judged more closely."
    workers = report.attendance.get("workers", len(report.by_worker))
    return Judgement(report.stragglers, workers, notes=(note,))
