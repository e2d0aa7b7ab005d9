"""The command line: `dask-efficiency`, and `dask efficiency` through Dask's own."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dask_efficiency import __version__

if TYPE_CHECKING:
    from distributed import Security

    from dask_efficiency.paths.path import CriticalPath
    from dask_efficiency.report import EfficiencyReport
    from dask_efficiency.report.compare import Comparison

#: As Dask's own command line has them.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 88}

_PEM_FILE = click.Path(exists=True, resolve_path=True, dir_okay=False)

_SCHEMES = ("tcp://", "tls://", "ucx://", "ucxx://", "ws://", "wss://")


@click.group(name="efficiency", context_settings=CONTEXT_SETTINGS)
@click.version_option(__version__, prog_name="dask-efficiency")
def main() -> None:
    """Where the threads of a Dask cluster spend their time."""


@main.command()
@click.option("--workers", type=click.IntRange(min=2), default=2, show_default=True, help="Worker processes.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads of each worker.")
@click.option("--output", default="dask-efficiency-demo.json", show_default=True, help="File or URL to save to.")
@click.option("--dashboard/--no-dashboard", default=False, show_default=True, help="Serve Dask's dashboard too.")
def demo(workers: int, threads: int, output: str, dashboard: bool) -> None:
    """Run a workload of 10 to 20 seconds on a local cluster and report on it."""
    from dask_efficiency.demo import run_demo

    with _one_line_errors():
        run_demo(workers=workers, threads=threads, output=output, dashboard=dashboard)


def _timedelta(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(value))
    except (KeyError, ValueError, IndexError):
        raise click.BadParameter(f"{value!r} is not a length of time such as 30m, 2h or 90s") from None
    if seconds <= 0:
        raise click.BadParameter(f"{value!r} is not longer than nothing; expected a length such as 30m")
    return seconds


def _tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options by which Dask's own commands take certificates."""
    for name, what in (("key", "private key file"), ("cert", "certificate file"), ("ca-file", "CA cert(s) file")):
        command = click.option(f"--tls-{name}", type=_PEM_FILE, help=f"{what} for TLS (in PEM format)")(command)
    return command


@main.command()
@click.argument("source")
@click.option(
    "--last",
    callback=_timedelta,
    metavar="TIME",
    help="Only this long before now, such as 30m or 2h; for a scheduler. [default: all that it keeps]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--save", metavar="FILE", help="Also save the report to this file or URL.")
@click.option("--html", metavar="FILE", help="Write the report to this file or URL as a page that works offline.")
@_tls_options
def report(
    source: str,
    last: float | None,
    as_json: bool,
    save: str | None,
    html: str | None,
    **tls_files: str | None,
) -> None:
    """Show a saved report, or what a scheduler kept of its cluster's past.

    SOURCE is a report's file or URL, a scheduler's address (tcp://host:8786, tls://host:8786 or
    host:8786), or the file that `dask scheduler --scheduler-file` wrote.
    """
    address = scheduler_address(source)
    if address is None and last is not None:
        raise click.UsageError(f"--last asks a scheduler for its past, and {source!r} is not a scheduler")
    with _one_line_errors():
        found = _read(source) if address is None else _ask(address, last, tls_files)
        if save is not None:
            found.save(save)
        if html is not None:
            found.to_html(html)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    elif html is not None:
        click.echo(f"{found.verdict}.")
    else:
        from dask_efficiency.report.text import show

        show(found)


@main.command()
@click.argument("scheduler")
@click.option(
    "--interval", default="2s", show_default=True, callback=_timedelta, metavar="TIME", help="Between two readings."
)
@click.option("--once", is_flag=True, help="Print what happened in one interval, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each reading, on a line of its own.")
@_tls_options
def top(scheduler: str, interval: float, once: bool, as_json: bool, **tls_files: str | None) -> None:
    """Watch a cluster: what its threads do now, and which workers make least of theirs.

    SCHEDULER is a scheduler's address (tcp://host:8786, tls://host:8786 or host:8786), or the file that
    `dask scheduler --scheduler-file` wrote. Ctrl-C ends it.
    """
    address = scheduler_address(scheduler)
    if address is None:
        raise click.UsageError(f"{scheduler!r} is neither a scheduler's address nor its scheduler file")
    with _one_line_errors():
        _watch(address, interval, once, as_json, tls_files)


