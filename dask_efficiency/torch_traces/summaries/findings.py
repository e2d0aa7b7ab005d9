"""Findings of a summary: what costs wall clock, and what it could save at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dask_efficiency.runs.path.parts import finding
from dask_efficiency.show.figures import format_seconds, format_share
from dask_efficiency.show.finding import MAX_FINDINGS, WORTH_FINDING, Finding
from dask_efficiency.torch_traces.path.findings import SET_UP
from dask_efficiency.torch_traces.path.findings import TITLES as PATH_TITLES
from dask_efficiency.torch_traces.summaries.losses import TorchLoss

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.summaries.rank import RankSummary
    from dask_efficiency.torch_traces.summaries.summary import TorchSummary

#: By kind of loss, its title and the advice.
TITLES: dict[TorchLoss, tuple[str, str]] = {
    TorchLoss.HOST: (
        "Host-bound, the GPU waited for launches",
        "Run less Python between operators, or larger batches.",
    ),
    TorchLoss.TINY_KERNELS: (
        "Many tiny kernels, the GPU waited for launches",
        "Use CUDA graphs, or torch.compile, which fuses kernels.",
    ),
    TorchLoss.GAPS: ("Gaps between kernels", "Use CUDA graphs, or fewer and larger kernels."),
    TorchLoss.EXPOSED: ("Communication that no computing hides", "Exchange less, or compute meanwhile."),
    TorchLoss.CPU_COLLECTIVES: ("The GPU waited for collectives of CPUs", "Exchange on the GPU, or less often."),
    TorchLoss.SYNC_COPIES: ("Synchronous copies", "Copy with non_blocking=True, and read results less often."),
    TorchLoss.PAGEABLE: ("Copies of pageable memory", "Pin it: pin_memory=True, and non_blocking=True in .to()."),
    TorchLoss.DATA: (
        "Waits for the data loader",
        "Use more workers of the data loader, or fetch batches ahead.",
    ),
    TorchLoss.MEMORY: ("The GPU waited for memory", "Take memory once, by torch's allocator or before the loop."),
    TorchLoss.STEP_START: (
        "GPU idle at the start of steps",
        "Copy the next batch ahead, and do not wait for the GPU at the end of a step.",
    ),
    TorchLoss.LONG_STEPS: ("Some steps took longer than most", "Compare their parts with those of the others."),
}

#: Kind of a finding on a late rank, its title and the advice.
LATE_RANK = "torch/late-rank"
LATE = ("A late rank, the others waited for it", "See what it did before: `torch path` names the cause in each step.")


def findings_of(summary: TorchSummary) -> tuple[Finding, ...]:
    """Losses of wall clock, the largest first."""
    least = WORTH_FINDING * summary.seconds
    found = [
        (seconds, each)
        for seconds, each in (*_of_losses(summary), *_late_rank(summary), *_set_up(summary))
        if seconds >= least
    ]
    return tuple(each for _, each in sorted(found, key=lambda item: -item[0]))[:MAX_FINDINGS]


def _set_up(summary: TorchSummary) -> Iterator[tuple[float, Finding]]:
    """Finding on the rank that set up for longest."""
    rank = max(summary.ranks, key=lambda each: each.idle["set_up"])
    if seconds := rank.idle["set_up"] / 1e9:
        share = seconds / rank.seconds
        yield seconds, finding(SET_UP, PATH_TITLES[SET_UP], None, share, f"{format_share(share)} of the time", "torch")


def _late_rank(summary: TorchSummary) -> Iterator[tuple[float, Finding]]:
    """Finding on the rank that the others waited for most in collectives: what one of them waited, at most."""
    collectives = summary.ranks.collectives
    waits = collectives.waits
    late = int(waits.caused.argmax())
    if seconds := int(collectives.longest_caused[late]) / 1e9:
        share = seconds / summary.seconds
        last = f"last at {waits.last[late]} of {waits.collectives[late]} collectives"
        where = f"rank {waits.rank[late]}, {last}; up to {format_share(share)} of the time of another rank"
        yield seconds, finding(LATE_RANK, LATE, seconds, share, where, "torch")


def _of_losses(summary: TorchSummary) -> Iterator[tuple[float, Finding]]:
    """Seconds of each kind of loss and its finding, of the rank that could save most."""
    for loss, wording in TITLES.items():
        rank = max(summary.ranks, key=lambda each: each.losses.saved(loss))
        saved, bound = rank.losses.saved(loss), rank.losses.bounds.get(loss, 0)
        if saved:
            share = bound / 1e9 / rank.seconds
            where = _where(summary, rank, loss, share)
            yield saved / 1e9, finding(loss, wording, saved / 1e9, share, where, "torch")


def _where(summary: TorchSummary, rank: RankSummary, loss: TorchLoss, share: float) -> str:
    """Share of the rank's time, and what is known beside it."""
    whose = f"{summary.ranks.what} {rank.rank}: " if len(summary.ranks) > 1 else ""
    where = f"{whose}{format_share(share)} of {'its' if whose else 'the'} time"
    if loss in (TorchLoss.HOST, TorchLoss.TINY_KERNELS):
        return f"{where}; {rank.losses.tiny} of {rank.losses.kernels} kernels are below 10 us"
    if loss in rank.losses.replayed and rank.losses.replayed[loss] < rank.losses.bounds[loss]:
        return f"{where}, less by a replay without it"
    if loss is TorchLoss.LONG_STEPS:
        return f"{where}, above the median of {format_seconds(float(np.median(rank.steps.length)) / 1e9)}"
    return where
