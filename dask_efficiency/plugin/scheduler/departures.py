"""Departures: why a worker left, by upstream's events, the removal's stimulus, its nanny's log, the kernel's count."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Mapping
from signal import Signals
from typing import Any

from distributed.scheduler import TaskState, WorkerState

from dask_efficiency.accounts.checks import listed, seconds, text, whole
from dask_efficiency.accounts.cluster.losses import (
    BY_KERNEL,
    BY_OTHERS,
    FOR_MEMORY,
    MAX_OF_LOSS,
    SIGKILLED,
    Loss,
    TaskInThread,
)
from dask_efficiency.accounts.intake import number
from dask_efficiency.accounts.skew import key_name
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.names import MAX_PATH, OOM_KILLS

#: Topics of upstream's events: of a nanny just before it kills its worker, and of the scheduler itself.
NANNY_KILLS = "worker-restart-memory"
SCHEDULER = "scheduler"
#: Actions of upstream's events: workers were silent for too long; and, with a worker's address as the topic, of the
#: worker as it begins to close, and of the scheduler just before it removes it.
SILENT = "worker-ttl-timed-out"
CLOSING = "closing-worker"
REMOVED = "remove-worker"
#: Lines of a nanny's log that are read; nannies of one process share its log.
LOG_LINES = 200
#: Meaning of a nanny that does not answer.
NANNY_GONE = ": perhaps the host is gone, or a batch system or container ended both"
#: How the scheduler noticed, by stimulus of the removal.
_NOTICED = {
    "handle-worker-cleanup": "its connection broke",
    "nanny-close": "its process ended",
    "check-worker-ttl": "it sent no heartbeat",
}
#: Reasons of workers that the scheduler removed, told so or by the answer to a heartbeat that came after.
_OF_SCHEDULER = ("scheduler-remove-worker", "worker-heartbeat-missing")
#: Number of a signal, or status of a process.
_NUMBER = r"[0-9]{1,10}"
_STAMP = re.compile(r"-\d+(\.\d+)?$")
_SIGNAL = re.compile(rf"signal-({_NUMBER})")


def for_memory(event: Mapping[str, Any], limit: int | None) -> str:
    """Reason of a worker that its nanny kills, from the event just before."""
    rss = event.get("rss")
    if rss is None or not limit:
        return f"{FOR_MEMORY}, for its memory"
    return f"{FOR_MEMORY} at {whole('rss', rss) / limit:.0%} of its memory limit"


def silent(event: Mapping[str, Any]) -> str:
    """Reason of a worker that was silent for too long."""
    ttl = event.get("ttl")
    return "no heartbeat" if ttl is None else f"no heartbeat for {seconds('ttl', ttl):.3g} s"


def on_closing(reason: object) -> str:
    """Reason that a worker gives as it begins to close; empty if only the scheduler knows it."""
    reason = text("reason", "" if reason is None else reason)
    stimulus = _STAMP.sub("", reason)
    if stimulus in _OF_SCHEDULER:
        return ""
    if stimulus == "worker-lifetime-reached":
        return "its lifetime was over"
    number = _SIGNAL.fullmatch(reason)
    if number is not None:
        return f"closed on {_signal(int(number[1]))}"
    return f"closed: {stimulus}" if stimulus else "closed"


def on_removal(stimulus_id: str, *, expected: bool, nanny: bool) -> tuple[str, str]:
    """Reason of a removal, empty if unknown; and how the scheduler noticed."""
    stimulus = _STAMP.sub("", stimulus_id)
    if expected and stimulus.startswith("retire"):
        return "retired", ""
    noticed = _NOTICED.get(stimulus, f"removed: {stimulus}")  # one that closes itself gives its reason afterwards
    return "", noticed if nanny or expected else f"{noticed}; without a nanny, the reason is unknown"


def in_threads(ws: WorkerState, assigned: Collection[TaskState]) -> list[TaskInThread]:
    """Tasks in the threads of a worker that is removed, of those ``assigned`` to it.

    Those that ran at its last heartbeat and have not ended; and as many others as it had threads for, the most urgent
    first, which it may have begun since.
    """
    ran = {ts: number(ws.executing[ts]) or 0.0 for ts in assigned if ts in ws.executing}
    free = min(max(0, ws.nthreads - len(ran)), MAX_OF_LOSS)
    others = heapq.nsmallest(free, (ts for ts in assigned if ts not in ran), key=lambda ts: ts.priority or ())
    found = [*sorted(ran, key=lambda ts: -ran[ts]), *others]
    return [TaskInThread(key_name(ts.key), prefix_of(ts.prefix.name), ran.get(ts)) for ts in found[:MAX_OF_LOSS]]


def in_log(lines: object, pid: int) -> str:
    """End of a process according to its nanny's log, newest line first; empty if the log has nothing on it."""
    ended = re.compile(rf"Worker process {pid} (?:was killed by signal ({_NUMBER})|exited with status ({_NUMBER}))\b")
    for line in listed("a nanny's log", lines):
        message = line[1] if isinstance(line, (list, tuple)) and len(line) > 1 else None
        found = ended.search(message) if isinstance(message, str) else None
        if found is not None:
            number, status = found.groups()
            return f"exited with status {status}" if number is None else f"killed by {_signal(int(number))}"
    return ""


def oom_kills(host: str, payload: object) -> tuple[str, str, int] | None:
    """:attr:`Loss.oom_kills` by the payload of a worker's last heartbeat; None if it has none."""
    match payload.get(OOM_KILLS) if isinstance(payload, Mapping) else None:
        case [str(file), int(kills)] if len(file) <= MAX_PATH:
            return host, file, kills
    return None


def by_kernel(loss: Loss, answer: object, losses: Iterable[Loss]) -> str:
    """Reason of a worker that SIGKILL ended, by its nanny's answer: what its control group has counted now.

    If more workers of the group vanished since its last heartbeat than the kernel has killed, each may have had another
    reason. Those of which it is known that they had are none of them.
    """
    match loss.oom_kills, answer:
        case (host, file, before), {"result": int(kills)} if kills > before:
            others = (one.oom_kills for one in losses if not one.reason or one.reason.endswith(BY_KERNEL))
            died = sum(1 for its in others if its and its[:2] == (host, file) and before <= its[2] < kills)
            return f"{SIGKILLED}, {'' if died <= kills - before else 'probably '}{BY_KERNEL}"
        case (_, _, int()), {"result": int()}:
            return f"{SIGKILLED}, {BY_OTHERS}"
    return SIGKILLED


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
