"""`dask-efficiency report` and `explain`: a saved report or a cluster's past, and the meaning of a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.inputs import Input, InputKind, look_at
from dask_efficiency.cli.options import Connection, html_option, json_option, save_option, scheduler_options, timedelta
from dask_efficiency.cli.output import one_line_errors, say, tell

if TYPE_CHECKING:
    from dask_efficiency.report.model import EfficiencyReport


@click.command("report")
@click.argument("source")
@click.option(
    "--last",
    callback=timedelta,
    metavar="TIME",
    help="Only this long before now, such as 30m or 2h; for a scheduler. [default: all that it keeps]",
)
@click.option("--all", "everything", is_flag=True, help="Print the whole report, not only the first screen.")
@save_option("the report")
@html_option
@json_option
@scheduler_options
def report_command(
    source: str,
    last: float | None,
    everything: bool,
    as_json: bool,
    save: str | None,
    html: str | None,
    connection: Connection,
) -> None:
    """Show a saved report, or the past of a live cluster.

    SOURCE is a report's file or URL, a scheduler's address (tcp://host:8786, tls://host:8786 or
    host:8786), or the file that `dask scheduler --scheduler-file` wrote.
    """
    with one_line_errors():
        given = look_at(source)
        if given.kind is not InputKind.SCHEDULER and last is not None:
            raise click.UsageError(f"--last asks a scheduler for its past, and {source!r} is not a scheduler")
        found = _found(given, last, connection)
        if save is not None:
            found.save(save)
        if html is not None:
            found.to_html(html)
        written = save is not None or html is not None
        say(found, as_json=as_json, written=written, everything=everything)


def _found(source: Input, last: float | None, connection: Connection) -> EfficiencyReport:
    if source.kind is InputKind.SCHEDULER:
        from dask_efficiency.report.replies import ask_history

        return connection.ask(source.where, lambda caller: ask_history(caller, last))
    if source.kind not in (InputKind.REPORT, InputKind.OTHER):
        raise source.refusal("a saved report or a scheduler's address")
    from dask_efficiency.report.files import load_report

    return load_report(source.where)


@click.command("explain")
@click.argument("kind")
def explain_command(kind: str) -> None:
    """Explain a finding, and what to do about it.

    KIND is a bucket such as `spill`, a bucket and a cause such as `thread-noncpu/sleep`, or the cause alone.
    """
    with one_line_errors():
        from dask_efficiency.report.kinds import explain

        text = explain(kind)
    tell(*text.splitlines())
