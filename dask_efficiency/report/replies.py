"""The report that is made of what a scheduler replied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from distributed.protocol import loads

from dask_efficiency.accounts.buckets import Breakdown, Bucket, scale_down
from dask_efficiency.accounts.causes import CAUSES, fit_known, name_of, of_bucket
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.gpu.plain import decode_gpu
from dask_efficiency.accounts.metered import BYTES, COUNT, SECONDS, WAYS
from dask_efficiency.accounts.profile import Frame, Stack
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.plugin.decorations import Decoration, decorate
from dask_efficiency.report.arrivals import Arrival
from dask_efficiency.report.by_value import in_the_script
from dask_efficiency.report.lost_workers import LostWorker
from dask_efficiency.report.metered import Amount, MeteredRow
from dask_efficiency.report.model import EfficiencyReport, HeldResult, Repeat
from dask_efficiency.report.profile import GilHolder, Hold, ProfileRow
from dask_efficiency.straggler.breakdowns import explained, with_lines

_FOR_PARALLELISM = name_of(Bucket.IDLE, "parallelism")


def unpacked(reply: Mapping[str, Any]) -> dict[str, Any]:
    """A report's reply as the scheduler made it."""
    rest = {name: part for name, part in reply.items() if name != "packed"}
    return {**loads(reply["packed"]), **rest}


def life_report(payload: Mapping[str, Any]) -> EfficiencyReport:
    """The report of a cluster's whole life."""
    return report_of(payload, name="cluster life", started=float(payload["since"]))


def report_of(
    payload: Mapping[str, Any],
    *,
    name: str,
    started: float,
    phases: Mapping[str, float] | None = None,
    notes: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    code: tuple[str, ...] = (),
    arrivals: tuple[Arrival, ...] = (),
    computed_by: Mapping[str, str] | None = None,
) -> EfficiencyReport:
    """The report that a scheduler's answer makes.

    ``settings`` are the client's own; ``code`` is what ran, where Dask has not recorded that.
    """
    workers, prefixes = payload["workers"], payload.get("prefixes", {})
    spans = payload.get("spans", {})
    worker_causes = payload.get("worker_causes", {})
    known = {bucket for bucket in CAUSES if any(of_bucket(row, bucket) for row in worker_causes.values())}
    causes_by_worker = _causes(worker_causes, workers, known)
    in_tasks = known & {Bucket.THREAD_NONCPU}
    by_worker = _breakdowns(workers)
    found, missing = decorate(
        [
            Decoration("environment", "environment", lambda: {**payload.get("environment", {}), **(settings or {})}),
            Decoration("timeline", "timeline", lambda: _timeline(payload.get("timeline"))),
            Decoration(
                "scheduler_loop",
                "account of the scheduler's event loop",
                lambda: _scheduler_loop(payload.get("scheduler_loop")),
            ),
            Decoration("code", "source listing", lambda: tuple(payload.get("code") or code)),
            Decoration(
                "stragglers",
                "list of stragglers",
                lambda: explained(_findings(payload), causes_by_worker, by_worker),
            ),
            Decoration(
                "gpu", "account of GPUs", lambda: {n: decode_gpu(gpu) for n, gpu in payload.get("gpu", {}).items()}
            ),
            Decoration(
                "skew",
                "comparison of tasks",
                lambda: {prefix: Skew(**row) for prefix, row in payload.get("skew", {}).items()},
            ),
            Decoration("metered", "table of what was metered", lambda: _metered(payload.get("metered", ()))),
            *_profiles(payload.get("profiles", {})),
        ]
    )
    if "stragglers" in found and "profile" in found:
        found["stragglers"] = with_lines(
            found["stragglers"], causes_by_worker, ((row.place, row.ns) for row in found["profile"])
        )
    return EfficiencyReport(
        name=name,
        started=started,
        window_seconds=payload["window"] / 1e9,
        cluster_seconds=max(0, payload["outstanding"] - payload["no_workers"]) / 1e9,
        no_workers_seconds=payload["no_workers"] / 1e9,
        cores=payload.get("cores"),
        others_share=payload.get("others_share"),
        worker_saturation=payload.get("worker_saturation"),
        held_results=tuple(HeldResult(*row) for row in payload.get("held_results", ())),
        arrivals=arrivals,
        computed_by=computed_by or {},
        by_worker=by_worker,
        by_prefix=_breakdowns(prefixes),
        by_span=_breakdowns(spans),
        causes_by_worker=causes_by_worker,
        causes_by_prefix=_causes(payload.get("prefix_causes", {}), prefixes, in_tasks),
        causes_by_span=_causes(payload.get("span_causes", {}), spans, known & {Bucket.THREAD_NONCPU, Bucket.IDLE}),
        waited_for=_waited_for(payload.get("waited_for", {}), causes_by_worker),
        not_sampled=dict(payload.get("not_sampled", {})),
        phases=dict(phases or {}),
        tasks=dict(payload.get("tasks", {})),
        nthreads=dict(payload["nthreads"]),
        outside=_seconds(payload.get("outside", {})),
        details=_seconds(payload.get("details", {})),
        moved=_amounts(payload.get("amounts", {})),
        not_measured=dict(payload.get("not_measured", {})),
        repeats={prefix: Repeat(*counts) for prefix, counts in payload.get("repeats", {}).items()},
        notes=tuple(dict.fromkeys((*notes, *payload.get("notes", ()), *missing))),
        price_per_worker_hour=payload["price"],
        attendance=dict(payload.get("attendance", {})),
        lost_workers=tuple(LostWorker(**row) for row in payload.get("lost_workers", ())),
        **found,
    )


