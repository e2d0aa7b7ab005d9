"""Options of the plugin, set by argument or under ``efficiency.*`` in Dask's configuration."""

# ruff: noqa: RUF009  # _option() makes a field()
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import dask
from dask.utils import parse_timedelta


def _expect(holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"expected {expected}")


def _seconds(value: Any) -> float:
    seconds = float(parse_timedelta(value, default="s"))
    _expect(seconds > 0, "a positive duration")
    return seconds


def _price(value: Any) -> float | None:
    _expect(value is None or 0 <= float(value) < float("inf"), "a non-negative number")
    return None if value is None else float(value)


def _path(value: Any) -> str | None:
    return None if value is None else str(value)


def _count(value: Any) -> int:
    count = int(value)
    _expect(count >= 1 and (count == value or not isinstance(value, float)), "a whole number, at least 1")
    return count


def _flag(value: Any) -> bool:
    flag = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    _expect(isinstance(flag, bool), "true or false")
    return bool(flag)


def _reaction(value: Any) -> Any:
    _expect(value == "warn" or callable(value), "'warn' or a callable")
    return value


def _profile(value: Any) -> dict[str, int]:
    known = isinstance(value, Mapping) and all(isinstance(prefix, str) for prefix in value)
    _expect(known, "task prefixes and how many of each, such as {'train_step': 3}")
    return {prefix: _count(count) for prefix, count in value.items()}


#: Ways to meter GPUs.
GPU_METERS = ("auto", "cupti", "torch-events", "off")


def _gpu(value: Any) -> str:
    if isinstance(value, bool):  # YAML reads on and off as booleans
        return "auto" if value else "off"
    _expect(value in GPU_METERS, f"one of {', '.join(GPU_METERS)}")
    return str(value)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its default, the function that reads a value, and its meaning for users."""

    default: Any
    read: Callable[[Any], Any]
    meaning: str


def _option(default: Any, read: Callable[[Any], Any], meaning: str) -> Any:
    return field(metadata={"option": Option(default, read, meaning)})


@dataclass(frozen=True, slots=True)
class Options:
    """Options in force on a scheduler, by the names of the arguments; durations in seconds."""

    price_per_worker_hour: float | None = _option(
        None, _price, "Price of one worker hour, in any currency; lost time is then shown as money too."
    )
    save_to: str | None = _option(
        None, _path, "Path or fsspec URL of a report of the cluster's whole life, written when the scheduler closes."
    )
    report_timeout: float = _option(
        "5s",
        _seconds,
        "How long a report waits for workers after the last answer; those without one then count as in their last "
        "heartbeat.",
    )
    history_interval: float = _option(
        "5s", _seconds, "Spacing of the scheduler's history, of which 4096 points are kept, or fewer of long ago."
    )
    max_prefixes: int = _option(
        100, _count, "Task prefixes that a worker's heartbeat distinguishes; later ones count as one."
    )
    trace: bool = _option(
        False, _flag, "Record every task and transfer all the time, for `get_trace`; costs CPU and memory."
    )
    trace_max_tasks: int = _option(
        1_000_000,
        _count,
        "Tasks that a recording keeps; the oldest are dropped. Each takes about half a kilobyte on the scheduler.",
    )
    gpu: str = _option(
        "auto",
        _gpu,
        "How GPU time is measured once a task uses a GPU: exactly (`cupti`), as an upper bound (`torch-events`, for "
        "workers of one thread), the best way available (`auto`), or not at all (`off`).",
    )
    waiting: bool = _option(
        True,
        _flag,
        "Sample on which line and why tasks wait (the GIL, a core, a lock, files, the network) on each worker, with "
        "at most 0.3 % of a core; on Linux only.",
    )
    on_straggler: Any = _option(
        "warn",
        _reaction,
        "Reaction to a straggler, or to work that stands still: `warn`, or a callable of the scheduler and the "
        "finding, called besides the warning.",
    )
    outliers: bool = _option(
        False,
        _flag,
        "Also look, once a minute, for workers whose metrics and sensors differ from their peers' for minutes, and "
        "treat them as stragglers.",
    )
    worker_series: float = _option(
        "20 minutes",
        _seconds,
        "How long the scheduler keeps the workers' metrics, for `worker_series`; at most 50 kB a worker by default.",
    )
    sensors: bool = _option(
        True,
        _flag,
        "Read the sensors of each worker's host (cores, memory, disks, network, RDMA), once a second at most, with "
        "at most 0.1 % of a core; on Linux only.",
    )
    max_exported_workers: int = _option(
        100,
        _count,
        "Workers that are exported to Prometheus one by one. Of more, only the ten most and the ten least efficient.",
    )
    max_exported_prefixes: int = _option(
        50,
        _count,
        "Task prefixes that are exported to Prometheus one by one: those with most thread time; the others are summed.",
    )
    preflight: bool = _option(
        False,
        _flag,
        "Measure each worker that joins for two to three seconds before it gets tasks, and flag it if it is slow.",
    )
    source: bool = _option(
        True,
        _flag,
        "Put source code in reports: of the `with` block, or as Dask recorded it with graphs, and of lines that sent "
        "tasks. Without it, file names and line numbers stay.",
    )
    profile: dict[str, int] = _option(
        {},
        _profile,
        "Tasks that run under `torch.profiler` while a trace is recorded: number on each worker, by task prefix.",
    )

    def of_workers(self) -> dict[str, Any]:
        """Options that travel with the workers' half."""
        return {name: getattr(self, name) for name in ("max_prefixes", "gpu", "waiting", "sensors")}


#: Every option by name; with ``-`` for ``_`` it is the name under ``efficiency.``.
OPTIONS: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(Options)}


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Read values set where the plugin is made: by argument, else by that process's configuration."""
    values = {name: dask.config.get(_key(name), None) if value is None else value for name, value in arguments.items()}
    return {name: _read(name, value) for name, value in values.items() if value is not None}


def resolve(values: dict[str, Any]) -> Options:
    """Fill missing values from this process's configuration, then from the defaults."""
    defaults = {name: _read(name, option.default) for name, option in OPTIONS.items()}
    return Options(**defaults | given(dict.fromkeys(OPTIONS) | values))


def _key(name: str) -> str:
    return f"efficiency.{name.replace('_', '-')}"


def _read(name: str, value: Any) -> Any:
    try:
        return OPTIONS[name].read(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{_key(name)} is {value!r}: {error}") from error
