"""MemoryNeeds: the memory that a run needed of its workers, the size that would do, and why results were kept.

A worker spills once its results, by their ``sizeof``, are above ``worker.memory.target``, or its process is above
``worker.memory.spill``; it pauses above ``worker.memory.pause``. These are shares of its memory limit. So the limit
with which it would have done none of that follows from two peaks: of all its results, those on disk included, and of
its process as if nothing were on disk, at the instants at which Dask looked and decided. ``benchmarks/memory_sizes.py``
runs programs with that, and with four fifths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.losses import BY_KERNEL, FOR_MEMORY
from dask_efficiency.accounts.memory import Why
from dask_efficiency.report.memory import MemoryOfWorker
from dask_efficiency.report.messages import GRAPHS, TASKS, loads
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import HeldFor
from dask_efficiency.show.figures import (
    format_bytes,
    format_seconds,
    harmless,
    money_scale,
    name_of,
    named,
    sentence,
    shorten,
)
from dask_efficiency.show.finding import MOST

#: Share by which the size that would do is above what a run needed, as runs differ: so four fifths of it are as far
#: below what is needed, and rounded up they stay below.
MARGIN = 0.1
#: Share of the memory limit below which it does not matter that results are spilled. By judgement.
NEGLIGIBLE = 0.01
#: Tasks of a prefix for each task that they wait for, from which that is a reduction, worth computing before: a tree of
#: them has twice as many tasks as its last level. By judgement.
REDUCED = 2
#: Share of the byte-seconds that waiting for a reduction must explain: the graph has it on any cluster, however long
#: results wait for threads as well. By judgement.
EXPLAINS = 0.3
#: Share of the memory limit, or else of its peak, by which a process grows in a window, or that is on disk, from which
#: it is worth a finding. By judgement.
GROWS = 0.05
#: Share of the memory limit that is enough, at most, for memory to be spare; and seconds of work from which a block
#: stands for others. By judgement.
SPARE, LONG_ENOUGH = 0.25, 60.0
#: Share of what one worker needed, below which the median worker needed far less. By judgement.
FAR_LESS = 0.5
#: Saturation with which the scheduler holds back root tasks: Dask's default.
HOLDS_BACK = 1.1
#: Characters of a client's name in a sentence, such as ``Client-7d24439e``.
MAX_CLIENT = 15

NOTHING_KEPT = HeldFor("", "", "", "", 0.0, 0.0, 0)
NOTHING_MEASURED = MemoryOfWorker(limit=0, thresholds={}, peak=0, held_peak=0, spilled_peak=0)


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """Figures of memory that conditions of advice look at; with the defaults, no condition holds."""

    #: Bytes, of the worker that was shortest of memory: its limit, what it needed, what would do, its process's peak,
    #: and the most on disk; 0 if unknown.
    limit: int = 0
    needed: float = 0.0
    enough: int = 0
    peak: int = 0
    spilled: int = 0
    #: True if it was paused: without that, it may have needed more.
    paused: bool = False
    #: That worker, if the median worker needed far less; empty otherwise.
    alone: str = ""
    #: Its threads, and the share of its peak that was not in results.
    threads: int = 0
    unmanaged: float = 0.0
    #: Prefix whose tasks take most memory while they run, and the bytes of nearly all of them.
    hungriest: str = ""
    working: float = 0.0
    #: Main reason for which results were kept, if it explains enough of their byte-seconds.
    kept: HeldFor = NOTHING_KEPT
    #: Mean seconds for which one of them was; and true if what they waited for is a reduction to far fewer tasks.
    kept_seconds: float = 0.0
    reduced: bool = False
    #: Bytes by which a worker's unmanaged memory grew in the window, which worker that is, and the tasks that left most
    #: of it, or the actors that have it; nothing if it is little.
    grown: float = 0.0
    grows: str = ""
    left_by: str = ""
    #: Bytes by which results, by their sizes, were more than the process of that worker had; 0 if they never were.
    overcounted: int = 0
    #: Largest of the results that only clients held, if these had most of the memory; and the line that sent it.
    held: HeldFor = NOTHING_KEPT
    held_sent_by: str = ""
    #: Share of lost and recomputed time for which nannies or the kernel killed workers for memory.
    lost_for_memory: float = 0.0

    @property
    def too_little(self) -> bool:
        """True if the workers needed more than they had."""
        return self.needed > self.limit > 0

    @property
    def ran_ahead(self) -> bool:
        """True if most results were those of root tasks, before anything could use them."""
        return self.too_little and self.kept.why == Why.AHEAD

    @property
    def second_use(self) -> bool:
        """True if most results were kept for a second use, which waited for a reduction."""
        return self.too_little and self.kept.why == Why.BLOCKED and self.reduced

    @property
    def tasks_take_most(self) -> bool:
        """True if most of the memory was that of running tasks."""
        of_tasks = self.threads * self.working
        return self.too_little and self.unmanaged > MOST and of_tasks > MOST * self.unmanaged * self.peak

    @property
    def size(self) -> str:
        """Place of a loss: the size that would do; empty if there was enough, or it is not known."""
        if not self.too_little:
            return ""
        enough, limit, short = map(format_bytes, (self.enough, self.limit, self.enough - self.limit))
        short += " or more" if self.paused else ""
        if self.alone:
            return f"{short} too little on worker {named([self.alone])}: {enough} would do, it has {limit}"
        return f"{short} too little: {enough} a worker would do, it has {limit}"

    @property
    def evidence(self) -> dict[str, float]:
        """Figures of a finding, in bytes."""
        known = {"memory_limit": self.limit, "memory_needed": self.enough} if self.enough else {}
        return {name: float(nbytes) for name, nbytes in known.items()}

    def words(self) -> dict[str, str]:
        """Figures and names for use in a sentence."""
        return {
            "enough": format_bytes(self.enough),
            "memory_limit": format_bytes(self.limit),
            "hungriest": name_of(self.hungriest),
            "working": format_bytes(self.working),
            "at_a_time": str(self.threads),
            "left_by": self.left_by,
            "overcounted": format_bytes(self.overcounted),
            "kept": name_of(self.kept.prefix),
            "kept_bytes": format_bytes(self.kept.at_peak),
            "kept_for": format_seconds(self.kept_seconds),
            "needed_by": name_of(self.kept.needed_by),
            "waited": name_of(self.kept.waits_for),
            "held_results": name_of(self.held.prefix),
            "held_bytes": format_bytes(self.held.at_peak),
            "held_by": shorten(harmless(self.held.needed_by[:MAX_CLIENT]), MAX_CLIENT),
            "held_sent": f", sent by {sentence(self.held_sent_by)}," if self.held_sent_by else "",
        }


def needs_of(report: EfficiencyReport) -> MemoryNeeds:
    """Memory that a report's run needed."""
    known = {name: one for name, one in report.memory.items() if one.limit and needed_limit(one)}
    shortest = max(known, key=lambda name: _shortness(known[name]), default="")
    of = known.get(shortest, NOTHING_MEASURED)
    # What a killed worker would have needed, nobody knows.
    needed = 0.0 if any(_for_memory(one.reason) for one in report.lost_workers) else needed_limit(of)
    typical = median(map(needed_limit, known.values())) if known else 0.0
    skews = {prefix: one for prefix, one in report.skew.items() if one.p95_working > 0}
    hungriest = max(skews, key=lambda prefix: skews[prefix].p95_working, default="")
    kept, held = _main_reason(report), _held_by_clients(report)
    grown, grows, left_by = _leak(report)
    return MemoryNeeds(
        limit=of.limit,
        needed=needed,
        enough=ideal_limit(of) if needed else 0,
        peak=max(of.peak, 0),
        spilled=of.spilled_peak,
        paused=shortest in report.by_worker and report.by_worker[shortest].ns(Bucket.PAUSED) > 0,
        alone=shortest if typical < FAR_LESS * needed else "",
        threads=report.nthreads.get(shortest, 0),
        unmanaged=of.unmanaged_at_peak / of.peak if of.peak > 0 else 0.0,
        hungriest=hungriest,
        working=skews[hungriest].p95_working if hungriest else 0.0,
        kept=kept,
        kept_seconds=kept_seconds(report, kept),
        reduced=_is_reduced(report, kept),
        grown=grown,
        grows=grows,
        left_by=left_by,
        overcounted=of.overcounted,
        held=held,
        held_sent_by=report.computed_by.get(held.prefix, ""),
        lost_for_memory=_lost_for_memory(report),
    )


