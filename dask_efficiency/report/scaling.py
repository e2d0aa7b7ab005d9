"""ScalingWatch: which workers a client's cluster manager was asked for, and when."""

from __future__ import annotations

import time
from typing import Any

from tornado.ioloop import PeriodicCallback

#: How often the manager is looked at: it has no hook that is called when it is asked for a worker.
LOOK_MS = 200

#: Workers that are remembered; of later ones it is not known when they were asked for.
MAX_WORKERS = 1_000


class ScalingWatch:
    """Notes when a worker's name is first in the plan of a cluster manager.

    Parameters
    ----------
    cluster
        What ``client.cluster`` is: a manager with a ``plan``, the names of the workers that it is to have. Where it
        is None or has no plan, nothing is known.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        #: Name to the first instant at which it was seen, monotonic nanoseconds.
        self._asked: dict[str, int] = {}
        self._before = self._plan() or set()
        self._callback: PeriodicCallback | None = None

    def start(self) -> None:
        """Look from now on; called on an event loop."""
        if self._plan() is not None:
            self._callback = PeriodicCallback(self._look, LOOK_MS)
            self._callback.start()

    def stop(self) -> None:
        """Look once more, and no more."""
        if self._callback is not None:
            self._callback.stop()
            self._callback = None
            self._look()

    def asked_for(self, worker: str) -> int | None:
        """When a worker was asked for, monotonic nanoseconds; None where that is not known."""
        return self._asked.get(worker)

    def _look(self) -> None:
        plan = self._plan()
        now = time.monotonic_ns()
        for name in (plan or set()) - self._before - self._asked.keys():
            if len(self._asked) < MAX_WORKERS:
                self._asked[name] = now

    def _plan(self) -> set[str] | None:
        """Names of the workers that the manager is to have; None where it has no plan."""
        try:
            return {str(name) for name in self._cluster.plan}
        except Exception:  # another library's manager: it may have no plan, and raise what it likes
            return None
