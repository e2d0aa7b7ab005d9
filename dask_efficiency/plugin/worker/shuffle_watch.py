"""ShuffleWatch: what upstream does not meter of P2P shuffles on a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.metered import FLUSH, P2P, RECEIVE, SECONDS, Metered
from dask_efficiency.plugin.patches import SHUFFLE_INPUTS_DONE, SHUFFLE_RECEIVE, Replacements

if TYPE_CHECKING:
    from distributed import Worker

_COMMS = "background-comms"


class ShuffleWatch:
    """Adds up how long a worker takes in what shuffles send it, and how long it still sends at their barriers.

    Parameters
    ----------
    worker
        The worker.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ns: dict[Metered, int] = {}
        self._replacements = Replacements()
        self._watching = False

    def start(self) -> None:
        """Watch, as soon as the worker takes part in shuffles; no-op where it is watched."""
        if not self._watching:
            self._watching = all(
                self._replacements.put(patch, self._worker, self._timed(label))
                for patch, label in ((SHUFFLE_RECEIVE, RECEIVE), (SHUFFLE_INPUTS_DONE, FLUSH))
            )

    def stop(self) -> None:
        """Watch no more."""
        self._replacements.put_back()
        self._watching = False

    def metered(self) -> dict[Metered, int]:
        """Nanoseconds so far; several messages may be taken in at once."""
        return dict(self._ns)

    def _timed(self, label: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        metered = Metered(P2P, "", _COMMS, label, SECONDS)

        def wrap(handler: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(handler)
            async def handle(*args: Any, **kwargs: Any) -> Any:
                began = monotonic_ns()
                try:
                    return await handler(*args, **kwargs)
                finally:
                    self._ns[metered] = self._ns.get(metered, 0) + monotonic_ns() - began

            return handle

        return wrap
