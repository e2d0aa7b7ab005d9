"""What a user can put right: an exit code and one line in place of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


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
