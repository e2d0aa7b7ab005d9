"""Guard: where upstream calls our code, a failure of ours goes no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
