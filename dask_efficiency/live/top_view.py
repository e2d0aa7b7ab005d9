"""TopView: what `dask-efficiency top` shows of a cluster, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.accounts.causes import fit_known
from dask_efficiency.live.causes import causes_since
from dask_efficiency.live.last_seconds import LastSeconds, done_since, mean_threads
from dask_efficiency.live.observation import Observation, WorkerObservation
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.findings import in_a_line
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.names import natural


@dataclass(frozen=True, slots=True)
class TopView:
    """What a cluster did between two observations, and how it stands."""

    #: Where the scheduler is.
    source: str
    last: LastSeconds
    #: How each worker stands, in the order of those in ``last``.
    workers: tuple[WorkerObservation, ...]
    #: Workers that are there beyond these.
    more_workers: int
    #: Tasks that ended in between, by outcome.
    tasks: Mapping[str, int]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    #: The accounts since they began.
    life: EfficiencyReport

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a number that is not finite is None."""
        last, life = self.last, self.life
        gpus = last.gpus
        return {
            "scheduler": self.source,
            "seconds": last.seconds,
            "nthreads": last.nthreads,
            "headline": in_a_line(last.report),
            "efficiency": _finite(last.report.efficiency),
            "threads": last.threads,
            "threads_by_cause": last.threads_by_cause,
            "tasks": dict(self.tasks),
            "joined": list(self.joined),
            "left": list(self.left),
            "workers": {
                name: {
                    "nthreads": worker.nthreads,
                    "threads": mean_threads(last.workers.did(i), worker.nthreads),
                    "running_seconds": worker.running / 1e9,
                    "tasks": worker.tasks,
                    "status": worker.status,
                }
                for i, (name, worker) in enumerate(zip(last.workers.names, self.workers, strict=True))
            },
            "more_workers": self.more_workers,
            "gpus": {"number": len(gpus.gpus), "shares": gpus.shares_of_all} if gpus.gpus else None,
            "life": {
                "seconds": life.window_seconds,
                "headline": in_a_line(life),
                "efficiency": _finite(life.efficiency),
                "thread_seconds": dict(life.breakdown),
            },
        }


def top_view(then: Observation | None, now: Observation, *, source: str) -> TopView:
    """What happened between two observations of the same accounts; since these began if ``then`` is None."""
    before: Mapping[str, WorkerObservation] = now.workers if then is None else then.workers
    # Where not all workers are named, one that is named no more may still be there.
    all_named = now.more_workers == (0 if then is None else then.more_workers) == 0
    ended = {outcome: n - (0 if then is None else then.tasks.get(outcome, 0)) for outcome, n in now.tasks.items()}
    did = done_since({} if then is None else then.activity, now.activity)
    last = LastSeconds(
        seconds=(now.at - (now.started if then is None else then.at)) / 1e9,
        nthreads=now.nthreads,
        did=did,
        then=None if then is None else then.details,
        now=now.details,
        causes=causes_since({} if then is None else then.causes, now.causes, did),
        not_sampled=now.not_sampled,
    )
    return TopView(
        source=source,
        last=last,
        workers=tuple(now.workers[name] for name in last.workers.names),
        more_workers=now.more_workers,
        tasks={outcome: n for outcome, n in ended.items() if n > 0},
        joined=tuple(sorted(now.workers.keys() - before.keys(), key=natural)) if all_named else (),
        left=tuple(sorted(before.keys() - now.workers.keys(), key=natural)) if all_named else (),
        life=_life(now),
    )


def _life(now: Observation) -> EfficiencyReport:
    causes = fit_known(now.bucket_causes, now.buckets)
    return EfficiencyReport(
        name="life",
        started=0.0,
        window_seconds=(now.at - now.started) / 1e9,
        cluster_seconds=max(0, now.outstanding - now.no_workers) / 1e9,
        no_workers_seconds=now.no_workers / 1e9,
        by_worker={ALL_WORKERS: Breakdown(now.buckets)},
        causes_by_worker={ALL_WORKERS: causes} if causes else {},
        not_sampled=now.not_sampled,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
