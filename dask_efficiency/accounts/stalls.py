"""StalledWork: work that stands still, as it is found while it does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from dask_efficiency.accounts.checks import listed, seconds, text, whole
from dask_efficiency.accounts.lines import Frame, Stack

#: Kinds, the most certain first: tasks that wait for tasks which find no thread; that wait for a lock of Dask's; that
#: no worker may run; without any worker; on paused workers; on one that is silent, or whose event loop is blocked;
#: whose inputs do not come; and a task that runs far longer than others.
DEADLOCK, LOCK, NO_WORKER, NO_WORKERS = "deadlock", "lock", "no-worker", "no-workers"
PAUSED, SILENT, BLOCKED, FETCH, TASK = "paused", "silent", "event-loop", "fetch", "task"
KINDS = (DEADLOCK, LOCK, NO_WORKER, NO_WORKERS, PAUSED, BLOCKED, SILENT, FETCH, TASK)


@dataclass(frozen=True, slots=True)
class StalledWork:
    """Tasks that stand still for one reason."""

    #: One of :data:`KINDS`.
    kind: str
    #: Number of tasks, and the prefix of most of them.
    tasks: int
    prefix: str
    #: Names of their workers.
    workers: tuple[str, ...] = ()
    #: Seconds so far, and those that such tasks usually take; 0 if unknown.
    seconds: float = 0.0
    usual_seconds: float = 0.0
    #: Cause of waiting, and the line that is blamed, if it is known.
    cause: str = ""
    line: Stack = ()
    #: What is asked for, such as ``"GPU=1"``, the name of a lock, or whom inputs come from; may be empty.
    detail: str = ""

    @property
    def worker(self) -> str:
        """Empty, so that a function for slow workers replaces none of :attr:`workers`."""
        return ""

    @property
    def host(self) -> str:
        """Empty, as :attr:`worker` is."""
        return ""

    @property
    def subject(self) -> str:
        """Kind and prefix, for a log."""
        return f"{self.kind} {self.prefix}".rstrip()


def encode_stalls(stalls: Iterable[StalledWork]) -> list[list[Any]]:
    """Encode as plain data for msgpack."""
    return [list(astuple(stall)) for stall in stalls]


def decode_stalls(payload: object) -> tuple[StalledWork, ...]:
    """Check and read what :func:`encode_stalls` made; raises :class:`RefusedPayload`."""
    found = []
    for row in listed("stalls", payload):
        kind, tasks, prefix, workers, so_far, usual, cause, line, detail = listed("a stall", row, 9)
        found.append(
            StalledWork(
                *(text("kind", kind), whole("tasks", tasks), text("prefix", prefix)),
                workers=tuple(text("worker", name) for name in listed("workers", workers)),
                seconds=seconds("seconds", so_far),
                usual_seconds=seconds("usual_seconds", usual),
                cause=text("cause", cause),
                line=tuple(
                    Frame(text("function", function), text("file", file), whole("line", number))
                    for function, file, number in listed("line", line, 1)
                ),
                detail=text("detail", detail),
            )
        )
    return tuple(found)
