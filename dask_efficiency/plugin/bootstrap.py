"""The worker half as it travels: by value, with nothing but the standard library and distributed.

A worker that cannot import the plugin's package would not start. So this class is pickled by
value; it tries the import, and where that fails the worker runs unmetered and says so. For the same reason it spells
the name of the metric and of itself once more, which :mod:`~dask_efficiency.plugin.names` has.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin


class EfficiencyWorkerPlugin(WorkerPlugin):
    """Attaches a meter to a worker, if this very version of the package is there.

    Parameters
    ----------
    version
        The scheduler's version of the package.
    session
        The registration that it belongs to; a meter goes on when the same one comes again.
    max_prefixes
        How many prefixes a heartbeat distinguishes.
    windows
        The windows that are open now: a worker that joins opens them when its accounts begin.
    recording
        The recording that goes on now, or None: a worker that joins takes part in it.
    gpu, waiting
        How GPU time is measured, and whether to sample what threads wait for, as the options of these names.
    profile
        Which tasks are profiled in a recording: by who asked, how many of each prefix.
    sensors
        Whether to read the sensors of the host, as the option of this name.
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

        A worker that joins runs its plugins side by side: one that installs this package may still be at work.
        """
        if self._attach(worker) is not None:
            worker.metrics["efficiency"] = self._attach_or_explain

    def _attach(self, worker: Any) -> str | None:
        """Meter this worker; gives why not where that fails, and None otherwise."""
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
