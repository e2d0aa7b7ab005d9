"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from dask_efficiency.cli.connection import Connection

_PEM_FILE = click.Path(exists=True, resolve_path=True, dir_okay=False)


def timedelta(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Seconds, from a length of time as Dask writes it."""
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


def numbers_by_name(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Factors, or shares, by name, from options such as ``sum=2.0``."""
    found = {}
    for value in values:
        name, _, text = value.rpartition("=")
        try:
            found[name] = float(text)
        except ValueError:
            name = ""
        if not name:
            what, _, number = (parameter.metavar or "NAME=FACTOR").lower().partition("=")
            example = f"{'gemm' if what == 'name' else 'read-parquet'}={'2.0' if number == 'factor' else '0.5'}"
            raise click.BadParameter(f"{value!r} is not a {what} and a {number} such as '{example}'")
    return found


#: Seconds that a scheduler has to answer, where the time is not an option of its own.
ANSWER_SECONDS = 10.0


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """The files with which a scheduler is talked to by TLS: given to the command as ``connection``.

    To be put right above the function, below its other options.
    """

    @functools.wraps(command)
    def connected(*, tls_ca_file: str | None, tls_cert: str | None, tls_key: str | None, **others: Any) -> None:
        command(connection=Connection(ANSWER_SECONDS, tls_ca_file, tls_cert, tls_key), **others)

    return _with_files(connected)


def _with_files(command: Callable[..., None]) -> Callable[..., None]:
    for name, what in (("key", "private key file"), ("cert", "certificate file"), ("ca-file", "CA cert(s) file")):
        command = click.option(f"--tls-{name}", type=_PEM_FILE, help=f"{what} for TLS (in PEM format)")(command)
    return command


def scheduler_options(command: Callable[..., None]) -> Callable[..., None]:
    """How a scheduler is reached: given to the command as ``connection``.

    To be put right above the function, below its other options.
    """

    @functools.wraps(command)
    def connected(
        *, timeout: float, tls_ca_file: str | None, tls_cert: str | None, tls_key: str | None, **others: Any
    ) -> None:
        command(connection=Connection(timeout, tls_ca_file, tls_cert, tls_key), **others)

    return click.option(
        "--timeout",
        default="10s",
        show_default=True,
        callback=timedelta,
        metavar="TIME",
        help="How long a scheduler has to answer.",
    )(_with_files(connected))