def needed_limit(worker: MemoryOfWorker) -> float:
    """Memory limit with which a worker would neither have spilled nor paused; 0.0 if it is not known."""
    results, process = max(worker.managed_peak, 0), max(worker.unspilled_peak, 0)
    peaks = {"target": results, "pause": process}
    if results > NEGLIGIBLE * worker.limit:  # else nothing is there to be spilled
        peaks["spill"] = process
    thresholds = worker.thresholds
    return max(
        (peak / thresholds[name] * worker.limit for name, peak in peaks.items() if thresholds.get(name)), default=0.0
    )


def _shortness(worker: MemoryOfWorker) -> tuple[bool, float]:
    return needed_limit(worker) > worker.limit, ideal_limit(worker) / worker.limit


def ideal_limit(worker: MemoryOfWorker) -> int:
    """Memory limit that would do: what it needed and a margin, rounded up to two digits; 0 if not known.

    With less than its peak, a worker that was not short of memory might be killed, though Dask never saw that peak. The
    peak of one that was short may hold what it was about to spill.
    """
    needed = needed_limit(worker)
    if 0 < needed <= worker.limit:
        needed = max(needed, worker.peak)
    needed *= 1.0 + MARGIN
    if needed < 1.0:
        return 0
    unit = 1 << 10 * int(math.log(needed, 1024))
    step = 0.1 if needed < 10 * unit else 1.0 if needed < 100 * unit else 10.0
    return round(math.ceil(needed / unit / step - 1e-9) * step * unit)


