"""ClusterStacks: what every thread of a cluster does now, alike ones together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distributed import Client

from dask_efficiency.accounts.lines import Frame, Stack
from dask_efficiency.accounts.thread_looks import FREE, KINDS, TASK, ThreadLook, decode_looks
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import Caller, ask, sync
from dask_efficiency.show.shown import Printed

if TYPE_CHECKING:
    from dask_efficiency.show.document import Document

#: Threads in an answer; more than a scheduler sends.
MAX_LOOKS = 100_000


@dataclass(frozen=True, slots=True)
class AlikeThreads:
    """Threads that do the same: kind, prefix of their tasks, cause and stack; the longest first.

    Parameters
    ----------
    kind
        ``"task"``, ``"event-loop"``, ``"free"`` (its pool has no task for it) or ``"other"``.
    prefix
        Of their tasks; empty for the other kinds.
    cause
        One of the causes of waiting, ``"computing"``, ``"awaiting"`` (a coroutine); empty if unknown.
    stack
        Frames from the outermost inwards, of a task without Dask's own below it; native ones among them if asked for.
    threads
        Looks at each of them: name of the worker (empty for the scheduler) and of the thread, key and seconds.
    usual_seconds
        Mean of the prefix's tasks that have ended; None without any.
    code
        Source of the innermost line of your own code; empty if unknown, or where reports have no source.
    """

    kind: str
    prefix: str
    cause: str
    stack: Stack
    threads: tuple[ThreadLook, ...]
    usual_seconds: float | None = None
    code: str = ""

    @property
    def seconds(self) -> float:
        """Seconds for which the longest of their tasks has run."""
        return max(look.ns for look in self.threads) / 1e9

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of their workers, each once."""
        return tuple(dict.fromkeys(look.worker for look in self.threads))


@dataclass(frozen=True, slots=True)
class ClusterStacks(Printed):
    """Threads of a cluster at one instant, and what they do.

    Parameters
    ----------
    groups
        Threads that do the same: tasks, the longest first; then event loops, free threads and others.
    workers
        Number of workers that were asked.
    silent
        Workers that did not answer, with the reason.
    not_native
        Workers that gave no native frames, with the reason, if these were asked for.
    more
        Threads that were left out.
    """

    _sections_module = "dask_efficiency.live.stack_sections"

    groups: tuple[AlikeThreads, ...]
    workers: int
    silent: Mapping[str, str] = field(default_factory=dict)
    not_native: Mapping[str, str] = field(default_factory=dict)
    more: int = 0

    @property
    def first_screen(self) -> Document:
        """Document of the longest tasks and of event loops at work, with the innermost frames."""
        found: Document = self._from_sections("first_screen")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found: dict[str, Any] = self._from_sections("to_dict")
        return found


def stacks(
    client: Client | None = None, *, workers: Iterable[str | int] = (), prefix: str = "", native: bool = False
) -> Any:
    """Look at what every thread of a cluster does now: task, since when, cause, line and stack.

    Workers whose event loop is blocked answer too, unless a function of C keeps the GIL or the process is stopped.

    Parameters
    ----------
    client
        The current client by default.
    workers
        Names or addresses of the workers to ask; all, and the scheduler, by default.
    prefix
        Of the tasks to look at, and nothing else.
    native
        With native frames, by py-spy where it is installed on the workers and allowed to look; takes seconds.

    Returns
    -------
    ClusterStacks
        An awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    ValueError
        If there is no such worker.
    """
    return sync(client, ask_stacks, [str(name) for name in workers], prefix, native)


async def ask_stacks(caller: Caller, workers: list[str], prefix: str, native: bool) -> ClusterStacks:
    """Ask what all threads do."""
    reply = await ask(caller, names.STACKS, workers=workers, prefix=prefix, native=native)
    looks, code = decode_looks(reply, MAX_LOOKS)
    return ClusterStacks(
        groups=alike(looks, reply["usual"], code),
        workers=reply["workers"],
        silent=reply["silent"],
        not_native=reply["not_native"],
        more=reply["more"],
    )


def alike(
    looks: Iterable[ThreadLook], usual: Mapping[str, float], code: Mapping[Frame, str]
) -> tuple[AlikeThreads, ...]:
    """Group threads that do the same; of those without a stack, by their names as well."""
    found: dict[tuple[Any, ...], list[ThreadLook]] = {}
    for look in looks:
        nameless = look.kind in (TASK, FREE) or look.stack
        found.setdefault((look.kind, look.prefix, look.cause, look.stack, "" if nameless else look.name), []).append(
            look
        )
    groups = [
        AlikeThreads(
            *(kind, prefix, cause, stack),
            threads=tuple(sorted(of_group, key=lambda look: -look.ns)),
            usual_seconds=usual.get(prefix) if prefix else None,
            code=next((code[frame] for frame in reversed(stack) if frame in code), ""),
        )
        for (kind, prefix, cause, stack, _), of_group in found.items()
    ]
    return tuple(sorted(groups, key=lambda one: (KINDS.index(one.kind), -one.seconds, -len(one.threads))))
