"""Places of losses that are workers."""

from __future__ import annotations

from operator import attrgetter

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.turnover import lost_worker_name
from dask_efficiency.show.figures import named, sentence


def lost_worker(report: EfficiencyReport, bucket: Bucket) -> str:
    """Worker whose loss cost most, with the reason, and the number of others."""
    cost = attrgetter("ns" if bucket is Bucket.LOST_WORKER else "recomputed_ns")
    ranked = sorted(filter(cost, report.lost_workers), key=cost, reverse=True)
    if not ranked:
        return ""
    return lost_worker_name(ranked[0]) + (f", and {len(ranked) - 1} more" if len(ranked) > 1 else "")


def workers_of(report: EfficiencyReport, bucket: Bucket) -> str:
    """Workers with time in a bucket, most of it first; of unmeasured time those for which the first reason holds."""
    rows = {name: row.ns(bucket) for name, row in report.by_worker.items() if name != ALL_WORKERS}
    ranked = sorted(filter(rows.__getitem__, rows), key=lambda name: -rows[name])
    if bucket is Bucket.UNMEASURED and report.not_measured:
        ranked = [name for name in ranked if name in report.not_measured]
    if not ranked:
        return ""
    if bucket is not Bucket.UNMEASURED or (reason := report.not_measured.get(ranked[0])) is None:
        return f"worker {named(ranked)}"
    same = [name for name in ranked if report.not_measured[name] == reason]
    others = f", and {len(ranked) - len(same)} for other reasons" if len(same) < len(ranked) else ""
    return f"worker {named(same)} ({sentence(reason)}){others}"