def _main_reason(report: EfficiencyReport) -> HeldFor:
    """Largest of the results that were kept for the main reason, by byte-seconds; first, for a second use."""
    nbytes: Counter[str] = Counter()
    for one in report.held_for:
        nbytes[one.why] += one.byte_seconds  # type: ignore[assignment]  # typed for whole numbers
    first = [why for why, _ in nbytes.most_common(1)]
    for why in (Why.BLOCKED, Why.AHEAD) if first == [Why.AHEAD] else first:  # before they wait so, roots are ahead
        of_reason = [one for one in report.held_for if one.why == why]
        most = max(of_reason, key=attrgetter("byte_seconds"), default=NOTHING_KEPT)
        least = EXPLAINS if _is_reduced(report, most) else MOST
        if of_reason and nbytes[why] > least * nbytes.total():
            return most
    return NOTHING_KEPT


def kept_seconds(report: EfficiencyReport, kept: HeldFor) -> float:
    """Mean seconds for which one of these results was kept so; 0.0 if it is not known how many there were.

    Results that are older than the window add to the seconds, but not to the tasks that ended in it.
    """
    skew = report.skew.get(kept.prefix)
    return min(kept.result_seconds / skew.count, report.window_seconds) if skew is not None and skew.count else 0.0


def _held_by_clients(report: EfficiencyReport) -> HeldFor:
    """Largest of the results that only clients held, if these had most of the memory, at its peak or over time."""
    held = [one for one in report.held_for if one.why == Why.FUTURE]
    if sum(one.at_peak for one in held) <= NEGLIGIBLE * sum(one.limit for one in report.memory.values()):
        return NOTHING_KEPT
    for of in (attrgetter("at_peak"), attrgetter("byte_seconds")):
        if sum(map(of, held)) > MOST * sum(map(of, report.held_for)):
            return max(held, key=attrgetter("at_peak"))
    return NOTHING_KEPT


