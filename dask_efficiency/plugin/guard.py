"""Guard and decoration: a failure of ours goes no further."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.show.log import logger

#: Characters of a reason, which travels with each heartbeat.
MAX_REASON = 500


def described(error: BaseException) -> str:
    """Kind and text of an error, which a class of the user's may not be able to give."""
    return f"{type(error).__name__}: {fitting(error)}"


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
            self.off = fitting(f"{self._part} failed: {described(error)}", MAX_REASON)
            logger.error(self._consequence, exc_info=error)
            self._then()


class DataGuard:
    """Calls code that reads data of others: what it cannot read is logged, once of each kind, and costs only itself."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def __call__(self, kind: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function and return its result; None if it fails. ``kind`` is in our words, for the log."""
        try:
            return function(*args)
        except Exception as error:
            if kind not in self._logged:
                self._logged.add(kind)
                # A refusal names the field and its value; anything else was not foreseen.
                unforeseen = None if isinstance(error, ValueError) else error
                logger.warning("dask_efficiency ignores %s: %s", kind, error, exc_info=unforeseen)
            return None


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
        notes.append(fitting(f"there is no {words}: {described(error)}", MAX_NOTE))


def decorate(decorations: Iterable[Decoration]) -> tuple[dict[str, Any], list[str]]:
    """Make decorations: results by name, and a note for each that failed."""
    made: dict[str, Any] = {}
    notes: list[str] = []
    for name, words, make in decorations:
        with decoration(words, notes):
            made[name] = make()
    return made, notes