def _breakdowns(rows: Mapping[str, Mapping[str, int]]) -> dict[str, Breakdown]:
    return {name: Breakdown(row) for name, row in rows.items()}


def _causes(
    given: Mapping[str, Mapping[str, int]], rows: Mapping[str, Mapping[str, int]], known: Collection[Bucket]
) -> dict[str, dict[str, int]]:
    """The causes of each row that has any; they add up to it."""
    found = {name: fit_known(given.get(name, {}), row, known) for name, row in rows.items()}
    return {name: causes for name, causes in found.items() if causes}


def _waited_for(seen: Mapping[str, int], causes_by_worker: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What the scheduler saw wait for tasks of each prefix, at most what the workers were idle for that reason.

    Slots that it believes to be free may be in use, or be gone.
    """
    idle = sum(row.get(_FOR_PARALLELISM, 0) for row in causes_by_worker.values())
    rows = scale_down(list(seen.values()), min(idle, sum(seen.values())))
    return {prefix: ns for prefix, ns in zip(seen, rows, strict=True) if ns}


def _profiles(payload: Mapping[str, Any]) -> list[Decoration]:
    """What the samples of the workers' threads say, each row by its own."""

    @cache
    def stacks() -> list[Stack]:
        frames = [in_the_script(Frame(*frame)) for frame in payload.get("frames", ())]
        return [tuple(map(frames.__getitem__, stack)) for stack in payload.get("stacks", ())]

    def holds(name: str) -> tuple[Hold, ...]:
        return tuple(Hold(worker, holder, stacks()[at], ns / 1e9) for worker, ns, holder, at in payload.get(name, ()))

    return [
        Decoration(
            "profile",
            "profile",
            lambda: tuple(
                ProfileRow(bucket, cause, prefix, stacks()[at], ns)
                for bucket, cause, prefix, at, ns in payload.get("profile", ())
            ),
        ),
        Decoration(
            "gil_holders",
            "list of who had the GIL",
            lambda: tuple(
                GilHolder(prefix, holder, stacks()[at], ns) for prefix, holder, at, ns in payload.get("gil_holders", ())
            ),
        ),
        Decoration("gil_holds", "list of long holds of the GIL", lambda: holds("gil_holds")),
        Decoration("loop_blocks", "list of blocked event loops", lambda: holds("loop_blocks")),
    ]


def _amounts(payload: Mapping[str, int]) -> dict[str, Amount]:
    found = {way: Amount(*(payload.get(f"{way}/{unit}", 0) for unit in (BYTES, COUNT))) for way in WAYS}
    return {way: amount for way, amount in found.items() if amount.count}


def _metered(rows: Iterable[Sequence[Any]]) -> tuple[MeteredRow, ...]:
    return tuple(
        MeteredRow(worker, context, span, prefix, label, unit, value / 1e9 if unit == SECONDS else float(value))
        for worker, context, span, prefix, label, unit, value in rows
    )


def _findings(payload: Mapping[str, Any]) -> tuple[SlowWorker, ...]:
    return tuple(map(SlowWorker.from_dict, payload.get("stragglers", ())))


def _timeline(payload: Mapping[str, Any] | None) -> Timeline | None:
    if payload is None:
        return None
    activity = {name: tuple(row) for name, row in payload["activity"].items()}
    causes = {name: tuple(row) for name, row in payload.get("causes", {}).items()}
    return Timeline(payload["bin"], payload["elapsed"], activity, causes)


def _scheduler_loop(payload: Mapping[str, Any] | None) -> SchedulerLoop | None:
    if payload is None:
        return None
    return SchedulerLoop(
        **{
            **payload,
            "handlers": tuple(map(_loop_part, payload["handlers"])),
            "hooks": tuple(map(_loop_part, payload["hooks"])),
            "blocks": tuple(
                LoopBlock(row["seconds"], tuple(in_the_script(Frame(*frame)) for frame in row["stack"]))
                for row in payload["blocks"]
            ),
        }
    )


def _loop_part(row: Mapping[str, Any]) -> LoopPart:
    part = LoopPart(**row)
    return replace(part, file=in_the_script(part.stack[0]).file)


def _seconds(rows: Mapping[str, int]) -> dict[str, float]:
    return {name: ns / 1e9 for name, ns in rows.items()}
