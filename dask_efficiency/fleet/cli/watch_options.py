"""The options of `watch` that belong together, and which of them go together."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from dask_efficiency.cli.connection import Connection
from dask_efficiency.cli.options import timedelta


def instant(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Seconds since the epoch, from a time as ISO 8601 has it, or from such seconds."""
    if value is None:
        return None
    try:
        at = float(value)
        if math.isfinite(at):
            return at
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time such as 2026-03-01T12:00:00Z, nor seconds since the epoch"
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """Where Prometheus is, what is asked, and with which files of secrets."""

    url: str | None
    metrics: str | None
    http_config: str | None
    step: float | None


def prometheus_options(command: Callable[..., None]) -> Callable[..., None]:
    """How a Prometheus is asked: given to the command as ``prometheus``."""

    @functools.wraps(command)
    def asked(
        *, prometheus: str | None, metrics: str | None, http_config: str | None, step: float | None, **others: Any
    ) -> None:
        command(prometheus=PrometheusOptions(prometheus, metrics, http_config, step), **others)

    for option in reversed(
        (
            click.option("--prometheus", metavar="URL", help="Ask this Prometheus, such as http://host:9090."),
            click.option(
                "--metrics",
                metavar="FILE",
                help="What is asked; or one of the files that are there: node, dcgm, dask-efficiency.",
            ),
            click.option(
                "--http-config",
                type=click.Path(exists=True, dir_okay=False),
                metavar="FILE",
                help="Passwords, tokens and certificates, as promtool takes them.",
            ),
            click.option(
                "--step", callback=timedelta, metavar="TIME", help="Between two samples.  [default: as FILE says]"
            ),
        )
    ):
        asked = option(asked)
    return asked


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of `watch`, as they were given."""

    scheduler: str | None
    connection: Connection
    prometheus: PrometheusOptions
    every: float
    window: float
    history: float
    detector: str
    model: str | None
    continuity: float | None
    once: bool
    first: float | None
    last: float | None
    fail: bool
    as_json: bool
    on_finding: str | None
    on_finding_command: str | None
    metrics_port: int | None
    retire: bool
    retire_share: float
    retire_every: float

    @property
    def ends(self) -> bool:
        """Whether the watch ends by itself."""
        return self.once or self.first is not None

    def check(self) -> None:
        """Raise UsageError where options do not go together."""
        wrong = next((text for is_wrong, text in self._rules() if is_wrong), None)
        if wrong is not None:
            raise click.UsageError(wrong)

    def _rules(self) -> list[tuple[bool, str]]:
        asked = self.prometheus
        return [
            ((self.scheduler is None) == (asked.url is None), "expected either SCHEDULER or --prometheus URL"),
            ((asked.url is None) != (asked.metrics is None), "--prometheus and --metrics go together"),
            (asked.url is None and asked.http_config is not None, "--http-config is for --prometheus"),
            (asked.url is None and asked.step is not None, "--step is for --prometheus"),
            ((self.detector == "minder") != (self.model is not None), "--detector minder and --model go together"),
            (self.detector == "minder" and self.continuity is not None, "--continuity is for --detector outlier"),
            (self.once and self.first is not None, "--once is now, and --from in the past; expected one of them"),
            (self.first is None and self.last is not None, "--to is for --from"),
            (
                self.first is not None and self.last is not None and self.last < self.first,
                "--to is earlier than --from",
            ),
            (self.first is not None and asked.url is None, "--from is for --prometheus; a scheduler has no past"),
            (self.fail and not self.ends, "--fail is for --once and --from"),
            (self.retire and self.scheduler is None, "--retire is for the workers of a SCHEDULER"),
            (
                self.retire and self.once,
                "--retire is for a watch that goes on: a new one knows of no earlier retirements",
            ),
        ]
