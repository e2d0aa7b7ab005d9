"""Options that several commands share, and the connection to a scheduler that some of them describe."""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dask_efficiency.cli.inputs import address_in
from dask_efficiency.cli.output import answers_of, one_line_errors, tell
from dask_efficiency.files.storage import check_target

if TYPE_CHECKING:
    from distributed import Security

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Connection:
    """Timeout and TLS files, by the names of Dask's ``Security``, of a connection to a scheduler."""

    timeout_seconds: float
    tls_files: Mapping[str, str | None] = field(default_factory=dict)

    def secured(self, address: str) -> tuple[str, Security]:
        """Address with its scheme, and the security for it."""
        from distributed import Security

        given = {name: path for name, path in self.tls_files.items() if path is not None}
        if given and "://" not in address:
            address = f"tls://{address}"
        security = Security(**given)
        if address.startswith("tls://") and security.get_connection_args("client")["ssl_context"] is None:
            raise click.ClickException(
                f"{address} takes --tls-ca-file, --tls-cert and --tls-key, or distributed.comm.tls in Dask's "
                "configuration"
            )
        return address, security

    def ask(self, address: str, question: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Ask a scheduler a question of :mod:`dask_efficiency.plugin.client`; OSError if none answers in time."""
        self.announce(self.secured(address)[0])
        return self.reply(address, question)

    def reply(self, address: str, question: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Ask without printing a line, for repeated questions."""
        address, security = self.secured(address)

        async def asked() -> Answer:
            from dask_efficiency.plugin.client import connected

            async with connected(address, security, seconds=self.timeout_seconds) as caller:
                return await question(caller)

        with answers_of(address):
            return asyncio.run(asked())

    def announce(self, address: str) -> None:
        """Print the line about the connection, before waiting."""
        tell(f"connecting to {address}, up to {self.timeout_seconds:g} s", err=True)


Decorator = Callable[[Callable[..., None]], Callable[..., None]]
_PEM_FILE = click.Path(exists=True, resolve_path=True, dir_okay=False)
_scheduler_file_option = click.option(
    "--scheduler-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Ask the scheduler that wrote this file, as for Dask's own commands.",
)


def timedelta(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Parse a length of time as Dask does, in seconds."""
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


def target(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Check at once that a file or URL can be written."""
    if value == "-":
        raise click.BadParameter("'-' is no file here; expected a file or URL, such as /dev/stdout")
    if value is not None:
        try:
            check_target(value)
        except (OSError, ValueError, ImportError) as error:
            raise click.BadParameter(str(error)) from error
    return value


def folder_target(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Make a folder, and check at once that files can be written there; URLs are not checked."""
    if value is None or "://" in value:
        return value
    try:
        os.makedirs(value, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{value!r} cannot be made: {error.strerror}; expected a folder") from error
    if not os.access(value, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{value!r} may not be written to; expected a folder to save reports in")
    return value


def numbers_by_name(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Parse factors or shares by name, such as ``sum=2.0``."""
    found = {}
    for value in values:
        name, _, text = value.rpartition("=")
        try:
            found[name] = float(text)
        except ValueError:
            name = ""
        if not name:
            number = (parameter.metavar or "").partition("=")[2].lower()
            example = "2.0" if number == "factor" else "0.5"
            raise click.BadParameter(f"{value!r} is not a name and a {number} such as 'sum={example}'")
    return found


def _written(name: str, what: str, **settings: Any) -> Decorator:
    """An option whose value is a file or URL to write."""
    return click.option(name, callback=target, metavar="FILE", help=f"{what} to this file or URL.", **settings)


json_option = click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, an object on each line.")
markdown_option = click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a comment or the summary of a job."
)
html_option = _written("--html", "Write a page that works offline")
chrome_option = _written("--chrome", "Write a timeline for ui.perfetto.dev")
what_if_option = click.option(
    "--what-if",
    "speed_up",
    multiple=True,
    callback=numbers_by_name,
    metavar="NAME=FACTOR",
    help="As if NAME were FACTOR times as fast, such as 'sum=2.0'.",
)
hostfile_option = click.option(
    "-f", "--hostfile", multiple=True, metavar="FILE", help="Places where this file says; several are compared."
)


def chrome_options(*, only_critical: bool) -> Decorator:
    """``--chrome`` of a path, and ``--only-critical/--whole`` of its trace, with a default by size."""
    default = "--only-critical" if only_critical else "--whole"
    chosen = click.option(
        "--only-critical/--whole",
        "given",
        default=None,
        help=f"With --chrome: what is on the path, or everything.  [default: {default}]",
    )

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def checked(*, chrome: str | None, given: bool | None, **others: Any) -> None:
            if chrome is None and given is not None:
                raise click.UsageError(f"--{'only-critical' if given else 'whole'} needs --chrome FILE")
            command(chrome=chrome, only_critical=only_critical if given is None else given, **others)

        return chrome_option(chosen(checked))

    return decorated


def cluster_option(*, required: bool = False) -> Decorator:
    """``--cluster`` of simulations."""
    what = "On the hosts, switches and links that this file describes."
    return click.option("--cluster", required=required, metavar="FILE", help=what)


def save_option(what: str, **settings: Any) -> Decorator:
    """``--save`` to a file that other commands and functions read."""
    return _written("--save", f"Save {what}", **settings)


def texts_by_name(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse labels such as ``branch=main``."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not a name and a text such as 'branch=main'")
        found[name] = text
    return found


def label_option(what: str) -> Decorator:
    """``--label`` of runs."""
    return click.option("--label", "labels", multiple=True, callback=texts_by_name, metavar="NAME=TEXT", help=what)


def percent(context: click.Context, parameter: click.Parameter, value: str | None) -> Fraction | None:
    """Parse a share such as ``5%``."""
    if value is None:
        return None
    if not re.fullmatch(r"\d+(\.\d+)? *%", value.strip()):
        raise click.BadParameter(f"{value!r} is not a share such as 5% or 0.5%")
    return Fraction(value.strip().rstrip("% ")) / 100


def without_option(*parts: str) -> Decorator:
    """``--without`` of the parts that a what-if can leave out."""
    return click.option("--without", multiple=True, type=click.Choice(parts), help="As if this took no time.")


def timeout_option(default: str, who: str) -> Decorator:
    """``--timeout`` of an answer."""
    what = f"How long {who} has to answer."
    return click.option("--timeout", default=default, show_default=True, callback=timedelta, metavar="TIME", help=what)


def scheduler_options(
    command: Callable[..., None],
    *,
    source: str = "source",
    timeout: str = "10s",
    who: str = "a scheduler",
    required: bool = True,
) -> Callable[..., None]:
    """Argument and options that name a scheduler, and those of the connection to it.

    The command gets the argument, in place of which ``--scheduler-file`` may be given, under the name ``source``, and
    the rest as ``connection``.
    """

    @functools.wraps(command)
    def connected(
        *,
        scheduler_file: str | None,
        timeout: float,
        tls_ca_file: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        **others: Any,
    ) -> None:
        given = others.pop(source)
        if required and given is None and scheduler_file is None:
            raise click.UsageError(f"Missing argument '{source.upper()}', or --scheduler-file FILE")
        if given is not None and scheduler_file is not None:
            raise click.UsageError(f"expected one of {source.upper()} and --scheduler-file FILE")
        if scheduler_file is not None:
            with one_line_errors():
                given = address_in(scheduler_file)
        files = {"tls_ca_file": tls_ca_file, "tls_client_cert": tls_cert, "tls_client_key": tls_key}
        command(connection=Connection(timeout, files), **{source: given}, **others)

    decorated: Callable[..., None] = connected
    for name, what in (("key", "private key file"), ("cert", "certificate file"), ("ca-file", "CA cert(s) file")):
        decorated = click.option(f"--tls-{name}", type=_PEM_FILE, help=f"{what} for TLS (in PEM format)")(decorated)
    decorated = _scheduler_file_option(timeout_option(timeout, who)(decorated))
    return click.argument(source, required=False)(decorated)
