"""Bounds of savings: what is left of a run once a loss is gone, whatever its cure."""

from __future__ import annotations

from dataclasses import replace

from dask_efficiency.accounts.buckets import Bucket, cause_name
from dask_efficiency.report.kinds import OF_CHAINS, OTHERS
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.finding import KNOWN, Basis, Finding

#: Evidence key: seconds that the cure of a loss saves where these are too few to be promised.
OF_CURE = "cure_saves_seconds"
#: Seconds of a task below which most of it is the time to call it: Dask spends about as much on each.
CALLING = 0.001
#: What a client does for each task of its own: it sends small inputs to workers, and lets go of futures.
OF_EACH_TASK = frozenset({"send", "release"})
CORE = cause_name(Bucket.THREAD_NONCPU, "core")


def largest_saving(report: EfficiencyReport, kind: str = "") -> float:
    """Seconds that the ideal runtime leaves.

    The longest chain bounds no cure that shortens it. What other processes use of the cores is lost for each cure that
    leaves these where they are.
    """
    bounds = dict(report.ideal_bounds)
    if kind in OF_CHAINS:
        bounds.pop("chain", None)
    others = report.others_share or 0.0
    if "cores" in bounds and kind != CORE and OTHERS <= others < 1:
        bounds["cores"] /= 1.0 - others
    return max(0.0, report.cluster_seconds - max(bounds.values(), default=0.0))


def without_others(report: EfficiencyReport) -> float | None:
    """Seconds that threads wait for cores because of other processes; None if these use few, or are not known.

    Threads that are ready to compute share the cores with one another as well, and go on to do so without other
    processes: ``n`` of them on fewer cores ``c`` wait ``n / c - 1`` times as long as they compute. Only what they wait
    beyond that is the others', over the mean number of threads.
    """
    share, cores, threads = report.others_share, report.cores, report.mean_threads
    if share is None or share < OTHERS or not threads:
        return None
    waited = report.waiting.get("core", 0.0)
    if not cores:
        return min(waited / threads, share * report.cluster_seconds)
    computed = report.breakdown.ns(Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS) / 1e9
    ready = (computed + waited) / report.cluster_seconds
    return max(0.0, waited - computed * max(0.0, ready / cores - 1.0)) / threads


def bounded_saving(report: EfficiencyReport, kind: str, lost_seconds: float) -> float:
    """Most seconds that the cure of a loss saves: its wall clock, as the table of lost time has it, or what is left."""
    most = min(lost_seconds / report.mean_threads, largest_saving(report, kind))
    of_others = without_others(report) if kind == CORE else None
    return most if of_others is None else min(most, of_others)


def by_fewer_tasks(report: EfficiencyReport, one: Finding, *, times: int, seconds: float) -> Finding:
    """Widen a saving by larger partitions, so many ``times`` as large, of tasks of so many ``seconds``.

    A replay, and a bound, have the cluster's work for fewer tasks: the client has less to do, too, and tiny tasks are
    mostly the time to call them.
    """
    if times <= 1 or one.saves_seconds is None:
        return one
    tiny, fewer = seconds < CALLING, 1.0 - 1.0 / times
    if one.saves_interval is None:
        of_each = sum(row.idle_ns for row in report.client if row.activity in OF_EACH_TASK) / 1e9 if tiny else 0.0
        known = one.evidence.get(KNOWN, 0.0) + fewer * of_each
        return replace(one, saves_seconds=one.saves_seconds + fewer * of_each, evidence={**one.evidence, KNOWN: known})
    calling = report.cluster_seconds - largest_saving(report) if tiny else 0.0
    low, high = one.saves_interval
    return replace(one, saves_interval=(low, high + fewer * (report.client_seconds + calling)))


def kept_promise(report: EfficiencyReport, one: Finding, least: float) -> Finding:
    """Leave out the saving of a loss that takes long, and whose cure saves next to nothing."""
    lost = one.lost_seconds / report.mean_threads if report.mean_threads else 0.0
    if one.saves_seconds is None or one.saves_seconds >= least or lost < least:
        return one
    evidence = {**one.evidence, OF_CURE: one.saves_seconds}
    return replace(one, saves_seconds=None, saves_interval=None, basis=Basis.UNKNOWN, evidence=evidence)
