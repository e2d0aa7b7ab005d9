"""Output of commands: results, lines for people, and errors in one line with an exit code."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dask_efficiency.show.figures import harmless
from dask_efficiency.show.progress import StoppedWarning

#: Exit code after Ctrl-C, as of shells: 128 + SIGINT.
STOPPED = 130


class NotJudgedError(click.ClickException):
    """Error of a command whose exit code 1 has a meaning of its own: it could not judge."""

    exit_code = 2


@contextmanager
def one_line_errors(
    *others: type[Exception], kind: type[click.ClickException] = click.ClickException
) -> Iterator[None]:
    """Turn errors that a user can fix (files, values, extras and ``others``) into an exit code and one line."""
    # ImportError is how fsspec asks for the package that reads a kind of URL.
    fixable: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, click.ClickException, *others)
    try:
        yield
    except (BrokenPipeError, click.UsageError):
        raise
    except fixable as error:
        raise kind(" ".join(str(error).split())) from error


@contextmanager
def answers_of(address: str) -> Iterator[None]:
    """Turn an error that a scheduler answers, or an answer in which something is missing, into one line."""
    try:
        yield
    except RuntimeError as error:  # NotRegisteredError, or raised over there
        raise click.ClickException(" ".join(str(error).split())) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        wrong = f"{address} gave an answer that cannot be read ({type(error).__name__}: {error})"
        raise click.ClickException(f"{wrong}; expected a scheduler with this version of the plugin") from error


@contextmanager
def stoppable() -> Iterator[None]:
    """End a command on Ctrl-C with exit code 130, a line on its progress, and its result so far."""
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
            doing = f" while {interrupt}" if interrupt.args else ""
            click.echo(harmless(f"Ctrl-C: stopped{doing}"), err=True)
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


def tell(*lines: str, err: bool = False, **style: Any) -> None:
    """Print lines for people, with control characters escaped."""
    for text in map(harmless, lines):
        click.secho(text, err=err, **style)


def say(
    found: Any, *, as_json: bool, as_markdown: bool = False, written: bool = False, everything: bool = True
) -> None:
    """Print a result: all of it, or its first screen; if it was written to a file, only its headline."""
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    elif as_markdown:
        from dask_efficiency.show.markdown import markdown

        click.echo(markdown(found.document if everything else found.first_screen), nl=False)
    elif written:
        tell(f"{found.document.headline}.")
    else:
        from dask_efficiency.show.terminal import show

        show(found.document if everything else found.first_screen)
