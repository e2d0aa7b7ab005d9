"""The worker half as it travels: by value, with nothing but the standard library and distributed.

A worker that cannot import the package of a plugin does not start. So this class is pickled by value and tries the
import itself; if that fails, the worker runs without a meter and reports the reason. For the same reason it repeats the
names of the metric and of itself from :mod:`~dask_efficiency.plugin.names`.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin


class EfficiencyWorkerPlugin(WorkerPlugin):
    """Attaches a meter to a worker, if it has the same version of the package as the scheduler.

    The other arguments become the attributes of :class:`~dask_efficiency.plugin.worker.meter.WorkerHalf`.
    """

    name = "dask-efficiency-worker"

    def __init__(self, version: str, **sent: Any) -> None:
        self.version = version
        self.meter: Any = None
        #: Reason why it is not metered; None if it is.
        self.reason: str | None = None
        vars(self).update(sent)

    def setup(self, worker):  # type: ignore[no-untyped-def]
        """Meter this worker, or try once more at its first heartbeat.

        A worker that joins runs its plugins concurrently: one that installs this package may still be at work.
        """
        self.reason = self._attach(worker)
        if self.reason is not None:
            worker.metrics["efficiency"] = self._attach_or_explain
            worker.handlers["efficiency"] = self._explain  # without it, the worker would log each question as an error

    def _explain(self, **asked: Any) -> dict[str, Any]:
        return {"off": self.reason}

    def _attach(self, worker: Any) -> str | None:
        """Meter this worker; returns the reason if that fails, else None."""
        try:
            from dask_efficiency.plugin.version import __version__

            if __version__ != self.version:
                raise ImportError(f"dask_efficiency {__version__} is installed; the scheduler has {self.version}")
            from dask_efficiency.plugin.worker.meter import attach

            self.meter = attach(worker, self)  # type: ignore[arg-type]  # its attributes are those that were sent
        except Exception as error:
            # Paths that are no UTF-8 could not be sent.
            return f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()[:500]
        return None

    def _attach_or_explain(self, worker):  # type: ignore[no-untyped-def]
        importlib.invalidate_caches()
        self.reason = self._attach(worker)
        if self.meter is not None:
            return self.meter.heartbeat(worker)
        logging.getLogger("dask_efficiency").warning("This worker is not metered: %r", self.reason)
        off = {"schema": 7, "off": self.reason}
        worker.metrics["efficiency"] = lambda worker: off
        return off

    def teardown(self, worker):  # type: ignore[no-untyped-def]
        """Take everything away again."""
        if self.meter is not None:
            self.meter.detach()
        else:
            worker.metrics.pop("efficiency", None)
            worker.handlers.pop("efficiency", None)