def _is_reduced(report: EfficiencyReport, kept: HeldFor) -> bool:
    counts = {prefix: skew.count for prefix, skew in report.skew.items()}
    few = counts.get(kept.waits_for, 0)
    return kept.waits_for != kept.prefix and 0 < REDUCED * few <= counts.get(kept.prefix, 0)


def _leak(report: EfficiencyReport) -> tuple[float, str, str]:
    """Bytes by which the unmanaged memory of a worker grew in the window, that worker, and what left or has most."""
    hours = report.window_seconds / 3600
    grown = {name: max(one.growth or 0.0, 0.0) * hours for name, one in report.memory.items()}
    worker = max(grown, key=lambda name: grown[name], default="")
    # Dask keeps a task's arguments on its worker as long as its result, and they came while others ran.
    sent = [load for load in loads(report) if load.what in (TASKS, GRAPHS)]
    carried = {load.prefix: load.each for load in sent}
    of_any = sum(load.nbytes for load in sent if not load.prefix)  # of graphs whose tasks are not known
    left = {
        ("tasks", prefix): skew.left_bytes
        for prefix, skew in report.skew.items()
        if skew.left_bytes > skew.count * carried.get(prefix, 0.0) + of_any
    }
    for prefix, nbytes in (item for one in report.memory.values() for item in one.actors.items()):
        left["actors", prefix] = left.get(("actors", prefix), 0.0) + nbytes
    most = max(left, key=left.__getitem__, default=("", ""))
    if not worker or grown[worker] <= GROWS * (report.memory[worker].limit or report.memory[worker].peak or math.inf):
        return 0.0, "", ""
    if left.get(most, 0.0) < MOST * sum(grown.values()):
        return 0.0, "", ""  # it may be a library's first use, or the allocator's
    return grown[worker], worker, f"{most[0]} of {name_of(most[1])}"


def told_beside(report: EfficiencyReport, needs: MemoryNeeds) -> Iterator[tuple[str, str]]:
    """Kinds and places of what is worth knowing of memory, whatever time it cost."""
    if needs.grown:
        growth = f"worker {named([needs.grows])} by {format_bytes(needs.grown)}"
        yield "leak", f"{growth}, most of it left by {needs.left_by}"
    elif needs.too_little and (needs.peak > needs.limit or needs.spilled > GROWS * needs.limit):  # it may cost no time
        yield "over-limit", needs.size
    known = needs.peak > 0 and not needs.grown and not report.lost_workers
    if known and 0 < needs.enough <= SPARE * needs.limit and report.cluster_seconds >= LONG_ENOUGH:
        peak, limit, enough = map(format_bytes, (needs.peak, needs.limit, needs.enough))
        price = report.money(report.thread_seconds)
        cost = f"; these workers cost {money_scale(price).figure(price)}" if price is not None else ""
        yield "spare-memory", f"at most {peak} of {limit} a worker was used: {enough} would do{cost}"


def _lost_for_memory(report: EfficiencyReport) -> float:
    cost = [(one.ns + one.recomputed_ns, one.reason) for one in report.lost_workers]
    whole = sum(ns for ns, _ in cost)
    if not whole:  # they were lost before anything was known of what they did
        cost = [(1, reason) for _, reason in cost]
        whole = len(cost)
    return sum(ns for ns, reason in cost if _for_memory(reason)) / whole if whole else 0.0


def _for_memory(reason: str) -> bool:
    return reason.startswith(FOR_MEMORY) or reason.endswith(BY_KERNEL)


#: Needs for which no condition holds.
NO_NEEDS = MemoryNeeds()
