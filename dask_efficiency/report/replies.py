"""Reports made from a scheduler's replies, and the requests for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import starmap
from typing import Any

from distributed import Client

from dask_efficiency.accounts.buckets import Bucket, cause_name
from dask_efficiency.accounts.cluster.losses import MemorySample, TaskInThread
from dask_efficiency.accounts.cluster.memory_timeline import MemoryLine, MemoryTimeline
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.facts import decode_facts
from dask_efficiency.accounts.lines import Frame, Stack, place_of
from dask_efficiency.accounts.rows import cap
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import decode_stalls
from dask_efficiency.accounts.wire.gpu import decode_gpu
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import Caller, ask, sync
from dask_efficiency.plugin.guard import Decoration, decorate
from dask_efficiency.plugin.plain import decode
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.source_files import in_the_script
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import (
    Failure,
    GilHolder,
    HeldFor,
    LockLook,
    LongHold,
    ProfileRow,
    Repeat,
    Unfinished,
)
from dask_efficiency.show.figures import format_number
from dask_efficiency.straggler.breakdowns import explained, with_lines

_FOR_PARALLELISM = cause_name(Bucket.IDLE, "parallelism")


def unpacked(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Unpacked reply."""
    return {**decode(reply["packed"]), **{name: part for name, part in reply.items() if name != "packed"}}


def life_report(payload: Mapping[str, Any], name: str = "cluster life") -> EfficiencyReport:
    """Report of the accounts since they began."""
    return report_of(payload, name=name, started=float(payload["since"]))


def report_of(
    payload: Mapping[str, Any], *, name: str, started: float, notes: tuple[str, ...] = ()
) -> EfficiencyReport:
    """Report from a scheduler's reply."""
    facts = decode_facts(payload["facts"])
    by_worker, causes_by_worker = facts.by_worker, facts.causes_by_worker

    def slow() -> tuple[SlowWorker, ...]:
        return tuple(map(SlowWorker.from_dict, payload.get("stragglers", ())))

    parts: list[tuple[str, str, Callable[[], Any]]] = [
        ("environment", "environment", lambda: dict(payload.get("environment", {}))),
        ("timeline", "timeline", lambda: _timeline(payload.get("timeline"))),
        ("memory_timeline", "memory over time", lambda: _memory_timeline(payload.get("memory_timeline"))),
        ("scheduler_loop", "account of the scheduler's event loop", lambda: _loop(payload.get("scheduler_loop"))),
        ("code", "source listing", lambda: tuple(payload.get("code") or ())),
        ("stragglers", "list of stragglers", lambda: explained(slow(), causes_by_worker, by_worker)),
        ("gpu", "account of GPUs", lambda: {n: decode_gpu(gpu) for n, gpu in payload.get("gpu", {}).items()}),
        ("skew", "comparison of tasks", lambda: {n: Skew(**row) for n, row in payload.get("skew", {}).items()}),
        *_profiles(payload.get("profiles", {})),
    ]
    found, missing = decorate(starmap(Decoration, parts))
    if "stragglers" in found and "profile" in found:
        sampled = ((row.place, row.ns) for row in found["profile"])
        found["stragglers"] = with_lines(found["stragglers"], causes_by_worker, sampled)
    kept = payload.get("kept", {})
    same: dict[str, Any] = {each: payload.get(each) for each in ("cores", "others_share", "worker_saturation")}
    same |= {each: dict(payload.get(each, {})) for each in ("not_sampled", "tasks", "not_measured", "attendance")}
    return EfficiencyReport(
        name=name,
        started=started,
        window_seconds=payload["window"] / 1e9,
        cluster_seconds=max(0, payload["outstanding"] - payload["no_workers"]) / 1e9,
        no_workers_seconds=payload["no_workers"] / 1e9,
        facts=facts,
        nthreads=dict(payload["nthreads"]),
        failures=tuple(starmap(_failure, payload.get("failures", ()))),
        unfinished=tuple(Unfinished(**row) for row in payload.get("unfinished", ())),
        stalls=decode_stalls(payload.get("stalls", ())),
        repeats={prefix: Repeat(*counts) for prefix, counts in payload.get("repeats", {}).items()},
        notes=tuple(dict.fromkeys((*notes, *payload.get("notes", ()), *missing))),
        price_per_worker_hour=payload["price"],
        lost_workers=tuple(map(_lost_worker, payload.get("lost_workers", ()))),
        held_for=tuple(starmap(HeldFor, kept.get("rows", ()))),
        held_at_peaks={name: tuple(starmap(HeldFor, rows)) for name, rows in kept.get("workers", {}).items()},
        cluster_peak=kept.get("peak", 0),
        waited_for=_waited_for(payload.get("waited_for", {}), causes_by_worker),
        **same,
        **found,
    )


