"""Much of all thread time: computing, shuffling, reading again, whole inputs, and the losses that these explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.metered import of_shuffles
from dask_efficiency.accounts.waits import CLUSTER, SHUFFLE
from dask_efficiency.report.bounds import CORE
from dask_efficiency.report.computing import AGAIN, COMPUTING, GIL, busy, computing
from dask_efficiency.report.conditions import Conditions
from dask_efficiency.report.culprits import lost_prefixes
from dask_efficiency.report.file_reads import read_again
from dask_efficiency.report.kinds import FOR_CLUSTER, OTHERS, SPILLS, page_of, shares_cores
from dask_efficiency.report.messages import OF_LOOPS
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.shuffling import shuffling
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.report.whole_inputs import whole_inputs
from dask_efficiency.show.finding import MOST, Finding


def much_of_all(
    report: EfficiencyReport, facts: Conditions, exact: Sequence[ProfileRow]
) -> tuple[list[Finding], frozenset[str]]:
    """Findings of what takes much of all thread time, and the kinds of losses that these explain."""
    computed, explained = computing(report, facts, exact)
    shuffled, read = shuffling(report, exact), read_again(report, exact)
    if read is not None and computed is not None and computed.page in (page_of(COMPUTING), page_of(AGAIN)):
        computed = None  # what was read is what it computes with
    if computed is not None and _holds_loops_up(report, facts, computed):
        explained |= set(OF_LOOPS)  # which wait for the GIL, too
    if shuffled is not None and facts.places.get(CLUSTER) == SHUFFLE:
        explained |= {FOR_CLUSTER}
    whole = whole_inputs(report)
    if whole is not None:  # as event loops send it, and the others wait
        explained |= {"large-results"}
    much = [one for one in (computed, shuffled, read, whole) if one is not None]
    if much and shares_cores(facts):  # that is what the cores are busy with
        explained |= _kept_busy(exact, facts, computed, read)
    if much:
        return much, explained
    most, explained = busy(report, facts, exact)
    return [most] if most is not None else [], explained


def _holds_loops_up(report: EfficiencyReport, facts: Conditions, computed: Finding) -> bool:
    """True if event loops wait for nothing else that is known, and for less time than was computed."""
    if facts.small_tasks or facts.spilling >= SPILLS or facts.overhead_of_blocks or facts.others >= OTHERS:
        return False
    waited = report.breakdown.ns(Bucket.OVERHEAD) - report.causes_ns(Bucket.OVERHEAD).get("rescheduled", 0)
    return waited / 1e9 < computed.evidence["share_of_thread_time"] * report.thread_seconds


def _kept_busy(exact: Iterable[ProfileRow], facts: Conditions, *much: Finding | None) -> set[str]:
    """Waits for cores, and for the GIL where these are short, that are part of what takes much of all thread time.

    Of shuffles, which wait for other things as well, only if their tasks have most of these waits.
    """
    kinds = {CORE, GIL} if facts.short_of_cores else {CORE}
    if any(one is not None for one in much):
        return kinds
    waits = lost_prefixes(exact)
    moved = {kind: sum(ns for prefix, ns in waits[kind].items() if of_shuffles(prefix)) for kind in kinds}
    return {kind for kind in kinds if moved[kind] > MOST * waits[kind].total()}
