"""TimeLeftWatch: reads from the scheduler what is outstanding, for an estimate of how long it will take."""

from __future__ import annotations

from collections import defaultdict
from time import monotonic

from distributed import Scheduler

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.time_left import PrefixTasks, TimeLeft, TimeLeftEstimate
from dask_efficiency.accounts.intake import number
from dask_efficiency.plugin.guard import Guard

#: Seconds between two looks, at least, and for each worker and prefix: a microsecond of CPU or two each.
MIN_SECONDS, SECONDS_PER_WORKER, SECONDS_PER_PREFIX = 1.0, 0.005, 0.002


class TimeLeftWatch:
    """Watches a scheduler for how long its tasks will yet take; after a failure the meter goes on without."""

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger) -> None:
        self._scheduler, self._cluster = scheduler, cluster
        self._estimate = TimeLeftEstimate()
        self._guard = Guard(
            "the estimate of the time left", "dask_efficiency does not say how long tasks will yet take"
        )
        self._due = 0.0
        #: By the last look; None where it cannot be said.
        self.left: TimeLeft | None = None

    def poll(self) -> None:
        """Look, if it is time to."""
        if (now := monotonic()) >= self._due:
            scheduler = self._scheduler
            workers, prefixes = len(scheduler.workers), len(scheduler.task_prefixes)
            self._due = now + max(MIN_SECONDS, SECONDS_PER_WORKER * workers, SECONDS_PER_PREFIX * prefixes)
            self.left = None
            self._guard(self._look, now)

    def _look(self, now: float) -> None:
        running: defaultdict[str, list[float]] = defaultdict(list)
        found: dict[str, PrefixTasks] = {}
        # Nothing is read of a scheduler without work, which forgets what was.
        workers = self._scheduler.workers.values() if self._cluster.work.outstanding else ()
        for ws in workers:
            for ts, seconds in ws.executing.items():
                if ts not in ws.long_running:
                    running[ts.prefix.name].append(number(seconds) or 0.0)
        seceded = sum(len(ws.long_running) for ws in workers)
        for name, prefix in self._scheduler.task_prefixes.items() if self._cluster.work.outstanding else ():
            states, counts = prefix.states, prefix.state_counts
            ended = counts["memory"] + counts["erred"]
            tasks = states["waiting"] + states["queued"] + states["no-worker"] + states["processing"]
            if tasks or ended:
                seconds = number(prefix.all_durations["compute"]) or 0.0
                found[name] = PrefixTasks(tasks, tuple(running.get(name, ())), ended, seconds)
        self.left = None if seceded else self._estimate.look(now, found, sum(ws.nthreads for ws in workers))
