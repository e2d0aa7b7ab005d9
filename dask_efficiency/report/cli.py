"""Commands of reports: `run`, `demo`, `report`, `explain`, `compare` and `stragglers`."""

from __future__ import annotations

import glob
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.inputs import Input, InputKind, look_at
from dask_efficiency.cli.options import (
    Connection,
    folder_target,
    html_option,
    json_option,
    label_option,
    markdown_option,
    percent,
    save_option,
    scheduler_options,
    target,
    timedelta,
)
from dask_efficiency.cli.output import NotJudgedError, one_line_errors, say, tell
from dask_efficiency.report.runner import ScriptRun, replace_process

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.plugin.client import Caller
    from dask_efficiency.report.compare import Comparison
    from dask_efficiency.report.model import EfficiencyReport
    from dask_efficiency.runs.stragglers.offline import Judgement
    from dask_efficiency.runs.trace.run_trace import RunTrace

#: Characters of a line of prose: longer ones are hard to read.
MAX_WIDTH = 100


def _seconds(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value:g} is no length of time; expected seconds, 0 or more")
    return value


everything_option = click.option(
    "--all", "everything", is_flag=True, help="Print the whole report, not only the first screen."
)


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module's name, as for python -m.")
@click.option("--local", is_flag=True, help="Give the script a LocalCluster; for one that makes no Client.")
@everything_option
@html_option
@click.option("--json", "json", callback=target, metavar="FILE", help="Save the report to this file or URL.")
@click.option(
    "--trace", callback=target, metavar="FILE", help="Record every task, and save the trace to this file or URL."
)
@click.option(
    "--savings",
    type=float,
    callback=_seconds,
    metavar="SECONDS",
    help="Simulate cures for this long at most when the script ends, with --trace. [default: 5]",
)
@click.option(
    "--save-to",
    callback=folder_target,
    metavar="FOLDER",
    help="Save the report in this folder, under a name with the time.",
)
@label_option("Keep this with the report, to choose its runs by in `history`; repeat for several.")
@click.option(
    "--timeout",
    callback=timedelta,
    metavar="TIME",
    help="End the script after so long, with exit code 124; the report begins with what stood still.",
)
@click.option(
    "--progress/--no-progress",
    default=lambda: sys.stderr is not None and sys.stderr.isatty(),
    show_default="on a terminal",
    help="Say now and then, on standard error, how long the tasks will yet take, where that can be said.",
)
def run_command(
    script: str, arguments: tuple[str, ...], is_module: bool, save_to: str | None, **options: object
) -> None:
    """Run a script, and report on the clusters that it used.

    The script runs as with `python SCRIPT ARGS`: its output, exit code and signals are its own. Each cluster that one
    of its Clients connects to is metered while that Client is open; an existing plugin stays as it is. When the script
    ends, fails or is interrupted, the report's first screen goes to standard error; with several clusters, the one with
    most thread time is shown, and a line for each of the others.

    Metering costs some 3 % of a task that does nothing, and --trace some 6 %. There is a report until
    SIGTERM or SIGHUP, and none if the process is killed (SIGKILL), or ends by os._exit.
    """
    if not is_module and not os.path.isfile(script):
        raise click.UsageError(f"{script!r} is no file; expected a Python script, or -m and a module's name")
    if options["savings"] is not None and options["trace"] is None:
        raise click.UsageError("--savings is for the simulation of a recorded run; expected --trace FILE with it")
    replace_process(ScriptRun(script, is_module=is_module, save_to=save_to, **options), arguments)  # type: ignore[arg-type]


@click.command("demo")
@click.option("--workers", type=click.IntRange(min=2), default=2, show_default=True, help="Worker processes.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads of each worker.")
@click.option("--dashboard", is_flag=True, help="Serve Dask's dashboard too.")
@save_option("the report", default="dask-efficiency-demo.json", show_default=True)
def demo_command(workers: int, threads: int, save: str, dashboard: bool) -> None:
    """Report on 10 to 20 seconds of work on a local cluster."""
    from dask_efficiency.report.demo import run_demo

    with one_line_errors():
        run_demo(workers=workers, threads=threads, output=save, dashboard=dashboard)


@click.command("report")
@click.option(
    "--last",
    callback=timedelta,
    metavar="TIME",
    help="Only this long before now, such as 30m or 2h; for a scheduler. [default: all that it keeps]",
)
@everything_option
@save_option("the report")
@html_option
@json_option
@markdown_option
@partial(scheduler_options, required=False)
def report_command(
    source: str | None,
    last: float | None,
    everything: bool,
    as_json: bool,
    as_markdown: bool,
    save: str | None,
    html: str | None,
    connection: Connection,
) -> None:
    """Show a saved report, or the past of a live cluster.

    SOURCE is a report's file or URL, or a scheduler's address (tcp://host:8786, tls://host:8786 or host:8786). Without
    one, it is the report of the last `dask-efficiency run`.
    """
    with one_line_errors():
        found = _last_of_run(last) if source is None else _report(look_at(source), last, connection)
        if save is not None:
            found.save(save)
        if html is not None:
            found.to_html(html)
        written = save is not None or html is not None
        say(found, as_json=as_json, as_markdown=as_markdown, written=written, everything=everything)


