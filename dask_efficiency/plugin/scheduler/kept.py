"""KeptWatch: looks at results in the workers' memory, to find why they are kept."""

from __future__ import annotations

import random
from collections.abc import Mapping
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import Any

from distributed import Scheduler
from distributed.scheduler import TaskState

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.memory import Kept, KeptWindow, Why
from dask_efficiency.accounts.rows import MAX_LISTED, add, divide
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.scheduler.registration import OpenWindow

#: Results that are looked at each time, some microseconds each; of more, they are a sample.
MAX_RESULTS = 200
#: Results that are walked over to choose these: half a millisecond. Of more, some workers are looked at.
MAX_WALKED = 50_000
SEVERAL = "several clients"
#: Tasks that are read of those that need a result.
MAX_WAITERS = 8
#: Tasks of the groups that a root task may depend on, such as an array that all its chunks are read from: as upstream.
MAX_ROOT_INPUTS = 5


class KeptWatch:
    """Looks at the results in memory while a window is open: what a look sees holds until the next one."""

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger, windows: Mapping[str, OpenWindow]) -> None:
        self._scheduler, self._cluster, self._windows = scheduler, cluster, windows
        self.guard = Guard("the watch of results", "dask_efficiency no longer finds why results are kept")
        self._chance = random.Random(0)
        #: Bytes and results by reason at the last look.
        self._seen: dict[Kept, tuple[int, float]] = {}

    def look(self, at: int) -> None:
        """Look, if a window is open."""
        if not self._windows:
            self._seen = {}
            return
        self.catch_up(at)
        self._seen, by_worker = self._look()
        everything, process = {kept: nbytes for kept, (nbytes, _) in self._seen.items()}, 0
        for address, presence in self._cluster.present.items():
            if presence.memory is not None and presence.memory.process > 0:
                process += presence.memory.process
                for opened in self._windows.values() if address in by_worker else ():
                    opened.kept.note(presence.name, presence.memory.process, by_worker[address])
        for opened in self._windows.values():
            opened.kept.note("", process, everything)

    def catch_up(self, at: int) -> None:
        """Count the time until now, without another look."""
        for opened in self._windows.values():
            opened.kept.accrue(self._seen, at=at)

    def reply(self, kept: KeptWindow, at: int) -> dict[str, Any]:
        """Part of the reply of a window that closes: byte-seconds, seconds of results and bytes at peaks, by reason."""
        kept.accrue(self._seen, at=at)
        peak, at_peak = kept.peaks.get("", (0, {}))
        rows = [
            (*why, nbytes / 1e9, kept.results.get(why, 0) / 1e9, at_peak.get(why, 0))
            for why, nbytes in sorted(kept.nbytes.items(), key=lambda item: -item[1])
        ]
        workers = {
            name: [(*why, 0.0, 0.0, nbytes) for why, nbytes in nlargest(MAX_LISTED, row.items(), key=itemgetter(1))]
            for name, (_, row) in kept.peaks.items()
            if name
        }
        return {"rows": rows, "peak": peak, "workers": workers}

    def _look(self) -> tuple[dict[Kept, tuple[int, float]], dict[str, dict[Kept, int]]]:
        """Bytes and results by reason, and bytes by worker, as far as there is a sample of its results."""
        workers = [ws for ws in self._scheduler.workers.values() if ws.has_what]
        whole = sum(ws.nbytes for ws in workers)
        self._chance.shuffle(workers)
        looked_at, total = [], 0
        while workers and total < MAX_WALKED:
            looked_at.append(workers.pop())
            total += len(looked_at[-1].has_what)
        step = -(-total // MAX_RESULTS) or 1
        offset = self._chance.randrange(step)
        nbytes: dict[Kept, int] = {}
        results: dict[Kept, float] = {}
        by_worker: dict[str, dict[Kept, int]] = {}
        for ws in looked_at:
            row: dict[Kept, int] = {}
            for ts in islice(ws.has_what, offset, None, step):
                kept = kept_for(ts)
                row[kept] = row.get(kept, 0) + max(0, ts.nbytes)
                results[kept] = results.get(kept, 0.0) + step / max(len(ts.who_has or ()), 1)  # each copy is met
            offset = (offset - len(ws.has_what)) % step
            add(nbytes, row)
            if any(row.values()):
                by_worker[ws.address] = divide(row, ws.nbytes)
        if any(nbytes.values()):  # each look adds up to what all hold
            nbytes = divide(nbytes, whole)
        return {kept: (n, results[kept]) for kept, n in nbytes.items()}, by_worker


def kept_for(ts: TaskState) -> Kept:
    """Find why a result in memory is kept."""
    prefix, queued, blocked = _name(ts), None, None
    for waiter in islice(ts.waiters or (), MAX_WAITERS):
        if waiter.state == "waiting":
            blocked = blocked or waiter
        elif _runs(waiter):
            return Kept(prefix, Why.RUNNING, _name(waiter))
        else:
            queued = queued or waiter
    if queued is not None:
        return Kept(prefix, Why.AHEAD if _may_be_ahead(ts) else Why.QUEUED, _name(queued))
    if blocked is not None:
        missing = next(iter(blocked.waiting_on or ()), None)
        ahead = missing is not None and _may_be_ahead(ts) and _is_root(missing)
        why = Why.AHEAD if ahead else Why.BLOCKED
        return Kept(prefix, why, _name(blocked), "" if missing is None else _name(missing))
    clients = ts.who_wants or ()
    if not clients:
        return Kept(prefix, Why.UNNEEDED)
    return Kept(prefix, Why.FUTURE, fitting(next(iter(clients)).client_key) if len(clients) == 1 else SEVERAL)


def _runs(ts: TaskState) -> bool:
    """True if a task is known to run: its worker's last heartbeat says so, or has no more tasks than threads."""
    ws = ts.processing_on
    return ws is not None and (ts in ws.executing or len(ws.processing) <= ws.nthreads)


def _may_be_ahead(ts: TaskState) -> bool:
    """True for results of root tasks, but for those that clients hold, as of persisted and scattered data."""
    return not ts.who_wants and _is_root(ts)


def _is_root(ts: TaskState) -> bool:
    """True for tasks that need no results of others, or those of very few that all of their many peers need.

    What a client scattered is of no task.
    """
    if not ts.dependencies:
        return ts.run_spec is not None
    groups = ts.group.dependencies
    return len(groups) < MAX_ROOT_INPUTS and sum(map(len, groups)) < min(MAX_ROOT_INPUTS, len(ts.group))


def _name(ts: TaskState) -> str:
    return prefix_of(ts.prefix.name)
