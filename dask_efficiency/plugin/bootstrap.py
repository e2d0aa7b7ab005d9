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
    """Attaches a meter to a worker, if it has the same version of the package.

    Parameters
    ----------
    version
        The scheduler's version of the package.
    session
        Id of the registration; a meter goes on if the same session comes again.
    max_prefixes
        Prefixes that a heartbeat distinguishes.
    windows
        Ids of open windows: a worker that joins opens them when its accounts begin.
    recording
        Id of the recording under way, or None: a worker that joins takes part in it.
    gpu, waiting, sensors
        The options of these names.
    profile
        Tasks to profile in a recording: number of each prefix, by who asked for them.
    """

    name = "dask-efficiency-worker"

    def __init__(  # type: ignore[no-untyped-def]
        self,
        version,
        session,
        max_prefixes,
        windows,
        recording=None,
        gpu="auto",
        waiting=True,
        profile=None,
        sensors=True,
    ):
        self.version = version
        self.session = session
        self.max_prefixes = max_prefixes
        self.windows = windows
        self.recording = recording
        self.gpu = gpu
        self.waiting = waiting
        self.profile = profile or {}
        self.sensors = sensors
        self.meter = None

    def setup(self, worker):  # type: ignore[no-untyped-def]
        """Meter this worker, or try once more at its first heartbeat.

        A worker that joins runs its plugins concurrently: one that installs this package may still be at work.
        """
        if self._attach(worker) is not None:
            worker.metrics["efficiency"] = self._attach_or_explain

    def _attach(self, worker: Any) -> str | None:
        """Meter this worker; returns the reason if that fails, else None."""
        try:
            from dask_efficiency.plugin.version import __version__

            if __version__ != self.version:
                raise ImportError(f"dask_efficiency {__version__} is installed; the scheduler has {self.version}")
            from dask_efficiency.plugin.worker.meter import attach

            self.meter = attach(worker, self)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:500]
        return None

    def _attach_or_explain(self, worker):  # type: ignore[no-untyped-def]
        importlib.invalidate_caches()
        reason = self._attach(worker)
        if self.meter is not None:
            return self.meter.heartbeat(worker)
        logging.getLogger("dask_efficiency").warning("This worker is not metered: %r", reason)
        off = {"schema": 5, "off": reason}
        worker.metrics["efficiency"] = lambda worker: off
        return off

    def teardown(self, worker):  # type: ignore[no-untyped-def]
        """Take everything away again."""
        if self.meter is not None:
            self.meter.detach()
        else:
            worker.metrics.pop("efficiency", None)