def _last_of_run(last: float | None) -> EfficiencyReport:
    if last is not None:
        raise click.UsageError("--last asks a scheduler for its past; expected SOURCE, or --scheduler-file FILE")
    from dask_efficiency.report.kept import load_kept

    return load_kept()


def _report(source: Input, last: float | None, connection: Connection) -> EfficiencyReport:
    if source.kind is not InputKind.SCHEDULER and last is not None:
        raise click.UsageError(f"--last asks a scheduler for its past, and {source.given!r} is not a scheduler")
    if source.kind is InputKind.SCHEDULER:
        from dask_efficiency.report.replies import ask_history

        return connection.ask(source.where, lambda caller: ask_history(caller, last))
    if source.kind not in (InputKind.REPORT, InputKind.OTHER):
        raise source.refusal("a saved report or a scheduler's address")
    from dask_efficiency.report.files import load_report

    return load_report(source.where)


@click.command("explain")
@click.argument("kind", nargs=-1)
def explain_command(kind: tuple[str, ...]) -> None:
    """Explain a finding, and what to do about it.

    KIND is a finding's title as a report has it, such as `Waiting for the GIL`, or a part of it; a bucket such as
    `spill`; a bucket and a cause such as `thread-noncpu/sleep`; the cause alone; or a recipe's title or name, such as
    `pandas-rows`. Without it, all kinds and recipes are listed.
    """
    with one_line_errors():
        from dask_efficiency.report.explanations import as_lines, explain, explanations
        from dask_efficiency.report.own_recipes import configured, read_file
        from dask_efficiency.report.recipes import known_recipes

        for path in configured():
            read_file(path)  # elsewhere, a mistake in it is only logged
        if kind:
            tell(*as_lines(explain(" ".join(kind)), min(shutil.get_terminal_size().columns, MAX_WIDTH)))
        else:
            tell(*(one.title for one in explanations().values()))
            tell("", "Recipes:", *(f"{one.name}: {one.title}" for one in known_recipes()))


@click.command("compare")
@click.argument("sides", nargs=-1, metavar="[BEFORE AFTER]")
@click.option("--before", multiple=True, metavar="FILE", help="A run before; repeat for several.")
@click.option("--after", multiple=True, metavar="FILE", help="A run after; repeat for several.")
@click.option(
    "--max-loss",
    callback=percent,
    metavar="PERCENT",
    help="End with exit code 1 if lost thread-seconds rose by more, such as 5%, and of several runs by more than their "
    "spread. Where nothing was lost before, any loss is more.",
)
@click.option(
    "--max-peak",
    callback=percent,
    metavar="PERCENT",
    help="Likewise if the largest peak of a worker's memory rose by more, such as 10%.",
)
@html_option
@json_option
@markdown_option
def compare_command(
    sides: tuple[str, ...],
    before: tuple[str, ...],
    after: tuple[str, ...],
    html: str | None,
    as_json: bool,
    as_markdown: bool,
    max_loss: Fraction | None,
    max_peak: Fraction | None,
) -> None:
    """Show what changed between two saved reports.

    Losses that grew or shrank are listed with their places. BEFORE and AFTER are files or URLs, or patterns in quotes
    ('main/*.json') for several runs per side, which --before and --after name one by one. Of several runs, medians are
    compared, and changes within their spread are marked.

    \b
    Exit codes:
      0  compared
      1  lost time rose by more than --max-loss allows, or memory by more than --max-peak
      2  not compared: a wrong option, an unreadable file, --max-loss and a run
         in which nothing ran, or --max-peak and a peak that is not known
    """  # noqa: D301 click wants the character
    if len(sides) not in (0, 2) or bool(sides) == bool(before or after):
        wanted = "expected BEFORE and AFTER, or --before and --after"
        raise click.UsageError(f"{wanted}; patterns of files need quotes: 'main/*.json'")
    if not sides and not (before and after):
        raise click.UsageError(f"--{'before' if after else 'after'} is missing; expected a run on both sides")
    with one_line_errors(kind=NotJudgedError):
        found = _compared(*((sides[0],), (sides[1],)) if sides else (before, after))
        if html is not None:
            found.to_html(html)
        say(found, as_json=as_json, as_markdown=as_markdown, written=html is not None)
    if max_loss is not None:
        _check_max_loss(found, max_loss)
    if max_peak is not None:
        _check_max_peak(found, max_peak)


def _compared(before: Iterable[str], after: Iterable[str]) -> Comparison:
    from dask_efficiency.report.compare import compare

    sides = [[file for side in sides for file in _files(side)] for sides in (before, after)]
    for source in map(look_at, (*sides[0], *sides[1])):
        if source.kind not in (InputKind.REPORT, InputKind.OTHER):
            raise source.refusal("saved reports; `critical-path` compares recorded runs by its --before")
    return compare(*sides)


