"""What a user can put right: an exit code and one line in place of a traceback."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dask_efficiency.show.figures import harmless
from dask_efficiency.show.progress import StoppedWarning

#: As a shell has it of what Ctrl-C ended.
STOPPED = 130


class NotJudgedError(click.ClickException):
    """Of a command whose exit code 1 says one thing only: it could not tell."""

    exit_code = 2


@contextmanager
def one_line_errors(
    *others: type[Exception], kind: type[click.ClickException] = click.ClickException
) -> Iterator[None]:
    """End with an exit code and one line for what a user can put right: files, values, extras, and other errors."""
    # ImportError is how fsspec asks for the package that reads a kind of URL.
    told: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, click.ClickException, *others)
    try:
        yield
    except (BrokenPipeError, click.UsageError):
        raise
    except told as error:
        raise kind(" ".join(str(error).split())) from error


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C ends a command with exit code 130, a line that says how far it was, and what it had by then."""
    stopped = []
    with warnings.catch_warnings():
        shown: Any = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **others: Any) -> None:
            if not issubclass(category, StoppedWarning):
                shown(message, category, *where, **others)
                return
            stopped.append(message)
            click.echo(f"Ctrl-C: {harmless(str(message))}", err=True)

        warnings.simplefilter("always", StoppedWarning)
        warnings.showwarning = show
        try:
            yield
        except KeyboardInterrupt as interrupt:
            click.echo(
                harmless(f"Ctrl-C: stopped while {interrupt}" if interrupt.args else "Ctrl-C: stopped"), err=True
            )
            raise SystemExit(STOPPED) from None
        except click.ClickException as error:
            if not stopped:
                raise
            error.show()
        except SystemExit:
            if not stopped:
                raise
    if stopped:
        raise SystemExit(STOPPED)
