"""Commands `fleet watch` and `fleet train`."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.inputs import is_file, look_at
from dask_efficiency.cli.options import Connection, json_lines_option, save_option, scheduler_options, timeout_option
from dask_efficiency.cli.output import NotJudgedError, one_line_errors, tell
from dask_efficiency.runs.cli.recorded import run_or_table
from dask_efficiency.show.progress import StoppedWarning, progress

if TYPE_CHECKING:
    from dask_efficiency.fleet.outliers.metric_series import MetricSeries
    from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
    from dask_efficiency.fleet.rounds.rounds import Event
    from dask_efficiency.fleet.watch import FleetWatch, Source


metrics_option = click.option(
    "--metrics",
    metavar="FILE",
    help="File of Prometheus queries; or one that comes with the package: node, dcgm, dask-efficiency.",
)

settings_option = click.option("--settings", metavar="FILE", help="Settings of the watch, in YAML: see docs/watch.md.")


#: First and last instant, in seconds since the epoch.
Period = tuple[float, float]


def _period(_context: object, _parameter: object, value: tuple[str, str] | None) -> Period | None:
    if value is None:
        return None
    first, last = map(_instant, value)
    if last < first:
        raise click.BadParameter(f"{value[1]} is earlier than {value[0]}")
    return first, last


def _instant(text: str) -> float:
    """Seconds since the epoch, from an ISO 8601 time or from such seconds."""
    try:
        at = float(text)
        if math.isfinite(at):
            return at
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        expected = "a time such as 2026-03-01T12:00:00Z, nor seconds since the epoch"
        raise click.BadParameter(f"{text!r} is not {expected}") from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


between_option = click.option(
    "--between", nargs=2, callback=_period, metavar="FROM TO", help="Judge this period of the past, in Prometheus."
)


@click.command("watch")
@metrics_option
@settings_option
@click.option("--once", is_flag=True, help="Judge once, now, and end.")
@between_option
@click.option(
    "--fail", is_flag=True, help="With --once or --between: exit code 1 if a machine is found, 2 if nothing was judged."
)
@click.option("--retire", is_flag=True, help="Retire workers that are found, one at a time.")
@json_lines_option
@partial(scheduler_options, timeout="30s", who="a scheduler or Prometheus")
def watch_command(
    source: str,
    metrics: str | None,
    settings: str | None,
    once: bool,
    between: Period | None,
    fail: bool,
    retire: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Name the machines that are unlike their peers.

    SOURCE is the address of a Dask cluster with the plugin; with --metrics, the URL of a Prometheus with the metrics of
    any machines. It judges every few minutes, and reports a machine once when it begins
    to be unlike others, and once when that has ended. Ctrl-C ends the watch.

    \b
    Exit codes:
      0  watched; without --fail also if a machine is found
      1  with --fail, a machine is found; without, an error
      2  with --fail, nothing could be judged; a wrong option
    """  # noqa: D301 click wants the character
    rules = (
        (metrics is None and source.startswith(("http://", "https://")), "a Prometheus is asked for --metrics FILE"),
        (metrics is None and between is not None, "--between is for a Prometheus; a scheduler has no past"),
        (once and between is not None, "--once is now, and --between in the past; expected one of them"),
        (fail and not (once or between), "--fail is for --once and --between"),
        (retire and metrics is not None, "--retire is for the workers of a scheduler"),
        (retire and once, "--retire is for a watch that goes on: a new one knows of no earlier retirements"),
    )
    for is_wrong, text in rules:
        if is_wrong:
            raise click.UsageError(text)
    with one_line_errors(kind=NotJudgedError if fail else click.ClickException):
        from dask_efficiency.fleet import assembly
        from dask_efficiency.fleet.dask_source import SchedulerSource
        from dask_efficiency.fleet.settings import WatchSettings, read_settings
        from dask_efficiency.fleet.watch import Retiring
        from dask_efficiency.straggler.retirements import Retirements

        chosen = WatchSettings() if settings is None else read_settings(settings)
        if metrics is None:
            origin: Source = assembly.scheduler_source(source, connection)
        else:
            origin = assembly.prometheus_source(source, metrics, chosen, connection.timeout_seconds)
        watch = assembly.fleet_watch(origin, chosen, show=_shown(as_json), warn=_warn, clock=time.monotonic)
        then = None
        if isinstance(origin, SchedulerSource):
            connection.announce(origin.name)
            limit = Retirements(share=chosen.retire_share, every_seconds=chosen.retire_every)
            then = partial(Retiring(origin.asking, limit, _warn), watch) if retire else None
        try:
            instants = _round_instants(between, once, chosen.every)
            found, judged = _watched(watch, instants, ends=once or between is not None, then=then)
        except KeyboardInterrupt:
            return
    if once and judged and not found:
        _warn(f"nobody of {len(watch.window.workers) if watch.window else 0} is unlike the others")
    if fail and (found or not judged):
        raise SystemExit(1 if found else 2)


