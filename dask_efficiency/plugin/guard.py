"""Guard and decoration: a failure of ours goes no further."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from dask_efficiency.show.log import logger

#: Characters of a reason, which travels with each heartbeat.
MAX_REASON = 500


class Guard:
    """Calls the code of a part until it fails: that is logged with its consequence, and ends in a call of ``then``."""

    def __init__(self, part: str, consequence: str, then: Callable[[], object] = lambda: None) -> None:
        self._part, self._consequence, self._then = part, consequence, then
        #: Reason why nothing is called any more; None until a failure.
        self.off: str | None = None
        self._closed = False

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function and return its result; None if it fails, failed before, or after :meth:`close`."""
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
        """Note a failure of our code."""
        if self.off is None:
            self.off = f"{self._part} failed: {type(error).__name__}: {error}"[:MAX_REASON]
            logger.error(self._consequence, exc_info=error)
            self._then()


#: Characters of a note about a missing decoration.
MAX_NOTE = 500


class Decoration(NamedTuple):
    """Part of a report that its figures do not need: a failure costs only that part."""

    #: Key in the reply.
    name: str
    #: Name in a note, after "there is no".
    words: str
    make: Callable[[], Any]


@contextmanager
def decoration(words: str, notes: list[str]) -> Iterator[None]:
    """Log and note a failure of the block, and go on after it."""
    try:
        yield
    except Exception as error:
        logger.exception("dask_efficiency: there is no %s in this report", words)
        notes.append(f"there is no {words}: {type(error).__name__}: {error}"[:MAX_NOTE])


def decorate(decorations: Iterable[Decoration]) -> tuple[dict[str, Any], list[str]]:
    """Make decorations: results by name, and a note for each that failed."""
    made: dict[str, Any] = {}
    notes: list[str] = []
    for name, words, make in decorations:
        with decoration(words, notes):
            made[name] = make()
    return made, notes
