"""Options of the plugin, set by argument or under ``efficiency.*`` in Dask's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import dask
from dask.utils import parse_timedelta


def _seconds(value: Any) -> float:
    seconds = float(parse_timedelta(value, default="s"))
    if not seconds > 0:
        raise ValueError("expected a positive duration")
    return seconds


def _price(value: Any) -> float | None:
    if value is None:
        return None
    price = float(value)
    if not 0 <= price < float("inf"):
        raise ValueError("expected a non-negative number")
    return price


def _path(value: Any) -> str | None:
    return None if value is None else str(value)


def _count(value: Any) -> int:
    count = int(value)
    if count < 1 or (isinstance(value, float) and count != value):
        raise ValueError("expected a whole number, at least 1")
    return count


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _reaction(value: Any) -> Any:
    if value != "warn" and not callable(value):
        raise ValueError("expected 'warn' or a callable")
    return value


def _profile(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not all(isinstance(prefix, str) for prefix in value):
        raise ValueError("expected task prefixes and how many of each, such as {'train_step': 3}")
    return {prefix: _count(count) for prefix, count in value.items()}


#: Ways to meter GPUs.
GPU_METERS = ("auto", "cupti", "torch-events", "off")


def _gpu(value: Any) -> str:
    if isinstance(value, bool):  # YAML reads on and off as booleans
        return "auto" if value else "off"
    if value not in GPU_METERS:
        raise ValueError(f"expected one of {', '.join(GPU_METERS)}")
    return str(value)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its default, the function that reads a value, and its meaning for users."""

    default: Any
    read: Callable[[Any], Any]
    meaning: str


#: Every option, by the name of the argument; with ``-`` for ``_`` it is the name under ``efficiency.``.
OPTIONS: dict[str, Option] = {
    "price_per_worker_hour": Option(
        None, _price, "Price of one worker hour, in any currency; lost time is then shown as money too."
    ),
    "save_to": Option(
        None,
        _path,
        "Path or fsspec URL of a report of the cluster's whole life, written when the scheduler closes.",
    ),
    "report_timeout": Option(
        "5s",
        _seconds,
        "How long a report waits for workers after the last answer; those without one then count as in their last "
        "heartbeat.",
    ),
    "history_interval": Option(
        "5s", _seconds, "Spacing of the scheduler's history, of which the last 4096 points are kept."
    ),
    "max_prefixes": Option(
        100, _count, "Task prefixes that a worker's heartbeat distinguishes; later ones count as one."
    ),
    "trace": Option(
        False, _flag, "Record every task and transfer all the time, for `get_trace`; costs CPU and memory."
    ),
    "trace_max_tasks": Option(
        1_000_000,
        _count,
        "Tasks that a recording keeps; the oldest are dropped. Each takes about half a kilobyte on the scheduler.",
    ),
    "gpu": Option(
        "auto",
        _gpu,
        "How GPU time is measured once a task uses a GPU: exactly (`cupti`), as an upper bound (`torch-events`, for "
        "workers of one thread), the best way available (`auto`), or not at all (`off`).",
    ),
    "waiting": Option(
        True,
        _flag,
        "Sample on which line and why tasks wait (the GIL, a core, a lock, files, the network) on each worker, with at "
        "most 0.3 % of a core; on Linux only.",
    ),
    "on_straggler": Option(
        "warn",
        _reaction,
        "Reaction to a straggler: `warn`, or a callable of the scheduler and the finding, called besides the warning.",
    ),
    "outliers": Option(
        False,
        _flag,
        "Also look, once a minute, for workers whose metrics and sensors differ from their peers' for minutes, and "
        "treat them as stragglers.",
    ),
    "worker_series": Option(
        "20 minutes",
        _seconds,
        "How long the scheduler keeps the workers' metrics, for `worker_series`; 50 kB a worker by default.",
    ),
    "sensors": Option(
        True,
        _flag,
        "Read the sensors of each worker's host (cores, memory, disks, network, RDMA), once a second at most, with at "
        "most 0.1 % of a core; on Linux only.",
    ),
    "max_exported_workers": Option(
        100,
        _count,
        "Workers that are exported to Prometheus one by one. Of more, only the ten most and the ten least efficient.",
    ),
    "max_exported_prefixes": Option(
        50,
        _count,
        "Task prefixes that are exported to Prometheus one by one: those with most thread time; the others are summed.",
    ),
    "preflight": Option(
        False,
        _flag,
        "Measure each worker that joins for two to three seconds before it gets tasks, and flag it if it is slow.",
    ),
    "source": Option(
        True,
        _flag,
        "Put source code in reports: of the `with` block, or as Dask recorded it with graphs, and of lines that sent "
        "tasks. Without it, file names and line numbers stay.",
    ),
    "profile": Option(
        {},
        _profile,
        "Tasks that run under `torch.profiler` while a trace is recorded: number on each worker, by task prefix.",
    ),
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options in force on a scheduler; durations in seconds."""

    price_per_worker_hour: float | None
    save_to: str | None
    report_timeout: float
    history_interval: float
    max_prefixes: int
    trace: bool
    trace_max_tasks: int
    gpu: str
    waiting: bool
    on_straggler: Any
    outliers: bool
    worker_series: float
    sensors: bool
    max_exported_workers: int
    max_exported_prefixes: int
    preflight: bool
    source: bool
    profile: dict[str, int]


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Read values set where the plugin is made: by argument, else by that process's configuration.

    Raises
    ------
    ValueError
        If a value cannot be read; the text names the option and the value.
    """
    values = {}
    for name, argument in arguments.items():
        value = argument if argument is not None else dask.config.get(_key(name), None)
        if value is not None:
            values[name] = _read(name, value)
    return values


def resolve(values: dict[str, Any]) -> Options:
    """Fill missing values from this process's configuration, then from the defaults."""
    resolved = {}
    for option in fields(Options):
        name = option.name
        value = values.get(name)
        if value is None:
            value = dask.config.get(_key(name), None)
        resolved[name] = _read(name, OPTIONS[name].default if value is None else value)
    return Options(**resolved)


def _key(name: str) -> str:
    return f"efficiency.{name.replace('_', '-')}"


def _read(name: str, value: Any) -> Any:
    try:
        return OPTIONS[name].read(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{_key(name)} is {value!r}: {error}") from error
