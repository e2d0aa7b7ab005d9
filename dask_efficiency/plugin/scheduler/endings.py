"""Tasks that failed for good, and tasks that were outstanding at an instant."""

from __future__ import annotations

import pickletools
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from distributed import Scheduler
from distributed.core import Status
from distributed.scheduler import TaskGroup, TaskState

from dask_efficiency.accounts.cluster.failures import KILLED, MAX_ERROR, add_failure
from dask_efficiency.accounts.intake import fitting, number
from dask_efficiency.accounts.lines import NOWHERE, Frame, is_the_users
from dask_efficiency.accounts.rows import MAX_APART, add
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.scheduler.outstanding import spans_of
from dask_efficiency.plugin.scheduler.registration import OpenWindow
from dask_efficiency.plugin.scheduler.spans import is_own

#: Characters that are read of a traceback, from its end, and bytes of the scheduler's own errors. A guess.
MAX_READ = 20_000
#: Tasks without a worker that are compared with paused ones.
MAX_UNRUNNABLE = 1_000
#: Tasks on workers that are looked at to tell where the outstanding ones are: some milliseconds.
MAX_PROCESSING = 10_000
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d{1,9}), in (.+)$', re.MULTILINE)
_CLASS = re.compile(r"[A-Z]\w*(Error|Exception|Worker|Timeout)")
_STATES = ("waiting", "queued", "no-worker", "processing")


def error_of(ts: TaskState, reported: Mapping[str, Any]) -> str:
    """Error of a failed task in words; the scheduler's own errors come as pickles, which are read and not run."""
    text = reported.get("exception_text") or ""
    made = reported.get("exception")
    if not text and isinstance(made, bytes):
        strings = _strings_in(made[:MAX_READ])
        kind = next(filter(_CLASS.fullmatch, strings), "")
        if kind == KILLED:
            return f"{kind} ({ts.suspicious} workers died)"
        said = next((value for value in strings if " " in value), "")
        text = f"{kind}({said!r})" if said else kind
    return fitting(text, MAX_ERROR)


def _strings_in(pickle: bytes) -> list[str]:
    """Strings of a pickle, as far as it is one."""
    found = []
    with suppress(ValueError):
        for _, value, _ in pickletools.genops(pickle):
            if isinstance(value, str):
                found.append(value)
    return found


def frame_of(traceback: str | None) -> Frame:
    """Innermost line of the user's own code in a traceback."""
    found = _FRAME.findall((traceback or "")[-MAX_READ:])
    frames = [Frame(fitting(name), fitting(file), int(line)) for file, line, name in found]
    return next((frame for frame in reversed(frames) if is_the_users(frame.file)), NOWHERE)


class FailureWatch:
    """Counts the tasks that failed for good, of the cluster and in each open window that sent them."""

    def __init__(self, scheduler: Scheduler, failures: dict[Any, int], windows: Mapping[str, OpenWindow]) -> None:
        self._scheduler, self._failures, self._windows = scheduler, failures, windows

    def erred(self, ts: TaskState, reported: Mapping[str, Any]) -> None:
        """Note a task that failed; one that only waited for it is none."""
        if ts.exception_blame is not ts or reported.get("exception") is None:
            return
        prefix, error = prefix_of(ts.prefix.name), error_of(ts, reported)
        frame = frame_of(reported.get("traceback_text"))
        add_failure(self._failures, prefix, error, frame)
        span, spans = ts.group.span_id or "", spans_of(self._scheduler)
        for opened in self._windows.values():
            if not spans or is_own(self._scheduler, opened.spans, span):
                add_failure(opened.failures, prefix, error, frame)


def held_up(scheduler: Scheduler) -> list[dict[str, Any]]:
    """Tasks by prefix that paused workers hold up; of a cluster that goes on, others just have not ended yet."""
    return [{**row, "tasks": sum(row["held_up"].values())} for row in unfinished(scheduler) if row["held_up"]]


def unfinished(scheduler: Scheduler, sent: Mapping[TaskGroup, int] | None = None) -> list[dict[str, Any]]:
    """Outstanding tasks by prefix, as fields of ``report.values.Unfinished``.

    All, or of each group at most as many as were ``sent``: upstream keeps tasks of one name, of any time, in one group.
    """
    tasks: Counter[str] = Counter()
    groups = set(scheduler.task_groups.values() if sent is None else sent)
    for group in groups:
        states: Mapping[str, int] = group.states  # type: ignore[assignment]  # of more than these keys
        outstanding = sum(states[state] for state in _STATES)
        if sent is not None:
            outstanding = min(outstanding, sent[group])
        if outstanding:
            tasks[prefix_of(group.prefix.name) if group.prefix else ""] += outstanding
    rows: dict[str, dict[str, Any]] = {
        prefix: {"prefix": prefix, "tasks": outstanding, "running": {}, "held_up": {}, "seconds": 0.0}
        for prefix, outstanding in tasks.most_common(MAX_APART)
    }
    assigned = ((ws, ts) for ws in list(scheduler.workers.values()) for ts in ws.processing) if rows else ()
    for ws, ts in islice(assigned, MAX_PROCESSING):
        row = rows.get(prefix_of(ts.prefix.name))
        if row is None or ts.group not in groups:
            continue
        seconds = ws.executing.get(ts)
        if seconds is not None:
            row["seconds"] = max(row["seconds"], number(seconds) or 0.0)
            add(row["running"], {fitting(ws.name): 1})
        elif ws.status is Status.paused:
            add(row["held_up"], {fitting(ws.name): 1})
    paused = [ws for ws in scheduler.workers.values() if ws.status is Status.paused] if rows else []
    places = {ws.host: ws for ws in paused} | {ws.address: ws for ws in paused}
    for ts in islice(scheduler.unrunnable, MAX_UNRUNNABLE) if paused else ():
        ties = chain(ts.worker_restrictions or (), ts.host_restrictions or ())
        row, tied_to = rows.get(prefix_of(ts.prefix.name)), next((places[one] for one in ties if one in places), None)
        if row is not None and tied_to is not None and ts.group in groups:
            add(row["held_up"], {fitting(tied_to.name): 1})
    return list(rows.values())