def _watched(
    watch: FleetWatch, instants: Iterator[float], *, ends: bool, then: Callable[[float], None] | None = None
) -> tuple[bool, bool]:
    """Run the rounds; returns whether a machine was found, and whether one could have been."""
    from dask_efficiency.fleet.rounds.exclusions import failure

    found = judged = answered = False
    warned = ""
    for at in instants:
        try:
            found = bool(watch.round(at)) or found
            answered, judged = True, judged or not watch.unjudged
            if watch.unjudged and not warned:
                _warn(f"not judged yet: {watch.unjudged}")
            warned = watch.unjudged
            if then is not None:
                then(at)
        except BrokenPipeError:  # nobody reads the output
            raise
        except OSError as error:
            if ends:
                raise
            _warn(str(error))
        except ValueError as error:  # an error in the first round is permanent
            if not answered:
                raise
            _warn(str(error))
        except Exception as error:
            if ends:
                raise
            _warn(failure(error))
    return found, judged


def _round_instants(between: Period | None, once: bool, every: float) -> Iterator[float]:
    """Times of rounds; those of a watch that goes on are yielded when they are due."""
    from dask_efficiency.fleet.watch import instants

    if between is not None:
        yield from instants(*between, every_seconds=every)
        return
    due = time.time()
    while True:
        yield time.time()
        if once:
            return
        now = time.time()
        due = min(max(due + every, now), now + every)  # a clock may be set back
        time.sleep(due - now)


def _shown(as_json: bool) -> Callable[[Event], None]:
    from dask_efficiency.fleet.rounds.rounds import FindingChange, as_line, as_record

    def show(event: Event) -> None:
        if as_json:
            click.echo(json.dumps(as_record(event)))
        else:
            tell(as_line(event), fg="red" if event.change is FindingChange.BEGINS else "green")

    return show


def _warn(text: str) -> None:
    from dask_efficiency.fleet.rounds.rounds import format_instant

    tell(f"{format_instant(time.time())} {' '.join(text.split())}", err=True)


WINDOWS_HELP, STEPS_HELP = "Number of windows, evenly spread over that period.", "Steps of training for each metric."


@click.command("train")
@click.argument("sources", nargs=-1, required=True)
@metrics_option
@between_option
@settings_option
@click.option("--windows", type=click.IntRange(1, 10_000), default=40, show_default=True, help=WINDOWS_HELP)
@click.option("--steps", type=click.IntRange(min=1), default=800, show_default=True, help=STEPS_HELP)
@click.option("--seed", type=int, default=0, show_default=True)
@save_option("the detector", required=True)
@timeout_option("30s", "Prometheus")
def train_command(
    sources: tuple[str, ...],
    metrics: str | None,
    between: Period | None,
    settings: str | None,
    windows: int,
    steps: int,
    seed: int,
    save: str,
    timeout: float,
) -> None:
    """Learn how a fleet behaves while all is well.

    `fleet watch` then judges by it. SOURCES are recorded runs, or tables (.csv, .parquet) with the columns at (seconds)
    and worker, optionally group and host, and one for each metric; with --metrics and --between, the URL of a
    Prometheus. Rare faults in them do little harm. A sample is a window of the watch's settings. Needs the extra
    `minder`.
    """
    if (metrics is None) != (between is None) or (metrics is not None and len(sources) > 1):
        raise click.UsageError("expected files, or the URL of a Prometheus with --metrics and --between")
    with one_line_errors():
        from dask_efficiency.fleet.assembly import prometheus_source
        from dask_efficiency.fleet.minder.train import train_minder
        from dask_efficiency.fleet.settings import WatchSettings, read_settings

        chosen = WatchSettings() if settings is None else read_settings(settings)
        if metrics is None or between is None:
            runs = [run_or_table(look_at(file)) for file in sources]
        else:
            length = between[1] - between[0]
            if length < chosen.window:
                raise click.UsageError(f"--between are {length:g} s; expected a window of {chosen.window:g} s at least")
            asked = prometheus_source(sources[0], metrics, chosen, timeout)
            runs = list(_pulled(asked, between, chosen.window, windows))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoppedWarning)
            minder = train_minder(runs, steps=steps, seed=seed)
        for one in caught:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if any(issubclass(one.category, StoppedWarning) for one in caught) and is_file(save):
            learnt = ", ".join(minder.metrics)
            raise click.ClickException(f"{save} stays as it was; of the new detector only {learnt} was learnt")
        minder.save(save)
    tell(f"{save}: {', '.join(minder.metrics)}, of {len(runs)} runs or windows.")


def _pulled(source: PrometheusSource, between: Period, window: float, windows: int) -> Iterator[MetricSeries]:
    first, last = between
    count = min(windows, max(int((last - first) // window), 1))
    with progress("reading the past", unit="windows", of=count) as report:
        for number in range(count):
            start = first + number * (last - first - window) / max(count - 1, 1)
            series = source.pull(start=start, stop=start + window)
            report(number + 1)
            if number == 0:
                source.check(series)
            if series.workers:
                yield series