def _watch(address: str, interval: float, once: bool, as_json: bool, tls_files: Mapping[str, str | None]) -> None:
    import asyncio

    from dask_efficiency.plugins.client import NotRegisteredError
    from dask_efficiency.top import Blocks, JsonLines, MeterFailedError, Screen, show_changes, terminal

    address, security = _secured(address, tls_files)
    with ExitStack() as stack:
        screen: Screen
        if as_json:
            screen = JsonLines(sys.stdout)
        elif once:
            screen = Blocks(sys.stdout, height=None)
        elif not sys.stdout.isatty():
            screen = Blocks(sys.stdout)
        else:
            screen = stack.enter_context(terminal(sys.stdout))
        showing = show_changes(screen, address, security=security, interval_seconds=interval, once=once)
        try:
            asyncio.run(showing)
        except KeyboardInterrupt:
            return
        except (NotRegisteredError, MeterFailedError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error


def _percent(context: click.Context, parameter: click.Parameter, value: str | None) -> Fraction | None:
    if value is None:
        return None
    if not re.fullmatch(r"\d+(\.\d+)? *%", value.strip()):
        raise click.BadParameter(f"{value!r} is not a share such as 5% or 0.5%")
    return Fraction(value.strip().rstrip("% ")) / 100


class _NotComparedError(click.ClickException):
    """Exit code 1 of the command `compare` says one thing only."""

    exit_code = 2


@main.command()
@click.argument("sides", nargs=-1, metavar="[BEFORE AFTER]")
@click.option("--before", multiple=True, metavar="FILE", help="A run before; once for each.")
@click.option("--after", multiple=True, metavar="FILE", help="A run after; once for each.")
@click.option("--html", metavar="FILE", help="Write the comparison to this file or URL as a page that works offline.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option(
    "--max-loss",
    callback=_percent,
    metavar="PERCENT",
    help="End with exit code 1 if lost thread-seconds rose by more, such as 5%. Where nothing was lost before, "
    "any loss is more.",
)
def compare(
    sides: tuple[str, ...],
    before: tuple[str, ...],
    after: tuple[str, ...],
    html: str | None,
    as_json: bool,
    max_loss: Fraction | None,
) -> None:
    """Say what changed from one saved report to another: which losses grew or shrank, and where.

    BEFORE and AFTER are files or URLs, or patterns in quotes ('main/*.json') for several runs a side, which
    --before and --after name one by one. Of several runs the medians are compared.

    \b
    Exit codes:
      0  compared
      1  lost time rose by more than --max-loss allows
      2  not compared: a wrong option, an unreadable file, or --max-loss and a run
         in which nothing ran
    """  # noqa: D301 click wants the character
    if len(sides) not in (0, 2) or bool(sides) == bool(before or after):
        raise click.UsageError(
            "expected BEFORE and AFTER, or --before and --after; patterns of files need quotes: 'main/*.json'"
        )
    if not sides and not (before and after):
        raise click.UsageError(f"--{'before' if after else 'after'} is missing; expected a run on both sides")
    with _one_line_errors(_NotComparedError):
        found = _compared(*((sides[0],), (sides[1],)) if sides else (before, after))
        if html is not None:
            found.to_html(html)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    elif html is not None:
        click.echo(f"{found.verdict}.")
    else:
        from dask_efficiency.report.comparison_text import comparison_document

        comparison_document(found).show()
    if max_loss is not None:
        _gate(found, max_loss)


def _compared(before: Iterable[str], after: Iterable[str]) -> Comparison:
    from dask_efficiency.report.compare import compare

    return compare(
        [file for side in before for file in _files(side)], [file for side in after for file in _files(side)]
    )


def _files(pattern: str) -> list[str]:
    """The files that a pattern stands for; a name without wildcards stands for itself."""
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


def _gate(found: Comparison, max_loss: Fraction) -> None:
    """End with 1 where more was lost than is allowed, and with 2 where nobody can tell."""
    runs = zip((*found.names_before, *found.names_after), (*found.before, *found.after), strict=True)
    for name, run in runs:
        if not run.thread_seconds:
            raise _NotComparedError(f"{name}: nothing ran, so --max-loss cannot tell")
    if found.loses_more(max_loss):
        from dask_efficiency.report.comparison_verdict import excess

        raise click.ClickException(f"{excess(found)}; --max-loss allows {float(100 * max_loss):g} %")


def _speed_ups(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for value in values:
        prefix, _, factor = value.rpartition("=")
        try:
            found[prefix] = float(factor)
        except ValueError:
            prefix = ""
        if not prefix:
            raise click.BadParameter(f"{value!r} is not a prefix and a factor such as 'read-parquet=2.0'")
    return found


@main.command("critical-path")
@click.argument("trace")
@click.option("--target", metavar="KEY", help="Only what the end of this task waited for.")
@click.option("--span", metavar="NAME", help="Only what the end of this span's last task waited for.")
@click.option(
    "--what-if",
    "speed_up",
    multiple=True,
    callback=_speed_ups,
    metavar="PREFIX=FACTOR",
    help="Run it again with these tasks so many times as fast, such as 'sum=2.0'.",
)
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(["transfer", "spill", "scheduler"]),
    help="Run it again with this taking no time.",
)
@click.option("--repair", multiple=True, metavar="WORKER", help="Run it again with this worker as fast as the others.")
@click.option("--speedups", is_flag=True, help="Say where 10 % less time would help most.")
@click.option("--before", metavar="TRACE", help="Say what changed on the path since this earlier run.")
@click.option(
    "--chrome", metavar="FILE", help="Write the trace to this file or URL for ui.perfetto.dev or chrome://tracing."
)
@click.option("--only-critical", is_flag=True, help="With --chrome: only what is on the path; for large traces.")
@click.option("--html", metavar="FILE", help="Write the path to this file or URL as a page that works offline.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def critical_path(
    trace: str,
    target: str | None,
    span: str | None,
    speed_up: dict[str, float],
    without: tuple[str, ...],
    repair: tuple[str, ...],
    speedups: bool,
    before: str | None,
    chrome: str | None,
    only_critical: bool,
    html: str | None,
    as_json: bool,
) -> None:
    """Say why a run took so long: what every second of its wall clock was spent on.

    TRACE is the file or URL of a recorded run: what `trace.save("run.trace")` wrote.

    --what-if, --without and --repair may be given together and more than once. The run is then
    replayed with all of these changes; the answer is an estimate.
    """
    if only_critical and chrome is None:
        raise click.UsageError("--only-critical needs --chrome FILE")
    changes: dict[str, Any] = {"speed_up": speed_up, "without": without, "repair": repair}
    if speedups + (before is not None) + any(changes.values()) > 1:
        raise click.UsageError("expected one of --speedups, --before, and --what-if, --without or --repair")
    scope = {"target": target, "span": span}
    with _one_line_errors(), _unknown_names():
        found, changed = _paths(trace, scope, changes)
        earlier = None if before is None else _paths(before, scope, {})[0]
        if chrome is not None:
            found.to_chrome(chrome, only_critical=only_critical)
        if html is not None:
            found.to_html(html)
    if as_json:
        from dask_efficiency.report.path_data import improvements, to_dict

        data = to_dict(found)
        if changed is not None:
            data["what_if"] = to_dict(changed) | {"changes": changes}
        if earlier is not None:
            data["before"] = to_dict(earlier)
        if speedups:
            data["speedups"] = improvements(found)
        click.echo(json.dumps(data, indent=1))
    elif earlier is not None:
        from dask_efficiency.paths.compare import compare_paths
        from dask_efficiency.report.path_text import comparison_document

        comparison_document(compare_paths(earlier, found)).show()
    elif speedups:
        from dask_efficiency.report.path_text import improvements_document

        improvements_document(found).show()
    elif changed is not None:
        from dask_efficiency.report.path_text import what_if_document

        what_if_document(found, changed, _in_words(**changes)).show()
    elif chrome is not None or html is not None:
        click.echo(f"{found.verdict}.")
    else:
        from dask_efficiency.report.path_text import path_document

        path_document(found).show()


def _paths(
    trace: str, scope: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[CriticalPath, CriticalPath | None]:
    """The path as recorded, and with changes where there are any."""
    from dask_efficiency.paths.path import critical_path
    from dask_efficiency.trace.files import load_trace

    found = critical_path(load_trace(trace), **scope)
    return found, found.what_if(**changes) if any(changes.values()) else None


def _in_words(speed_up: Mapping[str, float], without: Iterable[str], repair: Iterable[str]) -> str:
    """Changes as the beginning of a sentence."""
    parts = [f"{prefix!r} {factor:g} times as fast" for prefix, factor in speed_up.items()]
    parts += [f"no {name}" for name in without]
    parts += [f"worker {name!r} as fast as the others" for name in repair]
    return f"With {' and '.join(parts)}"


@contextmanager
def _unknown_names() -> Iterator[None]:
    from dask_efficiency.trace.errors import UnknownNameError

    try:
        yield
    except UnknownNameError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("file")
@click.option("--history", multiple=True, metavar="FILE", help="A run of the same kind in which nothing was wrong.")
@click.option("--factor", type=float, default=1.0, show_default=True, help="More finds fewer, less finds more.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def stragglers(file: str, history: tuple[str, ...], factor: float, as_json: bool) -> None:
    """Find the workers that took longer than their peers for the same work, and say why.

    FILE is the file or URL of a recorded run, or of a table (.csv, .parquet) with a row for each task:
    worker, prefix, start and stop in seconds, and where known cpu_seconds, io_wait_seconds, disk_seconds,
    transfer_seconds, input_bytes, output_bytes, group, host and key.
    """
    from dask_efficiency.stragglers.files import read_source
    from dask_efficiency.stragglers.offline import judge

    with _one_line_errors():
        found = judge(read_source(file), history=[read_source(run) for run in history], factor=factor)
    if as_json:
        click.echo(json.dumps([one.to_dict() for one in found.findings], indent=1))
    else:
        from dask_efficiency.report.stragglers_text import render_plain

        click.echo(render_plain(found, file, shutil.get_terminal_size().columns))


def scheduler_address(source: str) -> str | None:
    """The address that a SOURCE stands for, or None where it is a report's file or URL."""
    if source.startswith(_SCHEMES):
        return source
    if os.path.isfile(source):
        return _address_in(source)
    return source if re.fullmatch(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", source) else None


def _address_in(path: str) -> str | None:
    """The address in a scheduler file; None for any other file."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    is_scheduler = isinstance(content, dict) and content.get("type") == "Scheduler"
    return content["address"] if is_scheduler and isinstance(content.get("address"), str) else None


def _read(source: str) -> EfficiencyReport:
    from dask_efficiency.report import load_report

    return load_report(source)


def _secured(address: str, tls_files: Mapping[str, str | None]) -> tuple[str, Security]:
    """The address with its scheme, and how to talk to it."""
    from distributed import Security

    names = {"tls_ca_file": "tls_ca_file", "tls_cert": "tls_client_cert", "tls_key": "tls_client_key"}
    given = {names[option]: path for option, path in tls_files.items() if path is not None}
    if given and "://" not in address:
        address = f"tls://{address}"
    security = Security(**given)
    if address.startswith("tls://") and security.get_connection_args("client")["ssl_context"] is None:
        raise click.ClickException(
            f"{address} takes --tls-ca-file, --tls-cert and --tls-key, or distributed.comm.tls in Dask's configuration"
        )
    return address, security


def _ask(address: str, last_seconds: float | None, tls_files: Mapping[str, str | None]) -> EfficiencyReport:
    from distributed import Client

    from dask_efficiency.plugins.client import NotRegisteredError, history_report

    address, security = _secured(address, tls_files)
    with Client(address, security=security, set_as_default=False) as client:
        try:
            past: EfficiencyReport = history_report(client, last_seconds)
        except NotRegisteredError as error:
            raise click.ClickException(str(error)) from error
        return past


@contextmanager
def _one_line_errors(kind: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """What a user can put right ends with an exit code and one line in place of a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise
    # ImportError is how fsspec asks for the package that reads a kind of URL.
    except (OSError, ValueError, ImportError) as error:
        raise kind(" ".join(str(error).split())) from error
