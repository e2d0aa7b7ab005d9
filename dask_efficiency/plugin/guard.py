"""Guard and decoration: a failure of ours goes no further."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from dask_efficiency.show.log import logger

#: Characters of a reason.
MAX_REASON = 500


class Guard:
    """Calls our own code until it fails: the failure is logged once, and nothing is called after it.

    Parameters
    ----------
    part
        What fails, as the reason names it.
    consequence
        What is logged with the failure.
    then
        Called after a failure.
    """

    def __init__(self, part: str, consequence: str, then: Callable[[], object] = lambda: None) -> None:
        self._part = part
        self._consequence = consequence
        self._then = then
        #: Why nothing is called any more; None until something fails.
        self.off: str | None = None
        self._closed = False

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function gives; None where it fails, something failed before, or all is over."""
        if self.off is None and not self._closed:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.fail(error)
        return None

    def close(self) -> None:
        """Call nothing any more."""
        self._closed = True

    def fail(self, error: Exception) -> None:
        """Something of ours failed."""
        if self.off is None:
            self.off = f"{self._part} failed: {type(error).__name__}: {error}"[:MAX_REASON]
            logger.error(self._consequence, exc_info=error)
            self._then()


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
