"""`dask-efficiency simulate`: a recorded run on another cluster."""

from __future__ import annotations

import math
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dask_efficiency.cli.options import (
    Connection,
    cluster_option,
    hostfile_option,
    html_option,
    json_option,
    numbers_by_name,
    save_option,
    scheduler_options,
    what_if_option,
    without_option,
)
from dask_efficiency.cli.output import one_line_errors, say, tell
from dask_efficiency.runs.cli.recorded import WITHOUT, recorded
from dask_efficiency.runs.trace.errors import UnknownNameError

if TYPE_CHECKING:
    from dask_efficiency.runs.trace.run_trace import RunTrace
    from dask_efficiency.simulation.model.cluster import ClusterSpec


def sizes(context: click.Context, parameter: click.Parameter, value: str | None) -> dict[str, tuple[int, ...]]:
    """Parse numbers of workers, or memory limits, which have units."""
    if value is None:
        return {}
    from dask_efficiency.simulation.memory_limits import parse_memory_limits
    from dask_efficiency.simulation.model.sweeps import parse_sizes

    try:
        if any(map(str.isdecimal, value)) and any(map(str.isalpha, value)):
            return {"memory_limit": parse_memory_limits(value)}
        return {"workers": parse_sizes(value)}
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def memory(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a memory limit."""
    if value is None:
        return None
    from dask_efficiency.simulation.memory_limits import parse_memory

    try:
        return parse_memory(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def cores(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Parse cores by host; without a name, of every host of a worker."""
    counts = {}
    for value in values:
        host, given, text = value.rpartition("=")
        try:
            counts[host] = float(text)
        except ValueError:
            counts[host] = math.nan
        if not 0 < counts[host] < math.inf or (given and not host):
            raise click.BadParameter(
                f"{value!r} is not a number of cores such as 4, or a host and its cores such as '127.0.0.1=4'"
            )
    return counts


def settings(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Parse settings of Dask by name."""
    if not values:
        return {}
    import yaml

    from dask_efficiency.simulation.engine.settings import SettingError, check_settings

    config: dict[str, Any] = {}
    for value in values:
        name, given, text = value.partition("=")
        if not given:
            raise click.BadParameter(
                f"{value!r} is not a setting and its value such as distributed.scheduler.work-stealing=False"
            )
        try:
            config[name] = yaml.safe_load(text)  # as in a file of Dask's configuration
        except yaml.YAMLError:
            config[name] = text
    try:
        check_settings(config)
    except SettingError as error:
        raise click.BadParameter(str(error)) from error
    return config


@click.command("simulate")
@click.option("--workers", type=click.IntRange(min=1), help="Number of workers.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each worker.")
@click.option("--memory-limit", callback=memory, metavar="SIZE", help="Memory of each worker, such as 4GiB.")
@click.option("--remove", multiple=True, metavar="WORKER", help="Without this worker.")
@click.option(
    "--cores",
    multiple=True,
    callback=cores,
    metavar="[HOST=]NUMBER",
    help="Cores for the workers of this host, or of each host.",
)
@cluster_option()
@hostfile_option
@click.option(
    "--sweep",
    callback=sizes,
    metavar="SIZES",
    help="With each of these numbers of workers, such as 2..64, or with each of these memory limits: 2..16GiB.",
)
@click.option("--price", type=click.FloatRange(min=0), metavar="NUMBER", help="With --sweep: of a worker's hour.")
@click.option("--ideal", is_flag=True, help="Value each part of the run, down to infinite workers.")
@what_if_option
@click.option(
    "--gil",
    multiple=True,
    callback=numbers_by_name,
    metavar="NAME=SHARE",
    help="Share of NAME's time alone in which it holds Python's lock, such as 'sum=1.0'.",
)
@without_option(*WITHOUT)
@click.option(
    "--config",
    multiple=True,
    callback=settings,
    metavar="KEY=VALUE",
    help="With this setting of Dask, such as distributed.scheduler.worker-saturation=2.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Simulated runs of each cluster.  [default: 16; 8 of several]"
)
@click.option("--force", is_flag=True, help="Predict also where the run's own simulation is off by more than 15 %.")
@save_option("the simulated run")
@html_option
@json_option
@scheduler_options
def command(
    source: str, save: str | None, html: str | None, as_json: bool, connection: Connection, **asked: Any
) -> None:
    """Predict a recorded run on another cluster.

    SOURCE is the file or URL of a recorded run, which `report.trace.save("run.trace")` wrote, or the address
    (tcp://host:8786, tls://host:8786 or host:8786) of a scheduler that records.

    Dask's own scheduler and workers run the recorded tasks again in virtual time. Without options
    they do so on the run's own cluster, which shows how far predictions can be trusted.
    """
    from dask_efficiency.simulation.engine.launch import SimulationError

    _check(asked, save)
    # A user can mend most errors; SimulationError is a simulation that stands still.
    with one_line_errors(UnknownNameError, SimulationError):
        with _ends_when_asked(), _warnings() as warned:
            answer = _answer(recorded(source, connection), asked)
            if save is not None:
                answer.trace.save(save)
            if html is not None:
                answer.to_html(html)
        for warning in warned:
            tell(f"Warning: {warning}", err=True)
        say(answer, as_json=as_json, written=html is not None or save is not None)


def _check(asked: dict[str, Any], save: str | None) -> None:
    """Refuse options that do not fit together."""
    many = {"--sweep": asked["sweep"], "--ideal": asked["ideal"], "several --hostfile": len(asked["hostfile"]) > 1}
    several = [name for name, given in many.items() if given]
    if len(several) > 1:
        raise click.UsageError(f"expected one of {' and '.join(several)}")
    if asked["hostfile"] and asked["cluster"] is None:
        raise click.UsageError("--hostfile needs --cluster FILE, which describes the hosts")
    if asked["price"] is not None and not asked["sweep"]:
        raise click.UsageError("--price needs --sweep")
    given = {"--what-if": asked["speed_up"], **{f"--{name}": asked[name] for name in ("workers", "without", "gil")}}
    single = [name for name, value in (given | {"--save": save}).items() if value]
    if several and single:
        raise click.UsageError(f"{single[0]} is not for {several[0]}")
    if "memory_limit" in asked["sweep"] and asked["memory_limit"]:
        raise click.UsageError("--memory-limit is not for --sweep with memory limits")
    changes = [
        f"--{name.replace('_', '-')}"
        for name in ("threads", "memory_limit", "cores", "remove", "config")
        if asked[name]
    ]
    own = changes + ["--cluster"] * bool(asked["cluster"])
    if asked["ideal"] and own:
        raise click.UsageError(f"{own[0]} is not for --ideal, which is about the run's own cluster")
    if len(asked["hostfile"]) > 1 and changes:
        raise click.UsageError(f"{changes[0]} is not for several --hostfile")
    if asked["hostfile"] and asked["workers"]:
        raise click.UsageError("--hostfile says how many workers there are; --workers is not for it")


def _answer(trace: RunTrace, asked: dict[str, Any]) -> Any:
    """Make the prediction, sweep, placements or ladder."""
    from dask_efficiency.simulation import calls as predictions

    common: dict[str, Any] = {"force": asked["force"]}
    if asked["seeds"] is not None:
        common["seeds"] = asked["seeds"]
    if asked["ideal"]:
        return predictions.ideal_ladder(trace, **common)
    if len(asked["hostfile"]) > 1:
        return predictions.place(trace, asked["cluster"], asked["hostfile"], **common)
    cluster = _cluster(trace, asked)
    if asked["sweep"]:
        common |= {"nthreads": asked["threads"], "price_per_worker_hour": asked["price"]}
        return predictions.sweep(trace, cluster=cluster, **asked["sweep"], **common)
    common |= {name: asked[name] for name in ("speed_up", "without", "gil")}
    return predictions.simulate(trace, cluster, **common)


def _cluster(trace: RunTrace, asked: dict[str, Any]) -> ClusterSpec:
    """Make the cluster that the options describe."""
    from dask_efficiency.simulation.model.cluster import ClusterSpec

    if asked["cluster"] is None:
        cluster = ClusterSpec.from_trace(trace)
    else:
        cluster = ClusterSpec.from_file(asked["cluster"], next(iter(asked["hostfile"]), None))
        tell(*cluster.picture().splitlines(), "", err=True)
    cluster = cluster.without_workers(*asked["remove"]).with_config(asked["config"])
    if asked["workers"] or asked["threads"] or asked["memory_limit"]:
        workers = asked["workers"] or len(cluster.workers)
        cluster = cluster.with_workers(workers, nthreads=asked["threads"], memory_limit=asked["memory_limit"])
    if given := dict(asked["cores"]):
        if "" in given:
            given = dict.fromkeys((worker.host for worker in cluster.workers), given.pop("")) | given
        cluster = cluster.with_cores(given)
    return cluster


@contextmanager
def _ends_when_asked() -> Iterator[None]:
    """Have SIGTERM end the simulating processes and remove their files, as Ctrl-C does."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect the warnings of a simulation, to print them after it."""
    from dask_efficiency.simulation.model.result import SimulationWarning

    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SimulationWarning)
        yield messages
    for warning in caught:
        if issubclass(warning.category, SimulationWarning):
            messages.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@click.command("advise")
@click.option("--price", type=click.FloatRange(min=0), metavar="NUMBER", help="Of an hour of a worker as it was.")
@click.option("--seeds", type=click.IntRange(min=1), help="Simulated runs of each row; by default 6, of many tasks 4.")
@click.option("--force", is_flag=True, help="Advise also where the run's own simulation is off by more than 15 %.")
@html_option
@json_option
@scheduler_options
def advise_command(
    source: str,
    html: str | None,
    as_json: bool,
    connection: Connection,
    price: float | None,
    seeds: int | None,
    force: bool,
) -> None:
    """Find the best settings for a recorded run.

    SOURCE is the file or URL of a recorded run, or the address of a scheduler that records, as of
    `dask-efficiency simulate`. Numbers of workers, their threads and memory, the size of partitions and the
    scheduler's saturation are tried in simulated runs; what to change is there to be pasted.
    """
    from dask_efficiency.simulation.advise import advise
    from dask_efficiency.simulation.engine.launch import SimulationError

    with one_line_errors(UnknownNameError, SimulationError):
        with _ends_when_asked(), _warnings() as warned:
            answer = advise(recorded(source, connection), price_per_worker_hour=price, seeds=seeds, force=force)
            if html is not None:
                answer.to_html(html)
        for warning in warned:
            tell(f"Warning: {warning}", err=True)
        say(answer, as_json=as_json, written=html is not None)
