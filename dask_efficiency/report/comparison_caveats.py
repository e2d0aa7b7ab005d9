"""Caveats of a comparison: what stands against comparing at all."""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.wall_clock import WORTH_SAYING
from dask_efficiency.show.figures import format_share, sentence

#: From this share on, unmeasured time stands against comparing.
WORTH_A_CAVEAT = 0.01


def caveats(comparison: Comparison) -> tuple[str, ...]:
    """Why the two sides may not be comparable, a sentence each."""
    return (
        *_other_size(comparison),
        *_other_work(comparison),
        *_other_causes(comparison),
        *_unknown(comparison, Bucket.UNMEASURED, WORTH_A_CAVEAT, "was not measured: there is no comparing that part"),
        *_unknown(comparison, Bucket.RUNNING, WORTH_SAYING, "was in tasks that had not ended"),
        *_other_price(comparison),
        *_notes(comparison),
    )


def _other_size(comparison: Comparison) -> Iterator[str]:
    sizes = (("workers", comparison.workers), ("threads", comparison.threads))
    differ = [f"{size.before} -> {size.after} {name}" for name, size in sizes if size.change]
    if differ:
        yield f"{' and '.join(differ)}: the wall time says more than thread-seconds, which idle threads add to"
    elif any(set(size.runs_before) | set(size.runs_after) != {size.after} for _, size in sizes):
        yield "the runs of one side did not all have the same workers and threads"


def _other_work(comparison: Comparison) -> Iterator[str]:
    useful = comparison.useful
    if useful.change and not useful.within_spread and abs(useful.rise) >= WORTH_SAYING:
        yield (
            "useful time differs: the runs did not do the same work, or not at the same speed, "
            "and lost time may have changed with it"
        )


def _other_causes(comparison: Comparison) -> Iterator[str]:
    """Where one side knows why threads waited, and the other does not: libraries' own work is lost time there."""
    unknown = [
        any(report.breakdown.ns(Bucket.THREAD_NONCPU) and not report.waiting for report in reports)
        for reports in (comparison.before, comparison.after)
    ]
    if unknown[0] != unknown[1]:
        side = "before" if unknown[0] else "after"
        yield f"why threads waited is not known {side}: what libraries' threads computed is among thread-noncpu there"


def _unknown(comparison: Comparison, bucket: Bucket, from_share: float, said: str) -> Iterator[str]:
    for side, reports in (("before", comparison.before), ("after", comparison.after)):
        wholes = [report.breakdown for report in reports]
        shares = [whole.ns(bucket) / there for whole in wholes if (there := whole.total_ns - whole.ns(Bucket.NO_WORK))]
        if shares and max(shares) >= from_share:
            yield f"{side}, {'up to ' if len(shares) > 1 else ''}{format_share(max(shares))} of the time {said}"


def _other_price(comparison: Comparison) -> Iterator[str]:
    prices = {report.price_per_worker_hour for report in (*comparison.before, *comparison.after)}
    if len(prices) > 1:
        said = ", ".join("none" if price is None else f"{price:g}" for price in sorted(prices, key=lambda p: p or -1.0))
        yield f"the price of a worker's hour is not the same in all runs: {said}"


def _notes(comparison: Comparison) -> Iterator[str]:
    for side, reports in (("before", comparison.before), ("after", comparison.after)):
        for note in dict.fromkeys(note for report in reports for note in report.notes):
            yield f"{side}: {sentence(note)}"
