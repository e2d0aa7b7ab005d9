"""Questions: what a client asks the scheduler's half, and what it makes of the replies."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

import cloudpickle
import numpy as np
from distributed import Client
from distributed.protocol import Serialize

from dask_efficiency.accounts.finding import Finding
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.plugin import names
from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.replies import report_of, unpacked
from dask_efficiency.runs.recording.recordings import unpack
from dask_efficiency.runs.trace.build import build
from dask_efficiency.runs.trace.run_trace import RunTrace

logger = logging.getLogger("dask_efficiency")

#: Reads of the scheduler's clock, of which the quickest counts.
_CLOCK_READS = 3


class NotRegisteredError(RuntimeError):
    """The plugin is not on that scheduler; says how to put it there."""


class NoAnswerError(OSError):
    """No scheduler answered in time."""


class Caller(Protocol):
    """A client, or who else can call a scheduler's handlers."""

    @property
    def scheduler(self) -> Any:
        """Calls the handler of an attribute's name."""


@dataclass(frozen=True, slots=True)
class Server:
    """Asks a scheduler by a bare connection, without being a client of its."""

    scheduler: Any


async def check_answers(caller: Caller, address: str, *, seconds: float) -> None:
    """Raise NoAnswerError if no scheduler answers at an address, NotRegisteredError if it has no plugin."""
    try:
        clock = await asyncio.wait_for(ask(caller, names.CLOCK), seconds)
    except OSError as error:
        cause = " ".join(str(error.__cause__ or "").split())
        raise NoAnswerError(
            f"no scheduler answered at {address} in {seconds:g} s{f' ({cause})' if cause else ''}; "
            "is it running, and is this its address?"
        ) from error
    if "wall" in clock:  # a worker's half has that action, too
        raise NoAnswerError(f"{address} is a worker; expected the scheduler's address")


async def ask_life(caller: Caller) -> EfficiencyReport:
    """The accounts since they began."""
    payload = await ask_report(caller, names.LIFE)
    return report_of(payload, name="snapshot", started=float(payload["since"]))


async def ask_history(caller: Caller, last: float | None) -> EfficiencyReport:
    """A report in retrospect."""
    payload = await ask_report(caller, names.HISTORY, last=last)
    seconds = payload["window"] / 1e9
    name = "all history" if last is None else f"last {seconds:.3g} s"
    return report_of(payload, name=name, started=time.time() - seconds)


async def ask_trace(caller: Caller) -> RunTrace:
    """What the cluster recorded. Raises RuntimeError if it does not record."""
    payload = await ask(caller, names.TRACE)
    return await asyncio.to_thread(lambda: build(unpack(payload), name="trace"))


async def ask_stragglers(caller: Caller) -> tuple[Finding, ...]:
    """Who is slow now."""
    payload = await ask(caller, names.STRAGGLERS)
    findings = tuple(map(Finding.from_dict, payload["stragglers"]))
    if not (findings and payload["records"]):
        return findings
    try:
        trace = await ask_trace(caller)
    except RuntimeError:  # no longer
        return findings
    return await asyncio.to_thread(with_cost, trace, findings)


async def ask_series(caller: Caller, seconds: float = 900.0) -> MetricSeries:
    """The workers' metrics of the last seconds, as far as the scheduler remembers; see ``worker_series``.

    Raises
    ------
    ValueError
        If ``seconds`` is not a positive number.
    """
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds is {seconds!r}; expected a positive number")
    payload = await ask(caller, names.SERIES, seconds=float(seconds))
    values = payload["values"]
    # Within one process they travel as they are, wrapped.
    values = values.data if isinstance(values, Serialize) else values
    return MetricSeries(
        metrics=tuple(payload["metrics"]),
        workers=tuple(payload["workers"]),
        groups=tuple(payload["groups"]),
        hosts=tuple(payload["hosts"]),
        start=float(payload["start"]),
        step_seconds=float(payload["step_seconds"]),
        values=np.asarray(values, np.float32),
    )


def with_cost(trace: RunTrace, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings with the time that each cost the recorded run, where a replay can say that."""
    from dask_efficiency.runs.stragglers.offline import REPLAYED, REPLAYS, seconds_lost

    there = {name for worker in trace.workers for name in (worker.name, worker.host)}
    known = list(findings)
    for i, finding in enumerate(findings[:REPLAYS]):
        if finding.cause in REPLAYED and (finding.worker or finding.host) in there:
            try:
                known[i] = replace(finding, seconds_lost=seconds_lost(trace, finding))
            except Exception:  # the finding must not be lost with its cost
                logger.exception("dask_efficiency could not replay the run without %r", finding.worker or finding.host)
    return tuple(known)


async def ask(caller: Caller, action: str, /, **kwargs: Any) -> dict[str, Any]:
    """The answer of the scheduler's half to one of its actions.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    """
    reply = await getattr(caller.scheduler, names.OP)(action=action, **kwargs)
    if reply is None:  # upstream's answer to an op that it does not know
        raise NotRegisteredError(
            "dask_efficiency is not on this scheduler; call client.register_plugin(EfficiencyPlugin()) first"
        )
    answer: dict[str, Any] = reply
    return answer


async def ask_report(caller: Caller, action: str, /, **kwargs: Any) -> dict[str, Any]:
    """The same, of an action whose answer a report is made of."""
    return await asyncio.to_thread(unpacked, await ask(caller, action, **kwargs))


async def register(client: Client, plugin: EfficiencyPlugin) -> None:
    """Put the plugin on the client's scheduler.

    Raises
    ------
    NotRegisteredError
        If the scheduler cannot load it.
    """
    try:
        scheduler: Any = client.scheduler
        await scheduler.register_scheduler_plugin(
            plugin=cloudpickle.dumps(plugin), name=EfficiencyPlugin.name, idempotent=False
        )
    except ImportError as error:
        raise NotRegisteredError(
            f"the scheduler cannot load dask_efficiency ({error}): install it where the scheduler runs"
        ) from error


async def clock_offset(caller: Caller) -> int:
    """How far the scheduler's monotonic clock is ahead of ours, in nanoseconds."""
    best = None
    for _ in range(_CLOCK_READS):
        sent = time.monotonic_ns()
        at = (await ask(caller, names.CLOCK))["at"]
        took = time.monotonic_ns() - sent
        if best is None or took < best[0]:
            best = took, at - sent - took // 2
    assert best is not None
    return int(best[1])
