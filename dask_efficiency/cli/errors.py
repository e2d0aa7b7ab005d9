"""What a user can put right: an exit code and one line in place of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def one_line_errors(kind: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """What a user can put right ends with an exit code and one line in place of a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise
    # ImportError is how fsspec asks for the package that reads a kind of URL.
    except (OSError, ValueError, ImportError) as error:
        raise kind(" ".join(str(error).split())) from error


@contextmanager
def unknown_names() -> Iterator[None]:
    """The same of a name or rank that a trace does not have, which says what there is."""
    from dask_efficiency.runs.trace.errors import UnknownNameError
    from dask_efficiency.torch_traces.kineto.errors import UnknownAnnotationError, UnknownRankError

    try:
        yield
    except (UnknownNameError, UnknownRankError, UnknownAnnotationError) as error:
        raise click.ClickException(str(error)) from error
