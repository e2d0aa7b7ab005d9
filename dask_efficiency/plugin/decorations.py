"""Decorations: parts of a report beside its figures, each made on its own, so that none takes others with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from dask_efficiency.show.log import logger

#: Characters of a note that says what is missing.
MAX_NOTE = 500


class Decoration(NamedTuple):
    """A part of a report beside its figures."""

    #: The key under which it is passed on.
    name: str
    #: What a note calls it, after "there is no".
    words: str
    make: Callable[[], Any]


@contextmanager
def decoration(words: str, notes: list[str]) -> Iterator[None]:
    """Where the block fails, that is logged and noted, and the code after it goes on."""
    try:
        yield
    except Exception as error:
        logger.exception("dask_efficiency: there is no %s in this report", words)
        notes.append(f"there is no {words}: {type(error).__name__}: {error}"[:MAX_NOTE])


def decorate(decorations: Iterable[Decoration]) -> tuple[dict[str, Any], list[str]]:
    """Give the decorations that could be made, by name, and a note for each that could not."""
    made: dict[str, Any] = {}
    notes: list[str] = []
    for name, words, make in decorations:
        with decoration(words, notes):
            made[name] = make()
    return made, notes