def _waited_for(seen: Mapping[str, int], causes_by_worker: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Waiting by prefix as seen by the scheduler, at most the workers' idle time for that reason.

    Slots that the scheduler believes to be free may be in use, or gone.
    """
    idle = sum(row.get(_FOR_PARALLELISM, 0) for row in causes_by_worker.values())
    return {prefix: ns for prefix, ns in cap(seen, idle).items() if ns}


def _profiles(payload: Mapping[str, Any]) -> list[tuple[str, str, Callable[[], Any]]]:
    @cache
    def stacks() -> list[Stack]:
        frames = [in_the_script(Frame(*frame)) for frame in payload.get("frames", ())]
        return [tuple(map(frames.__getitem__, stack)) for stack in payload.get("stacks", ())]

    def profile() -> tuple[ProfileRow, ...]:
        rows = payload.get("profile", ())
        return tuple(ProfileRow(bucket, cause, prefix, stacks()[at], ns) for bucket, cause, prefix, at, ns in rows)

    def holders() -> tuple[GilHolder, ...]:
        rows = payload.get("gil_holders", ())
        return tuple(GilHolder(prefix, holder, stacks()[at], ns) for prefix, holder, at, ns in rows)

    def looks() -> tuple[LockLook, ...]:
        rows = payload.get("lock_looks", ())
        return tuple(LockLook(prefix, holder, stacks()[at], n) for prefix, holder, at, n in rows)

    def holds(name: str) -> tuple[LongHold, ...]:
        rows = payload.get(name, ())
        return tuple(LongHold(worker, holder, stacks()[at], ns / 1e9, doing) for worker, ns, holder, at, doing in rows)

    return [
        ("profile", "profile", profile),
        ("gil_holders", "list of who had the GIL", holders),
        ("lock_looks", "list of who held locks", looks),
        ("gil_holds", "list of long holds of the GIL", lambda: holds("gil_holds")),
        ("loop_blocks", "list of blocked event loops", lambda: holds("loop_blocks")),
    ]


def _failure(prefix: str, error: str, frame: Sequence[Any], tasks: int) -> Failure:
    return Failure(prefix, error, place_of(in_the_script(Frame(*frame))), tasks)


def _lost_worker(row: Mapping[str, Any]) -> LostWorker:
    in_threads = tuple(TaskInThread(**task) for task in row.get("in_threads", ()))
    last_memory = tuple(MemorySample(**sample) for sample in row.get("last_memory", ()))
    return LostWorker(**{**row, "in_threads": in_threads, "last_memory": last_memory})


def _timeline(payload: Mapping[str, Any] | None) -> Timeline | None:
    if payload is None:
        return None
    activity = {name: tuple(row) for name, row in payload["activity"].items()}
    causes = {name: tuple(row) for name, row in payload.get("causes", {}).items()}
    return Timeline(payload["bin"], payload["elapsed"], activity, causes)


def _memory_timeline(payload: Mapping[str, Any] | None) -> MemoryTimeline | None:
    if payload is None:
        return None

    def line(row: Mapping[str, Any]) -> MemoryLine:
        bins = {name: tuple(row[name]) for name in ("process", "managed", "spilled")}
        return MemoryLine(row["limit"], **bins, prefixes={name: tuple(each) for name, each in row["prefixes"].items()})

    workers = {name: line(row) for name, row in payload["workers"].items()}
    return MemoryTimeline(**{**payload, "cluster": line(payload["cluster"]), "workers": workers})


def _loop(payload: Mapping[str, Any] | None) -> SchedulerLoop | None:
    if payload is None:
        return None

    def part(row: Mapping[str, Any]) -> LoopPart:
        found = LoopPart(**row)
        return replace(found, file=in_the_script(found.stack[0]).file)

    def block(row: Mapping[str, Any]) -> LoopBlock:
        return LoopBlock(**{**row, "stack": tuple(in_the_script(Frame(*frame)) for frame in row["stack"])})

    read = {"handlers": part, "hooks": part, "blocks": block}
    return SchedulerLoop(**{**payload, **{name: tuple(map(make, payload[name])) for name, make in read.items()}})


def snapshot(client: Client | None = None) -> Any:
    """Accounts of the cluster since the plugin was registered, exact to this instant.

    Parameters
    ----------
    client
        The current client by default.

    Returns
    -------
    EfficiencyReport
        Cumulative accounts; an awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    """
    return sync(client, ask_life)


async def ask_life(caller: Caller) -> EfficiencyReport:
    """Report of the accounts since they began."""
    return life_report(await ask_report(caller, names.LIFE), "snapshot")


async def ask_history(caller: Caller, last: float | None) -> EfficiencyReport:
    """Report in retrospect."""
    payload = await ask_report(caller, names.HISTORY, last=last)
    seconds = payload["window"] / 1e9
    name = "all history" if last is None else f"last {format_number(seconds)} s"
    return report_of(payload, name=name, started=time.time() - seconds)


async def ask_report(caller: Caller, action: str, /, **kwargs: Any) -> dict[str, Any]:
    """Unpacked reply to an action that answers with a report."""
    return await asyncio.to_thread(unpacked, await ask(caller, action, **kwargs))