def _files(pattern: str) -> list[str]:
    """Files that match a pattern; a name without wildcards is itself."""
    if not any(wildcard in pattern for wildcard in "*?[") or os.path.exists(pattern):
        return [pattern]
    if "://" in pattern:
        import fsspec

        file_system, path = fsspec.core.url_to_fs(pattern)
        found = [file_system.unstrip_protocol(name) for name in file_system.glob(path)]
    else:
        found = glob.glob(pattern, recursive=True)
    if not found:
        raise FileNotFoundError(f"no file matches {pattern!r}")
    return sorted(found)


def _check_max_loss(found: Comparison, max_loss: Fraction) -> None:
    """Exit with 1 if more was lost than is allowed, and with 2 if that cannot be judged."""
    for name, run in zip((*found.names_before, *found.names_after), found.runs, strict=True):
        if not run.thread_seconds:
            raise NotJudgedError(f"{name}: nothing ran, so --max-loss cannot tell")
    from dask_efficiency.report.comparison_findings import excess

    if found.loses_more(max_loss):
        raise click.ClickException(f"{excess(found)}; --max-loss allows {float(100 * max_loss):g} %")
    if found.lost.within_spread and found.lost.rise > max_loss:
        tell(f"{excess(found)}: not counted", err=True)


def _check_max_peak(found: Comparison, max_peak: Fraction) -> None:
    """Exit with 1 if the peak of a worker's memory rose by more than is allowed, and with 2 if that is not known."""
    from dask_efficiency.report.comparison_findings import peak_excess

    peak = found.peaks["worker"]
    if math.isnan(peak.change):
        raise NotJudgedError("the peak of workers' memory is not known of both sides, so --max-peak cannot tell")
    if found.peaks_higher(max_peak):
        raise click.ClickException(f"{peak_excess(found)}; --max-peak allows {float(100 * max_peak):g} %")
    if peak.within_spread and peak.rise > max_peak:
        tell(f"{peak_excess(found)}: not counted", err=True)


@click.command("stragglers")
@click.option("--history", multiple=True, metavar="FILE", help="A healthy run of the same kind.")
@click.option("--factor", type=float, help="Higher finds fewer, lower finds more.  [default: 1.0]")
@json_option
@scheduler_options
def stragglers_command(
    source: str, history: tuple[str, ...], factor: float | None, as_json: bool, connection: Connection
) -> None:
    """Find workers that are slower than their peers.

    A slow worker takes longer for the same work; the reason is given with it. SOURCE is the file or URL of a recorded
    run, or of a table (CSV, Parquet) with a row for each task: worker, prefix, start and stop in seconds, and where
    known cpu_seconds, io_wait_seconds, disk_seconds, transfer_seconds, input_bytes, group, host and key. In a table of
    metrics (at in seconds, worker, and a column for each metric) it finds workers that leave their past and their
    peers. A saved report shows its own findings. A scheduler (tcp://host:8786, tls://host:8786 or host:8786) judges
    what it recorded, or shows its current findings if it does not record.
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
    from dask_efficiency.runs.cli.recorded import run_or_table
    from dask_efficiency.runs.questions import has_metrics
    from dask_efficiency.runs.stragglers.offline import FACTOR, Judgement, judge

    found: Judgement | RunTrace | pd.DataFrame
    if source.kind is InputKind.SCHEDULER:
        found = connection.ask(source.where, _judge_cluster)
    else:
        found = _judge_report(source) if source.kind is InputKind.REPORT else run_or_table(source)
    if not isinstance(found, Judgement):
        healthy = [run_or_table(look_at(file)) for file in history]
        if has_metrics(found):
            return _judge_metrics(found, healthy, factor)
        return judge(found, history=healthy, factor=FACTOR if factor is None else factor)
    if history or factor is not None:
        raise click.ClickException(
            f"--history and --factor judge a recorded run or a table of tasks; {source.given} gives neither: "
            "EfficiencyPlugin(trace=True) and efficiency_report(trace=True) record"
        )
    return found


def _judge_metrics(table: pd.DataFrame, history: Sequence[RunTrace | pd.DataFrame], factor: float | None) -> Judgement:
    from dask_efficiency.accounts.tables import needs_pandas

    with needs_pandas():
        import pandas as pd

    from dask_efficiency.runs.questions import has_metrics, stragglers
    from dask_efficiency.runs.stragglers.offline import Judgement

    if factor is not None:
        raise click.ClickException("--factor judges a recorded run or a table of tasks, and this is one of metrics")
    if not all(map(has_metrics, history)):
        raise click.ClickException("--history is no table of metrics, with the columns at and worker, as the other is")
    past = {"history": pd.concat(history)} if history else {}
    return Judgement(stragglers(table, **past), table["worker"].nunique())


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
