"""Options of the commands that look at a fleet: which metrics, by which settings, and of which past."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import click

metrics_option = click.option(
    "--metrics",
    metavar="FILE",
    help="What Prometheus is asked; or one of the files that are there: node, dcgm, dask-efficiency.",
)

settings_option = click.option("--settings", metavar="FILE", help="Settings of the watch, in YAML: see docs/watch.md.")


def _instants(
    context: click.Context, parameter: click.Parameter, value: tuple[str, str] | None
) -> tuple[float, float] | None:
    if value is None:
        return None
    first, last = map(_instant, value)
    if last < first:
        raise click.BadParameter(f"{value[1]} is earlier than {value[0]}")
    return first, last


def _instant(text: str) -> float:
    """Seconds since the epoch, from a time as ISO 8601 has it, or from such seconds."""
    try:
        at = float(text)
        if math.isfinite(at):
            return at
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2026-03-01T12:00:00Z, nor seconds since the epoch"
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


between_option = click.option(
    "--between", nargs=2, callback=_instants, metavar="FROM TO", help="Look at this past of Prometheus."
)
