"""Verdict: slow workers, their causes and confidence, from measurements of them alone and in pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from dask_efficiency.accounts.intake import finite
from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker, confidence_of
from dask_efficiency.preflights.judge.alone import WorkerComparison, compare_alone
from dask_efficiency.preflights.judge.links import MeasuredPairs
from dask_efficiency.preflights.judge.readings import IN_PAIRS, THRESHOLD, Component, Subject
from dask_efficiency.straggler.causes import FLAT_SHARE, MUCH_BESIDE, explains

#: Share of wrong findings among those barely flagged; ``python -m benchmarks.preflight simulated`` counts them.
WRONG_BY_PREFLIGHT = 0.1

#: Components explained by each component: moving data takes CPU time of the event loop. A training step does it all.
EXPLAINED: Mapping[Component, tuple[Component, ...]] = {
    Component.CPU: tuple(component for component in Component if component is not Component.CPU),
    Component.CPU_ALL: (Component.MEMORY, Component.WORKLOAD, *IN_PAIRS),
    Component.PYTHON: (Component.WORKLOAD, *IN_PAIRS),
    Component.MEMORY: (Component.CPU, Component.CPU_ALL, Component.PYTHON, Component.WORKLOAD, *IN_PAIRS),
    Component.GPU: (Component.SOAK, Component.TRAINING, Component.WORKLOAD),
    Component.GPU_MEMORY: (Component.GPU, Component.SOAK, Component.TRAINING, Component.WORKLOAD),
    Component.SOAK: (Component.TRAINING,),
    Component.DISK: (Component.WORKLOAD,),
    Component.SEND: (Component.LATENCY, Component.COLLECTIVE, Component.TRAINING, Component.WORKLOAD),
    Component.RECEIVE: (Component.LATENCY, Component.COLLECTIVE, Component.TRAINING, Component.WORKLOAD),
    Component.COLLECTIVE: (Component.TRAINING,),
}


def judge(subjects: Sequence[Subject], links: Iterable[MeasuredPairs], *, at: float) -> tuple[SlowWorker, ...]:
    """Slow workers, and hosts of which all workers are slow, the most certain first; ``at`` in seconds since the epoch.

    There are links for each group of comparable workers. ``effect`` and ``score`` are of the component that names the
    cause: ratio to the median of the fastest half of the group, and as a multiple of the threshold, in logarithms.
    """
    compared, shares = compare_alone(subjects), _usual_shares(subjects)
    in_pairs = {worker: ratios for pairs in links for worker, ratios in pairs.slow_workers().items()}
    findings = []
    for subject in subjects:
        if subject.not_tested:  # it left or began to run tasks after the first measurements
            continue
        if subject.broken:
            cause = Cause.MEMORY if subject.paused else Cause.UNRESPONSIVE
            findings.append(SlowWorker(subject.name, subject.host, cause, math.inf, 1.0, since=at, effect=None))
            continue
        slow = {
            name: comparison for name, comparison in compared.get(subject.address, {}).items() if comparison.is_slow
        }
        if subject.address in in_pairs:
            ratios = in_pairs[subject.address] or dict.fromkeys((Component.SEND, Component.RECEIVE), math.inf)
            unknown = math.nan
            for name, ratio in ratios.items():
                slow[name] = WorkerComparison(Evidence(str(name), ratio, 1.0, unknown, unknown, unknown, 1))
        if slow:
            findings.append(_finding(subject, slow, shares, at))
    return tuple(sorted(_by_host(findings, subjects), key=lambda finding: -finding.score))


def _finding(
    subject: Subject, slow: Mapping[Component, WorkerComparison], shares: Mapping[Component, float], at: float
) -> SlowWorker:
    waiting = {component for component in subject.readings if _waits(component, subject, shares)}
    name = _explaining({component: comparison.ratio for component, comparison in slow.items()}, waiting)
    cause, ratio = name.cause, slow[name].ratio
    if name in waiting:
        cause = Cause.GIL if name is Component.PYTHON else Cause.CONTENTION
    score = math.log(ratio) / math.log(THRESHOLD) if math.isfinite(ratio) else math.inf
    order = sorted(slow, key=lambda component: (component != name, -slow[component].ratio))
    return SlowWorker(
        worker=subject.name,
        host=subject.host,
        cause=cause,
        score=score,
        confidence=confidence_of(score, wrong=WRONG_BY_PREFLIGHT),
        since=at,
        effect=finite(ratio),
        evidence=tuple(slow[component].evidence for component in order),
    )


def _explaining(ratios: Mapping[Component, float], waiting: Collection[Component]) -> Component:
    """Slowest component that no other explains."""
    # A thread that waits for a core moves fewer bytes as well, so then memory explains nothing.
    logs = {name: math.log(ratio) if math.isfinite(ratio) else math.inf for name, ratio in ratios.items()}

    def is_why(cause: Component, other: Component) -> bool:
        if cause is Component.MEMORY and Component.CPU in waiting:
            return False
        return other in EXPLAINED.get(cause, ()) and explains(logs[cause], logs[other], waits=cause in waiting)

    def explained(name: Component) -> bool:
        # Where two explain each other, the slower one is the cause.
        return any(
            is_why(other, name) and not (is_why(name, other) and logs[name] > logs[other])
            for other in ratios
            if other is not name
        )

    own = [name for name in ratios if not explained(name)]
    return max(own or ratios, key=logs.__getitem__)


def _usual_shares(subjects: Iterable[Subject]) -> dict[Component, float]:
    """Median share of its time for which a worker's thread computes, by component."""
    shares: dict[Component, list[float]] = {}
    for subject in subjects:
        for component, reading in subject.readings.items():
            if math.isfinite(reading.share):
                shares.setdefault(component, []).append(reading.share)
    return {component: median(known) for component, known in shares.items()}


def _waits(component: Component, subject: Subject, shares: Mapping[Component, float]) -> bool:
    """True if it is slow because the worker's threads wait longer than usual for a core, or for the GIL."""
    reading = subject.readings[component]
    if component is Component.PYTHON:
        return reading.others > MUCH_BESIDE
    on_core = component in (Component.CPU, Component.CPU_ALL)
    return on_core and reading.share < shares.get(component, 1.0) * (1 - FLAT_SHARE)


def _by_host(slow_workers: Sequence[SlowWorker], subjects: Sequence[Subject]) -> list[SlowWorker]:
    """Replace a host's workers by the host, if it has several, all slow for one cause, and other hosts have none."""
    on_host = Counter(subject.host for subject in subjects)
    slow: dict[tuple[str, Cause], list[SlowWorker]] = {}
    for finding in slow_workers:
        slow.setdefault((finding.host, finding.cause), []).append(finding)
    folded = []
    for (host, _), findings in slow.items():
        if not 1 < len(findings) == on_host[host] < len(subjects):
            folded += findings
            continue
        effects = [finding.effect for finding in findings if finding.effect is not None]
        middle = sorted(findings, key=lambda finding: finding.score)[len(findings) // 2]
        folded.append(replace(middle, worker="", effect=median(effects) if effects else None))
    return folded
