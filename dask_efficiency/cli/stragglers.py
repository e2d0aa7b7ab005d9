"""`dask-efficiency stragglers`: who took longer for the same work, in a run that is over or on a cluster now."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.connection import Connection
from dask_efficiency.cli.errors import one_line_errors
from dask_efficiency.cli.options import scheduler_options
from dask_efficiency.cli.source import Kind, Source, look_at
from dask_efficiency.cli.tables import read_csv, read_parquet

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.plugins.client.questions import Caller
    from dask_efficiency.results import RunTrace
    from dask_efficiency.straggler.offline import Judgement


@click.command("stragglers")
@click.argument("source")
@click.option("--history", multiple=True, metavar="FILE", help="A run of the same kind in which nothing was wrong.")
@click.option("--factor", type=float, help="More finds fewer, less finds more.  [default: 1.0]")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@scheduler_options
def command(source: str, history: tuple[str, ...], factor: float | None, as_json: bool, connection: Connection) -> None:
    """Find the workers that took longer than their peers for the same work, and say why.

    SOURCE is the file or URL of a recorded run, or of a table (CSV, Parquet) with a row for each task:
    worker, prefix, start and stop in seconds, and where known cpu_seconds, io_wait_seconds, disk_seconds,
    transfer_seconds, input_bytes, group, host and key. Of a saved report, the findings in it
    are shown; of a scheduler (tcp://host:8786, tls://host:8786, host:8786, or its scheduler file), what it
    recorded is judged, or, where it does not record, what it finds now is shown.
    """
    with one_line_errors():
        found = _judgement(look_at(source), history, factor, connection)
    if as_json:
        click.echo(json.dumps([one.to_dict() for one in found.findings], indent=1))
    else:
        from dask_efficiency.report.sections.stragglers import document
        from dask_efficiency.report.terminal.plain import plain

        click.echo(plain(document(found, source), shutil.get_terminal_size().columns))


def _judgement(source: Source, history: tuple[str, ...], factor: float | None, connection: Connection) -> Judgement:
    from dask_efficiency.straggler.offline import FACTOR, Judgement, judge

    found: Judgement | RunTrace | pd.DataFrame
    if source.kind is Kind.SCHEDULER:
        found = connection.ask(source.where, _of_cluster)
    elif source.kind is Kind.REPORT:
        found = _of_report(source)
    else:
        found = _run(source)
    if not isinstance(found, Judgement):
        return judge(
            found, history=[_run(look_at(file)) for file in history], factor=FACTOR if factor is None else factor
        )
    if history or factor is not None:
        raise click.ClickException(
            f"--history and --factor judge a recorded run or a table of tasks; {source.given} gives neither: "
            "EfficiencyPlugin(trace=True) and efficiency_report(trace=True) record"
        )
    return found


async def _of_cluster(caller: Caller) -> Judgement | RunTrace:
    """What the cluster recorded; or what its scheduler found, where it does not record."""
    from dask_efficiency.plugins.client.questions import ask, ask_trace
    from dask_efficiency.straggler.finding import Finding
    from dask_efficiency.straggler.offline import Judgement

    answer = await ask(caller, "stragglers")
    if answer["records"]:
        return await ask_trace(caller)
    findings = tuple(map(Finding.from_dict, answer["stragglers"]))
    note = "As the scheduler finds them now, by heartbeats; EfficiencyPlugin(trace=True) records for a closer look."
    return Judgement(findings, answer["workers"], notes=(note,))


def _of_report(source: Source) -> Judgement:
    from dask_efficiency.results import load_report
    from dask_efficiency.straggler.offline import Judgement

    report = load_report(source.where)
    note = "As the scheduler found them during the run, by heartbeats; a recorded run can be judged more closely."
    workers = report.attendance.get("workers", len(report.by_worker))
    return Judgement(report.stragglers, workers, notes=(note,))


def _run(source: Source) -> RunTrace | pd.DataFrame:
    """A run that is over, in a file."""
    is_table = source.kind is Kind.CSV or source.where.lower().endswith((".csv", ".csv.gz"))
    if source.kind not in (Kind.TRACE, Kind.CSV, Kind.PARQUET, Kind.OTHER):
        raise source.refusal("a recorded run or a table of tasks")
    if not is_table and source.kind is not Kind.PARQUET:
        from dask_efficiency.results import load_trace

        return load_trace(source.where)
    return read_csv(source.where) if is_table else read_parquet(source.where)
